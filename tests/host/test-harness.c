/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The process that uses the library: what it holds never gets into a box, what it does with signals and children does
 * not matter, and its death at any moment leaves nothing behind.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

static const char *const fds_words[] = { PROBE_IN_BOX, "fds", NULL };
static const char *const true_words[] = { "true", NULL };

static int run_and_read(abox_sandbox *box, const char *const *argv, char *text, size_t size)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv };
	abox_result *result = NULL;
	const void *data;
	size_t len;

	if (abox_command_run(box, &options, &result, NULL) < 0)
		return -1;
	abox_result_get_output(result, 1, &data, &len);
	snprintf(text, size, "%s", (const char *)data);
	abox_result_unref(result);
	return 0;
}

static int with_open_descriptors(void *unused)
{
	char text[8192];
	abox_sandbox *box = NULL;
	int pair[2];

	(void)unused;
	/* None of them close-on-exec: that is the point. */
	for (int i = 0; i < 48; i++)
		apart_check(open(i % 2 ? "/" : "/etc/passwd", O_RDONLY) >= 0);
	apart_check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	apart_check(try_box("{}", &box) >= 0);
	apart_check(run_and_read(box, fds_words, text, sizeof(text)) == 0);
	apart_say("%s", text);
	apart_check(strstr(text, "fd:extra 0\n"));
	apart_check(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) >= 0);
	abox_sandbox_unref(box);
	return 0;
}

/* T7-1: fifty descriptors of the host without close-on-exec; a command has 0, 1, 2 and no other. */
Test(harness, T7_1_descriptors_stay_outside)
{
	assert_apart(with_open_descriptors, NULL, 30);
}

static int with_closed_streams(void *unused)
{
	char text[8192];
	abox_sandbox *box = NULL;

	(void)unused;
	close(0);
	close(1);
	close(2);
	apart_check(try_box("{}", &box) >= 0);
	apart_check(run_and_read(box, fds_words, text, sizeof(text)) == 0);
	apart_check(strstr(text, "fd:extra 0\n"));
	apart_check(strstr(text, "fd:0 /dev/null"));
	apart_check(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) >= 0);
	abox_sandbox_unref(box);
	return 0;
}

/* T7-1: the same when the host has closed 0, 1 and 2, so that new descriptors take their numbers. */
Test(harness, T7_1_descriptors_with_closed_streams)
{
	assert_apart(with_closed_streams, NULL, 30);
}

static atomic_bool churn_ends;

static void *churn_descriptors(void *unused)
{
	(void)unused;
	while (!atomic_load(&churn_ends)) {
		int fd = open("/etc/passwd", O_RDONLY);	/* without close-on-exec */

		if (fd >= 0)
			close(fd);
	}
	return NULL;
}

struct starter {
	pthread_t thread;
	int rounds;
	int stray;
	int failed;
};

static void *start_boxes(void *argument)
{
	struct starter *starter = argument;

	for (int i = 0; i < starter->rounds; i++) {
		abox_sandbox *box = NULL;
		char text[8192] = "";

		if (try_box("{}", &box) < 0 || run_and_read(box, fds_words, text, sizeof(text)) < 0
		    || abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) < 0)
			starter->failed++;
		else if (!strstr(text, "fd:extra 0\n"))
			starter->stray++;
		abox_sandbox_unref(box);
	}
	return NULL;
}

static int exec_from_threads(void *unused)
{
	struct starter starters[8] = { 0 };
	pthread_t churners[2];

	(void)unused;
	for (int i = 0; i < 2; i++)
		apart_check(pthread_create(&churners[i], NULL, churn_descriptors, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		starters[i].rounds = is_long() ? 125 : 25;
		apart_check(pthread_create(&starters[i].thread, NULL, start_boxes, &starters[i]) == 0);
	}
	for (int i = 0; i < 8; i++)
		pthread_join(starters[i].thread, NULL);
	atomic_store(&churn_ends, true);
	for (int i = 0; i < 2; i++)
		pthread_join(churners[i], NULL);
	for (int i = 0; i < 8; i++) {
		apart_check(starters[i].failed == 0);
		apart_check(starters[i].stray == 0);
	}
	return 0;
}

/* T7-2 and B90: eight threads start boxes while others open and close descriptors; none gets in, none fails. */
Test(harness, T7_2_no_stray_descriptor_from_threads, .timeout = 300)
{
	struct leaks *before = leaks_take();

	assert_apart(exec_from_threads, NULL, 280);
	assert_no_leaks(before);
}

/* -- signals and children of the host -- */

static int exit_seven(void *argument)
{
	static const char *const words[] = { "sh", "-c", "exit 7", NULL };
	abox_sandbox *box = NULL;
	int status, code = -1;
	pid_t other = fork();

	(void)argument;
	if (other == 0) {
		pause_msec(50);
		_exit(9);
	}
	apart_check(try_box("{}", &box) >= 0);
	apart_check(try_run(box, words, &code) >= 0);
	apart_check(code == 7);
	apart_check(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) >= 0);
	abox_sandbox_unref(box);
	/* Our own child is ours to wait for (or, where SIGCHLD is ignored, to see gone), and the only one there is. */
	if (waitpid(other, &status, 0) == other)
		apart_check(WEXITSTATUS(status) == 9);
	else
		apart_check(errno == ECHILD && signal(SIGCHLD, SIG_DFL) == SIG_IGN);
	errno = 0;
	apart_check(waitpid(-1, &status, WNOHANG | __WALL) < 0 && errno == ECHILD);
	return 0;
}

/* B20: an exit code is right beside a child of the host's own, which nobody else waits for. */
Test(harness, T15_7_foreign_child_is_not_consumed)
{
	assert_apart(exit_seven, NULL, 30);
}

static int with_ignored_children(void *unused)
{
	(void)unused;
	signal(SIGCHLD, SIG_IGN);
	return exit_seven(NULL);
}

/* T15-7: the host ignores SIGCHLD. */
Test(harness, T15_7_sigchld_ignored)
{
	assert_apart(with_ignored_children, NULL, 30);
}

static int with_no_wait(void *unused)
{
	struct sigaction action = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT };
	static const char *const words[] = { "sh", "-c", "exit 7", NULL };
	abox_sandbox *box = NULL;
	int code = -1;

	(void)unused;
	sigaction(SIGCHLD, &action, NULL);
	apart_check(try_box("{}", &box) >= 0);
	apart_check(try_run(box, words, &code) >= 0);
	apart_check(code == 7);
	apart_check(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) >= 0);
	abox_sandbox_unref(box);
	return 0;
}

/* T15-7: the host uses SA_NOCLDWAIT. */
Test(harness, T15_7_sa_nocldwait)
{
	assert_apart(with_no_wait, NULL, 30);
}

static atomic_int reaped, sigchld_seen, reap_flags;

static void count_sigchld(int number)
{
	(void)number;
	atomic_fetch_add(&sigchld_seen, 1);
}

static void *reap_everything(void *unused)
{
	(void)unused;
	while (!atomic_load(&churn_ends)) {
		if (waitpid(-1, NULL, WNOHANG | atomic_load(&reap_flags)) > 0)
			atomic_fetch_add(&reaped, 1);
		pause_msec(1);
	}
	return NULL;
}

static int with_reaper(void *unused)
{
	static const char *const words[] = { "sh", "-c", "exit 7", NULL };
	pthread_t thread;

	(void)unused;
	signal(SIGCHLD, count_sigchld);
	apart_check(pthread_create(&thread, NULL, reap_everything, NULL) == 0);
	for (int i = 0; i < 10; i++) {
		abox_sandbox *box = NULL;
		int code = -1;

		apart_check(try_box("{}", &box) >= 0);
		apart_check(try_run(box, words, &code) >= 0);
		apart_check(code == 7);
		apart_check(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) >= 0);
		abox_sandbox_unref(box);
	}
	atomic_store(&churn_ends, true);
	pthread_join(thread, NULL);
	apart_check(atomic_load(&reaped) == 0 || atomic_load(&reap_flags));
	apart_check(atomic_load(&sigchld_seen) == 0);
	return 0;
}

static int with_clone_reaper(void *unused)
{
	atomic_store(&reap_flags, __WALL);
	return with_reaper(unused);
}

/* T15-7: a thread of the host reaps every child it can get: it never gets one of ours, and no SIGCHLD comes. */
Test(harness, T15_7_wait_loop_sees_no_child_of_ours, .timeout = 90)
{
	assert_apart(with_reaper, NULL, 60);
}

/* The same with __WALL, which does see the short-lived helper of a start: exit codes are right all the same. */
Test(harness, T15_7_wait_loop_for_all_clones_does_no_harm, .timeout = 90)
{
	assert_apart(with_clone_reaper, NULL, 60);
}

struct mark {
	mode_t mask;
	char cwd[4096];
	sigset_t signals;
	struct sigaction actions[32];
	unsigned n_fds;
};

static void take_mark(struct mark *mark)
{
	memset(mark, 0, sizeof(*mark));
	mark->mask = umask(0);
	umask(mark->mask);
	if (!getcwd(mark->cwd, sizeof(mark->cwd)))
		mark->cwd[0] = 0;
	pthread_sigmask(SIG_SETMASK, NULL, &mark->signals);
	for (int i = 1; i < 32; i++)
		sigaction(i, NULL, &mark->actions[i]);
	for (int fd = 0; fd < 512; fd++)
		mark->n_fds += fcntl(fd, F_GETFD) >= 0;
}

static int leaves_host_alone(void *unused)
{
	struct mark before, after;
	abox_sandbox *box = NULL;
	int code;

	(void)unused;
	umask(0027);
	apart_check(chdir("/usr") == 0);
	take_mark(&before);
	apart_check(try_box("{}", &box) >= 0);
	for (int fd = 3; fd < 512; fd++)
		apart_check(fcntl(fd, F_GETFD) < 0 || fcntl(fd, F_GETFD) & FD_CLOEXEC);
	apart_check(try_run(box, true_words, &code) >= 0 && code == 0);
	apart_check(abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, NULL) >= 0);
	abox_sandbox_unref(box);
	take_mark(&after);
	apart_check(before.mask == after.mask && !strcmp(before.cwd, after.cwd));
	apart_check(!memcmp(&before.signals, &after.signals, sizeof(before.signals)));
	for (int i = 1; i < 32; i++)
		apart_check(before.actions[i].sa_handler == after.actions[i].sa_handler
			    && before.actions[i].sa_flags == after.actions[i].sa_flags);
	apart_check(before.n_fds == after.n_fds);
	return 0;
}

/* Umask, working directory, signal mask and handlers of the host stay as they are, and every descriptor goes again. */
Test(harness, host_state_is_untouched)
{
	for (int fd = 3; fd < 64; fd++)		/* criterion's own are not close-on-exec */
		if (fcntl(fd, F_GETFD) >= 0)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	assert_apart(leaves_host_alone, NULL, 30);
}

/* -- death -- */

static bool keeper_is_gone(void *pid)
{
	return pid_is_gone(*(pid_t *)pid);
}

struct victim {
	unsigned after_msec;
	char id[64];
	int id_fd;
};

/* Starts a box with a busy command, tells its id, and waits to be killed. */
static void live_until_killed(const struct victim *victim, const char *spec)
{
	static const char *const words[] = { "sh", "-c", "sleep 1000 & exec sleep 1000", NULL };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = words };
	abox_command *command = NULL;
	abox_sandbox *box = NULL;

	if (try_box(spec, &box) < 0 || abox_command_start(box, &options, &command, NULL) < 0)
		_exit(1);
	(void)!write(victim->id_fd, abox_sandbox_get_id(box), 33);
	for (;;)
		pause();
}

static pid_t start_victim(const char *spec, char *id, size_t size)
{
	int fds[2];
	pid_t child;
	ssize_t n;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	child = fork();
	if (child == 0) {
		struct victim victim = { .id_fd = fds[1] };

		live_until_killed(&victim, spec);
	}
	close(fds[1]);
	n = read(fds[0], id, size - 1);
	id[n < 0 ? 0 : n] = 0;
	close(fds[0]);
	return child;
}

/* T15-6: the host is killed while a box runs: the box goes, with everything in it. */
Test(harness, T15_6_box_goes_with_its_host)
{
	struct leaks *before = leaks_take();
	char id[64];
	pid_t child = start_victim("{}", id, sizeof(id));

	cr_assert_gt(child, 0);
	cr_assert_eq(strlen(id), 32, "the box did not start");
	cr_assert_gt(keeper_pid(id), 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	cr_assert(wait_until(box_is_gone, id, 10000));
	assert_no_leaks(before);
}

/* T15-6: killed at random moments from the first call on, nothing is left. */
Test(harness, T15_6_killed_at_any_moment, .timeout = 300)
{
	struct leaks *before = leaks_take();
	int rounds = is_long() ? 400 : 40;

	for (int i = 0; i < rounds; i++) {
		pid_t child = fork();

		if (child == 0) {
			struct victim victim = { .id_fd = open("/dev/null", O_WRONLY | O_CLOEXEC) };

			live_until_killed(&victim, "{}");
		}
		cr_assert_gt(child, 0);
		usleep((useconds_t)(i * 7919 % 12000));
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	cr_assert_geq(abox_sandbox_gc(NULL, NULL), 0);
	assert_no_leaks(before);
}

/* T15-13: the keeper is killed: the box is gone at once, its commands too, and the next call clears the rest. */
Test(harness, T15_13_killed_keeper_is_cleared)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box = box_of("{}");
	abox_command *command = start_words(box, "sleep", "1000");
	char id[64];
	pid_t keeper;

	snprintf(id, sizeof(id), "%s", abox_sandbox_get_id(box));
	keeper = keeper_pid(id);
	cr_assert_gt(keeper, 0);
	kill(keeper, SIGKILL);
	cr_assert_eq(abox_sandbox_wait(box, 10000000, NULL), 1);
	cr_assert_lt(abox_sandbox_stats(box, &(struct abox_stats){ ABOX_STATS_INIT }, NULL), 0);
	abox_command_unref(command);
	abox_sandbox_unref(box);
	cr_assert(wait_until(keeper_is_gone, &keeper, 10000));
	cr_assert_geq(abox_sandbox_gc(NULL, NULL), 0);
	cr_assert(box_is_gone(id));
	assert_no_leaks(before);
}

/* T15-13: clearing leaves boxes of living owners alone. */
Test(harness, T15_13_gc_spares_the_living)
{
	abox_sandbox *box = box_of("{}");
	abox_result *result;

	cr_assert_geq(abox_sandbox_gc(NULL, NULL), 0);
	result = run_words(box, "true");
	cr_assert_eq(abox_result_get_exit_code(result), 0);
	abox_result_unref(result);
	stop_box(box);
}

/* Host and keeper are killed together. */
Test(harness, T15_13_both_killed)
{
	struct leaks *before = leaks_take();
	char id[64];
	pid_t child = start_victim("{}", id, sizeof(id)), keeper;

	cr_assert_eq(strlen(id), 32);
	keeper = keeper_pid(id);
	cr_assert_gt(keeper, 0);
	kill(child, SIGKILL);
	kill(keeper, SIGKILL);
	waitpid(child, NULL, 0);
	cr_assert(wait_until(keeper_is_gone, &keeper, 10000));
	cr_assert_geq(abox_sandbox_gc(NULL, NULL), 0);
	assert_no_leaks(before);
}

/* A box that keeps when its owner dies is found again by another process, and works. */
Test(harness, kept_box_is_found_again)
{
	struct leaks *before = leaks_take();
	char id[64], other_id[64];
	pid_t child = start_victim("{\"on_owner_death\": \"keep\"}", id, sizeof(id));
	abox_sandbox *box = NULL;
	abox_result *result;

	cr_assert_eq(strlen(id), 32);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	pause_msec(300);
	cr_assert_geq(abox_sandbox_open(id, ABOX_OPEN_CONTROL, &box, NULL), 0);
	snprintf(other_id, sizeof(other_id), "%s", abox_sandbox_get_id(box));
	cr_assert_str_eq(id, other_id);
	result = run_words(box, "echo", "still here");
	cr_assert_str_eq(output_of(result, 1), "still here\n");
	abox_result_unref(result);
	stop_box(box);
	abox_sandbox_remove(id, NULL);
	assert_no_leaks(before);
}

/* -- places -- */

static int with_long_tmpdir(void *unused)
{
	char name[129], spec[256], path[300];
	abox_sandbox *box = NULL;
	int code = -1;

	(void)unused;
	memset(name, 'n', 128);
	name[128] = 0;
	snprintf(path, sizeof(path), "%s/%0120d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", 0);
	apart_check(mkdir(path, 0700) == 0 || errno == EEXIST);
	setenv("TMPDIR", path, 1);
	snprintf(spec, sizeof(spec), "{\"name\": \"%s\"}", name);
	apart_check(try_box(spec, &box) >= 0);
	apart_check(try_run(box, true_words, &code) >= 0 && code == 0);
	abox_sandbox_unref(box);
	apart_check(abox_sandbox_open(name, ABOX_OPEN_READ, &box, NULL) < 0 || (abox_sandbox_unref(box), true));
	rmdir(path);
	return 0;
}

/* B43: a long TMPDIR and a name of 128 characters work: no socket path becomes too long. */
Test(harness, B43_long_names)
{
	assert_apart(with_long_tmpdir, NULL, 30);
}

/* B69: the state folder is for its owner only. */
Test(harness, B69_state_folder_is_private)
{
	const char *places[] = { "%s/boxes", "%s/run/boxes", NULL };
	abox_sandbox *box = box_of("{}");
	char path[4096];
	struct stat st;
	int seen = 0;

	for (int i = 0; places[i]; i++) {
		snprintf(path, sizeof(path), i ? "%s/run/boxes" : "%s/boxes", getenv("ABOX_HOME") ? getenv("ABOX_HOME") : "/run/agentbox");
		if (stat(path, &st) < 0)
			continue;
		seen++;
		cr_expect_eq(st.st_mode & 0077, 0);
		cr_expect_eq(st.st_uid, geteuid());
	}
	cr_expect_gt(seen, 0);
	stop_box(box);
}

static void *allocate_and_log(void *unused)
{
	(void)unused;
	while (!atomic_load(&churn_ends)) {
		char *memory = malloc(4096);

		if (memory)
			snprintf(memory, 4096, "%p", (void *)memory);
		free(memory);
	}
	return NULL;
}

static int busy_host(void *unused)
{
	struct starter starter = { .rounds = is_long() ? 2000 : 100 };
	pthread_t threads[8];

	(void)unused;
	for (int i = 0; i < 8; i++)
		apart_check(pthread_create(&threads[i], NULL, allocate_and_log, NULL) == 0);
	start_boxes(&starter);
	atomic_store(&churn_ends, true);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	apart_check(starter.failed == 0);
	return 0;
}

/* B93: threads that allocate all the time never make a start hang. */
Test(harness, B93_allocating_threads_do_not_hang_a_start, .timeout = 1800)
{
	assert_apart(busy_host, NULL, is_long() ? 1700 : 280);
}
