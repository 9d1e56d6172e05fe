/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The microVM wall: QEMU in the outer namespaces, and beside it the server of the box's root, which is the same tree that
 * the namespaces wall would have: what is read-only there the host keeps so. The guest is the first program of the
 * machine and talks over a port, which is QEMU's stdin and stdout; console and QEMU itself write to stderr.
 *
 * Security: QEMU has no rights but those of a program in an empty root: no capabilities, its own filter on, no monitor,
 * no devices but those of its command line, no network but the box's cell, whose only way out is egress.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "backend/bridge.h"
#include "backend/outer.h"
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/caps.h"

#define READY_USEC (90 * USEC_PER_SEC)	/* by emulation on a busy machine it takes seconds */
#define TSC_USEC 10000
#define FILES_SOCKET "/files"		/* in the outer root; so it stands on QEMU's command line */
#define INNER_ROOT "/root"		/* in the machine, until it becomes the root there */
#define MAX_WORDS 128

/* What the server of files may do as another of the box's ids, and to drop the rest by itself. */
#define FILES_CAPS                                                                                           \
	(1ULL << 0 /* CHOWN */ | 1ULL << 1 /* DAC_OVERRIDE */ | 1ULL << 3 /* FOWNER */ | 1ULL << 4 /* FSETID */ | \
		CAPS_BIT(CAPS_SETGID) | CAPS_BIT(CAPS_SETUID) | CAPS_BIT(CAPS_SETPCAP) | 1ULL << 18 /* SYS_CHROOT */ | \
		CAPS_BIT(CAPS_MKNOD) | CAPS_BIT(CAPS_SETFCAP))

static char texts[SETUP_MOUNTS][PATH_MAX];
static struct guest_setup setup;
static uint64_t wanted_usec;

/* -- what the guest makes of the tree: what only its own kernel can -- */

static void add_mount(const char *source, const char *target, const char *type, const char *options, uint64_t flags)
{
	setup.mounts[setup.n_mounts++] = (struct setup_mount){ source, target, type, options, flags };
}

static void add_inner(const struct flat_step *step)
{
	static const uint64_t usual = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	char *target = texts[setup.n_mounts];

	snprintf(target, sizeof(texts[0]), INNER_ROOT "%s", step->target);
	switch (step->op) {
	case FLAT_OP_PROC:
		add_mount("proc", target, "proc", "", usual);
		break;
	case FLAT_OP_DEVPTS:
		add_mount("devpts", target, "devpts", "newinstance,ptmxmode=0666,mode=0620", MS_NOSUID | MS_NOEXEC);
		break;
	case FLAT_OP_MQUEUE:
		add_mount("mqueue", target, "mqueue", "", usual);
		break;
	case FLAT_OP_MASK:
		add_mount("", target, SETUP_MASK, "", 0);
		break;
	case FLAT_OP_READONLY:
		add_mount("", target, SETUP_READONLY, "", 0);
		break;
	default:	/* of the kernel's own folders */
		add_mount(step->target, target, "", "", MS_BIND);
		add_mount("", target, SETUP_READONLY, "", 0);
		break;
	}
}

/* The cell is around QEMU, which carries the machine's connections into it. */
static int fill_link(const struct flat_network *network, struct fault *fault)
{
	if (network->mode == FLAT_NETWORK_NONE)
		return 0;
	if (network->n_ports > SETUP_PORTS)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "network", "too many ports");
	setup.link = 1;
	setup.link_v6 = network->cell.v6;
	for (setup.n_ports = 0; setup.n_ports < network->n_ports; setup.n_ports++)
		setup.ports[setup.n_ports] = network->ports[setup.n_ports];
	return 0;
}

static int fill_setup(const struct flat_plan *plan, struct fault *fault)
{
	static uint8_t entropy[SETUP_ENTROPY_BYTES];

	if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy))
		return fault_set(fault, ABOX_E_SYSTEM, errno, "entropy", "there is none to be had");
	setup = (struct guest_setup){ .hostname = plan->hostname, .filter = plan->filter, .filter_len = plan->filter_len,
		.entropy = entropy, .entropy_len = sizeof(entropy), .memory_bytes = plan->limits.memory_bytes, .pids = plan->limits.pids, .own_kernel = 1, .loopback = plan->lo_up,
		.root = INNER_ROOT, .uid = plan->inside_uid, .gid = plan->inside_gid };
	add_mount("files", INNER_ROOT, "virtiofs", "", MS_NOSUID);
	add_mount("sysfs", "/sys", "sysfs", "", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY);
	for (uint32_t i = 0; i < plan->n_steps; i++) {
		if (!(plan->steps[i].attr & FLAT_ATTR_INNER))
			continue;
		if (setup.n_mounts + 2 > SETUP_MOUNTS)
			return fault_set(fault, ABOX_E_LIMIT, 0, plan->steps[i].target, "too many mounts for the guest");
		add_inner(&plan->steps[i]);
	}
	return fill_link(&plan->network, fault);
}

/* -- the clock -- */

/* What the processor's counter runs at. An emulated machine passes it through but has no means to measure it: without
 * being told, its kernel gets stuck in half of all starts. */
static uint64_t tsc_khz(void)
{
#if defined(__x86_64__)
	struct timespec begin, now;
	uint64_t first, last, nsec;

	clock_gettime(CLOCK_MONOTONIC_RAW, &begin);
	first = __builtin_ia32_rdtsc();
	do {
		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		last = __builtin_ia32_rdtsc();
		nsec = (uint64_t)(now.tv_sec - begin.tv_sec) * 1000000000 + (uint64_t)now.tv_nsec - (uint64_t)begin.tv_nsec;
	} while (nsec < TSC_USEC * NSEC_PER_USEC);
	return (last - first) * 1000000 / nsec;
#else
	return 0;
#endif
}

/* The words of the plan, split where an empty one is: server of files, QEMU. The kernel's last word waits for a number. */
static int take_words(const struct flat_plan *plan, const char **files, const char **machine, struct fault *fault)
{
	static const char wanted[] = " tsc_early_khz=";
	static char line[2048];
	const char **list = files;
	size_t n = 0;

	for (size_t i = 0; plan->program && plan->program[i]; i++) {
		const char *word = plan->program[i];
		size_t len = strlen(word);

		if (!word[0] && list == files) {
			list[n] = NULL;
			list = machine;
			n = 0;
			continue;
		}
		if (n + 1 >= MAX_WORDS)
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "its command line is too long");
		if (len >= sizeof(wanted) - 1 && strcmp(word + len - (sizeof(wanted) - 1), wanted) == 0) {
			snprintf(line, sizeof(line), "%s%llu", word, (unsigned long long)tsc_khz());
			word = line;
		}
		list[n++] = word;
	}
	list[n] = NULL;
	if (list == files || !files[0] || !machine[0])
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "it names no machine");
	return 0;
}

/* -- the two programs -- */

static int listen_for_machine(int *retfd, struct fault *fault)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = FILES_SOCKET };
	_cleanup_(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "virtiofsd", "no socket for it");
	*retfd = steal_fd(fd);
	return 0;
}

static int spawn_files(const char **words, int log_fd, struct bridge *bridge, struct fault *fault)
{
	int fd = -EBADF, r;

	r = listen_for_machine(&fd, fault);
	if (r == 0)
		r = caps_keep(FILES_CAPS, true, fault);
	if (r < 0)
		return r;
	bridge->second_pid = bridge_spawn(words, fd, log_fd, log_fd);
	fd_close(fd);
	if (bridge->second_pid < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -bridge->second_pid, "virtiofsd", "cannot start a process");
	return 0;
}

static int run(const struct flat_plan *plan, int scratch_fd, struct fault *fault)
{
	static const char *files[MAX_WORDS], *machine[MAX_WORDS];
	struct bridge bridge = { .name = "qemu", .second_name = "virtiofsd", .stage = "kernel", .scratch_fd = scratch_fd,
		.ready_usec = wanted_usec, .setup = &setup };
	struct bridge_pipes pipes;
	int r;

	r = bridge_start_cell(&bridge, plan, fault);
	if (r == 0)
		r = bridge_make_pipes(&bridge, &pipes, fault);
	if (r == 0)
		r = take_words(plan, files, machine, fault);
	if (r == 0)
		r = fill_setup(plan, fault);
	if (r == 0)
		r = spawn_files(files, pipes.err_fd, &bridge, fault);
	if (r == 0)
		r = caps_drop_all(fault);
	if (r < 0)
		return r;
	setup.wall_usec = clock_wall_usec();
	r = bridge_start(&bridge, machine, &pipes, fault);
	return r < 0 ? r : bridge_run(plan, &bridge, fault);
}

static int start(const struct flat_plan *plan, const struct cgroup_group *group, uint64_t ready_usec,
	struct backend_wall *ret, struct fault *fault)
{
	if (!flat_has_program(plan))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "it names no machine");
	wanted_usec = ready_usec;
	return outer_start(plan, group, run, ret, fault);
}

const struct backend_ops backend_microvm = {
	.name = "microvm",
	.ready_usec = READY_USEC,
	.start = start,
	.join = outer_join,
	.stop = outer_stop,
};
