/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The user's terminal: raw while a command has a terminal of its own, and as it was on every way out. A process in a
 * background group must not touch it: the kernel answers with SIGTTOU, and a program that ignores that either spins or
 * changes the mode under the user's other job. So each change asks first whether the terminal is ours.
 */
#include "terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t raw_fd_plus_one;	/* 0: not raw */

bool terminal_is_ours(int fd)
{
	return isatty(fd) && tcgetpgrp(fd) == getpgrp();
}

bool terminal_size(int fd, uint32_t *retrows, uint32_t *retcolumns)
{
	struct winsize size;

	if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
		return false;
	*retrows = size.ws_row;
	*retcolumns = size.ws_col;
	return true;
}

bool terminal_is_raw(void)
{
	return raw_fd_plus_one > 0;
}

void terminal_restore(void)
{
	int fd = raw_fd_plus_one - 1;

	raw_fd_plus_one = 0;
	if (fd >= 0 && tcgetpgrp(fd) == getpgrp())
		tcsetattr(fd, TCSADRAIN, &saved);
}

static void on_crash(int signal_number)
{
	terminal_restore();
	raise(signal_number);	/* SA_RESETHAND: this one has its default effect */
}

int terminal_make_raw(int fd)
{
	static const int crashes[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS };
	static bool prepared;
	struct sigaction action = { .sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND | SA_NODEFER };
	struct termios raw;

	if (!terminal_is_ours(fd))
		return -ENOTTY;
	if (!prepared) {
		if (tcgetattr(fd, &saved) < 0)
			return -errno;
		atexit(terminal_restore);
		for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
			sigaction(crashes[i], &action, NULL);
		prepared = true;
	}
	raw = saved;
	cfmakeraw(&raw);
	raw_fd_plus_one = fd + 1;
	if (tcsetattr(fd, TCSADRAIN, &raw) < 0) {
		raw_fd_plus_one = 0;
		return -errno;
	}
	return 0;
}
