/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *folder_new(void)
{
	const char *base = getenv("TMPDIR");
	char *path = NULL;

	/* nothing here needs a real disk, and its syncs would be waited for by everybody else on this host */
	if (!base)
		base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	if (asprintf(&path, "%s/abox-journal-XXXXXX", base) < 0 || !mkdtemp(path))
		abort();
	return path;
}

static void remove_tree(const char *path)
{
	struct dirent *entry;
	DIR *dir = opendir(path);
	char name[4096];

	while (dir && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (entry->d_type == DT_DIR)
			remove_tree(name);
		else
			unlink(name);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

void folder_remove(char *folder)
{
	remove_tree(folder);
	free(folder);
}

char *folder_journal(const char *folder)
{
	char *path = NULL;

	if (asprintf(&path, "%s/journal", folder) < 0)
		abort();
	return path;
}

static void complain(abox_error *error, const char *what)
{
	char *text = NULL;

	if (abox_error_format(error, &text) == 0)
		fprintf(stderr, "%s: %s\n", what, text);
	abox_free(text);
	abox_error_free(error);
}

abox_journal *open_append(const char *path, uint64_t segment_bytes)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	abox_journal *journal = NULL;
	abox_error *error = NULL;

	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	options.segment_bytes = segment_bytes;
	if (abox_journal_open(path, &options, &journal, &error) < 0)
		complain(error, path);
	return journal;
}

int try_open(const char *path, uint32_t mode, uint64_t timeout_usec, abox_journal **ret)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;

	options.mode = mode;
	options.lock_timeout_usec = timeout_usec;
	return abox_journal_open(path, &options, ret, NULL);
}

int put_note(abox_journal *journal, uint64_t number, size_t filling, int durability, uint64_t *retseq)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;
	char *body = malloc(filling + 64);
	int r, n;

	if (!body)
		return ABOX_E_MEMORY;
	n = sprintf(body, "{\"n\":%" PRIu64 ",\"fill\":\"", number);
	memset(body + n, 'x', filling);
	strcpy(body + n + filling, "\"}");
	entry.body = body;
	entry.durability = (uint32_t)durability;
	r = abox_journal_append(journal, &entry, retseq, NULL);
	free(body);
	return r;
}

int64_t count_records(const char *path)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	abox_journal_reader *reader = NULL;
	abox_journal *journal = NULL;
	abox_error *error = NULL;
	int64_t n = 0;
	int r;

	r = abox_journal_open(path, NULL, &journal, &error);
	if (r == 0)
		r = abox_journal_reader_new(journal, 0, 0, &reader, &error);
	while (r >= 0 && (r = abox_journal_reader_next(reader, &record, &error)) > 0)
		n++;
	abox_journal_reader_unref(reader);
	abox_journal_unref(journal);
	if (r < 0 && r != ABOX_E_DAMAGED)
		complain(error, path);
	else
		abox_error_free(error);
	return r < 0 ? r : n;
}

int verify(const char *path, char **retjson)
{
	abox_error *error = NULL;
	char *json = NULL;
	int r;

	r = abox_journal_verify(path, NULL, &json, &error);
	if (r < 0)
		complain(error, path);
	if (retjson)
		*retjson = json;
	else
		free(json);
	return r;
}

char *read_file(const char *path, const char *name, size_t *retlen)
{
	int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *data = NULL;

	if (dir_fd < 0 || file_read_text(dir_fd, name, 1 << 30, &data, retlen) < 0)
		abort();
	close(dir_fd);
	return data;
}

void write_file(const char *path, const char *name, const void *data, size_t len)
{
	char full[4096];
	int fd;

	snprintf(full, sizeof(full), "%s/%s", path, name);
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || fd_write_all(fd, data, len) < 0)
		abort();
	close(fd);
}

void copy_folder(const char *from, const char *to)
{
	struct dirent *entry;
	DIR *dir = opendir(from);

	if (!dir || (mkdir(to, 0700) < 0 && errno != EEXIST))
		abort();
	while ((entry = readdir(dir))) {
		size_t len;
		char *data;

		if (entry->d_type != DT_REG)
			continue;
		data = read_file(from, entry->d_name, &len);
		write_file(to, entry->d_name, data, len);
		free(data);
	}
	closedir(dir);
}

bool long_tests(void)
{
	const char *value = getenv("ABOX_TEST_LONG");

	return value && strcmp(value, "1") == 0;
}

uint64_t random_u64(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}
