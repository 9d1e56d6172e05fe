/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_CONSOLE_H
#define CLI_CONSOLE_H

#include "cli.h"

/* One command as its user sees it: streams, terminal, signals, until it has ended or the user has let go. */
struct console {
	const struct cli_settings *settings;
	abox_sandbox *box;		/* borrowed */
	char *const *argv;		/* for console_start() */
	abox_command *command;		/* owned */
	bool pty;
	bool input;			/* our standard input goes to the command */
	bool spooled;			/* output is read from the spool, from the cursor on */
	bool detachable;		/* the detach key lets go */
	bool captured;			/* output is kept for the answer (--json) */
	uint64_t cursor;

	/* set by console_follow() */
	abox_result *result;		/* owned */
	bool detached;
	bool broken_pipe;
	bool canceled;			/* by a signal to us */
};

void console_prepare_signals(void);	/* once, before any thread is there */
int console_start(struct console *console, abox_error **reterr);
/* Returns 0 when the command has ended (result is set) or was let go (detached is set), or a code of the library. */
int console_follow(struct console *console, abox_error **reterr);
void console_clear(struct console *console);
int console_exit_code(const struct console *console);

/* relay.c: threads that move bytes between the spool or the terminal and our descriptors, on connections of their own */
struct relay;
int relay_output_start(const char *sandbox, uint32_t command, int stream, uint64_t cursor, int fd, bool follow, bool safe,
	struct relay **ret);
int relay_input_start(const char *sandbox, uint32_t command, int fd, bool detachable, struct relay **ret);
int relay_get_fd(const struct relay *relay);	/* readable when it has ended */
bool relay_wait(struct relay *relay, int timeout_msec);	/* true when it has ended */
int relay_get_errno(const struct relay *relay);	/* of writing to our descriptor; EPIPE for a reader that left */
int relay_get_code(const struct relay *relay);	/* of the library, 0 when none */
bool relay_detach_asked(const struct relay *relay);
struct relay *relay_forget(struct relay *relay);	/* frees it when it has ended, else leaves it to the end of the program */

#endif
