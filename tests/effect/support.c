/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/path.h"

char test_folder[64];

static const char *parent_folder = "/tmp";

void test_setup(void)
{
	snprintf(test_folder, sizeof(test_folder), "%s/abox-effect-XXXXXX", parent_folder);
	if (!mkdtemp(test_folder))
		abort();
}

void test_setup_in_memory(void)
{
	if (access("/dev/shm", W_OK) == 0)
		parent_folder = "/dev/shm";
	test_setup();
}

void test_teardown(void)
{
	int fd = open(parent_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	path_remove_tree(fd, test_folder + strlen(parent_folder) + 1);
	close(fd);
}

static const char *journal_path(void)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/journal", test_folder);
	return path;
}

abox_journal *test_open(void)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	abox_journal *journal = NULL;
	abox_error *error = NULL;

	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	options.segment_bytes = 256 * 1024;
	if (abox_journal_open(journal_path(), &options, &journal, &error) < 0) {
		fprintf(stderr, "open: %s\n", abox_error_get_message(error));
		abox_error_free(error);
	}
	return journal;
}

abox_task *test_control(abox_journal *journal, const char *id, int takeover, int *retstatus)
{
	struct abox_task_options options;
	abox_error *error = NULL;
	abox_task *task = NULL;
	int r;

	abox_task_options_init(&options);
	options.access = ABOX_TASK_CONTROL;
	options.takeover = (uint32_t)takeover;
	r = abox_task_open(journal, id, &options, &task, &error);
	if (r < 0 && !retstatus)
		fprintf(stderr, "control: %s\n", abox_error_get_message(error));
	abox_error_free(error);
	if (retstatus)
		*retstatus = r;
	return task;
}

void test_options(struct abox_effect_options *options, int effect_class, const char *key, const char *target,
	const char *body)
{
	abox_effect_options_init(options);
	options->effect_class = (uint32_t)effect_class;
	options->key = key;
	options->request.target = target;
	options->request.body = body;
	options->request.body_len = body ? strlen(body) : 0;
	options->settle_usec = 1;
}

static void outside_path(char path[96])
{
	snprintf(path, 96, "%s/outside", test_folder);
}

void outside_happen(const char *line)
{
	char path[96], text[256];
	int fd, len = snprintf(text, sizeof(text), "%s\n", line);

	outside_path(path);
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, (size_t)len) != len)
		abort();
	close(fd);
}

int outside_count(const char *line)
{
	char path[96], text[256];
	FILE *file;
	int n = 0;

	outside_path(path);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(text, sizeof(text), file)) {
		text[strcspn(text, "\n")] = 0;
		n += !line || strcmp(line, text) == 0;
	}
	fclose(file);
	return n;
}

int test_start(int (*fn)(void *userdata), void *userdata)
{
	int pid = fork();

	if (pid == 0)
		_exit(fn(userdata) & 127);
	return pid;
}

int test_join(int pid, unsigned int seconds)
{
	struct timespec pause = {0, 2000000};
	int status = 0;

	for (unsigned int i = 0; i < seconds * 500; i++) {
		int r = waitpid(pid, &status, WNOHANG);

		if (r == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		if (r < 0)
			return -2000;
		nanosleep(&pause, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1000;
}

int test_child(int (*fn)(void *userdata), void *userdata)
{
	return test_join(test_start(fn, userdata), 30);
}

int test_long(void)
{
	return getenv("ABOX_TEST_LONG") != NULL;
}

int test_verify(void)
{
	abox_error *error = NULL;
	char *json = NULL;
	int r = abox_journal_verify(journal_path(), NULL, &json, &error);

	if (r != 1)
		fprintf(stderr, "verify: %d %s %s\n", r, json ? json : "",
			error ? abox_error_get_message(error) : "");
	abox_free(json);
	abox_error_free(error);
	return r == 1;
}
