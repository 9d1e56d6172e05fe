/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A harness that opens a pull request, is killed at every point in turn, tries again, and has opened exactly
 * one. No sandbox is needed: the journal alone guards the call.
 */
#include <agentbox/agentbox.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forge.h"

enum crash { NOWHERE, BEFORE_SENDING, AFTER_SENDING, AFTER_THE_ANSWER, BEFORE_THE_END, N_CRASHES };
static const char *const names[] = {
	"nowhere", "before sending", "after sending", "after the answer", "before the end"};

static int port;
static enum crash crash;
static char head[32];

static void crash_at(enum crash point)
{
	if (crash == point)
		raise(SIGKILL);
}

/* Carries it out. Whatever happens in here, it is in the journal that it may have happened. */
static int open_pull_request(abox_effect *effect, void *userdata)
{
	char answer[256] = "";
	int status;

	crash_at(BEFORE_SENDING);
	if (crash == AFTER_SENDING) {
		forge_ask(port, "POST", head, NULL, 0);
		usleep(50000);
		raise(SIGKILL);
	}
	status = forge_ask(port, "POST", head, answer, sizeof(answer));
	crash_at(AFTER_THE_ANSWER);
	abox_effect_set_result(effect, answer, strlen(answer), status);
	return abox_effect_judge_http((uint32_t)status);
}

/* Asks the forge whether an earlier try happened. */
static int find_pull_request(abox_effect *effect, void *userdata)
{
	char answer[256];
	int status = forge_ask(port, "GET", head, answer, sizeof(answer));

	if (status != 200)
		return ABOX_FOUND_NOTHING;
	if (strstr(answer, "\"count\":0"))
		return ABOX_FOUND_ABSENT;
	abox_effect_set_result(effect, answer, strlen(answer), status);
	return ABOX_FOUND_COMMITTED;
}

static int harness(const char *folder)
{
	struct abox_journal_options journal_options = ABOX_JOURNAL_OPTIONS_INIT;
	struct abox_task_options task_options;
	struct abox_effect_options options;
	abox_journal *journal = NULL;
	abox_task *task = NULL;
	abox_effect *effect = NULL;
	abox_error *error = NULL;
	int r;

	journal_options.mode = ABOX_JOURNAL_APPEND;
	journal_options.flags = ABOX_JOURNAL_CREATE;
	abox_task_options_init(&task_options);
	task_options.access = ABOX_TASK_CONTROL;
	abox_effect_options_init(&options);
	options.effect_class = ABOX_EFFECT_CHECKABLE;
	options.key = "pull request";
	options.request.kind = ABOX_REQUEST_HTTP;
	options.request.target = "forge/pulls";
	options.request.method = "POST";
	options.request.host = "127.0.0.1";
	options.request.path = "/pulls";
	options.request.query = head;
	options.settle_usec = 200000; /* nothing of a dead sender arrives later than this, on this host */
	options.wait_usec = 10000000;
	if ((r = abox_journal_open(folder, &journal_options, &journal, &error)) < 0 ||
		(r = abox_task_open(journal, head, &task_options, &task, &error)) < 0 ||
		(r = abox_effect_run(
			 task, &options, open_pull_request, find_pull_request, NULL, &effect, &error)) < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "");
	if (r == ABOX_EFFECT_COMMITTED) {
		crash_at(BEFORE_THE_END);
		r = abox_task_end(task, abox_effect_get_result(effect, NULL), &error);
	}
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
	abox_error_free(error);
	return r == 0 ? 0 : 1;
}

int main(void)
{
	char base[] = "/tmp/pull_request_once.XXXXXX", folder[64], answer[256], command[96];
	int wrong = 0;

	port = forge_start();
	if (port < 0 || !mkdtemp(base))
		return 1;
	snprintf(folder, sizeof(folder), "%s/journal", base);
	for (enum crash point = NOWHERE; point < N_CRASHES; point++) {
		int status = 0, attempts = 0;

		snprintf(head, sizeof(head), "agent/%d", (int)point);
		crash = point;
		do {
			pid_t pid = fork();

			if (pid == 0)
				_exit(harness(folder));
			waitpid(pid, &status, 0);
			attempts++;
			crash = NOWHERE; /* the next attempt lives */
		} while (WIFSIGNALED(status) && attempts < 5);
		forge_ask(port, "GET", head, answer, sizeof(answer));
		printf("killed %s: %d attempts, the forge says %s\n", names[point], attempts, answer);
		wrong += status != 0 || !strstr(answer, "\"count\":1,") ||
			 attempts != (point == NOWHERE ? 1 : 2);
	}
	forge_stop();
	snprintf(command, sizeof(command), "rm -rf %s", base);
	return system(command) != 0 || wrong;
}
