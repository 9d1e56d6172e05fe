/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The process behind an owner. A pid alone says nothing: it may be of another boot, of another pid namespace,
 * or used again; so a process is killed through a pidfd whose start time was compared after it was opened.
 */
#include "task/process.h"

#include <fcntl.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "kernel/pidfd.h"

/* The 22nd field of /proc/PID/stat; the second, in parentheses, may hold anything. 0: not there. */
static uint64_t start_time(const char *path)
{
	_cleanup_(freep) char *text = NULL;
	char *at;

	if (file_read_text(AT_FDCWD, path, 4096, &text, NULL) < 0)
		return 0;
	at = strrchr(text, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

static uint64_t own_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

void process_self(struct process_identity *ret)
{
	*ret = (struct process_identity){.pid = (uint64_t)getpid(),
		.start = start_time("/proc/self/stat"),
		.pid_namespace = own_namespace()};
	if (gethostname(ret->host, sizeof(ret->host) - 1) < 0)
		ret->host[0] = 0;
}

int process_kill(
	const struct process_identity *who, const char *who_boot, const char *boot, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char path[64];
	int r;

	if (strcmp(who_boot, boot) != 0 || !who->pid || who->pid > INT32_MAX || !who->pid_namespace ||
		who->pid_namespace != own_namespace())
		return error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_TASK, NULL,
			"the owner is in another pid namespace and cannot be killed from here");
	if (who->pid == (uint64_t)getpid())
		return error_set(reterr, ABOX_E_BUSY, ABOX_STAGE_TASK, NULL, "the owner is this process");
	fd = pidfd_new((pid_t)who->pid);
	if (fd < 0)
		return fd == -ESRCH ? 0
				    : error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_TASK, NULL, -fd,
					      "cannot open the owner");
	/* Security: compared after the pidfd was opened, so that a pid used again is never killed. */
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)who->pid);
	if (start_time(path) != who->start)
		return 0;
	r = pidfd_signal(fd, SIGKILL);
	if (r < 0 && r != -ESRCH)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_TASK, NULL, -r, "cannot kill the owner");
	return 0;
}
