/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The first moments of a virtual machine. Promises that whatever goes wrong stands on the console, since nobody else can
 * be told yet.
 */
#include "guest/boot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/macro.h"
#include "guest/guest.h"

#define MODULES "/modules"
#define COMPRESSED_FILE 4	/* MODULE_INIT_COMPRESSED_FILE */
#define PORT_MSEC 10000
#define UNLISTED_MSEC 5

static int tell_fd = -EBADF;

void boot_tell_at(int fd)
{
	tell_fd = fd_move_above(fd, GUEST_FD_FREE);
}

void boot_tell(const char *stage)
{
	dprintf(tell_fd, BOOT_STAGE "%s\n", stage);
}

void boot_tell_end(void)
{
	tell_fd = fd_close(tell_fd);
}

_noreturn_ static void boot_die(const char *what)
{
	dprintf(tell_fd, BOOT_FAULT "%s: %s\n", what, strerror(errno));
	_exit(1);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static void load_modules(void)
{
	struct dirent **entries;
	int n = scandir(MODULES, &entries, NULL, by_name);

	if (n < 0)
		boot_die(MODULES);
	for (int i = 0; i < n; i++) {
		char path[NAME_MAX + sizeof(MODULES) + 1];
		int fd, flags = ends_with(entries[i]->d_name, ".ko") ? 0 : COMPRESSED_FILE;

		if (entries[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), MODULES "/%s", entries[i]->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || (syscall(SYS_finit_module, fd, "", flags) < 0 && errno != EEXIST))
			boot_die(path);
		fd_close(fd);
		unlink(path);	/* it is memory of the box */
		free(entries[i]);
	}
	free(entries);
}

/* Ports come up a moment after their driver. The kernel makes the node of one before it lists it as open to anybody:
 * whoever is quicker is told ENXIO, and no event says when that is over. */
static int wait_for(const char *path)
{
	_cleanup_(fd_closep) int watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), PORT_MSEC * 1000ULL), now;
	struct pollfd entry = { .fd = watch_fd, .events = POLLIN };
	char events[1024];

	if (watch_fd < 0 || inotify_add_watch(watch_fd, "/dev", IN_CREATE | IN_ATTRIB) < 0)
		boot_die("/dev");
	for (;;) {
		int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);

		if (fd >= 0)
			return fd;
		now = clock_monotonic_usec();
		if (now >= deadline)
			boot_die(path);
		poll(&entry, 1, errno == ENXIO ? UNLISTED_MSEC : clock_poll_msec(now, deadline));
		while (read(watch_fd, events, sizeof(events)) > 0)
			;
	}
}

void boot_start(void)
{
	mkdir("/dev", 0755);
	if (mount("dev", "/dev", "devtmpfs", MS_NOSUID | MS_NOEXEC, NULL) < 0)
		boot_die("/dev");
	for (int i = 0; i < 3; i++) {
		if (open("/dev/null", O_RDWR | O_NOCTTY) < 0)
			boot_die("/dev/null");
	}
	boot_tell_at(open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC));
	boot_tell("modules");
	load_modules();
	boot_tell("port");
}

int boot_open_port(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/dev/%.32s", name);
	return wait_for(path);
}
