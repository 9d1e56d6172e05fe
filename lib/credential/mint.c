/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Providers. A program gets the four questions as JSON on its standard input, and answers with JSON on its
 *output:
 *
 *	{"name", "subject", "resource", "audience", "scopes", "ttl": seconds}  ->  {"value", "expires_in":
 *seconds}
 *
 * The program that takes a value back gets the same with "value" and "why" ("asked", "renewed" or "end"); what it
 *writes is not looked at, its exit status is.
 *
 * `expires_in` may be left out: then `ttl` bounds how long the value is used. A file holds the value itself,
 *a last line end does not belong to it. Values are used until shortly before they expire, and overwritten
 *when they are let go.
 */
#include "credential/mint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

#define OUTPUT_MAX 65536

void minted_clear(struct minted *minted)
{
	if (minted->value)
		explicit_bzero(minted->value, minted->len);
	free(minted->value);
	*minted = (struct minted){ 0 };
}

/* Security: what would end a header or a text is refused here as well, before it goes anywhere. */
static int keep(const char *value, size_t len, struct minted *ret, const char **retwhy)
{
	if (len == 0 || len > MINT_VALUE_MAX) {
		*retwhy = len ? "its value is too long" : "its value is empty";
		return ABOX_E_INVALID;
	}
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)value[i] >= 0x20 && value[i] != 0x7f)
			continue;
		*retwhy = "its value has a control character";
		return ABOX_E_INVALID;
	}
	ret->value = malloc(len);
	if (!ret->value)
		return ABOX_E_MEMORY;
	memcpy(ret->value, value, len);
	ret->len = len;
	return 0;
}

static uint64_t shortly_before(uint64_t life_usec)
{
	uint64_t early = MIN(life_usec / 10, 30 * USEC_PER_SEC);

	return clock_deadline(clock_monotonic_usec(), life_usec - early);
}

/* -- a file, a variable -- */

static int from_file(const struct slot *slot, struct minted *ret, const char **retwhy)
{
	char *text = NULL;
	size_t len;
	int r;

	r = file_read_text(AT_FDCWD, slot->source, MINT_VALUE_MAX + 2, &text, &len);
	if (r < 0) {
		*retwhy = r == -EFBIG ? "its file is too long" : "its file cannot be read";
		return ABOX_E_IO;
	}
	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (len > 0 && text[len - 1] == '\r')
		len--;
	r = keep(text, len, ret, retwhy);
	explicit_bzero(text, strlen(text));
	free(text);
	return r;
}

static int from_variable(
	const struct slot *slot, const char *const *environment, struct minted *ret, const char **retwhy)
{
	size_t len = strlen(slot->source);

	for (; *environment; environment++)
		if (strncmp(*environment, slot->source, len) == 0 && (*environment)[len] == '=')
			return keep(*environment + len + 1, strlen(*environment + len + 1), ret, retwhy);
	*retwhy = "the harness has no variable of this name";
	return ABOX_E_NOT_FOUND;
}

/* -- a program -- */

static void add_member(struct text *text, const char *name, const char *value)
{
	text_printf(text, "%s\"%s\":", text->len > 1 ? "," : "", name);
	text_add_json(text, value, strlen(value));
}

static int question_of(const struct slot *slot, const struct minted *minted, const char *drop, struct text *text)
{
	text_add(text, "{");
	add_member(text, "name", slot->name);
	add_member(text, "subject", slot->subject);
	add_member(text, "resource", slot->resource);
	add_member(text, "audience", slot->audience);
	text_add(text, ",\"scopes\":[");
	for (size_t i = 0; slot->scopes[i]; i++) {
		text_add(text, i ? "," : "");
		text_add_json(text, slot->scopes[i], strlen(slot->scopes[i]));
	}
	text_printf(text, "],\"ttl\":%llu", (unsigned long long)(slot->ttl_usec / USEC_PER_SEC));
	if (minted) {
		add_member(text, "why", drop);
		text_add(text, ",\"value\":");
		text_add_json(text, minted->value, minted->len);
	}
	text_add(text, "}\n");
	return text->failed ? ABOX_E_MEMORY : 0;
}

static _noreturn_ void run(const char *const *argv, const char *const *environment, int in, int out)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	sigset_t none;

	/* Its group is killed when it takes too long; what it says on its error output could hold the value.
	 */
	setpgid(0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	if (null < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0)
		_exit(126);
	execvpe(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)environment);
	_exit(errno == ENOENT ? 127 : 126);
}

/* All that it writes until its end, or the deadline. Length or -errno. */
static ssize_t listen_to(int fd, char *output, uint64_t deadline_usec)
{
	size_t len = 0;

	for (;;) {
		struct pollfd entry = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (poll(&entry, 1, clock_poll_msec(clock_monotonic_usec(), deadline_usec)) <= 0) {
			if (clock_monotonic_usec() >= deadline_usec)
				return -ETIMEDOUT;
			continue;
		}
		n = read(fd, output + len, OUTPUT_MAX - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : (ssize_t)len;
		len += (size_t)n;
		if (len == OUTPUT_MAX)
			return -EFBIG;
	}
}

static int reap(pid_t pid, uint64_t deadline_usec, int *retstatus)
{
	for (;;) {
		pid_t got = waitpid(pid, retstatus, WNOHANG);
		struct timespec pause = { .tv_nsec = 1000000 };

		if (got == pid)
			return 0;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (clock_monotonic_usec() >= deadline_usec)
			break;
		nanosleep(&pause, NULL);
	}
	kill(-pid, SIGKILL);
	waitpid(pid, retstatus, 0);
	return -ETIMEDOUT;
}

static int read_answer(
	const struct slot *slot, const char *output, size_t len, struct minted *ret, const char **retwhy)
{
	static const struct json_bounds bounds = { OUTPUT_MAX, 8, ABOX_STAGE_CREDENTIAL };
	_cleanup_(json_unrefp) struct json *answer = NULL;
	const struct json *life;
	const char *value;
	uint64_t usec = slot->ttl_usec;
	int r;

	r = json_parse(output, len, &bounds, &answer, NULL);
	value = r < 0 ? NULL : json_text(json_member(answer, "value"));
	life = json_member(answer, "expires_in");
	if (!value || (life && json_kind(life) != JSON_KIND_INTEGER)) {
		*retwhy = "its program did not answer with {\"value\": ..., \"expires_in\": seconds}";
		return ABOX_E_INVALID;
	}
	if (life && json_number(life) <= 0) {
		*retwhy = "its program gave a value that has expired";
		return ABOX_E_INVALID;
	}
	if (life && (uint64_t)json_number(life) < usec / USEC_PER_SEC)
		usec = (uint64_t)json_number(life) * USEC_PER_SEC;
	r = keep(value, strlen(value), ret, retwhy);
	if (r == 0)
		ret->until_usec = shortly_before(usec);
	return r;
}

/* Asks a program. `output` has OUTPUT_MAX bytes; their length, or negative and the reason. */
static ssize_t ask_program(const char *const *argv, const char *const *environment, const struct text *question,
	unsigned int seconds, char *output, const char **retwhy)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), seconds * USEC_PER_SEC);
	int in[2] = { -EBADF, -EBADF }, out[2] = { -EBADF, -EBADF }, status = 0;
	ssize_t n = -ENOMEM;
	pid_t pid = -1;

	*retwhy = "its program cannot be started";
	if (pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0)
		pid = fork();
	if (pid == 0)
		run(argv, environment, in[0], out[1]);
	fd_close(in[0]);
	fd_close(out[1]);
	if (pid > 0) {
		setpgid(pid, pid);
		/* Shorter than a pipe holds; a program that does not read it is no error. */
		fd_write_all(in[1], question->data, question->len);
		fd_close(in[1]);
		in[1] = -EBADF;
		n = listen_to(out[0], output, deadline);
		if (n < 0)
			kill(-pid, SIGKILL);
		if (reap(pid, deadline, &status) < 0)
			n = -ETIMEDOUT;
	}
	fd_close(in[1]);
	fd_close(out[0]);
	if (n == -ETIMEDOUT)
		*retwhy = "its program did not answer in time";
	else if (n == -EFBIG)
		*retwhy = "its program wrote too much";
	else if (n >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		*retwhy = "its program was not found";
	else if (n >= 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
		*retwhy = "its program failed";
	else if (n >= 0)
		return n;
	return n < 0 ? n : -ECHILD;
}

static void wipe(char *output, struct text *question)
{
	if (output)
		explicit_bzero(output, OUTPUT_MAX);
	free(output);
	if (question->data)
		explicit_bzero(question->data, question->len);
	text_clear(question);
}

static int from_program(
	const struct slot *slot, const char *const *environment, struct minted *ret, const char **retwhy)
{
	char *output = malloc(OUTPUT_MAX);
	struct text question = TEXT_INIT;
	int r = output ? question_of(slot, NULL, NULL, &question) : ABOX_E_MEMORY;
	ssize_t n;

	if (r == 0) {
		n = ask_program(slot->argv, environment, &question, MINT_SECONDS, output, retwhy);
		r = n < 0 ? ABOX_E_SYSTEM : read_answer(slot, output, (size_t)n, ret, retwhy);
	}
	if (r == 0)
		ret->revocable = slot->revoke[0];
	wipe(output, &question);
	return r;
}

int mint_revoke(const struct slot *slot, const char *const *environment, const struct minted *minted,
	const char *drop, const char **retwhy)
{
	char *output = malloc(OUTPUT_MAX);
	struct text question = TEXT_INIT;
	int r;

	*retwhy = "no memory";
	r = output ? question_of(slot, minted, drop, &question) : ABOX_E_MEMORY;
	if (r == 0 && ask_program(slot->revoke, environment, &question, REVOKE_SECONDS, output, retwhy) < 0)
		r = ABOX_E_SYSTEM;
	wipe(output, &question);
	return r;
}

int mint_given(const struct slot *slot, const void *value, size_t len, uint64_t life_usec, struct minted *ret,
	const char **retwhy)
{
	uint64_t usec = life_usec ? MIN(life_usec, slot->ttl_usec) : slot->ttl_usec;
	struct minted minted = { 0 };
	int r;

	*retwhy = "no memory";
	r = keep(value, len, &minted, retwhy);
	if (r < 0)
		return r;
	minted.until_usec = shortly_before(usec);
	*ret = minted;
	return 0;
}

int mint(const struct slot *slot, const char *const *environment, struct minted *ret, const char **retwhy)
{
	struct minted minted = { 0 };
	int r = ABOX_E_UNSUPPORTED;

	*retwhy = "no memory";
	switch (slot->kind) {
	case SLOT_EXEC:
		r = from_program(slot, environment, &minted, retwhy);
		break;
	case SLOT_FILE:
		r = from_file(slot, &minted, retwhy);
		break;
	case SLOT_VARIABLE:
		r = from_variable(slot, environment, &minted, retwhy);
		break;
	}
	if (r == 0)
		*ret = minted;
	return r;
}
