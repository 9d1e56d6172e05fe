/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The result of a command: how it ended and why, with what evidence. Frozen once the waiter has it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command/command.h"

static const char *const cause_names[] = { "none", "exited", "signaled", "timeout", "idle", "memory", "pids",
	"disk", "output", "policy", "canceled", "wall_lost", "keeper_lost" };
static const char *const limit_names[] = { "wall", "idle", "timeout", "memory", "pids", "disk", "inodes",
	"output", "cpu" };

const char *abox_cause_name(int cause)
{
	return cause >= 0 && (size_t)cause < ELEMENTSOF(cause_names) ? cause_names[cause] : "?";
}

int result_new(const abox_sandbox *box, uint32_t command, abox_result **ret)
{
	abox_result *result = calloc(1, sizeof(*result));

	if (!result)
		return ABOX_E_MEMORY;
	atomic_init(&result->n_refs, 1);
	result->exit_code = -1;
	result->command = command;
	memcpy(result->sandbox, box->id, sizeof(result->sandbox));
	if (box->plan_digest && !(result->plan_digest = strdup(box->plan_digest))) {
		free(result);
		return ABOX_E_MEMORY;
	}
	*ret = result;
	return 0;
}

int result_read(abox_result *result, struct pack_reader *reader)
{
	uint8_t truncated;

	result->cause = (int)unpack_u32(reader);
	result->exit_code = unpack_i32(reader);
	result->signal = unpack_i32(reader);
	result->wall_usec = unpack_u64(reader);
	result->cpu_usec = unpack_u64(reader);
	result->memory_peak_bytes = unpack_u64(reader);
	result->survivors = unpack_u32(reader);
	result->limits_struck = unpack_u32(reader);
	for (int i = 0; i < 2; i++)
		result->total_bytes[i] = unpack_u64(reader);
	truncated = unpack_u8(reader);
	for (int i = 0; i < 2; i++)
		result->truncated[i] = truncated & (1 << i);
	free(result->evidence);
	result->evidence = strdup(unpack_string(reader));
	if (!unpack_done(reader) || result->cause == ABOX_CAUSE_NONE)
		return ABOX_E_PROTOCOL;
	return result->evidence ? 0 : ABOX_E_MEMORY;
}

static int index_of(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; name && i < n; i++)
		if (strcmp(names[i], name) == 0)
			return (int)i;
	return -1;
}

int result_read_json(abox_result *result, const struct json *json)
{
	static const char *const totals[] = { "stdout_bytes", "stderr_bytes" };
	const char *evidence = json_text(json_member(json, "evidence"));
	int cause = index_of(cause_names, ELEMENTSOF(cause_names), json_text(json_member(json, "cause")));

	if (cause <= ABOX_CAUSE_NONE)
		return ABOX_E_DAMAGED;
	result->cause = cause;
	result->exit_code = (int)json_number(json_member(json, "exit_code"));
	result->signal = (int)json_number(json_member(json, "signal"));
	result->wall_usec = (uint64_t)json_number(json_member(json, "wall_usec"));
	result->cpu_usec = (uint64_t)json_number(json_member(json, "cpu_usec"));
	result->memory_peak_bytes = (uint64_t)json_number(json_member(json, "memory_peak_bytes"));
	result->survivors = (uint32_t)json_number(json_member(json, "survivors"));
	result->limits_struck = (uint32_t)json_number(json_member(json, "limits_struck"));
	for (int i = 0; i < 2; i++) {
		result->total_bytes[i] = (uint64_t)json_number(json_member(json, totals[i]));
		result->truncated[i] = json_number(json_member(json, "truncated")) & (1 << i);
	}
	result->evidence = strdup(evidence ? evidence : "");
	return result->evidence ? 0 : ABOX_E_MEMORY;
}

abox_result *abox_result_ref(abox_result *result)
{
	if (result)
		atomic_fetch_add_explicit(&result->n_refs, 1, memory_order_relaxed);
	return result;
}

abox_result *abox_result_unref(abox_result *result)
{
	if (!result || atomic_fetch_sub_explicit(&result->n_refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	text_clear(&result->output[0]);
	text_clear(&result->output[1]);
	free(result->evidence);
	free(result->plan_digest);
	free(result);
	return NULL;
}

void result_unrefp(abox_result **result)
{
	*result = abox_result_unref(*result);
}

int abox_result_get_cause(const abox_result *result)
{
	return result ? result->cause : ABOX_CAUSE_NONE;
}

int abox_result_get_exit_code(const abox_result *result)
{
	return result ? result->exit_code : -1;
}

int abox_result_get_signal(const abox_result *result)
{
	return result ? result->signal : 0;
}

uint64_t abox_result_get_wall_usec(const abox_result *result)
{
	return result ? result->wall_usec : 0;
}

uint64_t abox_result_get_cpu_usec(const abox_result *result)
{
	return result ? result->cpu_usec : 0;
}

uint64_t abox_result_get_memory_peak_bytes(const abox_result *result)
{
	return result ? result->memory_peak_bytes : 0;
}

uint32_t abox_result_get_survivors(const abox_result *result)
{
	return result ? result->survivors : 0;
}

uint32_t abox_result_get_limits_struck(const abox_result *result)
{
	return result ? result->limits_struck : 0;
}

const char *abox_result_get_evidence(const abox_result *result)
{
	return result ? result->evidence : NULL;
}

static bool stream_valid(const abox_result *result, int stream)
{
	return result && (stream == 1 || stream == 2);
}

int abox_result_get_output(const abox_result *result, int stream, const void **retdata, size_t *retlen)
{
	if (!stream_valid(result, stream) || !retdata || !retlen)
		return ABOX_E_INVALID;
	*retdata = result->output[stream - 1].data ? result->output[stream - 1].data : "";
	*retlen = result->output[stream - 1].len;
	return 0;
}

uint64_t abox_result_get_output_total(const abox_result *result, int stream)
{
	return stream_valid(result, stream) ? result->total_bytes[stream - 1] : 0;
}

int abox_result_get_truncated(const abox_result *result, int stream)
{
	return stream_valid(result, stream) && result->truncated[stream - 1];
}

uint64_t abox_result_get_stdin_taken(const abox_result *result)
{
	return result ? result->stdin_taken_bytes : 0;
}

static void add_limits(struct text *text, uint32_t limits)
{
	const char *separator = "";

	for (size_t i = 0; i < ELEMENTSOF(limit_names); i++) {
		if (!(limits & (1U << i)))
			continue;
		text_printf(text, "%s\"%s\"", separator, limit_names[i]);
		separator = ",";
	}
}

int abox_result_dump(const abox_result *result, char **retjson)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	if (!result || !retjson)
		return ABOX_E_INVALID;
	text_printf(&text, "{\"cause\":\"%s\",\"exit_code\":", abox_cause_name(result->cause));
	if (result->exit_code >= 0)
		text_printf(&text, "%d", result->exit_code);
	else
		text_add(&text, "null");
	text_printf(&text,
		",\"signal\":%d,\"wall_usec\":%llu,\"cpu_usec\":%llu,\"memory_peak_bytes\":%llu,\"stdout_bytes\":%llu,"
		"\"stderr_bytes\":%llu,\"truncated\":%s,\"survivors\":%u,\"limits\":[",
		result->signal, (unsigned long long)result->wall_usec, (unsigned long long)result->cpu_usec,
		(unsigned long long)result->memory_peak_bytes, (unsigned long long)result->total_bytes[0],
		(unsigned long long)result->total_bytes[1],
		result->truncated[0] || result->truncated[1] ? "true" : "false", result->survivors);
	add_limits(&text, result->limits_struck);
	text_add(&text, "],\"evidence\":");
	text_add_json(&text, result->evidence ? result->evidence : "",
		result->evidence ? strlen(result->evidence) : 0);
	text_printf(&text, ",\"sandbox\":\"%s\",\"command\":%u,\"plan_digest\":\"%s\"}", result->sandbox,
		result->command, result->plan_digest ? result->plan_digest : "");
	return text_take(&text, retjson);
}
