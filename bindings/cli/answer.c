/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Answers of run and exec for programs. The result file is made before anything runs, so that a folder that cannot
 * be written is found out then and not when the result exists.
 */
#include "answer.h"

#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int answer_open(struct answer *answer, const struct cli_settings *settings)
{
	int r;

	*answer = (struct answer){ .settings = settings, .file = WHOLE_FILE_INIT };
	if (!settings->result_file)
		return 0;
	r = whole_file_open(&answer->file, settings->result_file);
	if (r == 0)
		return 0;
	say("--result %s: %s", settings->result_file, strerror(-r));
	return CLI_EXIT_NO_BOX;
}

/* Takes the value. Returns the exit code, or ours when the answer could not be given. */
static int give(struct answer *answer, json_t *value, int exit_code)
{
	char *text = value ? json_dumps(value, JSON_INDENT(2) | JSON_ENSURE_ASCII) : NULL;
	char *line = NULL;
	int r = 0;

	json_decref(value);
	if (!text || asprintf(&line, "%s\n", text) < 0) {
		say("out of memory");
		free(text);
		return CLI_EXIT_NO_BOX;
	}
	if (answer->settings->json)
		fputs(line, stdout);
	if (answer->settings->result_file)
		r = whole_file_commit(&answer->file, line);
	free(line);
	free(text);
	if (r < 0) {
		say("--result %s: %s", answer->settings->result_file, strerror(-r));
		return CLI_EXIT_NO_BOX;
	}
	return answer->settings->json && finish_stdout() ? CLI_EXIT_NO_BOX : exit_code;
}

int answer_error(struct answer *answer, int exit_code, int code, const abox_error *error)
{
	_cleanup_(text_freep) char *json = NULL;
	json_t *value;

	say_error(code, error);
	if (!answer->settings->json && !answer->settings->result_file)
		return exit_code;
	if (error && abox_error_dump(error, &json) >= 0)
		value = json_pack("{s:o}", "error", json_loads(json, 0, NULL));
	else
		value = json_pack("{s:{s:s}}", "error", "code", abox_code_name(code));
	if (answer->teardown)
		json_object_set_new(value, "teardown", json_loads(answer->teardown, 0, NULL));
	return give(answer, value, exit_code);
}

/* Text where it is text; else base64 under another name, so that no byte is lost and none is guessed. */
static int add_stream(json_t *value, const abox_result *result, int stream, const char *name)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *bytes;
	const void *data;
	char key[32], *text, *to;
	json_t *string;
	size_t len;
	int r;

	if (abox_result_get_output(result, stream, &data, &len) < 0)
		return 0;
	string = json_stringn(data, len);
	if (string)
		return json_object_set_new(value, name, string);
	to = text = malloc((len + 2) / 3 * 4 + 1);
	if (!text)
		return -1;
	bytes = data;
	for (size_t i = 0; i < len; i += 3) {
		unsigned three = (unsigned)bytes[i] << 16 | (i + 1 < len ? (unsigned)bytes[i + 1] << 8 : 0)
			       | (i + 2 < len ? bytes[i + 2] : 0);

		*to++ = digits[three >> 18];
		*to++ = digits[three >> 12 & 63];
		*to++ = i + 1 < len ? digits[three >> 6 & 63] : '=';
		*to++ = i + 2 < len ? digits[three & 63] : '=';
	}
	*to = 0;
	snprintf(key, sizeof(key), "%s_base64", name);
	r = json_object_set_new(value, key, json_string(text));
	free(text);
	return r;
}

/* What ended the command where it was not itself and not its user: its exit code alone does not tell. */
static void say_end(const struct console *console)
{
	int cause = abox_result_get_cause(console->result), number = abox_result_get_signal(console->result);

	if (!console->result || console->canceled || console->broken_pipe || cause == ABOX_CAUSE_EXITED)
		return;
	if (cause == ABOX_CAUSE_SIGNALED && (number == SIGINT || number == SIGPIPE))	/* shells are silent too */
		return;
	say("the command was ended (%s): %s", abox_cause_name(cause), abox_result_get_evidence(console->result));
}

int answer_result(struct answer *answer, const struct console *console)
{
	_cleanup_(text_freep) char *json = NULL;
	int exit_code = console_exit_code(console);
	json_t *value = NULL;

	say_end(console);
	if (!answer->settings->json && !answer->settings->result_file)
		return exit_code;
	if (abox_result_dump(console->result, &json) >= 0)
		value = json_loads(json, 0, NULL);
	if (value && answer->teardown)
		json_object_set_new(value, "teardown", json_loads(answer->teardown, 0, NULL));
	if (value && answer->settings->workspace)
		json_object_set_new(value, "workspace", json_string(answer->settings->workspace));
	if (value && console->captured
	    && (add_stream(value, console->result, 1, "stdout") < 0 || add_stream(value, console->result, 2, "stderr") < 0)) {
		json_decref(value);
		value = NULL;
	}
	return give(answer, value, exit_code);
}

void answer_clear(struct answer *answer)
{
	whole_file_discard(&answer->file);
	abox_free(answer->teardown);
}
