/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Facts about the host. What is promised: a fact that is true was tried or read just now; what could not be
 * found out is false, so that a plan promises too little rather than too much. What follows from the facts is
 * the plan's.
 */
#include "probe/facts.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "kernel/caps.h"
#include "kernel/compat.h"
#include "kernel/landlock.h"
#include "kernel/mount.h"
#include "probe/trial.h"

#define MAX_TEXT (1 << 20)
#define SUBIDS_WANTED 65536

static void read_kernel(struct host_facts *facts)
{
	struct utsname name;
	unsigned int major, minor;

	if (uname(&name) < 0)
		return;
	snprintf(facts->release, sizeof(facts->release), "%.64s", name.release);
	snprintf(facts->arch, sizeof(facts->arch), "%.15s", name.machine);
	if (sscanf(name.release, "%u.%u", &major, &minor) == 2) {
		facts->version_major = major;
		facts->version_minor = minor;
	}
}

/* Security: a file that could not be read for lack of memory is not one that says nothing: the box would get
 * less than this host can give, as an id of root's own instead of a high one. It is told once, at the end. */
static int read_text(struct host_facts *facts, const char *path, char **rettext)
{
	int r = file_read_text(AT_FDCWD, path, MAX_TEXT, rettext, NULL);

	if (r == -ENOMEM)
		facts->no_memory = true;
	return r;
}

/* The last id that is mapped without a gap from 0; the initial namespace has them all. */
static uint64_t ids_from_zero(struct host_facts *facts, const char *file)
{
	_cleanup_(freep) char *text = NULL;
	unsigned long long inside, outside, count;

	if (read_text(facts, file, &text) < 0 ||
		sscanf(text, "%llu %llu %llu", &inside, &outside, &count) != 3)
		return 0;
	return inside == 0 ? count : 0;
}

static void read_identity(struct host_facts *facts)
{
	const uint64_t needed = CAPS_BIT(CAPS_SYS_ADMIN) | CAPS_BIT(CAPS_SETUID) | CAPS_BIT(CAPS_SETGID);
	struct caps caps;

	facts->uid = geteuid();
	facts->gid = getegid();
	if (caps_read(&caps) == 0)
		facts->caps = caps.effective;
	facts->is_root = facts->uid == 0 && (facts->caps & needed) == needed;
	facts->in_userns = ids_from_zero(facts, "/proc/self/uid_map") != UINT32_MAX ||
			   ids_from_zero(facts, "/proc/self/gid_map") != UINT32_MAX;
}

static bool has_outer_filter(struct host_facts *facts)
{
	_cleanup_(freep) char *text = NULL;
	const char *line;

	if (read_text(facts, "/proc/self/status", &text) < 0)
		return false;
	line = strstr(text, "\nSeccomp:");
	return line && strtol(line + 9, NULL, 10) != 0;
}

static void read_calls(struct host_facts *facts)
{
	const struct sys_open_how how = { .flags = O_PATH | O_CLOEXEC };
	const uint32_t errno_action = 0x00050000;
	int fd;

	fd = sys_openat2(AT_FDCWD, "/", &how);
	facts->openat2 = fd >= 0;
	fd_close(fd);
	facts->landlock_abi = landlock_abi();
	facts->seccomp = syscall(SYS_seccomp, 2 /* SECCOMP_GET_ACTION_AVAIL */, 0, &errno_action) == 0;
	facts->outer_seccomp = has_outer_filter(facts);
	facts->time_ns = access("/proc/self/ns/time", F_OK) == 0;
}

/* The first range of /etc/subuid that is large enough: lines of name:start:count, where the name may be a
 * number. */
static bool find_subids(struct host_facts *facts, const char *file, const char *user, struct id_range *ret)
{
	_cleanup_(freep) char *text = NULL;
	char number[16], *line, *state;

	if (read_text(facts, file, &text) < 0)
		return false;
	snprintf(number, sizeof(number), "%u", facts->uid);
	for (line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		char *colon = strchr(line, ':');
		unsigned long start, count;

		if (!colon || sscanf(colon + 1, "%lu:%lu", &start, &count) != 2)
			continue;
		*colon = 0;
		if ((strcmp(line, user) != 0 && strcmp(line, number) != 0) || count < SUBIDS_WANTED ||
			start > UINT32_MAX - count)
			continue;
		*ret = (struct id_range){ .inside = 0, .outside = (uint32_t)start, .count = (uint32_t)count };
		return true;
	}
	return false;
}

static bool has_subids(struct host_facts *facts)
{
	struct passwd entry, *found = NULL;
	char buffer[4096];
	int r;

	/* The look-up of the name may ask a directory server: only where it can be of use. */
	if (access("/etc/subuid", R_OK) < 0 || !userns_has_tools())
		return false;
	r = getpwuid_r(facts->uid, &entry, buffer, sizeof(buffer), &found);
	if (r != 0)
		found = NULL;
	if (r == ENOMEM)
		facts->no_memory = true;
	return find_subids(facts, "/etc/subuid", found ? found->pw_name : "", &facts->subuid) &&
		find_subids(facts, "/etc/subgid", found ? found->pw_name : "", &facts->subgid);
}

static void read_mapping(struct host_facts *facts)
{
	if (!facts->namespaces)
		facts->userns = USERNS_NONE;
	else if (facts->is_root && !facts->in_userns)
		facts->userns = USERNS_ROOT;
	else if (!facts->is_root && has_subids(facts))
		facts->userns = USERNS_TOOLS;
	else
		facts->userns = USERNS_SINGLE;
}

static void block(struct host_facts *facts, const char *blocker, const char *remedy)
{
	if (facts->blocker[0])
		return;
	snprintf(facts->blocker, sizeof(facts->blocker), "%s", blocker);
	snprintf(facts->remedy, sizeof(facts->remedy), "%s", remedy);
}

static bool knob_is(struct host_facts *facts, const char *path, long value)
{
	_cleanup_(freep) char *text = NULL;

	return read_text(facts, path, &text) == 0 && strtol(text, NULL, 10) == value;
}

/* /proc/sys/user/max_KIND_namespaces = 0 is how an administrator switches a kind off. */
static bool explain_limits(struct host_facts *facts)
{
	static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };

	for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
		char path[64], blocker[128], remedy[128];

		snprintf(path, sizeof(path), "/proc/sys/user/max_%s_namespaces", kinds[i]);
		if (!knob_is(facts, path, 0))
			continue;
		snprintf(blocker, sizeof(blocker),
			"user.max_%s_namespaces is 0: this kind of namespace is switched off", kinds[i]);
		snprintf(remedy, sizeof(remedy), "sysctl -w user.max_%s_namespaces=15000", kinds[i]);
		block(facts, blocker, remedy);
		return true;
	}
	return false;
}

static void explain_clone(struct host_facts *facts, int error)
{
	char text[128];

	if (explain_limits(facts))
		return;
	if (knob_is(facts, "/proc/sys/kernel/unprivileged_userns_clone", 0) && !facts->is_root)
		block(facts,
			"kernel.unprivileged_userns_clone is 0: plain users may not make user namespaces",
			"sysctl -w kernel.unprivileged_userns_clone=1");
	else if (error == ENOSPC || error == EUSERS)
		block(facts, "the number of namespaces, or their nesting, has reached its limit",
			"raise the user.max_*_namespaces sysctls, or do not nest so deep");
	else if (error == EPERM && facts->outer_seccomp)
		block(facts,
			"a system call filter around this process forbids new namespaces, as container "
			"runtimes set it",
			"start the container with --security-opt seccomp=unconfined or a profile that allows "
			"clone and unshare");
	else if (error == EPERM)
		block(facts,
			"new user namespaces are not permitted here (inside a chroot, or by a security "
			"module)",
			"start outside of the chroot, or have the security module allow user namespaces");
	else if (error == EINVAL)
		block(facts, "this kernel is built without one of the namespaces that are needed",
			"use a kernel with USER_NS, PID_NS, NET_NS, IPC_NS, UTS_NS and CGROUPS");
	snprintf(text, sizeof(text), "new namespaces cannot be made: %s", strerror(error));
	block(facts, text, "");
}

static void explain_after_clone(struct host_facts *facts, const struct trial *trial)
{
	int error = trial->map > 0 ? trial->map : trial->mount;
	char text[128];

	/* Ubuntu's restriction lets the namespace come about, but gives it no capabilities. */
	if (knob_is(facts, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1) && !facts->is_root)
		block(facts, "AppArmor gives user namespaces of plain users no capabilities "
			"(kernel.apparmor_restrict_unprivileged_userns is 1)",
			"install an AppArmor profile with `userns,` for the program, or "
			"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
	/* Since Linux 5.12, so that no file of root can be given capabilities from below. */
	else if (trial->map > 0 && error == EPERM && facts->uid == 0 && !(facts->caps & CAPS_BIT(CAPS_SETFCAP)))
		block(facts,
			"root may not be mapped into a new user namespace without CAP_SETFCAP",
			"run as a plain user, or start the container with --cap-add SETFCAP");
	else if (trial->map > 0 && error == EPERM)
		block(facts,
			"the ids of this process cannot be mapped: its own user namespace does not know them",
			"run as a user that is mapped in this container");
	else if (error == ENOSYS)
		block(facts,
			"the mount calls of Linux 5.2 and later are missing (old kernel, or an outer system "
			"call filter)",
			"use Linux 5.15 or later, or allow fsopen, fsmount, open_tree, move_mount and "
			"mount_setattr");
	else if (error == EACCES || (error == EPERM && !facts->outer_seccomp))
		block(facts,
			"a security module forbids mounting in a new user namespace, as container runtimes "
			"set it",
			"start the container with --security-opt apparmor=unconfined, or the like for "
			"SELinux");
	else if (error == EPERM)
		block(facts,
			"a system call filter around this process forbids mounting, as container runtimes "
			"set it",
			"start the container with --security-opt seccomp=unconfined or with CAP_SYS_ADMIN");
	snprintf(text, sizeof(text), "a new user namespace cannot %s: %s",
		trial->map > 0 ? "be mapped" : "mount", strerror(error));
	block(facts, text, "");
}

static void judge(struct host_facts *facts, const struct trial *trial)
{
	facts->namespaces = trial->clone == 0 && trial->map == 0 && access("/proc/self/ns/net", F_OK) == 0 &&
		!knob_is(facts, "/proc/sys/user/max_net_namespaces", 0);
	facts->new_mount_api = trial->mount == 0 && trial->setattr == 0;
	facts->proc_mount = trial->proc == 0;
	facts->overlay = trial->overlay == 0;
	facts->overlay_fd = facts->overlay && trial->overlay_fd == 0;
	facts->mount_beneath = trial->mount_beneath == 0;
	facts->tmpfs_xattr = trial->tmpfs_xattr == 0;
	facts->idmap = facts->is_root && trial->setattr == 0;
	if (trial->clone != 0)
		explain_clone(facts, trial->clone);
	else if (!facts->namespaces && trial->map == 0 && !explain_limits(facts))
		block(facts, "this kernel is built without network namespaces", "use a kernel with NET_NS");
	else if (trial->map != 0 || trial->mount != 0)
		explain_after_clone(facts, trial);
	else if (!facts->proc_mount)
		block(facts,
			"the host masks parts of its own /proc, as container runtimes do, so a box cannot "
			"have one",
			"start the container with --security-opt systempaths=unconfined, or --privileged");
	else if (!facts->seccomp)
		block(facts, "this kernel has no system call filters", "use a kernel with SECCOMP_FILTER");
}

/* Without a verdict to take it from, or where none is known yet, by trying. */
static int try_or_recall(struct trial *ret, struct verdict *verdict)
{
	int r;

	if (verdict && verdict->known) {
		*ret = verdict->trial;
		return 0;
	}
	r = trial_run(ret);
	if (r == 0 && verdict) {
		verdict->trial = *ret;
		verdict->changed = true;
	}
	return r;
}

static int read_all(struct host_facts *ret, struct verdict *verdict, abox_error **reterr)
{
	struct host_facts facts;
	struct trial trial;
	int r;

	memset(&facts, 0, sizeof(facts));
	read_kernel(&facts);
	read_identity(&facts);
	read_calls(&facts);
	r = try_or_recall(&trial, verdict);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_PROBE, "trial", -r, "cannot try namespaces");
	judge(&facts, &trial);
	read_mapping(&facts);
	if (cgroup_detect(&facts.cgroup) < 0 || facts.no_memory)
		return ABOX_E_MEMORY;
	/* Scope and group are equally sound. The scope costs a command nothing, a group a folder and a slower clone, and its
	 * commands cannot inherit the filter from their shepherd (which then has no clone3). */
	if (facts.landlock_abi >= 6)
		facts.kill = KILL_SCOPE;
	else
		facts.kill = facts.cgroup.tree_dir[0] && facts.cgroup.has_kill ? KILL_CGROUP2 : KILL_PIDNS;
	*ret = facts;
	return 0;
}

int host_facts_read(struct host_facts *ret, abox_error **reterr)
{
	return read_all(ret, NULL, reterr);
}

int host_facts_recall(struct host_facts *ret, struct verdict *verdict, abox_error **reterr)
{
	verdict_recall(verdict);
	return read_all(ret, verdict, reterr);
}

static bool try_idmap(int dir_fd)
{
	const struct id_range map = { .inside = 0, .outside = 1, .count = 1 };
	_cleanup_(fd_closep) int userns_fd = -EBADF, mount_fd = -EBADF;

	return userns_new_idmap(&map, 1, &map, 1, &userns_fd, NULL) == 0 &&
		mount_clone(dir_fd, "", 0, "trial", &mount_fd, NULL) == 0 &&
		mount_idmap(mount_fd, userns_fd, 0, "trial", NULL) == 0;
}

bool host_facts_can_idmap(int dir_fd, struct verdict *verdict)
{
	uint64_t id = verdict_mount_id(dir_fd);

	for (size_t i = 0; id && i < verdict->n_idmaps; i++)
		if (verdict->idmaps[i] == id)
			return true;
	if (!try_idmap(dir_fd))
		return false;
	if (id && verdict->n_idmaps < VERDICT_IDMAPS) {
		verdict->idmaps[verdict->n_idmaps++] = id;
		verdict->changed = true;
	}
	return true;
}
