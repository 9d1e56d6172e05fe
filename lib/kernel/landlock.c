/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Landlock layers. What is promised: a layer denies what its rules do not grant, as far as the ABI of this
 * kernel can tell the accesses apart, and never makes a rename between two granted directories fail. Which
 * places a command may reach is left to the caller.
 */
#include "kernel/landlock.h"

#include <sys/stat.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "kernel/compat.h"

/* What can be granted on a file that is no directory; anything else is refused by the kernel. */
#define FILE_ACCESS                                                                                          \
	(SYS_LANDLOCK_FS_EXECUTE | SYS_LANDLOCK_FS_WRITE_FILE | SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_TRUNCATE | \
		SYS_LANDLOCK_FS_IOCTL_DEV)

static uint64_t handled_by(int abi)
{
	uint64_t handled = (SYS_LANDLOCK_FS_MAKE_SYM << 1) - 1;

	if (abi >= 2)
		handled |= SYS_LANDLOCK_FS_REFER;
	if (abi >= 3)
		handled |= SYS_LANDLOCK_FS_TRUNCATE;
	if (abi >= 5)
		handled |= SYS_LANDLOCK_FS_IOCTL_DEV;
	return handled;
}

static uint64_t rights_of(uint32_t access)
{
	uint64_t rights = 0;

	if (access & LANDLOCK_READ)
		rights |= SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_READ_DIR;
	if (access & LANDLOCK_EXEC)
		rights |= SYS_LANDLOCK_FS_EXECUTE;
	/* No MAKE_CHAR and MAKE_BLOCK: commands have no use for devices of their own. */
	if (access & LANDLOCK_WRITE)
		rights |= SYS_LANDLOCK_FS_WRITE_FILE | SYS_LANDLOCK_FS_REMOVE_DIR |
			  SYS_LANDLOCK_FS_REMOVE_FILE | SYS_LANDLOCK_FS_MAKE_DIR | SYS_LANDLOCK_FS_MAKE_REG |
			  SYS_LANDLOCK_FS_MAKE_SOCK | SYS_LANDLOCK_FS_MAKE_FIFO | SYS_LANDLOCK_FS_MAKE_SYM |
			  SYS_LANDLOCK_FS_REFER | SYS_LANDLOCK_FS_TRUNCATE;
	if (access & LANDLOCK_DEVICE)
		rights |= SYS_LANDLOCK_FS_IOCTL_DEV;
	return rights;
}

static uint64_t scopes_of(uint32_t scopes)
{
	return (scopes & LANDLOCK_SCOPE_SIGNALS ? SYS_LANDLOCK_SCOPE_SIGNAL : 0) |
		(scopes & LANDLOCK_SCOPE_ABSTRACT_SOCKETS ? SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET : 0);
}

int landlock_abi(void)
{
	int abi = sys_landlock_create_ruleset(NULL, 0, SYS_LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? 0 : abi;
}

/* Older kernels refuse a structure with bytes that they do not know unless those are zero. */
static int create(uint64_t handled, uint32_t scopes, int abi, struct fault *fault)
{
	struct sys_landlock_ruleset ruleset = { .handled_access_fs = handled, .scoped = scopes_of(scopes) };
	int fd;

	if (abi < 2)
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0, "landlock",
			abi < 1 ? "this kernel has no Landlock"
				: "Landlock of this kernel (ABI 1) forbids every rename between directories");
	if (scopes && abi < 6)
		return fault_set(fault, ABOX_E_UNSUPPORTED, 0, "landlock",
			"Landlock of this kernel (ABI %d) has no scopes", abi);
	fd = sys_landlock_create_ruleset(&ruleset, sizeof(ruleset), 0);
	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "landlock", "cannot make a Landlock ruleset");
	return fd;
}

static int add_rule(int ruleset_fd, const struct landlock_rule *rule, uint64_t handled, struct fault *fault)
{
	struct sys_landlock_path_beneath beneath = { .allowed_access = rights_of(rule->access) & handled };
	const char *place = rule->path ? rule->path : "landlock";
	_cleanup_(fd_closep) int opened = -EBADF;
	struct stat st;

	if (rule->fd < 0) {
		opened = open(rule->path, O_PATH | O_CLOEXEC);
		if (opened < 0)
			return fault_set(
				fault, ABOX_E_SYSTEM, errno, place, "cannot open '%s' for Landlock", place);
	}
	beneath.parent_fd = rule->fd < 0 ? opened : rule->fd;
	if (fstat(beneath.parent_fd, &st) < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, place, "cannot look at '%s' for Landlock", place);
	if (!S_ISDIR(st.st_mode))
		beneath.allowed_access &= FILE_ACCESS;
	if (beneath.allowed_access == 0)
		return 0;
	if (sys_landlock_add_rule(ruleset_fd, SYS_LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, place, "cannot add '%s' to the Landlock ruleset", place);
	return 0;
}

int landlock_new(const struct landlock_rule *rules, size_t n_rules, uint32_t scopes, int *retruleset_fd,
	struct fault *fault)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int abi = landlock_abi();
	uint64_t handled = handled_by(abi);

	fd = create(handled, scopes, abi, fault);
	if (fd < 0)
		return fd;
	for (size_t i = 0; i < n_rules; i++) {
		int r = add_rule(fd, &rules[i], handled, fault);

		if (r < 0)
			return r;
	}
	*retruleset_fd = steal_fd(fd);
	return 0;
}

int landlock_new_scope(int root_fd, uint32_t scopes, int *retruleset_fd, struct fault *fault)
{
	struct landlock_rule everywhere = { .fd = root_fd, .path = "/", .access = LANDLOCK_WRITE };
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	/* Handles nothing but REFER, which must be granted by every layer. */
	fd = create(SYS_LANDLOCK_FS_REFER, scopes, landlock_abi(), fault);
	if (fd < 0)
		return fd;
	r = add_rule(fd, &everywhere, SYS_LANDLOCK_FS_REFER, fault);
	if (r < 0)
		return r;
	*retruleset_fd = steal_fd(fd);
	return 0;
}

int landlock_restrict(int ruleset_fd, struct fault *fault)
{
	if (sys_landlock_restrict_self(ruleset_fd, 0) < 0)
		return fault_set(
			fault, ABOX_E_SYSTEM, errno, "landlock", "cannot enforce the Landlock ruleset");
	return 0;
}
