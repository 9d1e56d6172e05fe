/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keeper with a box of its own, from START to the report. Runs as root and as a plain user; what needs root skips.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "keeper/box.h"
#include "keeper/wire.h"
#include "kernel/pidfd.h"

#define SECOND USEC_PER_SEC

static char state[64];
static struct box box;
static struct fault fault;
static struct box_end end;
static char out[65536];

static void make_state(void)
{
	cr_assert_eq(box_state_make(state, sizeof(state)), 0);
}

static void remove_state(void)
{
	box_state_remove(state);
}

TestSuite(box, .init = make_state, .fini = remove_state, .timeout = 60);

static void start(struct box_options options)
{
	options.state = state;
	cr_assert_eq(box_start(&box, &options, &fault), 0, "%s: %s (%s)", fault.place, fault.message, fault.remedy);
}

/* Everything of it is gone, and the report says so. */
static void stop(void)
{
	uint32_t left = 99;

	cr_assert_eq(box_stop(&box, ABOX_STOP_SUCCESS, out, sizeof(out), &left, &fault), 0, "%s", fault.message);
	cr_assert_eq(left, 0, "%s", out);
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	box_close(&box);
	cr_assert(box_state_is_empty(state));
}

static void run(const char *script)
{
	int r = box_sh(&box, script, out, sizeof(out), &end, &fault);

	cr_assert_eq(r, 0, "%s: %d %s: %s", script, r, fault.place, fault.message);
}

static uint64_t now(void)
{
	return clock_monotonic_usec();
}

/* A skipped test gets no .fini. */
static void needs_groups(void)
{
	if (geteuid() == 0)
		return;
	remove_state();
	cr_skip("needs root: control groups");
}

/* A command's output, exit code and cause come back, and nothing stays behind. */
Test(box, runs_a_command)
{
	start((struct box_options){ 0 });
	run("echo hello; exit 7");
	cr_assert_str_eq(out, "hello\n");
	cr_assert_eq(end.exit_code, 7);
	cr_assert_eq(end.cause, ABOX_CAUSE_EXITED);
	cr_assert_eq(end.survivors, 0);
	run("kill -ABRT $$");
	cr_assert_eq(end.signal, SIGABRT);
	cr_assert_eq(end.exit_code, -1);
	cr_assert_eq(end.cause, ABOX_CAUSE_SIGNALED);
	stop();
}

/* The program sees descriptors 0-2, no capabilities, no groups, a filter, and the box's own processes only. */
Test(box, hands_over_nothing_but_the_streams)
{
	start((struct box_options){ 0 });
	run("ls /proc/self/fd | wc -l; grep -E '^(CapEff|CapBnd|CapPrm|Groups|NoNewPrivs|Seccomp|SigBlk|SigIgn):' "
	    "/proc/self/status; umask; ulimit -c; ls -d /..; ls / | tr '\\n' ' '");
	cr_assert_str_eq(out, "4\nGroups:\t \nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
			      "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n"
			      "Seccomp:\t2\n0022\n0\n/..\nbin dev etc home lib lib64 proc sbin tmp usr workspace ",
		"%s", out);
	stop();
}

static int exec_code(const char *program, const char *cwd)
{
	const char *const argv[] = { program, NULL };

	return box_run(&box, &(struct box_exec){ .argv = argv, .cwd = cwd }, out, sizeof(out), &end, &fault);
}

/* A program that cannot start is an error with its own code, never an exit code. */
Test(box, tells_why_a_program_cannot_start)
{
	start((struct box_options){ 0 });
	cr_assert_eq(exec_code("no-such-program", NULL), ABOX_E_EXEC_NOT_FOUND);
	cr_assert_eq(exec_code("/no/such/program", NULL), ABOX_E_EXEC_NOT_FOUND);
	cr_assert_eq(exec_code("/etc/passwd", NULL), ABOX_E_EXEC_FORMAT);
	cr_assert_eq(exec_code("/usr", NULL), ABOX_E_EXEC_FORMAT);
	run("printf '#!/no/such/interpreter\\n' > /tmp/script; chmod 755 /tmp/script; printf x > /tmp/text; chmod 755 /tmp/text");
	cr_assert_eq(exec_code("/tmp/script", NULL), ABOX_E_EXEC_INTERPRETER);
	cr_assert_eq(exec_code("/tmp/text", NULL), ABOX_E_EXEC_FORMAT);
	cr_assert_eq(exec_code("true", "/no/such/folder"), ABOX_E_NOT_FOUND);
	cr_assert_str_eq(fault.place, "cwd");
	cr_assert_eq(exec_code("true", "/tmp"), 0);
	cr_assert_eq(end.exit_code, 0);
	stop();
}

/* 131,072 bytes are one too many for the kernel, one less is fine; neither goes through a message of that size. */
Test(box, takes_long_arguments_and_names_too_long_ones)
{
	char *argument = malloc(131073);
	const char *argv[] = { "true", argument, NULL };

	start((struct box_options){ 0 });
	memset(argument, 'a', 131072);
	argument[131071] = 0;
	cr_assert_eq(box_run(&box, &(struct box_exec){ .argv = argv }, out, sizeof(out), &end, &fault), 0, "%s", fault.message);
	argument[131071] = 'a';
	argument[131072] = 0;
	cr_assert_eq(box_run(&box, &(struct box_exec){ .argv = argv }, out, sizeof(out), &end, &fault), ABOX_E_LIMIT);
	free(argument);
	stop();
}

static const char daemons[] = "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'trap \"\" TERM HUP INT; sleep 300' "
			      "</dev/null >/dev/null 2>&1 &) ; done; sleep 0.2; ls -d /proc/[0-9]* | wc -l; exit 3";

/* What outlives the main process is killed and counted, wherever it has forked to; other commands live on. */
static void check_survivors(struct box_options options, bool isolated)
{
	const char *const other[] = { "sleep", "300", NULL };
	uint32_t command;
	int event_fd;

	start(options);
	cr_assert_geq(box_exec(&box, &(struct box_exec){ .argv = other }, &command, &event_fd, &fault), 0);
	run(daemons);
	cr_assert_eq(end.exit_code, 3);
	cr_assert_geq(end.survivors, 8, "%u", end.survivors);
	run("grep -ls 'sleep' /proc/[0-9]*/comm | wc -l");
	cr_assert_eq(atoi(out), isolated ? 0 : 1, "%s", out);
	cr_assert_eq(box_wait_end(event_fd, 1, &end), -ETIMEDOUT);
	close(event_fd);
	stop();
}

Test(box, kills_survivors_by_scope)
{
	check_survivors((struct box_options){ 0 }, false);
}

Test(box, kills_survivors_by_pid_namespace)
{
	check_survivors((struct box_options){ .no_kill_scope = true }, true);
}

Test(box, kills_survivors_by_control_group)
{
	needs_groups();
	check_survivors((struct box_options){ .cgroup2 = true }, false);
}

/* A fork bomb that ignores signals, and a process that is stopped, are gone soon after their timeout. */
static void check_timeout(struct box_options options)
{
	static const char *const scripts[] = {
		"exec python3 -c '\n"
		"import os, signal\n"
		"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
		"while True:\n"
		"    try:\n"
		"        if os.fork() == 0: os.setsid()\n"
		"    except OSError: pass\n'",
		"kill -STOP $$",
		"(kill -STOP 0) & sleep 300",
		"exec 3>&1; (while :; do echo c >&3; sleep 0.1; done) & cat /dev/zero >/dev/null",
	};

	options.pids = 100;
	start(options);
	for (size_t i = 0; i < ELEMENTSOF(scripts); i++) {
		const char *const argv[] = { "sh", "-c", scripts[i], NULL };
		uint64_t begin = now();

		cr_assert_eq(box_run(&box, &(struct box_exec){ .argv = argv, .timeout_usec = SECOND / 2 }, out, sizeof(out),
			&end, &fault), 0, "%zu: %s", i, fault.message);
		cr_assert_eq(end.cause, ABOX_CAUSE_TIMEOUT, "%zu: %u", i, end.cause);
		cr_assert(end.limits_struck & ABOX_LIMIT_TIMEOUT);
		cr_assert_lt(now() - begin, 8 * SECOND, "%zu", i);
		run("ls -d /proc/[0-9]* | wc -l");
		cr_assert_leq(atoi(out), 6, "%zu: %s", i, out);
	}
	stop();
}

Test(box, ends_whole_trees_at_their_timeout_by_scope)
{
	check_timeout((struct box_options){ 0 });
}

Test(box, ends_whole_trees_at_their_timeout_by_pid_namespace)
{
	check_timeout((struct box_options){ .no_kill_scope = true });
}

Test(box, ends_whole_trees_at_their_timeout_by_control_group)
{
	needs_groups();
	check_timeout((struct box_options){ .cgroup2 = true });
}

/* Kept survivors live until the command is killed, which takes them. */
Test(box, keeps_survivors_when_asked)
{
	const char *const argv[] = { "sh", "-c", "sleep 300 & sleep 0.2; echo started", NULL };
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	uint32_t command;
	int event_fd;

	start((struct box_options){ 0 });
	cr_assert_geq(box_exec(&box, &(struct box_exec){ .argv = argv, .survivors = ABOX_SURVIVORS_KEEP }, &command,
		&event_fd, &fault), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	cr_assert_eq(end.survivors, 1);
	close(event_fd);
	run("grep -ls sleep /proc/[0-9]*/comm | wc -l");
	cr_assert_eq(atoi(out), 1);
	box_request(&writer, WIRE_KILL, box.serial);
	pack_u32(&writer, command);
	pack_u64(&writer, 0);
	cr_assert_eq(box_call(box.fd, &box.serial, &writer, NULL, 0, &reader, &fault), 0);
	usleep(100000);
	run("grep -ls sleep /proc/[0-9]*/comm | wc -l");
	cr_assert_eq(atoi(out), 0);
	stop();
}

/* The same token gives the same command, with another argv a conflict. */
Test(box, starts_one_command_a_token)
{
	const char *const argv[] = { "sh", "-c", "echo x >> /tmp/n", NULL }, *const other[] = { "true", NULL };
	uint32_t first, second;
	int event_fd;

	start((struct box_options){ 0 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .token = "job" }, &first, &event_fd, &fault), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	close(event_fd);
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .token = "job" }, &second, &event_fd, &fault), 1);
	cr_assert_eq(first, second);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	close(event_fd);
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = other, .token = "job" }, &second, &event_fd, &fault),
		ABOX_E_CONFLICT);
	run("cat /tmp/n");
	cr_assert_str_eq(out, "x\n");
	stop();
}

static int read_stream(int fd, uint32_t *serial, uint32_t command, uint64_t cursor, uint64_t timeout_usec,
	uint64_t *retnext, uint64_t *rettotal, uint8_t *retgap, uint8_t *retend)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	const void *data;
	size_t len;
	int r;

	box_request(&writer, WIRE_READ, *serial);
	pack_u32(&writer, command);
	pack_u32(&writer, 1);
	pack_u64(&writer, cursor);
	pack_u32(&writer, sizeof(out) - 1);
	pack_u64(&writer, timeout_usec);
	r = box_call(fd, serial, &writer, NULL, 0, &reader, &fault);
	if (r < 0)
		return r;
	unpack_u64(&reader);
	*retnext = unpack_u64(&reader);
	*rettotal = unpack_u64(&reader);
	*retgap = unpack_u8(&reader);
	*retend = unpack_u8(&reader);
	data = unpack_bytes(&reader, &len);
	memcpy(out, data, MIN(len, sizeof(out) - 1));
	out[MIN(len, sizeof(out) - 1)] = 0;
	return unpack_done(&reader) ? (int)len : ABOX_E_PROTOCOL;
}

/* Output waits in the spool; a reader goes on at its cursor, and what went beyond the cap is counted and told. */
Test(box, spools_output_with_cursors)
{
	const char *const argv[] = { "sh", "-c", "echo one; sleep 0.3; echo two", NULL };
	const char *const much[] = { "sh", "-c", "head -c 5000 /dev/zero", NULL };
	uint64_t next, total;
	uint8_t gap, at_end;
	uint32_t command;
	int event_fd;

	start((struct box_options){ .output_bytes = 4096 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .stdout_mode = ABOX_STREAM_SPOOL }, &command, &event_fd,
		&fault), 0);
	cr_assert_eq(read_stream(box.fd, &box.serial, command, 0, SECOND, &next, &total, &gap, &at_end), 4);
	cr_assert_str_eq(out, "one\n");
	cr_assert_eq(read_stream(box.fd, &box.serial, command, next, SECOND, &next, &total, &gap, &at_end), 4);
	cr_assert_str_eq(out, "two\n");
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	cr_assert_eq(end.total[0], 8);
	close(event_fd);
	cr_assert_eq(read_stream(box.fd, &box.serial, command, next, SECOND, &next, &total, &gap, &at_end), 0);
	cr_assert(at_end && !gap);
	cr_assert_eq(read_stream(box.fd, &box.serial, command, 0, 0, &next, &total, &gap, &at_end), 8);

	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = much, .stdout_mode = ABOX_STREAM_SPOOL }, &command, &event_fd,
		&fault), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	close(event_fd);
	cr_assert_eq(end.total[0], 5000);
	cr_assert_eq(end.truncated, 1);
	cr_assert(end.limits_struck & ABOX_LIMIT_OUTPUT);
	cr_assert_eq(read_stream(box.fd, &box.serial, command, 0, 0, &next, &total, &gap, &at_end), 4096);
	cr_assert_eq(read_stream(box.fd, &box.serial, command, next, 0, &next, &total, &gap, &at_end), 0);
	cr_assert(gap && at_end && next == 5000);
	stop();
}

/* At its output limit a command is killed when that was asked for. */
Test(box, kills_at_the_output_limit)
{
	const char *const argv[] = { "cat", "/dev/zero", NULL };
	uint32_t command;
	int event_fd;

	start((struct box_options){ .output_bytes = 4096 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .stdout_mode = ABOX_STREAM_SPOOL, .output_kill = true },
		&command, &event_fd, &fault), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	cr_assert_eq(end.cause, ABOX_CAUSE_OUTPUT);
	close(event_fd);
	stop();
}

static int input(uint32_t command, const void *data, size_t len, bool eof, uint32_t *rettaken)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	int r;

	box_request(&writer, WIRE_INPUT, box.serial);
	pack_u32(&writer, command);
	pack_u8(&writer, eof);
	pack_bytes(&writer, data, len);
	r = box_call(box.fd, &box.serial, &writer, NULL, 0, &reader, &fault);
	*rettaken = r == 0 ? unpack_u32(&reader) : 0;
	return r;
}

/* Input flows as fast as the command reads, ends when told, and is refused when nobody reads. */
Test(box, streams_input)
{
	const char *const argv[] = { "sh", "-c", "sleep 0.2; exec wc -c", NULL };
	static char block[30000];
	uint32_t command, taken;
	uint64_t next, total, sent = 0;
	uint8_t gap, at_end;
	int event_fd;

	start((struct box_options){ 0 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .stdin_mode = ABOX_STDIN_STREAM,
		.stdout_mode = ABOX_STREAM_SPOOL }, &command, &event_fd, &fault), 0);
	while (sent < 300000) {
		cr_assert_eq(input(command, block, sizeof(block), false, &taken), 0, "%s", fault.message);
		cr_assert_gt(taken, 0);
		sent += taken;
	}
	cr_assert_eq(input(command, "", 0, true, &taken), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	close(event_fd);
	cr_assert_gt(read_stream(box.fd, &box.serial, command, 0, 0, &next, &total, &gap, &at_end), 0);
	cr_assert_eq((uint64_t)atoll(out), sent);
	cr_assert_eq(input(command, "x", 1, false, &taken), ABOX_E_GONE);
	stop();
}

/* A terminal of the box's own: it is one, has a size that can be changed, and carries both ways. */
Test(box, gives_a_terminal)
{
	const char *const argv[] = { "sh", "-c", "test -t 0 && test -t 2 && tty; read x; stty size; echo got $x", NULL };
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	uint32_t command, taken;
	uint64_t next, total;
	uint8_t gap, at_end;
	int event_fd;

	start((struct box_options){ 0 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .pty = true }, &command, &event_fd, &fault), 0, "%s: %s",
		fault.place, fault.message);
	box_request(&writer, WIRE_RESIZE, box.serial);
	pack_u32(&writer, command);
	pack_u32(&writer, 40);
	pack_u32(&writer, 100);
	cr_assert_eq(box_call(box.fd, &box.serial, &writer, NULL, 0, &reader, &fault), 0);
	cr_assert_eq(input(command, "word\n", 5, false, &taken), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	close(event_fd);
	cr_assert_gt(read_stream(box.fd, &box.serial, command, 0, 0, &next, &total, &gap, &at_end), 0);
	cr_assert(strstr(out, "/dev/pts/0"), "%s", out);
	cr_assert(strstr(out, "40 100"), "%s", out);
	cr_assert(strstr(out, "got word"), "%s", out);
	stop();
}

/* A signal to a command with a terminal reaches the job in the foreground, and the shell above it lives on. */
Test(box, signals_the_foreground_job)
{
	const char *const argv[] = { "bash", "-i", NULL };
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	uint32_t command, taken;
	uint64_t next, total;
	uint8_t gap, at_end;
	int event_fd;

	start((struct box_options){ 0 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .pty = true }, &command, &event_fd, &fault), 0);
	cr_assert_eq(input(command, "sleep 300\n", 10, false, &taken), 0);
	usleep(500000);
	box_request(&writer, WIRE_SIGNAL, box.serial);
	pack_u32(&writer, command);
	pack_i32(&writer, SIGINT);
	cr_assert_eq(box_call(box.fd, &box.serial, &writer, NULL, 0, &reader, &fault), 0);
	cr_assert_eq(input(command, "echo st''ill here; exit 4\n", 26, false, &taken), 0);
	cr_assert_eq(box_wait_end(event_fd, 10 * SECOND, &end), 0);
	cr_assert_eq(end.exit_code, 4);
	close(event_fd);
	cr_assert_gt(read_stream(box.fd, &box.serial, command, 0, 0, &next, &total, &gap, &at_end), 0);
	cr_assert(strstr(out, "still here"), "%s", out);
	stop();
}

/* The wall clock of the box ends it, with what runs in it, and says so. */
Test(box, ends_at_its_wall_clock)
{
	const char *const argv[] = { "sleep", "300", NULL };
	uint32_t command;
	int event_fd;

	start((struct box_options){ .wall_usec = SECOND / 2 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv }, &command, &event_fd, &fault), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	close(event_fd);
	cr_assert_eq(end.cause, ABOX_CAUSE_TIMEOUT);
	cr_assert(end.limits_struck & ABOX_LIMIT_WALL);
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	cr_assert(box_state_is_empty(state));
	box_close(&box);
}

/* Idle is a box without a running command; one that runs silently is not idle. */
Test(box, ends_when_idle_and_not_before)
{
	uint64_t begin;

	start((struct box_options){ .idle_usec = SECOND / 2 });
	run("sleep 1; echo ok");
	cr_assert_str_eq(out, "ok\n");
	begin = now();
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	cr_assert_lt(now() - begin, 3 * SECOND);
	cr_assert(box_state_is_empty(state));
	box_close(&box);
}

/* Without its owner a box ends, or with `keep` stays and is reached by others. */
Test(box, ends_with_its_owner_or_is_kept)
{
	uint64_t epoch = 0;
	int fd;

	start((struct box_options){ .name = "mine" });
	box.fd = fd_close(box.fd);
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	cr_assert(box_state_is_empty(state));
	box_close(&box);

	start((struct box_options){ .name = "mine", .detach = true });
	box.fd = fd_close(box.fd);
	cr_assert_not(box_wait_gone(&box, SECOND / 2));
	fd = box_connect(&box, ABOX_OPEN_CONTROL, &epoch, &fault);
	cr_assert_geq(fd, 0, "%s", fault.message);
	cr_assert_eq(epoch, 2);
	box.fd = fd;
	box.epoch = epoch;
	box.serial = 2;
	run("echo alive");
	cr_assert_str_eq(out, "alive\n");
	{
		uint32_t left;

		cr_assert_eq(box_stop(&box, ABOX_STOP_SUCCESS, out, sizeof(out), &left, &fault), 0);
		cr_assert(box_wait_gone(&box, 5 * SECOND));
		cr_assert_not(box_state_is_empty(state));	/* its record and results stay */
		box_close(&box);
	}
}

/* A newer controller fences the older one; readers act on nothing. */
Test(box, fences_an_older_controller)
{
	_cleanup_(fd_closep) int control_fd = -EBADF, read_fd = -EBADF;
	uint64_t epoch;
	uint32_t left;

	start((struct box_options){ 0 });
	read_fd = box_connect(&box, ABOX_OPEN_READ, NULL, &fault);
	cr_assert_geq(read_fd, 0);
	control_fd = box_connect(&box, ABOX_OPEN_CONTROL, &epoch, &fault);
	cr_assert_geq(control_fd, 0);
	cr_assert_eq(epoch, 2);
	cr_assert_eq(box_sh(&box, "true", out, sizeof(out), &end, &fault), ABOX_E_FENCED);
	cr_assert_eq(box_stop(&box, ABOX_STOP_CANCEL, out, sizeof(out), &left, &fault), ABOX_E_FENCED);
	{
		struct box reader = box, controller = box;

		reader.fd = read_fd;
		reader.epoch = 0;
		reader.serial = 2;
		cr_assert_eq(box_sh(&reader, "true", out, sizeof(out), &end, &fault), ABOX_E_STATE);
		controller.fd = control_fd;
		controller.epoch = 2;
		controller.serial = 2;
		cr_assert_eq(box_sh(&controller, "true", out, sizeof(out), &end, &fault), 0);
		cr_assert_eq(box_stop(&controller, ABOX_STOP_CANCEL, out, sizeof(out), &left, &fault), 0);
	}
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	box_close(&box);
}

/* While the box is paused nothing in it runs, and the clocks of its commands stand still. */
static void check_pause(struct box_options options)
{
	const char *const argv[] = { "sh", "-c", "while :; do echo x; sleep 0.02; done", NULL };
	_cleanup_(pack_writer_clearp) struct pack_writer pause_request = PACK_WRITER_INIT, resume = PACK_WRITER_INIT;
	uint64_t next, total, later;
	uint8_t gap, at_end;
	struct pack_reader reader;
	uint32_t command;
	int event_fd;

	start(options);
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .stdout_mode = ABOX_STREAM_SPOOL,
		.timeout_usec = SECOND }, &command, &event_fd, &fault), 0);
	usleep(200000);
	box_request(&pause_request, WIRE_PAUSE, box.serial);
	pack_u64(&pause_request, box.epoch);
	cr_assert_eq(box_call(box.fd, &box.serial, &pause_request, NULL, 0, &reader, &fault), 0, "%s", fault.message);
	usleep(100000);
	cr_assert_geq(read_stream(box.fd, &box.serial, command, 0, 0, &next, &total, &gap, &at_end), 0);
	usleep(1200000);
	cr_assert_geq(read_stream(box.fd, &box.serial, command, 0, 0, &next, &later, &gap, &at_end), 0);
	cr_assert_eq(later, total);
	cr_assert_eq(box_sh(&box, "true", out, sizeof(out), &end, &fault), ABOX_E_STATE);
	box_request(&resume, WIRE_RESUME, box.serial);
	pack_u64(&resume, box.epoch);
	cr_assert_eq(box_call(box.fd, &box.serial, &resume, NULL, 0, &reader, &fault), 0, "%s", fault.message);
	usleep(200000);
	cr_assert_geq(read_stream(box.fd, &box.serial, command, 0, 0, &next, &later, &gap, &at_end), 0);
	cr_assert_gt(later, total);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	cr_assert_eq(end.cause, ABOX_CAUSE_TIMEOUT);
	close(event_fd);
	stop();
}

Test(box, pauses_by_signal)
{
	check_pause((struct box_options){ 0 });
}

Test(box, pauses_by_control_group)
{
	needs_groups();
	check_pause((struct box_options){ .cgroup2 = true });
}

static pid_t guest_pid(void)
{
	char path[64], text[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", box.keeper_pid, box.keeper_pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	fd_close(fd);
	return atoi(text);
}

/* SIGTERM to the keeper is an orderly stop; SIGKILL takes the guest and everything in the box with it. */
Test(box, ends_with_its_keeper)
{
	_cleanup_(fd_closep) int guest_fd = -EBADF;

	start((struct box_options){ 0 });
	cr_assert_eq(pidfd_signal(box.pidfd, SIGTERM), 0);
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	cr_assert(box_state_is_empty(state));
	box_close(&box);

	start((struct box_options){ 0 });
	guest_fd = pidfd_new(guest_pid());
	cr_assert_geq(guest_fd, 0);
	cr_assert_eq(pidfd_signal(box.pidfd, SIGKILL), 0);
	cr_assert_eq(pidfd_wait(guest_fd, clock_deadline(now(), 5 * SECOND)), 1);
	box_close(&box);
}

/* When PID 1 dies the command is told that its wall is lost, and the box ends. */
Test(box, tells_a_lost_wall)
{
	const char *const argv[] = { "sleep", "300", NULL };
	uint32_t command;
	int event_fd;

	start((struct box_options){ 0 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv }, &command, &event_fd, &fault), 0);
	cr_assert_eq(kill(guest_pid(), SIGKILL), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	cr_assert_eq(end.cause, ABOX_CAUSE_WALL_LOST);
	close(event_fd);
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	cr_assert(box_state_is_empty(state));
	box_close(&box);
}

/* A start that fails, at whichever stage, names the cause and leaves nothing. */
Test(box, failed_start_leaves_nothing)
{
	char long_name[80];
	struct box second;

	memset(long_name, 'h', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	cr_assert_lt(box_start(&box, &(struct box_options){ .state = state, .hostname = long_name }, &fault), 0);
	cr_assert_str_eq(fault.place, "hostname");
	cr_assert_eq(fault.stage, ABOX_STAGE_START);
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	box_close(&box);
	cr_assert(box_state_is_empty(state));

	cr_assert_eq(box_start(&box, &(struct box_options){ .state = state, .extra_source = "/no/such/source" }, &fault),
		ABOX_E_NOT_FOUND);
	cr_assert_str_eq(fault.place, "/no/such/source");
	cr_assert(box_wait_gone(&box, 5 * SECOND));
	box_close(&box);
	cr_assert(box_state_is_empty(state));

	start((struct box_options){ .name = "taken" });
	cr_assert_eq(box_start(&second, &(struct box_options){ .state = state, .name = "taken" }, &fault), ABOX_E_EXISTS);
	cr_assert(box_wait_gone(&second, 5 * SECOND));
	box_close(&second);
	stop();
}

/* A client that asks and never reads, and one that talks nonsense, hold nobody up. */
Test(box, is_not_held_up_by_a_client)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int slow_fd = -EBADF, mad_fd = -EBADF;
	const char *const argv[] = { "head", "-c", "60000", "/dev/zero", NULL };
	uint32_t command;
	int event_fd;
	char byte;

	start((struct box_options){ 0 });
	cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv, .stdout_mode = ABOX_STREAM_SPOOL }, &command, &event_fd,
		&fault), 0);
	cr_assert_eq(box_wait_end(event_fd, 5 * SECOND, &end), 0);
	close(event_fd);
	slow_fd = box_connect(&box, ABOX_OPEN_READ, NULL, &fault);
	mad_fd = box_connect(&box, ABOX_OPEN_ATTACH, NULL, &fault);
	cr_assert(slow_fd >= 0 && mad_fd >= 0);
	cr_assert_eq(fcntl(slow_fd, F_SETFL, O_NONBLOCK), 0);
	box_request(&writer, WIRE_READ, 2);
	pack_u32(&writer, command);
	pack_u32(&writer, 1);
	pack_u64(&writer, 0);
	pack_u32(&writer, 60000);
	pack_u64(&writer, 0);
	for (int i = 0; i < 2000; i++) {
		if (socket_send(slow_fd, writer.data, writer.len, NULL, 0) < 0)
			break;
	}
	cr_assert_eq(socket_send(mad_fd, "xyz", 3, NULL, 0), 0);
	run("echo here");
	cr_assert_str_eq(out, "here\n");
	cr_assert_leq(read(mad_fd, &byte, 1), 0);
	stop();
}

/* Many at once, each with its own end. */
Test(box, runs_commands_side_by_side)
{
	enum { N = 40 };
	int event_fds[N];
	uint32_t commands[N];

	start((struct box_options){ 0 });
	for (int i = 0; i < N; i++) {
		char script[32];
		const char *const argv[] = { "sh", "-c", script, NULL };

		snprintf(script, sizeof(script), "sleep 0.1; exit %d", i);
		cr_assert_eq(box_exec(&box, &(struct box_exec){ .argv = argv }, &commands[i], &event_fds[i], &fault), 0, "%s",
			fault.message);
	}
	for (int i = 0; i < N; i++) {
		cr_assert_eq(box_wait_end(event_fds[i], 10 * SECOND, &end), 0);
		cr_assert_eq(end.exit_code, i);
		close(event_fds[i]);
	}
	stop();
}

/* Evidence: the group's oom_kill counter, read before the group is gone; a grandchild's death is told beside the exit code. */
Test(box, tells_memory_by_the_counter)
{
	needs_groups();
	start((struct box_options){ .cgroup2 = true, .memory_bytes = 64 << 20 });
	run("exec head -c 500M /dev/zero | tail > /dev/null");
	run("exec python3 -c 'b=bytearray(1<<30)'");
	cr_assert_eq(end.cause, ABOX_CAUSE_MEMORY, "%u %s", end.cause, end.evidence);
	cr_assert_eq(end.signal, SIGKILL);
	run("python3 -c 'b=bytearray(1<<30)'; exit 5");
	cr_assert_eq(end.cause, ABOX_CAUSE_EXITED);
	cr_assert_eq(end.exit_code, 5);
	cr_assert(end.limits_struck & ABOX_LIMIT_MEMORY);
	run("true");
	cr_assert_eq(end.limits_struck, 0);
	stop();
}

/* A command's own limit is a group of its own, and never wider than the box's. */
Test(box, limits_one_command)
{
	const char *const argv[] = { "python3", "-c", "b=bytearray(200<<20)", NULL };

	needs_groups();
	start((struct box_options){ .cgroup2 = true, .memory_bytes = 512 << 20 });
	cr_assert_eq(box_run(&box, &(struct box_exec){ .argv = argv, .memory_bytes = 64 << 20 }, out, sizeof(out), &end,
		&fault), 0, "%s: %s", fault.place, fault.message);
	cr_assert_eq(end.cause, ABOX_CAUSE_MEMORY, "%u %s", end.cause, end.evidence);
	cr_assert_eq(box_run(&box, &(struct box_exec){ .argv = argv }, out, sizeof(out), &end, &fault), 0);
	cr_assert_eq(end.cause, ABOX_CAUSE_EXITED);
	cr_assert_eq(end.exit_code, 0);
	cr_assert_eq(box_run(&box, &(struct box_exec){ .argv = argv, .memory_bytes = 1ULL << 40 }, out, sizeof(out), &end,
		&fault), ABOX_E_LIMIT);
	stop();
}

/* The scratch is bounded in bytes and inodes, and the result says which of them struck. */
Test(box, bounds_what_is_written)
{
	start((struct box_options){ .disk_bytes = 4 << 20, .inodes = 200 });
	run("head -c 10M /dev/zero > /tmp/big; wc -c < /tmp/big");
	cr_assert_leq(atoi(out[0] == 'h' ? strchr(out, '\n') + 1 : out), 4 << 20, "%s", out);
	cr_assert(end.limits_struck & ABOX_LIMIT_DISK);
	run("rm /tmp/big; i=0; while : > /workspace/f$i; do i=$((i+1)); [ $i -gt 500 ] && exit 1; done 2>/dev/null; exit 0");
	cr_assert(end.limits_struck & ABOX_LIMIT_INODES, "%d %s", end.exit_code, out);
	stop();
}
