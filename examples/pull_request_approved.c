/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The pull request again, opened only when a person in another process has approved it: nothing leaves
 * before.
 */
#include <agentbox/agentbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forge.h"

static int port;

static abox_journal *open_journal(const char *folder, abox_error **reterr)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	abox_journal *journal = NULL;

	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	abox_journal_open(folder, &options, &journal, reterr);
	return journal;
}

static int open_pull_request(abox_effect *effect, void *userdata)
{
	char answer[256] = "";
	int status = forge_ask(port, "POST", "agent/approved", answer, sizeof(answer));

	abox_effect_set_result(effect, answer, strlen(answer), status);
	return abox_effect_judge_http((uint32_t)status);
}

/* The person: looks at what waits, sees that nothing has happened yet, and says yes (or no). */
static int person(const char *folder, int yes)
{
	abox_journal *journal = open_journal(folder, NULL);
	char *json = NULL, id[64] = "", answer[256] = "";
	int r = 1;

	for (int i = 0; i < 500 && !id[0]; i++) {
		usleep(10000);
		if (abox_approval_list(journal, NULL, 1, &json, NULL) >= 0 && strstr(json, "app-"))
			snprintf(id, sizeof(id), "%.36s", strstr(json, "app-"));
		if (id[0])
			printf("the person sees %s\n", json);
		abox_free(json);
		json = NULL;
	}
	forge_ask(port, "GET", "agent/approved", answer, sizeof(answer));
	if (id[0] && strstr(answer, "\"count\":0"))
		r = yes ? abox_approval_grant(journal, id, "ann", "looks right", NULL)
			: abox_approval_deny(journal, id, "ann", "not today", NULL);
	abox_journal_unref(journal);
	fflush(stdout);
	return r;
}

/* The answer of abox_effect_run(). */
static int harness(const char *folder, const char *key)
{
	struct abox_task_options task_options;
	struct abox_effect_options options;
	abox_error *error = NULL;
	abox_journal *journal = open_journal(folder, &error);
	abox_task *task = NULL;
	abox_effect *effect = NULL;
	int r;

	abox_task_options_init(&task_options);
	task_options.access = ABOX_TASK_CONTROL;
	abox_effect_options_init(&options);
	options.effect_class = ABOX_EFFECT_OPAQUE;
	options.key = key;
	options.request.target = "forge/pulls";
	options.request.body = key;
	options.request.body_len = strlen(key);
	options.approval_text = "open a pull request from agent/approved";
	options.approval_wait_usec = 10000000;
	r = abox_task_open(journal, "job", &task_options, &task, &error);
	if (r >= 0)
		r = abox_effect_run(task, &options, open_pull_request, NULL, NULL, &effect, &error);
	printf("the harness has %s\n",
		r < 0 ? abox_error_get_message(error) : (const char *)abox_effect_get_result(effect, NULL));
	abox_effect_unref(effect);
	abox_task_unref(task);
	abox_journal_unref(journal);
	abox_error_free(error);
	fflush(stdout);
	return r;
}

static int with_person(const char *folder, const char *key, int yes)
{
	pid_t pid = fork();
	int r, status = 0;

	if (pid == 0)
		_exit(person(folder, yes) < 0 ? 1 : 0);
	r = harness(folder, key);
	waitpid(pid, &status, 0);
	return status == 0 ? r : -100;
}

int main(void)
{
	char base[] = "/tmp/pull_request_approved.XXXXXX", folder[64], answer[256] = "", command[96];
	int denied, granted, again;

	port = forge_start();
	if (port < 0 || !mkdtemp(base))
		return 1;
	snprintf(folder, sizeof(folder), "%s/journal", base);
	denied = with_person(folder, "first", 0);
	granted = with_person(folder, "second", 1);
	again = harness(folder, "second"); /* the stored answer; nobody is asked */
	forge_ask(port, "GET", "agent/approved", answer, sizeof(answer));
	printf("the forge says %s\n", answer);
	forge_stop();
	snprintf(command, sizeof(command), "rm -rf %s", base);
	return system(command) != 0 || denied != ABOX_E_APPROVAL || granted != ABOX_EFFECT_COMMITTED ||
	       again != ABOX_EFFECT_COMMITTED || !strstr(answer, "\"count\":1,");
}
