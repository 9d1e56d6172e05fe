/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox effect run: a command as an effect. Its exit code and output are the stored result. The command
 * holds the executor lock as well, so that it counts as under way for as long as it lives, whatever becomes
 * of this program.
 */
#include "effect_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct output {
	int fd;
	char *data;
	size_t len;
	bool failed;
};

struct job {
	char **argv;
	abox_task *task;
	struct output streams[2];
	int start_error; /* errno when it could not be started */
	int status;      /* of waitpid */
};

/* ---- the command ---- */

static void child(const struct job *job, const abox_effect *effect, int out, int err, int report, int lock)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
		goto failed;
	/* Inherited on purpose: see above. */
	if (fcntl(lock, F_SETFD, 0) < 0 || setenv("ABOX_EFFECT_ID", abox_effect_get_id(effect), 1) < 0)
		goto failed;
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	execvp(job->argv[0], job->argv);
failed:
	if (write(report, &errno, sizeof(errno)) < 0)
		_exit(126);
	_exit(127);
}

static bool take(struct output *output)
{
	char *more = realloc(output->data, output->len + 65536);
	ssize_t n;

	if (!more) {
		output->failed = true;
		return false;
	}
	output->data = more;
	n = read(output->fd, output->data + output->len, 65536);
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (n <= 0)
		return false;
	output->len += (size_t)n;
	return true;
}

/* Until both streams have ended: the command, or what it left behind, has closed them. */
static void collect(struct job *job)
{
	struct pollfd fds[2];

	for (;;) {
		int open_streams = 0;

		for (int i = 0; i < 2; i++) {
			fds[i] = (struct pollfd){.fd = job->streams[i].fd, .events = POLLIN};
			open_streams += job->streams[i].fd >= 0;
		}
		if (!open_streams)
			return;
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			return;
		for (int i = 0; i < 2; i++)
			if (fds[i].fd >= 0 && fds[i].revents && !take(&job->streams[i])) {
				close(job->streams[i].fd);
				job->streams[i].fd = -1;
			}
	}
}

static bool start(struct job *job, const abox_effect *effect, pid_t *retpid)
{
	int out[2], err[2], report[2], lock = abox_task_dup_executor(job->task, NULL);

	if (lock < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ||
		pipe2(report, O_CLOEXEC) < 0)
		return false;
	*retpid = fork();
	if (*retpid == 0)
		child(job, effect, out[1], err[1], report[1], lock);
	close(lock);
	close(out[1]);
	close(err[1]);
	close(report[1]);
	job->streams[0].fd = out[0];
	job->streams[1].fd = err[0];
	if (*retpid > 0 && read(report[0], &job->start_error, sizeof(job->start_error)) <= 0)
		job->start_error = 0;
	close(report[0]);
	return *retpid > 0;
}

/* ---- its result ---- */

static void put_bytes(json_t *object, const char *name, const struct output *output)
{
	json_t *text = json_stringn(output->data ? output->data : "", output->len);
	char hex_name[32], *hex;

	if (text) {
		json_object_set_new(object, name, text);
		return;
	}
	hex = malloc(2 * output->len + 1);
	if (!hex)
		return;
	for (size_t i = 0; i < output->len; i++)
		sprintf(hex + 2 * i, "%02x", (unsigned char)output->data[i]);
	snprintf(hex_name, sizeof(hex_name), "%s_hex", name);
	json_object_set_new(object, hex_name, json_string(hex));
	free(hex);
}

static bool store_result(struct job *job, abox_effect *effect)
{
	json_t *object = json_object();
	char *text;
	bool stored;

	put_bytes(object, "stdout", &job->streams[0]);
	put_bytes(object, "stderr", &job->streams[1]);
	text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
	stored = text && json_object_size(object) == 2 && !job->streams[0].failed &&
		 !job->streams[1].failed &&
		 abox_effect_set_result(effect, text, strlen(text), WEXITSTATUS(job->status)) == 0;
	free(text);
	json_decref(object);
	return stored;
}

/* Runs to its end: that is the outcome, whatever it says. Killed: nobody knows how far it came. */
static int carry_out(abox_effect *effect, void *userdata)
{
	struct job *job = userdata;
	pid_t pid = -1;

	if (!start(job, effect, &pid)) {
		job->start_error = errno;
		return ABOX_DONE_FAILED_RETRY;
	}
	collect(job);
	while (waitpid(pid, &job->status, 0) < 0)
		if (errno != EINTR)
			return ABOX_DONE_UNCLEAR;
	if (job->start_error)
		return ABOX_DONE_FAILED_RETRY;
	if (!WIFEXITED(job->status) || !store_result(job, effect))
		return ABOX_DONE_UNCLEAR;
	return ABOX_DONE_COMMITTED;
}

static int hex_value(char c)
{
	return c >= 'a' ? c - 'a' + 10 : c - '0';
}

static void give_stream(const json_t *object, const char *name, FILE *stream)
{
	const json_t *text = json_object_get(object, name);
	char hex_name[32];
	const char *hex;

	if (text) {
		fwrite(json_string_value(text), 1, json_string_length(text), stream);
		return;
	}
	snprintf(hex_name, sizeof(hex_name), "%s_hex", name);
	hex = json_string_value(json_object_get(object, hex_name));
	for (; hex && hex[0] && hex[1]; hex += 2)
		fputc(hex_value(hex[0]) << 4 | hex_value(hex[1]), stream);
}

/* Fresh or stored, it looks the same. A result given by `resolve` is printed as it is. */
static int give(const struct cli_settings *settings, const abox_effect *effect)
{
	size_t len = 0;
	const char *result = abox_effect_get_result(effect, &len);
	json_t *object = result ? json_loadb(result, len, JSON_ALLOW_NUL, NULL) : NULL;

	if (settings->json) {
		json_t *answer =
			json_pack("{s:s, s:s, s:b, s:i, s:i, s:o*}", "effect", abox_effect_get_id(effect),
				"state", abox_effect_state_name(abox_effect_get_state(effect)), "replayed",
				abox_effect_get_replayed(effect), "try", (int)abox_effect_get_try(effect),
				"exit_code", (int)abox_effect_get_code(effect), "result", object);
		char *text = json_dumps(answer, JSON_INDENT(2) | JSON_ENSURE_ASCII);

		puts(text ? text : "{}");
		free(text);
		json_decref(answer);
		return finish_stdout() ? CLI_EXIT_NO_BOX : abox_effect_get_code(effect);
	}
	if (json_is_object(object)) {
		give_stream(object, "stdout", stdout);
		give_stream(object, "stderr", stderr);
	} else if (result) {
		fwrite(result, 1, len, stdout);
	}
	json_decref(object);
	return finish_stdout() ? CLI_EXIT_NO_BOX : abox_effect_get_code(effect);
}

/* ---- the task ---- */

/*
 * A helper of the attempt that is there, whether or not its owner lives: a script that runs one effect after
 * the other is one attempt. The first one begins it; `agentbox task resume` begins the next.
 */
static int open_task(
	struct cli_settings *settings, abox_journal *journal, abox_task **ret, abox_error **reterr)
{
	struct abox_task_options options;
	int r;

	abox_task_options_init(&options);
	r = abox_task_open(journal, settings->text[LEDGER_TASK], &options, ret, reterr);
	if (r != ABOX_TASK_NEW)
		return r;
	*ret = abox_task_unref(*ret);
	options.access = ABOX_TASK_CONTROL;
	r = abox_task_open(journal, settings->text[LEDGER_TASK], &options, ret, reterr);
	if (r != ABOX_E_BUSY)
		return r;
	/* Another one was faster. */
	*reterr = abox_error_free(*reterr);
	options.access = ABOX_TASK_APPEND;
	return abox_task_open(journal, settings->text[LEDGER_TASK], &options, ret, reterr);
}

static bool fill_options(const struct cli_settings *settings, struct abox_effect_options *options)
{
	const char *effect_class = settings->text[LEDGER_CLASS];
	int r = effect_class ? abox_effect_class_from_name(effect_class) : ABOX_EFFECT_OPAQUE;
	uint64_t wait = 0;

	abox_effect_options_init(options);
	if (r < 0 || r == ABOX_EFFECT_CHECKABLE) {
		say("--class is opaque, idempotent or pure (a command cannot be asked whether it ran)");
		return false;
	}
	if ((settings->text[LEDGER_WAIT] && !parse_duration(settings->text[LEDGER_WAIT], &wait)) ||
		(settings->text[LEDGER_SETTLE] &&
			!parse_duration(settings->text[LEDGER_SETTLE], &options->settle_usec))) {
		say("--wait and --settle take a time such as 30s or 5m");
		return false;
	}
	options->effect_class = (uint32_t)r;
	options->key = settings->text[LEDGER_KEY];
	options->request.kind = ABOX_REQUEST_ARGV;
	options->request.argv = (const char *const *)settings->words + 1;
	options->request.target =
		settings->text[LEDGER_TARGET] ? settings->text[LEDGER_TARGET] : settings->words[1];
	options->approval_text = settings->text[LEDGER_APPROVE];
	options->approval_wait_usec = wait;
	options->wait_usec = wait;
	return true;
}

int effect_run(struct cli_settings *settings, abox_journal *journal)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_task_unrefp) abox_task *task = NULL;
	_cleanup_(abox_effect_unrefp) abox_effect *effect = NULL;
	struct abox_effect_options options;
	struct job job = {.argv = settings->words + 1, .streams = {{.fd = -1}, {.fd = -1}}};
	int r;

	if (settings->n_words < 2 || !settings->text[LEDGER_TASK]) {
		say("usage: agentbox effect run --task ID [--key KEY] -- CMD...");
		return CLI_EXIT_NO_BOX;
	}
	if (!fill_options(settings, &options))
		return CLI_EXIT_NO_BOX;
	r = open_task(settings, journal, &task, &error);
	if (r < 0) {
		fail(settings, r, error);
		return CLI_EXIT_NO_BOX;
	}
	job.task = task;
	/* As a shell does: what the terminal sends is for the command. */
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	r = abox_effect_run(task, &options, carry_out, NULL, &job, &effect, &error);
	free(job.streams[0].data);
	free(job.streams[1].data);
	if (job.start_error)
		say("cannot run %s: %s", settings->words[1], strerror(job.start_error));
	if (r == ABOX_EFFECT_COMMITTED)
		return give(settings, effect);
	if (r == ABOX_EFFECT_FAILED)
		return job.start_error == ENOENT ? CLI_EXIT_NOT_FOUND : CLI_EXIT_NOT_EXECUTABLE;
	fail(settings, r, error);
	if (r == ABOX_E_UNRECORDED && effect)
		give(settings, effect);
	return CLI_EXIT_NO_BOX;
}
