/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The command as its user meets it: exit codes, results, signals, detached boxes, and the terminal.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "support/support.h"

static char text[65536];

static int cli(const char *const *words)
{
	const char *argv[32] = { agentbox_program() };
	size_t n = 1;

	for (; *words && n < 31; words++)
		argv[n++] = *words;
	return program_run(argv, NULL, 60, text, sizeof(text));
}
#define cli_words(...) cli((const char *const[]){ __VA_ARGS__, NULL })

/* Exit codes of run are those of its table. */
Test(cli, exit_codes)
{
	cr_expect_eq(cli_words("run", "true"), 0);
	cr_expect_eq(cli_words("run", "--", "sh", "-c", "exit 3"), 3);
	cr_expect_eq(cli_words("run", "--", "sh", "-c", "kill -TERM $$"), 128 + SIGTERM);
	cr_expect_eq(cli_words("run", "no-such-program"), 127);
	cr_expect_eq(cli_words("run", "/etc/passwd"), 126);
	cr_expect_eq(cli_words("run", "--timeout", "300ms", "sleep", "100"), 124);
	cr_expect_eq(cli_words("run", "--cwd", "/no/such", "true"), 125);
	cr_expect_eq(cli_words("run", "--memory", "0", "true"), 125);
	cr_expect_eq(cli_words("run"), 125);
	cr_expect_eq(cli_words("run", "--no-such-option", "true"), 125);
	cr_expect_eq(cli_words("exec", "no-such-box", "true"), 125);
	cr_expect_eq(cli_words("ps", "--no-such-option"), 2);
	cr_expect_eq(cli_words("no-such-command"), 2);
	cr_expect_eq(cli_words("stop", "no-such-box"), 1);
}

/* The one line of ours that `run` has added to the command's output; "" when there is none. */
static const char *line_of_ours(void)
{
	char *line = strstr(text, "agentbox: ");

	if (!line)
		return "";
	cr_expect_null(strstr(line + 1, "agentbox: "), "%s", text);
	return line;
}

/* What ended a command that did not end by itself is said, with the evidence; of others nothing is. */
Test(cli, says_what_ended_the_command)
{
	cr_expect_eq(cli_words("run", "--timeout", "300ms", "sleep", "100"), 124);
	cr_expect_not_null(strstr(line_of_ours(), "ended (timeout): the wall clock of the box ran out\n"), "%s", text);
	cr_expect_eq(cli_words("run", "--", "sh", "-c", "echo probe; kill -KILL $$"), 128 + SIGKILL);
	cr_expect_not_null(strstr(text, "probe\n"), "%s", text);
	cr_expect_not_null(strstr(line_of_ours(), "ended (signaled): signal 9\n"), "%s", text);
	cr_expect_eq(cli_words("run", "--", "sh", "-c", "kill -INT $$"), 128 + SIGINT);
	cr_expect_str_eq(text, "");
	cr_expect_eq(cli_words("run", "--", "sh", "-c", "exit 137"), 137);
	cr_expect_str_eq(text, "");
	if (geteuid() != 0)
		return;	/* without a group no counter of the kernel tells of a kill at the limit */
	cr_expect_eq(cli_words("run", "--memory", "32MiB", "--", "sh", "-c", "exec tail /dev/zero"), 128 + SIGKILL);
	cr_expect_not_null(strstr(line_of_ours(), "ended (memory): killed by the kernel at the memory limit"), "%s", text);
}

/* Files go into a box, are looked at, moved, removed, and come out; what leads outside is refused. */
Test(cli, files_go_in_and_come_out)
{
	char folder[] = "/tmp/agentbox-cli-XXXXXX", source[64], target[64], inside[64];
	char id[64] = "";
	FILE *file;

	cr_assert_not_null(mkdtemp(folder));
	snprintf(source, sizeof(source), "%s/source", folder);
	snprintf(target, sizeof(target), "%s/target", folder);
	file = fopen(source, "w");
	cr_assert(file && fputs("hello", file) >= 0 && fclose(file) == 0);
	cr_assert_eq(cli_words("start"), 0, "%s", text);
	sscanf(text, "%63s", id);
	snprintf(inside, sizeof(inside), "%s:a", id);
	cr_expect_eq(cli_words("cp", source, inside), 0, "%s", text);
	cr_expect_eq(cli_words("exec", id, "cat", "/workspace/a"), 0);
	cr_expect_str_eq(text, "hello");
	cr_expect_eq(cli_words("fs", "cat", inside), 0);
	cr_expect_str_eq(text, "hello");
	cr_expect_eq(cli_words("fs", "mv", inside, "b c"), 0, "%s", text);
	snprintf(inside, sizeof(inside), "%s:/workspace/b c", id);
	cr_expect_eq(cli_words("fs", "stat", "--json", inside), 0);
	cr_expect_not_null(strstr(text, "\"type\": \"file\", \"mode\": \"0644\", \"size\": 5"), "%s", text);
	cr_expect_eq(cli_words("cp", inside, target), 0, "%s", text);
	cr_expect_eq(access(target, F_OK), 0);
	cr_expect_eq(cli_words("cp", inside, "-"), 0);
	cr_expect_str_eq(text, "hello");
	cr_expect_eq(cli_words("fs", "rm", inside), 0, "%s", text);
	cr_expect_eq(cli_words("fs", "ls", id), 0);
	cr_expect_str_eq(text, "");
	snprintf(inside, sizeof(inside), "%s:../etc/passwd", id);
	cr_expect_eq(cli_words("fs", "cat", inside), 1);
	cr_expect_not_null(strstr(text, "leads outside"), "%s", text);
	cr_expect_eq(cli_words("cp", source, target), 2);
	cr_expect_eq(cli_words("stop", id), 0);
	cr_expect_eq(cli_words("rm", id), 0);
	unlink(source);
	unlink(target);
	rmdir(folder);
}

/* A refusal is one line that says stage, place and what is wrong. */
Test(cli, refusal_is_one_line)
{
	cr_expect_eq(cli_words("run", "--memory", "0", "true"), 125);
	cr_expect_eq(strncmp(text, "agentbox: spec: /limits/memory", 30), 0, "%s", text);
	cr_expect_eq(strchr(text, '\n'), text + strlen(text) - 1, "%s", text);
}

/* It says what can be written instead, and where the options are. */
Test(cli, refusal_says_what_helps)
{
	static const char *const numbers[] = { "many", "1.", ".5", "1.5.5", "" };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		cr_expect_eq(cli_words("plan", "--cpus", numbers[i]), 1, "%s", numbers[i]);
		cr_expect_not_null(strstr(text, "/limits/cpus: "), "%s", text);
		cr_expect_not_null(strstr(text, "(write "), "%s", text);
	}
	cr_expect_eq(cli_words("run", "--no-such-option", "true"), 125);
	cr_expect_not_null(strstr(text, "--help lists them"), "%s", text);
	cr_expect_eq(cli_words("journal", "verify"), 2);
	cr_expect_not_null(strstr(text, "or ABOX_JOURNAL"), "%s", text);
}

/* Each sub-command explains itself, and the table of exit codes is in the help. */
Test(cli, help)
{
	static const char *const commands[] = { "run", "start", "exec", "attach", "ps", "inspect", "stats", "logs", "wait", "kill",
		"pause", "resume", "stop", "rm", "gc", "verify", "plan", "spec", "doctor", "cp", "fs" };

	cr_expect_eq(cli_words("--help"), 0);
	cr_expect_not_null(strstr(text, "128+n"));
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		cr_expect_not_null(strstr(text, commands[i]), "%s", commands[i]);
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		cr_expect_eq(cli_words(commands[i], "--help"), 0);
		cr_expect_not_null(strstr(text, "Usage: agentbox"), "%s", commands[i]);
	}
	cr_expect_eq(cli_words("help", "run"), 0);
	cr_expect_not_null(strstr(text, "Usage: agentbox run "), "%s", text);
	cr_expect_eq(cli_words("help", "no-such-command"), 2);
	cr_expect_eq(cli_words("--version"), 0);
	cr_expect_not_null(strstr(text, " gvisor microvm "), "%s", text);
	cr_expect_not_null(strstr(text, " network credential "), "%s", text);
}

static json_t *result_of(const char *path)
{
	json_t *value = json_load_file(path, 0, NULL);

	unlink(path);
	return value;
}

/* --result holds the facts of the end, or the error, and appears whole. */
Test(cli, result_file)
{
	char path[300];
	json_t *result;

	snprintf(path, sizeof(path), "%s/result.json", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert_eq(cli_words("run", "--result", path, "sh", "-c", "echo hi; exit 4"), 4);
	result = result_of(path);
	cr_assert_not_null(result);
	cr_expect_str_eq(json_string_value(json_object_get(result, "cause")), "exited");
	cr_expect_eq(json_integer_value(json_object_get(result, "exit_code")), 4);
	cr_expect_eq(json_integer_value(json_object_get(result, "stdout_bytes")), 3);
	cr_expect_eq(json_string_length(json_object_get(result, "plan_digest")), 64);
	cr_expect_eq(json_array_size(json_object_get(json_object_get(result, "teardown"), "left_behind")), 0);
	json_decref(result);
	cr_assert_eq(cli_words("run", "--result", path, "--pids", "0", "true"), 125);
	result = result_of(path);
	cr_expect_str_eq(json_string_value(json_object_get(json_object_get(result, "error"), "place")), "/limits/pids");
	json_decref(result);
	cr_expect_eq(cli_words("run", "--result", "/no/such/folder/x", "true"), 125);
}

/* --json gives output and facts in one object. */
Test(cli, json_answer)
{
	json_t *value;

	cr_assert_eq(cli_words("run", "--json", "--", "sh", "-c", "echo out; echo err >&2"), 0);
	value = json_loads(text, 0, NULL);
	cr_assert_not_null(value, "%s", text);
	cr_expect_str_eq(json_string_value(json_object_get(value, "stdout")), "out\n");
	cr_expect_str_eq(json_string_value(json_object_get(value, "stderr")), "err\n");
	json_decref(value);
}

/* A box that lives on: start, exec, logs, wait, kill, stop, rm. */
Test(cli, detached_box)
{
	char id[64];

	cr_assert_eq(cli_words("start", "--name", "cli-detached"), 0, "%s", text);
	cr_assert_eq(strlen(text), 33);
	snprintf(id, sizeof(id), "%.32s", text);
	cr_expect_eq(cli_words("ps"), 0);
	cr_expect_not_null(strstr(text, id));
	cr_expect_eq(cli_words("exec", "cli-detached", "--", "sh", "-c", "echo in; exit 5"), 5);
	cr_expect_str_eq(text, "in\n");
	cr_assert_eq(cli_words("exec", "--detach", id, "sh", "-c", "echo spooled; sleep 0.2; exit 6"), 0);
	cr_expect_str_eq(text, "2\n");
	cr_expect_eq(cli_words("wait", id, "2"), 6);
	cr_expect_eq(cli_words("logs", id, "2"), 0);
	cr_expect_str_eq(text, "spooled\n");
	cr_expect_eq(cli_words("logs", "--cursor", "3", id, "2"), 0);
	cr_expect_str_eq(text, "oled\n");
	cr_assert_eq(cli_words("exec", "--detach", id, "sleep", "1000"), 0);
	cr_expect_eq(cli_words("wait", "--timeout", "100ms", id, "3"), 124);
	cr_expect_eq(cli_words("kill", id, "3"), 0);
	cr_expect_eq(cli_words("wait", id, "3"), 128 + SIGTERM);
	cr_expect_eq(cli_words("stats", "--json", id), 0);
	cr_expect_eq(cli_words("pause", id), 0);
	cr_expect_eq(cli_words("resume", id), 0);
	cr_expect_eq(cli_words("verify", id), 0, "%s", text);
	cr_expect_eq(cli_words("rm", id), 1);
	cr_expect_eq(cli_words("stop", id), 0);
	cr_expect_eq(cli_words("rm", id), 0);
	cr_expect_eq(cli_words("inspect", id), 1);
}

static pid_t start_cli(const char *const *words, int *retfd)
{
	const char *argv[32] = { agentbox_program() };
	size_t n = 1;
	int fds[2];
	pid_t child;

	for (; *words && n < 31; words++)
		argv[n++] = *words;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	child = fork();
	if (child == 0) {
		setpgid(0, 0);
		dup2(open("/dev/null", O_RDWR), 0);
		dup2(fds[1], 1);
		execv(argv[0], (char *const *)argv);
		_exit(121);
	}
	close(fds[1]);
	*retfd = fds[0];
	return child;
}

static int end_of(pid_t child)
{
	int status;

	for (int i = 0; i < 2000; i++) {
		if (waitpid(child, &status, WNOHANG) == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		pause_msec(10);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	return -1;
}

/* A signal goes to the command; the second one ends all of it. */
Test(cli, signals_are_passed_on)
{
	struct leaks *before = leaks_take();
	char byte;
	int fd;
	pid_t child = start_cli((const char *const[]){ "run", "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done",
		NULL }, &fd);

	cr_assert_eq(read(fd, &byte, 1), 1);
	kill(child, SIGTERM);
	cr_expect_eq(end_of(child), 9);
	close(fd);
	child = start_cli((const char *const[]){ "run", "sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 0.05; done", NULL },
		&fd);
	cr_assert_eq(read(fd, &byte, 1), 1);
	kill(child, SIGINT);
	pause_msec(200);
	kill(child, SIGTERM);
	cr_expect_eq(end_of(child), 128 + SIGKILL);
	close(fd);
	assert_no_leaks(before);
}

/* When the reader of our output goes away the command is killed, and the exit code says so. */
Test(cli, broken_pipe)
{
	char byte;
	int fd;
	pid_t child = start_cli((const char *const[]){ "run", "yes", NULL }, &fd);

	cr_assert_eq(read(fd, &byte, 1), 1);
	close(fd);
	cr_expect_eq(end_of(child), 141);
	child = start_cli((const char *const[]){ "run", "sleep", "1000", NULL }, &fd);
	pause_msec(500);
	close(fd);
	cr_expect_eq(end_of(child), 141);
}

/* B10: an open pipe as our standard input does not keep anything waiting. */
Test(cli, B10_open_stdin)
{
	double started = clock_seconds();
	int fds[2];
	pid_t child;

	cr_assert_eq(pipe(fds), 0);
	child = fork();
	if (child == 0) {
		dup2(fds[0], 0);
		execl(agentbox_program(), "agentbox", "run", "--", "cat", (char *)NULL);
		_exit(121);
	}
	cr_expect_eq(end_of(child), 0);
	cr_expect_lt(clock_seconds() - started, 10);
	close(fds[0]);
	close(fds[1]);

}

/* -- terminal -- */

struct terminal {
	int master;
	pid_t child;
	char seen[32768];
	size_t len;
};

static void open_terminal(struct terminal *terminal, const char *const *words, bool background)
{
	struct winsize size = { 33, 99, 0, 0 };

	memset(terminal, 0, sizeof(*terminal));
	terminal->child = forkpty(&terminal->master, NULL, NULL, &size);
	if (terminal->child == 0) {
		pid_t job;
		int status;

		if (!background)
			execv(agentbox_program(), (char *const *)words);
		/* As timeout(1) does: a group of its own that is not in the foreground. */
		job = fork();
		if (job == 0) {
			setpgid(0, 0);
			execv(agentbox_program(), (char *const *)words);
			_exit(121);
		}
		waitpid(job, &status, WUNTRACED);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : WIFSTOPPED(status) ? 77 : 78);
	}
}

/* Reads until the text has been seen, or some seconds have passed. */
static bool see(struct terminal *terminal, const char *wanted)
{
	double end = clock_seconds() + 10;

	while (clock_seconds() < end && terminal->len + 1 < sizeof(terminal->seen)) {
		struct pollfd p = { .fd = terminal->master, .events = POLLIN };
		ssize_t n;

		if (strstr(terminal->seen, wanted))
			return true;
		if (poll(&p, 1, 100) <= 0)
			continue;
		n = read(terminal->master, terminal->seen + terminal->len, sizeof(terminal->seen) - 1 - terminal->len);
		if (n <= 0)
			break;
		terminal->len += (size_t)n;
		terminal->seen[terminal->len] = 0;
	}
	return strstr(terminal->seen, wanted) != NULL;
}

static void type(struct terminal *terminal, const char *keys)
{
	(void)!write(terminal->master, keys, strlen(keys));
}

/* T8-3 and B72: a terminal of the box's own: its size, resizing, Ctrl-C, job control, end of input; ours is as it was. */
Test(cli, T8_3_terminal, .timeout = 60)
{
	const char *const words[] = { "agentbox", "run", "-it", "--", "bash", "--norc", "-i", NULL };
	struct termios before, after;
	struct winsize size = { 40, 100, 0, 0 };
	struct terminal terminal;

	needs("bash");
	open_terminal(&terminal, words, false);
	cr_assert_eq(tcgetattr(terminal.master, &before), 0);
	cr_assert(see(&terminal, "$ "), "%s", terminal.seen);
	type(&terminal, "stty size; tty\n");
	cr_expect(see(&terminal, "33 99"), "%s", terminal.seen);
	cr_expect(see(&terminal, "/dev/"), "%s", terminal.seen);
	cr_assert_eq(ioctl(terminal.master, TIOCSWINSZ, &size), 0);
	kill(terminal.child, SIGWINCH);
	pause_msec(300);
	type(&terminal, "stty size\n");
	cr_expect(see(&terminal, "40 100"), "%s", terminal.seen);
	type(&terminal, "sleep 100\n");
	pause_msec(300);
	type(&terminal, "\003");
	type(&terminal, "echo after-$((40+2))\n");
	cr_expect(see(&terminal, "after-42"), "%s", terminal.seen);
	type(&terminal, "sleep 100\n");
	pause_msec(300);
	type(&terminal, "\032");
	type(&terminal, "jobs\n");
	cr_expect(see(&terminal, "Stopped"), "%s", terminal.seen);
	type(&terminal, "fg\n");
	pause_msec(300);
	type(&terminal, "\003");
	type(&terminal, "exit 7\n");
	see(&terminal, "exit\r\n");
	cr_expect_eq(end_of(terminal.child), 7, "%s", terminal.seen);
	if (tcgetattr(terminal.master, &after) == 0)
		cr_expect_eq(before.c_lflag, after.c_lflag);
	close(terminal.master);
}

/* B91: in a background group, with typed input waiting, a run ends by itself and does not touch the terminal. */
Test(cli, B91_background_group_leaves_terminal_alone, .timeout = 60)
{
	const char *const tty_words[] = { "agentbox", "run", "-it", "--", "sh", "-c", "sleep 0.3; echo done", NULL };
	const char *const input_words[] = { "agentbox", "run", "-i", "--", "sh", "-c", "sleep 0.3; echo done", NULL };
	const char *const *both[] = { tty_words, input_words };

	for (int i = 0; i < 2; i++) {
		struct termios before, after;
		struct terminal terminal;

		open_terminal(&terminal, both[i], true);
		cr_assert_eq(tcgetattr(terminal.master, &before), 0);
		type(&terminal, "typed\n");
		cr_expect(see(&terminal, "done"), "%s", terminal.seen);
		if (tcgetattr(terminal.master, &after) == 0)
			cr_expect_eq(before.c_lflag, after.c_lflag);
		cr_expect_eq(end_of(terminal.child), 0);
		close(terminal.master);
	}
}

/* T8-1: nothing in the box can push bytes into our terminal's input, with or without a terminal of its own. */
Test(cli, T8_1_no_input_into_our_terminal, .timeout = 60)
{
	char folder[4096];
	const char *const words[] = { "agentbox", "run", "-t", "--mount", folder, "--", PROBE_IN_BOX, "terminal", NULL };
	struct terminal terminal;

	snprintf(folder, sizeof(folder), "%s", probe_program());
	*strrchr(folder, '/') = 0;
	strcat(folder, ":/probe");
	open_terminal(&terminal, words, false);
	cr_expect(see(&terminal, "tty:push-input denied"), "%s", terminal.seen);
	cr_expect(see(&terminal, "tty:kind:2"), "%s", terminal.seen);
	cr_expect_null(strstr(terminal.seen, "push-input allowed"));
	cr_expect_eq(end_of(terminal.child), 0);
	close(terminal.master);
}

/* Attaching replays what was written, passes keys on, and Ctrl-] lets go while the command lives. */
Test(cli, attach_and_detach, .timeout = 60)
{
	const char *words[] = { "agentbox", "attach", NULL, NULL };
	struct terminal terminal;
	char id[64];

	cr_assert_eq(cli_words("run", "--detach", "-t", "--", "sh", "-c", "echo first; read line; echo got-$line; sleep 1000"), 0);
	snprintf(id, sizeof(id), "%.32s", text);
	words[2] = id;
	open_terminal(&terminal, words, false);
	cr_expect(see(&terminal, "first"), "%s", terminal.seen);
	type(&terminal, "hello\r");
	cr_expect(see(&terminal, "got-hello"), "%s", terminal.seen);
	type(&terminal, "\035");
	cr_expect_eq(end_of(terminal.child), 0);
	close(terminal.master);
	cr_expect_eq(cli_words("wait", "--timeout", "100ms", id, "1"), 124);
	cr_expect_eq(cli_words("stop", id), 0);
	cr_expect_eq(cli_words("rm", id), 0);
}
