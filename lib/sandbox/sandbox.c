/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Handles on boxes: what can be asked of a box and said to it. The box itself lives in its keeper; a handle
 * is a connection and a few facts. How a box is made is in start.c, how it is found again in open.c.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "keeper/wire.h"

void abox_start_options_init(struct abox_start_options *options)
{
	if (options)
		*options = (struct abox_start_options){ .size = sizeof(*options) };
}

int sandbox_new(int state_fd_taken, int box_fd_taken, const char *id, int mode, abox_sandbox **ret)
{
	abox_sandbox *box = calloc(1, sizeof(*box));

	if (!box) {
		fd_close(state_fd_taken);
		fd_close(box_fd_taken);
		return ABOX_E_MEMORY;
	}
	atomic_init(&box->n_refs, 1);
	box->client.fd = -EBADF;
	box->state_fd = state_fd_taken;
	box->box_fd = box_fd_taken;
	box->mode = mode;
	memcpy(box->id, id, STATE_ID_LEN);
	*ret = box;
	return 0;
}

static int take_text(char **slot, const char *text)
{
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		return ABOX_E_MEMORY;
	free(*slot);
	*slot = copy;
	return 0;
}

int sandbox_adopt_record(abox_sandbox *box, const struct json *record)
{
	int r;

	r = take_text(&box->name, json_text(json_member(record, "name")));
	if (r == 0)
		r = take_text(&box->plan_digest, json_text(json_member(record, "plan_digest")));
	if (r == 0)
		r = take_text(&box->backend, json_text(json_member(record, "backend")));
	box->output_bytes = (uint64_t)json_number(json_member(record, "output_bytes"));
	box->output_written = json_truth(json_member(record, "output_written"));
	return r;
}

abox_sandbox *abox_sandbox_ref(abox_sandbox *box)
{
	if (box)
		atomic_fetch_add_explicit(&box->n_refs, 1, memory_order_relaxed);
	return box;
}

abox_sandbox *abox_sandbox_unref(abox_sandbox *box)
{
	if (!box || atomic_fetch_sub_explicit(&box->n_refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	client_clear(&box->client);
	fd_close(box->state_fd);
	fd_close(box->box_fd);
	free(box->name);
	free(box->plan_digest);
	free(box->backend);
	free(box->report);
	free(box);
	return NULL;
}

void sandbox_unrefp(abox_sandbox **box)
{
	*box = abox_sandbox_unref(*box);
}

void abox_sandbox_set_log(abox_sandbox *box, abox_log_fn log, void *userdata)
{
	if (!box)
		return;
	box->client.log = log;
	box->client.log_userdata = userdata;
}

const char *abox_sandbox_get_id(const abox_sandbox *box)
{
	return box ? box->id : NULL;
}

const char *abox_sandbox_get_name(const abox_sandbox *box)
{
	return box ? box->name : NULL;
}

uint64_t abox_sandbox_get_epoch(const abox_sandbox *box)
{
	return box ? box->epoch : 0;
}

static int need_box(const abox_sandbox *box, abox_error **reterr)
{
	return box ? 0 : error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_NONE, NULL, "a sandbox is required");
}

/* A request that only its controller may make, begun: type and epoch are in. */
static int begin_control(abox_sandbox *box, struct pack_writer *writer, uint32_t type, abox_error **reterr)
{
	int r = need_box(box, reterr);

	if (r < 0)
		return r;
	if (box->mode != ABOX_OPEN_CONTROL)
		return error_set(
			reterr, ABOX_E_STATE, ABOX_STAGE_OPEN, box->id, "the box was not opened for control");
	if (box->client.fd < 0)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_OPEN, box->id, "the box has ended");
	client_begin(&box->client, writer, type);
	pack_u64(writer, box->epoch);
	return 0;
}

struct info {
	uint32_t state;
	uint64_t epoch;
	uint64_t started_usec;
	uint32_t n_owners;
	char *commands;
};

static int ask_info(abox_sandbox *box, struct info *ret, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	client_begin(&box->client, &writer, WIRE_INFO);
	r = client_call(&box->client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0) {
		ret->state = unpack_u32(&reader);
		ret->epoch = unpack_u64(&reader);
		ret->started_usec = unpack_u64(&reader);
		ret->n_owners = unpack_u32(&reader);
		ret->commands = strdup(unpack_string(&reader));
		r = !ret->commands ? ABOX_E_MEMORY : unpack_done(&reader) ? 0 : ABOX_E_PROTOCOL;
		if (r < 0) {
			free(ret->commands);
			ret->commands = NULL;
		}
	}
	client_end(&box->client, &writer);
	return r;
}

int abox_sandbox_get_state(abox_sandbox *box, abox_error **reterr)
{
	struct info info = { 0 };
	int r = need_box(box, reterr);

	if (r < 0)
		return r;
	if (box->report)
		return ABOX_SANDBOX_STOPPED;
	if (box->client.fd < 0)
		return state_read_word(box->box_fd);
	r = ask_info(box, &info, reterr);
	free(info.commands);
	if (r == ABOX_E_GONE) {
		if (reterr)
			*reterr = abox_error_free(*reterr);
		return state_life(box->box_fd) == STATE_LIFE_DEAD ? state_read_word(box->box_fd)
								  : ABOX_SANDBOX_STOPPED;
	}
	return r < 0 ? r : (int)info.state;
}

int abox_sandbox_get_fd(const abox_sandbox *box)
{
	if (!box)
		return ABOX_E_INVALID;
	return box->client.fd < 0 ? ABOX_E_STATE : box->client.fd;
}

int abox_sandbox_process(abox_sandbox *box, abox_error **reterr)
{
	int r = need_box(box, reterr);

	return r < 0 ? r : client_drain(&box->client);
}

int abox_sandbox_wait(abox_sandbox *box, uint64_t timeout_usec, abox_error **reterr)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec);
	int r = need_box(box, reterr);

	if (r < 0)
		return r;
	for (;;) {
		struct pollfd poll_fd = { .fd = box->client.fd, .events = POLLIN };

		if (!client_drain(&box->client))
			return 1;
		r = poll(&poll_fd, 1, clock_poll_msec(clock_monotonic_usec(), deadline));
		if (r == 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return error_set_errno(
				reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, box->id, errno, "cannot wait");
	}
}

static const char *state_name(int state)
{
	static const char *const names[] = { "starting", "running", "paused", "stopping", "stopped",
		"failed" };

	return state >= 0 && (size_t)state < ELEMENTSOF(names) ? names[state] : "?";
}

/* The record's own members, so that nothing which was recorded is lost on the way. */
static void add_record(struct text *text, int box_fd, const char *state)
{
	_cleanup_(json_unrefp) struct json *record = NULL;
	_cleanup_(freep) const char **names = NULL;

	text_printf(text, "{\"state\":\"%s\"", state);
	state_read_record(box_fd, &record);
	if (!record || json_member_names(record, &names) < 0)
		return;
	for (size_t i = 0; names[i]; i++) {
		text_printf(text, ",\"%s\":", names[i]);
		json_print(text, json_member(record, names[i]));
	}
}

static void add_file(struct text *text, int box_fd, const char *name, const char *file)
{
	_cleanup_(freep) char *content = NULL;
	size_t len;

	if (file_read_text(box_fd, file, 16 << 20, &content, &len) < 0)
		return;
	text_printf(text, ",\"%s\":", name);
	text_add_bytes(text, content, len);
}

int abox_sandbox_inspect(abox_sandbox *box, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	struct info info = { 0 };
	int state, r = need_box(box, reterr);

	if (r < 0)
		return r;
	if (!retjson)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "retjson is required");
	state = abox_sandbox_get_state(box, reterr);
	if (state < 0)
		return state;
	add_record(&text, box->box_fd, state_name(state));
	if (state <= ABOX_SANDBOX_STOPPING && ask_info(box, &info, NULL) == 0) {
		text_printf(&text, ",\"epoch\":%llu,\"owners\":%u,\"commands\":%s",
			(unsigned long long)info.epoch, info.n_owners, info.commands);
		free(info.commands);
	}
	state_add_workspace(&text, box->box_fd);
	add_file(&text, box->box_fd, "plan", STATE_PLAN);
	add_file(&text, box->box_fd, "report", STATE_REPORT);
	text_add(&text, "}");
	return text_take(&text, retjson);
}

int abox_sandbox_stats(abox_sandbox *box, struct abox_stats *stats, abox_error **reterr)
{
	struct abox_stats full = { .size = sizeof(full) };
	uint64_t *const fields[] = { &full.cpu_usec, &full.memory_bytes, &full.memory_peak_bytes, &full.pids,
		&full.disk_bytes, &full.inodes, &full.oom_kills, &full.uptime_usec, &full.commands_running,
		&full.commands_started };
	struct pack_writer writer;
	struct pack_reader reader;
	size_t size;
	int r = need_box(box, reterr);

	if (r < 0)
		return r;
	if (!stats || stats->size < sizeof(size_t))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "stats with its size set is required");
	client_begin(&box->client, &writer, WIRE_STATS);
	r = client_call(&box->client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	for (size_t i = 0; r == 0 && i < ELEMENTSOF(fields); i++)
		*fields[i] = unpack_u64(&reader);
	if (r == 0 && !unpack_done(&reader))
		r = error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_OPEN, NULL,
			"the keeper's figures cannot be read");
	client_end(&box->client, &writer);
	if (r < 0)
		return r;
	size = stats->size;
	memcpy(stats, &full, MIN(size, sizeof(full)));
	stats->size = size;
	return 0;
}

static int control_simple(abox_sandbox *box, uint32_t type, abox_error **reterr)
{
	struct pack_writer writer;
	int r = begin_control(box, &writer, type, reterr);

	return r < 0 ? r : client_simple(&box->client, &writer, reterr);
}

int abox_sandbox_pause(abox_sandbox *box, abox_error **reterr)
{
	return control_simple(box, WIRE_PAUSE, reterr);
}

int abox_sandbox_resume(abox_sandbox *box, abox_error **reterr)
{
	return control_simple(box, WIRE_RESUME, reterr);
}

int abox_sandbox_snapshot(
	abox_sandbox *box, const struct abox_snapshot_options *options, char **retid, abox_error **reterr)
{
	static const struct abox_snapshot_options defaults = ABOX_SNAPSHOT_OPTIONS_INIT;
	struct pack_writer writer;
	struct pack_reader reader;
	char *id = NULL;
	int r = need_box(box, reterr);

	if (r < 0)
		return r;
	options = options ? options : &defaults;
	if (options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_WORKSPACE, "size", "the options were not initialised");
	if (box->mode == ABOX_OPEN_READ || box->client.fd < 0)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_WORKSPACE, box->id,
			"the box has ended, or was opened for reading only");
	client_begin(&box->client, &writer, WIRE_SNAPSHOT);
	pack_string(&writer, options->name);
	pack_u64(&writer, options->ttl_usec);
	pack_u32(&writer, options->keep_last);
	r = client_call(&box->client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0) {
		id = strdup(unpack_string(&reader));
		r = !id ? ABOX_E_MEMORY : unpack_done(&reader) ? 0 : ABOX_E_PROTOCOL;
	}
	client_end(&box->client, &writer);
	if (r == 0 && retid)
		*retid = steal_ptr(id);
	free(id);
	return r;
}

int abox_sandbox_set_limit(abox_sandbox *box, const char *name, uint64_t value, abox_error **reterr)
{
	struct pack_writer writer;
	int r;

	if (string_empty(name) || value == 0)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_COMMAND, name,
			"a name and a value above 0 are required");
	r = begin_control(box, &writer, WIRE_SET_LIMIT, reterr);
	if (r < 0)
		return r;
	pack_string(&writer, name);
	pack_u64(&writer, value);
	return client_simple(&box->client, &writer, reterr);
}

static int copy_report(const abox_sandbox *box, char **retjson)
{
	if (!retjson)
		return box->report_code;
	*retjson = strdup(box->report);
	return *retjson ? box->report_code : ABOX_E_MEMORY;
}

/* A box that ended by itself: the report of a detached one is in its folder, that of an attached one went
 * with it. */
static int report_of_ended(abox_sandbox *box, abox_error **reterr)
{
	size_t len;

	if (file_read_text(box->box_fd, STATE_REPORT, 16 << 20, &box->report, &len) == 0)
		return 0;
	return error_set(reterr, ABOX_E_GONE, ABOX_STAGE_STOP, box->id, "the box had ended before");
}

int abox_sandbox_stop(abox_sandbox *box, int mode, char **retjson, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	uint32_t n_left = 0;
	int r = need_box(box, reterr);

	if (r < 0)
		return r;
	if (mode < ABOX_STOP_CANCEL || mode > ABOX_STOP_SUCCESS)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_STOP, NULL, "unknown stop mode %d", mode);
	if (box->report)
		return copy_report(box, retjson);
	r = begin_control(box, &writer, WIRE_STOP, reterr);
	if (r < 0)
		return r;
	pack_u32(&writer, (uint32_t)mode);
	pack_u64(&writer, UINT64_MAX);
	r = client_call(&box->client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0) {
		box->report = strdup(unpack_string(&reader));
		n_left = unpack_u32(&reader);
		r = !box->report ? ABOX_E_MEMORY : reader.failed ? ABOX_E_PROTOCOL : 0;
	}
	client_end(&box->client, &writer);
	if (r == ABOX_E_GONE) {
		r = report_of_ended(box, NULL);
		if (r < 0)
			return r;
		if (reterr)
			*reterr = abox_error_free(*reterr);
	}
	if (r < 0)
		return r;
	box->client.fd = fd_close(box->client.fd);
	box->report_code = 0;
	if (n_left > 0)
		box->report_code = error_set(reterr, ABOX_E_LEFT_BEHIND, ABOX_STAGE_STOP, box->id,
			"%u things could not be removed; the report lists them", n_left);
	return copy_report(box, retjson);
}
