/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "workspace/home.h"
#include "workspace/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_workspace(const char *text, size_t len)
{
	_cleanup_(workspace_record_clear) struct workspace_record record = { 0 }, again = { 0 };
	_cleanup_(json_unrefp) struct json *json = NULL, *json_again = NULL;
	_cleanup_(freep) char *printed = NULL, *printed_again = NULL;

	if (workspace_record_parse(text, len, &record, NULL) < 0)
		return;
	/* Ids become names of files. */
	if (!home_is_id(record.id) || (record.live[0] && !home_is_id(record.live)) ||
		(record.parent[0] && !home_is_id(record.parent)))
		abort();
	if (workspace_record_to_json(&record, &json) < 0 || json_print_new(json, &printed) < 0)
		abort();
	if (workspace_record_parse(printed, strlen(printed), &again, NULL) < 0 ||
		workspace_record_to_json(&again, &json_again) < 0 || json_print_new(json_again, &printed_again) < 0 ||
		strcmp(printed, printed_again) != 0)
		abort();
}

static void check_layer(const char *text, size_t len)
{
	_cleanup_(json_unrefp) struct json *json = NULL;
	_cleanup_(freep) char *printed = NULL;
	struct layer_record record, again;

	if (layer_record_parse(text, len, &record, NULL) < 0)
		return;
	if (!home_is_id(record.id) || (record.parent[0] && !home_is_id(record.parent)))
		abort();
	if (layer_record_to_json(&record, &json) < 0 || json_print_new(json, &printed) < 0 ||
		layer_record_parse(printed, strlen(printed), &again, NULL) < 0 || again.frozen != record.frozen ||
		strcmp(again.digest, record.digest) != 0)
		abort();
}

/* What is accepted as a record of the store is whole, and is the same when it was written and read again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_workspace((const char *)data, size);
	check_layer((const char *)data, size);
	return 0;
}
