/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Console: one command as its user sees it. Without a terminal of its own the library copies the streams while we
 * wait; with one, relays read the spool and write the input. The box never gets a descriptor of ours: output is
 * copied, so no program inside can reach the user's terminal with an ioctl.
 */
#include "console.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "terminal.h"

#define DRAIN_MSEC 2000		/* for what is still in the spool when the command has ended */

static int signal_fd = -1;

void console_prepare_signals(void)
{
	static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGCONT };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		struct sigaction action;

		/* nohup(1) and `cmd &` of a plain shell have some ignored on purpose: they stay so. */
		if (sigaction(taken[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&set, taken[i]);
	}
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void choose_streams(struct console *console, struct abox_command_options *options)
{
	const struct cli_settings *settings = console->settings;
	bool background_tty = isatty(STDIN_FILENO) && !terminal_is_ours(STDIN_FILENO);

	console->pty = settings->tty;
	options->pty = settings->tty;
	console->captured = settings->json && !settings->tty && !settings->detach;
	console->spooled = settings->detach || settings->tty;
	/* The library would read the terminal for us and we would be stopped; relays look before they read. */
	console->input = settings->interactive && !settings->detach && (settings->tty || !background_tty);
	if (console->input && !settings->tty) {
		options->stdin_mode = ABOX_STDIN_COPY;
		options->stdin_fd = STDIN_FILENO;
	}
	if (settings->interactive && settings->detach)
		options->stdin_mode = ABOX_STDIN_STREAM;
	options->stdout_mode = console->spooled ? ABOX_STREAM_SPOOL : console->captured ? ABOX_STREAM_CAPTURE : ABOX_STREAM_COPY;
	options->stderr_mode = options->stdout_mode;
	options->stdout_fd = STDOUT_FILENO;
	options->stderr_fd = STDERR_FILENO;
	if (options->pty && !terminal_size(STDIN_FILENO, &options->pty_rows, &options->pty_columns))
		terminal_size(STDOUT_FILENO, &options->pty_rows, &options->pty_columns);
}

int console_start(struct console *console, abox_error **reterr)
{
	const struct cli_settings *settings = console->settings;
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT };

	options.argv = (const char *const *)console->argv;
	options.env = (const char *const *)settings->env;
	options.cwd = settings->cwd;
	options.user = settings->user;
	options.token = settings->token;
	if (settings->timeout && !parse_duration(settings->timeout, &options.timeout_usec)) {
		say("--timeout %s: write it as 90s, 5m, 2h or 500ms", settings->timeout);
		return ABOX_E_INVALID;
	}
	choose_streams(console, &options);
	return abox_command_start(console->box, &options, &console->command, reterr);
}

/* The first one is the command's to answer; whoever asks twice wants it gone. */
static void take_signals(struct console *console)
{
	struct signalfd_siginfo info;
	uint32_t rows, columns;

	while (read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGWINCH:
			if (console->pty && (terminal_size(STDIN_FILENO, &rows, &columns)
					     || terminal_size(STDOUT_FILENO, &rows, &columns)))
				abox_command_resize(console->command, rows, columns, NULL);
			break;
		case SIGCONT:
			if (console->pty && console->input && terminal_is_ours(STDIN_FILENO))
				terminal_make_raw(STDIN_FILENO);
			break;
		default:
			if (console->canceled)
				abox_command_kill(console->command, 0, NULL);
			else
				abox_command_signal(console->command, (int)info.ssi_signo, NULL);
			console->canceled = true;
			break;
		}
	}
}

static void break_pipe(struct console *console)
{
	if (console->broken_pipe)
		return;
	console->broken_pipe = true;
	abox_command_kill(console->command, 0, NULL);
}

struct relays {
	struct relay *output;
	struct relay *errors;
	struct relay *input;
};

static int start_relays(struct console *console, struct relays *relays)
{
	const char *id = abox_sandbox_get_id(console->box);
	uint32_t number = abox_command_get_id(console->command);
	/* Attaching shows what somebody else started: without a terminal of its own it must not drive ours. */
	bool safe = !console->pty && !console->settings->raw && isatty(STDOUT_FILENO);
	int r = 0;

	if (console->spooled)
		r = relay_output_start(id, number, 1, console->cursor, STDOUT_FILENO, true, safe, &relays->output);
	if (r >= 0 && console->spooled && !console->pty)
		r = relay_output_start(id, number, 2, 0, STDERR_FILENO, true, safe, &relays->errors);
	if (r >= 0 && console->input && console->spooled) {
		if (console->pty && terminal_is_ours(STDIN_FILENO))
			terminal_make_raw(STDIN_FILENO);
		r = relay_input_start(id, number, STDIN_FILENO, console->detachable, &relays->input);
	}
	return r;
}

/* Looks at one round of events. Returns 1 when the command has ended, 2 when it was let go, 0 to go on, or a code. */
static int take_events(struct console *console, struct relays *relays, struct pollfd *fds, abox_error **reterr)
{
	int r;

	if (fds[1].revents)
		take_signals(console);
	/* POLLERR on the writing end of a pipe: its reader has gone. */
	if ((fds[2].revents | fds[3].revents) & (POLLERR | POLLHUP))
		break_pipe(console);
	if (relays->output && relay_wait(relays->output, 0) && relay_get_errno(relays->output))
		break_pipe(console);
	if (fds[5].revents) {
		if (relay_detach_asked(relays->input))
			return 2;
		relays->input = relay_forget(relays->input);
	}
	r = abox_command_process(console->command, reterr);
	if (r < 0 && console->broken_pipe) {
		if (reterr && *reterr)
			*reterr = abox_error_free(*reterr);
		return 0;
	}
	return r;
}

static int follow_until_end(struct console *console, struct relays *relays, abox_error **reterr)
{
	int r = 0;

	while (r == 0) {
		struct pollfd fds[] = {
			{ .fd = abox_command_get_fd(console->command), .events = POLLIN },
			{ .fd = signal_fd, .events = POLLIN },
			{ .fd = console->broken_pipe || console->captured ? -1 : STDOUT_FILENO },
			{ .fd = console->broken_pipe || console->captured || console->spooled ? -1 : STDERR_FILENO },
			{ .fd = relays->output && !console->broken_pipe ? relay_get_fd(relays->output) : -1, .events = POLLIN },
			{ .fd = relays->input ? relay_get_fd(relays->input) : -1, .events = POLLIN },
		};

		if (fds[4].fd >= 0 && relay_wait(relays->output, 0))
			fds[4].fd = -1;		/* it has ended: it must not wake us for ever */
		if (poll(fds, sizeof(fds) / sizeof(fds[0]), -1) < 0 && errno != EINTR)
			return ABOX_E_SYSTEM;
		r = take_events(console, relays, fds, reterr);
	}
	return r;
}

int console_follow(struct console *console, abox_error **reterr)
{
	struct relays relays = { 0 };
	int r;

	r = start_relays(console, &relays);
	if (r >= 0)
		r = follow_until_end(console, &relays, reterr);
	if (r == 1) {
		if (relays.output)
			relay_wait(relays.output, DRAIN_MSEC);
		if (relays.errors)
			relay_wait(relays.errors, DRAIN_MSEC);
		r = abox_command_wait(console->command, ABOX_FOREVER, &console->result, reterr);
		if (relays.output && relay_get_errno(relays.output))
			console->broken_pipe = true;
	}
	terminal_restore();
	console->detached = r == 2;
	relay_forget(relays.output);
	relay_forget(relays.errors);
	relay_forget(relays.input);
	return r < 0 ? r : 0;
}

int console_exit_code(const struct console *console)
{
	if (console->broken_pipe)
		return CLI_EXIT_BROKEN_PIPE;
	if (console->detached)
		return CLI_EXIT_DONE;
	return console->result ? exit_of_result(console->result) : CLI_EXIT_NO_BOX;
}

void console_clear(struct console *console)
{
	console->command = abox_command_unref(console->command);
	console->result = abox_result_unref(console->result);
}
