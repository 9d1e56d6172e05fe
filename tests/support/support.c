/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Boxes and children for host tests.
 */
#include "support.h"

#include <agentbox/probe.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int report_fd = STDERR_FILENO;

double clock_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void pause_msec(unsigned msec)
{
	struct timespec rest = { msec / 1000, (long)(msec % 1000) * 1000000 };

	while (nanosleep(&rest, &rest) < 0 && errno == EINTR)
		;
}

bool wait_until(bool (*condition)(void *argument), void *argument, unsigned msec)
{
	double end = clock_seconds() + msec / 1000.0;

	for (;;) {
		if (condition(argument))
			return true;
		if (clock_seconds() > end)
			return false;
		pause_msec(10);
	}
}

bool am_root(void)
{
	return geteuid() == 0;
}

bool is_long(void)
{
	return getenv("ABOX_TEST_LONG") != NULL;
}

static bool in_system_path(const char *program)
{
	char path[256];

	snprintf(path, sizeof(path), "/usr/bin/%s", program);
	return access(path, X_OK) == 0;
}

static bool memory_limit_works(void)
{
	abox_plan *plan = NULL;
	int r = try_plan("{\"version\": 1, \"limits\": {\"memory\": \"64MiB\"}}", &plan);

	abox_plan_unref(plan);
	return r >= 0;
}

void needs(const char *what)
{
	if (!strcmp(what, "root") && !am_root())
		cr_skip_test("needs root: run as root");
	else if (!strcmp(what, "plain") && am_root())
		cr_skip_test("needs a plain user: run with tests/support/as plain");
	else if (!strcmp(what, "memory-limit") && !memory_limit_works())
		cr_skip_test("needs a memory limit: root, or a delegated control group");
	else if (strcmp(what, "root") && strcmp(what, "plain") && strcmp(what, "memory-limit") && !in_system_path(what))
		cr_skip_test("needs %s: apt-get install %s", what, what);
}

void needs_wall(const char *name)
{
	abox_host *host = NULL;
	char text[512] = "";

	cr_assert_geq(abox_probe(&host, NULL), 0);
	for (uint32_t i = 0; abox_host_backend_name(host, i); i++) {
		const char *blocker = abox_host_backend_blocker(host, i), *remedy = abox_host_backend_remedy(host, i);

		if (!strcmp(abox_host_backend_name(host, i), name) && !abox_host_backend_usable(host, i))
			snprintf(text, sizeof(text), "needs %s: %s: %s", name, blocker ? blocker : "", remedy ? remedy : "");
	}
	abox_host_unref(host);
	if (text[0])
		cr_skip_test("%s", text);
}

/* -- children -- */

void apart_say(const char *format, ...)
{
	char line[1024];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	if ((size_t)n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	(void)!write(report_fd, line, (size_t)n);
}

/* Reads until the end of the pipe or of time. */
static void collect(int fd, double end, char *text, size_t size)
{
	size_t len = 0;

	for (;;) {
		double left = end - clock_seconds();
		struct pollfd p = { .fd = fd, .events = POLLIN };
		char dropped[4096];
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
			break;
		n = len + 1 < size ? read(fd, text + len, size - 1 - len) : read(fd, dropped, sizeof(dropped));
		if (n <= 0)
			break;
		if (len + 1 < size)
			len += (size_t)n;
	}
	text[len] = 0;
}

static int wait_for(pid_t child, double end)
{
	int status;

	for (;;) {
		pid_t got = waitpid(child, &status, WNOHANG);

		if (got == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		/* Somebody else may have taken the status: a handler of the code that is tested. */
		if (got < 0 && errno != EINTR)
			return -1;
		if (clock_seconds() > end)
			break;
		pause_msec(2);
	}
	kill(-child, SIGKILL);
	kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return -1;
}

int apart_run(int (*function)(void *argument), void *argument, unsigned seconds, char *text, size_t size)
{
	double end = clock_seconds() + seconds;
	int fds[2];
	pid_t child;

	text[0] = 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -1;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		setpgid(0, 0);
		report_fd = fds[1];
		_exit(function(argument) & 0xff);
	}
	close(fds[1]);
	if (child > 0)
		collect(fds[0], end, text, size);
	close(fds[0]);
	return child < 0 ? -1 : wait_for(child, end);
}

int program_run(const char *const *argv, const char *input, unsigned seconds, char *text, size_t size)
{
	double end = clock_seconds() + seconds;
	int out[2], in[2] = { -1, -1 };
	pid_t child;

	text[0] = 0;
	if (pipe2(out, O_CLOEXEC) < 0 || (input && pipe2(in, O_CLOEXEC) < 0))
		return -1;
	fflush(NULL);
	child = fork();
	if (child == 0) {
		int null = open("/dev/null", O_RDWR);

		setpgid(0, 0);
		dup2(input ? in[0] : null, 0);
		dup2(out[1], 1);
		dup2(out[1], 2);
		for (int fd = 3; fd < 256; fd++)
			close(fd);
		execv(argv[0], (char *const *)argv);
		_exit(121);
	}
	close(out[1]);
	if (input) {
		close(in[0]);
		(void)!write(in[1], input, strlen(input));
		close(in[1]);
	}
	if (child > 0)
		collect(out[0], end, text, size);
	close(out[0]);
	return child < 0 ? -1 : wait_for(child, end);
}

const char *agentbox_program(void)
{
	const char *path = getenv("ABOX_TEST_AGENTBOX");

	return path ? path : "agentbox";
}

const char *probe_program(void)
{
	const char *path = getenv("ABOX_TEST_PROBE");

	return path ? path : "agentbox-probe";
}

/* -- boxes -- */

static char *with_probe(const char *spec_json)
{
	json_t *spec = json_loads(spec_json, 0, NULL), *mounts;
	char folder[4096], *text, *slash;

	if (!spec)
		return NULL;
	if (!json_object_get(spec, "version"))
		json_object_set_new(spec, "version", json_integer(1));
	mounts = json_object_get(spec, "mounts");
	if (!mounts) {
		mounts = json_array();
		json_object_set_new(spec, "mounts", mounts);
	}
	snprintf(folder, sizeof(folder), "%s", probe_program());
	slash = strrchr(folder, '/');
	if (slash) {
		*slash = 0;
		json_array_append_new(mounts, json_pack("{s:s,s:s,s:s}", "source", folder, "target", "/probe", "mode", "ro"));
	}
	text = json_dumps(spec, 0);
	json_decref(spec);
	return text;
}

static int plan_with_error(const char *spec_json, abox_plan **retplan, abox_error **reterr)
{
	char *text = with_probe(spec_json);
	abox_spec *spec = NULL;
	int r;

	if (!text)
		return ABOX_E_SYNTAX;
	r = abox_spec_from_json(text, &spec, reterr);
	free(text);
	if (r >= 0)
		r = abox_plan_compile(spec, retplan, reterr);
	abox_spec_unref(spec);
	return r;
}

int try_plan(const char *spec_json, abox_plan **retplan)
{
	return plan_with_error(spec_json, retplan, NULL);
}

int try_box(const char *spec_json, abox_sandbox **retbox)
{
	abox_plan *plan = NULL;
	int r;

	r = try_plan(spec_json, &plan);
	if (r >= 0)
		r = abox_sandbox_start(plan, NULL, retbox, NULL);
	abox_plan_unref(plan);
	return r;
}

int try_run(abox_sandbox *box, const char *const *argv, int *retexit)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv };
	abox_result *result = NULL;
	int r;

	r = abox_command_run(box, &options, &result, NULL);
	if (r >= 0)
		*retexit = abox_result_get_exit_code(result);
	abox_result_unref(result);
	return r;
}

static void assert_good(int r, abox_error *error, const char *what)
{
	char *text = NULL;

	if (error)
		abox_error_format(error, &text);
	cr_assert_geq(r, 0, "%s: %s: %s", what, abox_code_name(r), text ? text : "");
	abox_free(text);
	abox_error_free(error);
}

abox_plan *plan_of(const char *spec_json)
{
	abox_error *error = NULL;
	abox_plan *plan = NULL;

	assert_good(plan_with_error(spec_json, &plan, &error), error, "compile");
	return plan;
}

abox_sandbox *box_of(const char *spec_json)
{
	abox_plan *plan = plan_of(spec_json);
	abox_error *error = NULL;
	abox_sandbox *box = NULL;

	assert_good(abox_sandbox_start(plan, NULL, &box, &error), error, "start");
	abox_plan_unref(plan);
	return box;
}

abox_result *run_in(abox_sandbox *box, const char *const *argv)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv };
	abox_error *error = NULL;
	abox_result *result = NULL;

	assert_good(abox_command_run(box, &options, &result, &error), error, argv[0]);
	return result;
}

abox_command *start_in(abox_sandbox *box, const char *const *argv)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv, .stdout_mode = ABOX_STREAM_SPOOL,
		.stderr_mode = ABOX_STREAM_SPOOL };
	abox_error *error = NULL;
	abox_command *command = NULL;

	assert_good(abox_command_start(box, &options, &command, &error), error, argv[0]);
	return command;
}

void stop_box(abox_sandbox *box)
{
	abox_error *error = NULL;

	assert_good(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, &error), error, "stop");
	abox_sandbox_unref(box);
}

const char *output_of(const abox_result *result, int stream)
{
	const void *data = "";
	size_t len;

	cr_assert_geq(abox_result_get_output(result, stream, &data, &len), 0);
	return data;
}

/* -- the host -- */

static json_t *find_in_list(const char *id, json_t **retlist)
{
	json_t *box, *found = NULL;
	char *json = NULL;
	size_t i;

	if (abox_sandbox_list(&json, NULL) < 0)
		return NULL;
	*retlist = json_loads(json, 0, NULL);
	abox_free(json);
	json_array_foreach(*retlist, i, box) {
		const char *one = json_string_value(json_object_get(box, "id"));

		if (one && !strcmp(one, id))
			found = box;
	}
	return found;
}

pid_t keeper_pid(const char *id)
{
	json_t *list = NULL, *box = find_in_list(id, &list);
	pid_t pid = (pid_t)json_integer_value(json_object_get(box, "pid"));

	json_decref(list);
	return pid;
}

bool pid_is_gone(pid_t pid)
{
	char path[64], line[512], state = 'X';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return true;
	if (fgets(line, sizeof(line), file)) {
		char *bracket = strrchr(line, ')');

		if (bracket && bracket[1])
			state = bracket[2];
	}
	fclose(file);
	return state == 'Z' || state == 'X';
}

static pid_t parent_of(pid_t pid)
{
	char path[64], line[512], *bracket;
	FILE *file;
	int parent = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fgets(line, sizeof(line), file) && (bracket = strrchr(line, ')')))
		sscanf(bracket + 1, " %*c %d", &parent);
	fclose(file);
	return parent;
}

static bool is_below(pid_t pid, pid_t ancestor)
{
	for (int depth = 0; pid > 1 && depth < 16; depth++) {
		pid = parent_of(pid);
		if (pid == ancestor)
			return true;
	}
	return false;
}

static bool is_called(const char *pid, const char *name)
{
	char path[300], text[256];
	size_t len;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%.16s/cmdline", pid);
	file = fopen(path, "re");
	len = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
	if (file)
		fclose(file);
	text[len] = 0;
	len = strlen(text);
	return len >= strlen(name) && strcmp(text + len - strlen(name), name) == 0;
}

pid_t find_below(pid_t ancestor, const char *name)
{
	DIR *dir = ancestor > 0 ? opendir("/proc") : NULL;
	struct dirent *entry;
	pid_t found = 0;

	while (dir && !found && (entry = readdir(dir))) {
		pid_t pid = atoi(entry->d_name);

		if (pid > 1 && (!name || is_called(entry->d_name, name)) && is_below(pid, ancestor) && !pid_is_gone(pid))
			found = pid;
	}
	if (dir)
		closedir(dir);
	return found;
}

bool box_is_gone(void *id)
{
	json_t *list = NULL;
	bool gone = !find_in_list(id, &list);

	json_decref(list);
	return gone;
}
