/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * execve(2) with the search in PATH, and the reason when it fails. The kernel answers ENOENT for a missing
 * program and for a missing interpreter alike, and EACCES for five different things: people need to know
 * which.
 */
#include "guest/launch.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "kernel/compat.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

static const char *path_of(const char *const *env)
{
	for (size_t i = 0; env[i]; i++) {
		if (strncmp(env[i], "PATH=", 5) == 0)
			return env[i] + 5;
	}
	return DEFAULT_PATH;
}

static bool is_script(const char *file)
{
	char magic[2] = { 0 };
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return false;
	if (read(fd, magic, sizeof(magic)) < 0)
		magic[0] = 0;
	close(fd);
	return magic[0] == '#' && magic[1] == '!';
}

static int explain_access(const char *file, int sys_errno, struct fault *fault)
{
	struct statvfs fs;
	struct stat st;

	if (stat(file, &st) < 0)
		return fault_set(fault, ABOX_E_EXEC_FORMAT, sys_errno, file, "cannot be executed");
	if (S_ISDIR(st.st_mode))
		return fault_set(fault, ABOX_E_EXEC_FORMAT, EISDIR, file, "cannot be executed");
	if (!S_ISREG(st.st_mode))
		return fault_set(fault, ABOX_E_EXEC_FORMAT, sys_errno, file, "is not a regular file");
	if (statvfs(file, &fs) == 0 && (fs.f_flag & ST_NOEXEC))
		return fault_set(
			fault, ABOX_E_EXEC_FORMAT, sys_errno, file, "lies on a mount without exec (noexec)");
	if (access(file, X_OK) < 0)
		return fault_set(fault, ABOX_E_EXEC_FORMAT, sys_errno, file, "is not executable");
	if (is_script(file))
		return fault_set(fault, ABOX_E_EXEC_INTERPRETER, sys_errno, file,
			"its interpreter cannot be executed");
	return fault_set(
		fault, ABOX_E_EXEC_FORMAT, sys_errno, file, "may not be executed by the policy of the box");
}

static int explain(const char *file, int sys_errno, struct fault *fault)
{
	switch (sys_errno) {
	case ENOENT:
	case ENOTDIR:
		if (access(file, F_OK) == 0)
			return fault_set(fault, ABOX_E_EXEC_INTERPRETER, sys_errno, file,
				"is there, but its interpreter or loader is missing");
		return fault_set(fault, ABOX_E_EXEC_NOT_FOUND, sys_errno, file, "not found");
	case ELOOP:
	case ENAMETOOLONG:
		return fault_set(fault, ABOX_E_EXEC_NOT_FOUND, sys_errno, file, "not found");
	case EACCES:
	case EPERM:
		return explain_access(file, sys_errno, fault);
	case ENOEXEC:
	case EISDIR:
	case EINVAL:
		return fault_set(
			fault, ABOX_E_EXEC_FORMAT, sys_errno, file, "is not a program for this machine");
	case ELIBBAD:
		return fault_set(
			fault, ABOX_E_EXEC_INTERPRETER, sys_errno, file, "its interpreter is not a program");
	case E2BIG:
		return fault_set(
			fault, ABOX_E_LIMIT, sys_errno, file, "arguments and environment are too long");
	case EAGAIN:
		return fault_set(fault, ABOX_E_LIMIT, sys_errno, file, "no process is left of the limit");
	case ETXTBSY:
		return fault_set(fault, ABOX_E_BUSY, sys_errno, file, "is being written");
	default:
		return fault_set(fault, ABOX_E_SYSTEM, sys_errno, file, "cannot be executed");
	}
}

/* What became of one candidate: 0 to go on, or the code of a final answer. An unusable file is remembered. */
static int try_candidate(const char *file, const char *const *argv, const char *const *env, char *denied,
	struct fault *fault)
{
	struct stat st;
	int failed;

	execve(file, (char *const *)argv, (char *const *)env);
	failed = errno;
	if (failed == ENOENT || failed == ENOTDIR)
		return access(file, F_OK) == 0 ? explain(file, ENOENT, fault) : 0;
	if (failed != EACCES)
		return explain(file, failed, fault);
	/* a folder of that name is no program, and a folder that may not be searched has none */
	if (!denied[0] && stat(file, &st) == 0 && !S_ISDIR(st.st_mode))
		memcpy(denied, file, strlen(file) + 1);
	return 0;
}

/* Tries every folder of PATH. As shells do, a file that may not be executed is remembered and the search goes
 * on. */
static int search(const char *const *argv, const char *const *env, struct fault *fault)
{
	const char *path = path_of(env), *end;
	char file[PATH_MAX], denied[PATH_MAX] = "";
	size_t name_len = strlen(argv[0]);

	for (;; path = end + 1) {
		size_t len;
		int r;

		end = strchrnul(path, ':');
		len = (size_t)(end - path);
		if (len + 1 + name_len + 1 <= sizeof(file)) {
			memcpy(file, path, len);
			if (len > 0)
				file[len++] = '/';
			memcpy(file + len, argv[0], name_len + 1);
			r = try_candidate(file, argv, env, denied, fault);
			if (r < 0)
				return r;
		}
		if (!*end)
			break;
	}
	if (denied[0])
		return explain(denied, EACCES, fault);
	return fault_set(fault, ABOX_E_EXEC_NOT_FOUND, ENOENT, argv[0], "not found in PATH of the box");
}

int launch_exec(const char *const *argv, const char *const *env, struct fault *fault)
{
	if (!argv[0][0])
		return fault_set(fault, ABOX_E_EXEC_NOT_FOUND, ENOENT, "argv", "the program has no name");
	if (!strchr(argv[0], '/'))
		return search(argv, env, fault);
	execve(argv[0], (char *const *)argv, (char *const *)env);
	return explain(argv[0], errno, fault);
}
