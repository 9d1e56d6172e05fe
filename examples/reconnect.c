/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * reconnect start             a box that outlives this process, with one command in it; prints its id
 * reconnect read ID [CURSOR]  from any other process: what the command wrote from that byte on, and the next cursor
 * reconnect stop ID           ends the box and forgets it
 */
#include <agentbox/agentbox.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int do_start(abox_error **reterr)
{
	const char *const argv[] = { "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done", NULL };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv, .token = "counter",
		.stdout_mode = ABOX_STREAM_SPOOL };
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	abox_sandbox *box = NULL;
	abox_command *command = NULL;
	int r;

	if ((r = abox_spec_from_json("{\"version\": 1, \"on_owner_death\": \"keep\"}", &spec, reterr)) >= 0 &&
	    (r = abox_plan_compile(spec, &plan, reterr)) >= 0 &&
	    (r = abox_sandbox_start(plan, NULL, &box, reterr)) >= 0 &&
	    (r = abox_command_start(box, &options, &command, reterr)) >= 0)
		puts(abox_sandbox_get_id(box));
	abox_command_unref(command);
	abox_sandbox_unref(box); /* the box goes on */
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return r;
}

static int do_read(const char *id, uint64_t cursor, abox_error **reterr)
{
	struct abox_output output = { .size = sizeof(output), .next_cursor = cursor };
	abox_sandbox *box = NULL;
	abox_command *command = NULL;
	char buffer[4096];
	int r;

	if ((r = abox_sandbox_open(id, ABOX_OPEN_READ, &box, reterr)) >= 0)
		r = abox_command_open(box, "counter", &command, reterr);
	while (r >= 0 && !output.end) {
		r = abox_command_read(command, 1, output.next_cursor, buffer, sizeof(buffer), &output, 10000000, reterr);
		if (r <= 0)
			break;
		fwrite(buffer, 1, output.len, stdout);
	}
	fprintf(stderr, "cursor %llu\n", (unsigned long long)output.next_cursor);
	abox_command_unref(command);
	abox_sandbox_unref(box);
	return r;
}

static int do_stop(const char *id, abox_error **reterr)
{
	abox_sandbox *box = NULL;
	int r = abox_sandbox_open(id, ABOX_OPEN_CONTROL, &box, reterr);

	if (r >= 0)
		r = abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, reterr);
	abox_sandbox_unref(box);
	return r < 0 ? r : abox_sandbox_remove(id, reterr);
}

int main(int argc, char **argv)
{
	abox_error *error = NULL;
	int r = ABOX_E_INVALID;

	if (argc == 2 && !strcmp(argv[1], "start"))
		r = do_start(&error);
	else if (argc >= 3 && !strcmp(argv[1], "read"))
		r = do_read(argv[2], argc > 3 ? strtoull(argv[3], NULL, 10) : 0, &error);
	else if (argc == 3 && !strcmp(argv[1], "stop"))
		r = do_stop(argv[2], &error);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "see the source");
	abox_error_free(error);
	return r < 0;
}
