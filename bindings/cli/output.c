/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Output: lines on stderr for people, JSON on stdout for programs, and files that appear whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* Length of the printable character at c, 0 when it is none: C0, DEL, C1 and bytes that are no UTF-8. */
static size_t printable_len(const unsigned char *c)
{
	static const uint32_t least[] = { 0, 0xa0, 0x800, 0x10000 };
	size_t more = c[0] < 0x80 ? 0 : (c[0] & 0xe0) == 0xc0 ? 1 : (c[0] & 0xf0) == 0xe0 ? 2 : (c[0] & 0xf8) == 0xf0 ? 3 : 4;
	uint32_t value;

	if (more == 0)
		return c[0] >= 0x20 && c[0] != 0x7f;
	if (more == 4)
		return 0;
	value = c[0] & (0x3f >> more);
	for (size_t i = 1; i <= more; i++) {
		if ((c[i] & 0xc0) != 0x80)
			return 0;
		value = value << 6 | (c[i] & 0x3f);
	}
	if (value < least[more] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
		return 0;
	return more + 1;
}

/* One write a line, so that lines of several processes do not mix. Control bytes never reach the terminal. */
static void say_line(const char *text)
{
	char *line = malloc(strlen(text) * 4 + 2), *to = line;

	if (!line)
		return;
	for (const unsigned char *c = (const unsigned char *)text; *c;) {
		size_t len = printable_len(c);

		if (len == 0)
			to += sprintf(to, "\\x%02x", *c++);
		else {
			memcpy(to, c, len);
			to += len;
			c += len;
		}
	}
	*to++ = '\n';
	(void)!write(STDERR_FILENO, line, (size_t)(to - line));
	free(line);
}

void say(const char *format, ...)
{
	va_list args;
	char *body, *line;
	int n;

	va_start(args, format);
	n = vasprintf(&body, format, args);
	va_end(args);
	if (n < 0)
		return;
	if (asprintf(&line, "agentbox: %s", body) >= 0) {
		say_line(line);
		free(line);
	}
	free(body);
}

void say_error(int code, const abox_error *error)
{
	char *text = NULL;

	if (error && abox_error_format(error, &text) >= 0)
		say("%s", text);
	else if (code == ABOX_E_MEMORY)
		say("out of memory");
	abox_free(text);
}

int fail(const struct cli_settings *settings, int code, const abox_error *error)
{
	char *json = NULL;

	say_error(code, error);
	if (settings->json && error && abox_error_dump(error, &json) >= 0)
		printf("{\"error\": %s}\n", json);
	abox_free(json);
	return CLI_EXIT_FAILED;
}

int print_json_text(const char *json)
{
	json_error_t error;
	json_t *value = json_loads(json, JSON_DECODE_ANY, &error);
	char *text;

	if (!value) {
		say("the library answered with JSON that cannot be read: %s", error.text);
		return CLI_EXIT_FAILED;
	}
	text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
	json_decref(value);
	if (!text) {
		say("out of memory");
		return CLI_EXIT_FAILED;
	}
	puts(text);
	free(text);
	return finish_stdout();
}

int finish_stdout(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_EXIT_DONE;
	say("cannot write the answer: %s", strerror(errno));
	return CLI_EXIT_FAILED;
}

/* What /dev/stdout and its like lead to: then the descriptor we have is the one to use, with its offset. */
static int find_own_stream(const struct stat *st)
{
	struct stat own;

	for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++)
		if (fstat(fd, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino)
			return fd;
	return -1;
}

/* True when path is written to directly: what is there cannot be replaced by rename, and is what the user named. */
static bool open_directly(struct whole_file *file, const char *path, const struct stat *st)
{
	int own = find_own_stream(st);

	if (own >= 0)
		file->fd = fcntl(own, F_DUPFD_CLOEXEC, 3);
	else if (!S_ISREG(st->st_mode))
		file->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	else
		return false;
	return true;
}

int whole_file_open(struct whole_file *file, const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0) {
		if (open_directly(file, path, &st))
			return file->fd < 0 ? -errno : 0;
		file->path = realpath(path, NULL);	/* a link stays, what it leads to is replaced */
	} else if (lstat(path, &st) == 0)
		return -ENOENT;				/* a link that leads nowhere */
	else
		file->path = strdup(path);
	if (!file->path || asprintf(&file->temporary, "%s.XXXXXX", file->path) < 0) {
		file->temporary = NULL;
		whole_file_discard(file);
		return -ENOMEM;
	}
	file->fd = mkostemp(file->temporary, O_CLOEXEC);
	if (file->fd < 0) {
		int r = -errno;

		free(file->temporary);
		file->temporary = NULL;
		whole_file_discard(file);
		return r;
	}
	return 0;
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

int whole_file_commit(struct whole_file *file, const char *text)
{
	mode_t mask;
	int r;

	if (file->fd < 0)
		return -EBADF;
	r = write_all(file->fd, text, strlen(text));
	if (r >= 0 && file->temporary) {
		mask = umask(0);
		umask(mask);
		if (fchmod(file->fd, 0666 & ~mask) < 0 || fsync(file->fd) < 0 || rename(file->temporary, file->path) < 0)
			r = -errno;
		else {
			free(file->temporary);
			file->temporary = NULL;
		}
	}
	whole_file_discard(file);
	return r;
}

void whole_file_discard(struct whole_file *file)
{
	if (file->temporary)
		unlink(file->temporary);
	if (file->fd >= 0)
		close(file->fd);
	free(file->temporary);
	free(file->path);
	*file = WHOLE_FILE_INIT;
}
