/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the journal hears of the box, through the recorder. Data of the box is escaped, bounded, and cleared
 * of the values that the spec has put into secret-looking variables. A box that is to be recorded and cannot
 * be any longer is stopped.
 */
#include "keeper/keeper.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/journal.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/secret.h"
#include "recorder/wire.h"

#define ANSWER_USEC (10 * USEC_PER_SEC)
#define ARGUMENT_MAX 1024	/* bytes of one argument that are recorded */
#define ARGV_MAX 8192		/* and of all */
#define SECRET_MIN 6		/* shorter values would blacken half of everything */

/* -- redaction -- */

/* The longest value of a secret variable that begins at data; its name in *retname. */
static size_t secret_at(const struct keeper *keeper, const char *data, size_t len, const char **retname,
	size_t *retname_len)
{
	size_t longest = 0;

	for (const char *const *env = keeper->plan.env; env && *env; env++) {
		const char *equals = strchr(*env, '=');
		size_t n = equals ? strlen(equals + 1) : 0;

		if (n < SECRET_MIN || n > len || n <= longest ||
			!secret_name(*env, (size_t)(equals - *env)) || memcmp(data, equals + 1, n) != 0)
			continue;
		longest = n;
		*retname = *env;
		*retname_len = (size_t)(equals - *env);
	}
	return longest;
}

/* A JSON string of at most max bytes of the data; *retcut when there was more. */
static void add_box_text(const struct keeper *keeper, struct text *text, const char *data, size_t len,
	size_t max, bool *retcut)
{
	_cleanup_(text_clear) struct text clean = TEXT_INIT;
	const char *name;
	size_t name_len, n;

	for (size_t i = 0; i < len; i += n ? n : 1) {
		if (clean.len >= max) {
			*retcut = true;
			break;
		}
		n = secret_at(keeper, data + i, len - i, &name, &name_len);
		if (n == 0) {
			text_add_bytes(&clean, data + i, 1);
			continue;
		}
		text_add(&clean, "[redacted ");
		text_add_bytes(&clean, name, name_len);
		text_add(&clean, "]");
	}
	if (clean.failed)
		text->failed = true;
	else
		text_add_json(text, clean.data ? clean.data : "", clean.len);
}

/* -- sending -- */

static int send_record(struct keeper *keeper, const char *type, const struct text *body, uint32_t durability,
	uint32_t serial)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	if (body->failed || body->len > RECORDER_BODY_MAX)
		return -EMSGSIZE;
	pack_u32(&writer, RECORDER_APPEND);
	pack_u32(&writer, serial);
	pack_u32(&writer, durability);
	pack_string(&writer, type);
	pack_bytes(&writer, body->data ? body->data : "{}", body->data ? body->len : 2);
	if (writer.failed)
		return -ENOMEM;
	return socket_send_until(keeper->recorder.fd, writer.data, writer.len, NULL, 0,
		clock_deadline(clock_monotonic_usec(), ANSWER_USEC));
}

static void recorder_lost(struct keeper *keeper)
{
	if (keeper->recorder.fd < 0)
		return;
	keeper_watch(keeper, &keeper->recorder, 0);
	keeper->recorder.fd = fd_close(keeper->recorder.fd);
	keeper->recorder_was_first = keeper->stop_phase == STOP_NONE;
	keeper_log(keeper, 0, keeper->records
			? "the recorder is gone: the box is stopped, since it may not run unrecorded"
			: "the recorder is gone: the box is stopped, since nobody else would settle its workspace");
	stop_begin(keeper, ABOX_STOP_CANCEL, ABOX_CAUSE_CANCELED, keeper->plan.limits.grace_usec);
}

/* Records that nobody waits for. The recorder ends when one cannot be written, which is noticed here. */
static void record(struct keeper *keeper, const char *type, const struct text *body, uint32_t durability)
{
	if (keeper->records && keeper->recorder.fd >= 0 && send_record(keeper, type, body, durability, 0) < 0)
		recorder_lost(keeper);
}

/* One message of the recorder: its type, 0 when there is none before the deadline, negative when it is gone.
 */
static int take_message(struct keeper *keeper, uint64_t deadline_usec, struct fault *fault)
{
	int fds[SOCKET_MAX_FDS];
	uint8_t buffer[4096];
	struct pack_reader reader;
	uint32_t type, serial;
	size_t n_fds = 0;
	ssize_t n;

	n = socket_recv_until(keeper->recorder.fd, buffer, sizeof(buffer), fds, &n_fds, deadline_usec);
	if (n == -EAGAIN || n == -ETIMEDOUT)
		return 0;
	if (n <= 0)
		return -EPIPE;
	reader = PACK_READER(buffer, (size_t)n);
	type = unpack_u32(&reader);
	serial = unpack_u32(&reader);
	if (type == RECORDER_EFFECT_ANSWER)
		effect_answer(keeper, serial, &reader, fds, n_fds);
	for (size_t i = 0; i < n_fds; i++)
		fd_close(fds[i]);
	if (type == RECORDER_FAULT && fault)
		fault_unpack(fault, &reader);
	if (type == RECORDER_CANCELED)
		stop_begin(keeper, ABOX_STOP_CANCEL, ABOX_CAUSE_CANCELED, keeper->plan.limits.grace_usec);
	return (int)type;
}

void record_take(struct keeper *keeper)
{
	if (take_message(keeper, 0, NULL) < 0)
		recorder_lost(keeper);
}

static void recorder_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	record_take(keeper);
}

/* A message that is no record. */
int record_send(struct keeper *keeper, const struct pack_writer *writer, const int *fds, size_t n_fds)
{
	int r;

	if (keeper->recorder.fd < 0)
		return -EPIPE;
	r = writer->failed ? -ENOMEM
			   : socket_send_until(keeper->recorder.fd, writer->data, writer->len, fds, n_fds,
				     clock_deadline(clock_monotonic_usec(), ANSWER_USEC));
	if (r < 0)
		recorder_lost(keeper);
	return r;
}

/* Waits until a record is durable. Bounded: a recorder that does not answer is as good as none. */
static int record_and_wait(
	struct keeper *keeper, const char *type, const struct text *body, struct fault *fault)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), ANSWER_USEC);
	int r;

	r = send_record(keeper, type, body, ABOX_DURABILITY_DATA, 1);
	while (r == 0 || r == RECORDER_CANCELED || r == RECORDER_EFFECT_ANSWER) {
		r = take_message(keeper, deadline, fault);
		if (r == RECORDER_OK)
			return 0;
		if (r == RECORDER_FAULT)
			return fault ? fault->code : ABOX_E_IO;
		if (r == 0)
			break;
	}
	return fault_set(fault, ABOX_E_UNRECORDED, r < 0 ? -r : ETIMEDOUT, "journal",
		"the recorder did not record it");
}

/* -- what is recorded -- */

static int record_start(struct keeper *keeper, struct fault *fault)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	size_t record_len = keeper->record_len;

	while (record_len > 0 && isspace((unsigned char)keeper->record[record_len - 1]))
		record_len--;
	text_add(&body, "{\"record\":");
	text_add_bytes(&body, keeper->record, record_len);
	if (body.len + keeper->plan_json_len + 16 <= RECORDER_BODY_MAX) {
		text_add(&body, ",\"plan\":");
		text_add_bytes(&body, keeper->plan_json, keeper->plan_json_len);
	} else {	/* the digest in the record still names it */
		text_add(&body, ",\"plan\":null");
	}
	text_add(&body, "}");
	return record_and_wait(keeper, "box.start", &body, fault);
}

int record_begin(struct keeper *keeper, struct fault *fault)
{
	int r = 0;

	if (keeper->recorder.fd < 0)
		return 0;
	if (keeper->records)
		r = record_start(keeper, fault);
	if (r < 0)
		return r;
	keeper->recorder.ready = recorder_ready;
	r = keeper_watch(keeper, &keeper->recorder, EPOLLIN);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, "journal", "the recorder cannot be watched") : 0;
}

void record_prepare_command(struct command *command, const char *const *argv, const char *cwd, uint32_t uid)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct keeper *keeper = command->keeper;
	bool cut = false;
	size_t i;

	if (!keeper->records || keeper->recorder.fd < 0)
		return;
	text_printf(&body, "{\"command\":%u,\"argv\":[", command->id);
	for (i = 0; argv[i] && body.len < ARGV_MAX; i++) {
		text_add(&body, i ? "," : "");
		add_box_text(keeper, &body, argv[i], strlen(argv[i]), ARGUMENT_MAX, &cut);
	}
	text_printf(&body, "],\"argv_cut\":%s,\"cwd\":", cut || argv[i] ? "true" : "false");
	add_box_text(keeper, &body, cwd, strlen(cwd), ARGUMENT_MAX, &cut);
	text_printf(&body, ",\"uid\":%u,\"pty\":%s}", uid, command->pty ? "true" : "false");
	if (text_take(&body, &command->record) < 0)
		recorder_lost(keeper);
}

void record_command_start(struct command *command)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	if (!command->record)
		return;
	text_add(&body, command->record);
	free(command->record);
	command->record = NULL;
	record(command->keeper, "command.start", &body, ABOX_DURABILITY_NONE);
}

/* The last bytes of what was spooled, which is all of the output that the keeper sees. */
static void add_tail(struct command *command, struct text *body, int stream, const char *name)
{
	struct spool *spool = &command->spools[stream];
	char tail[RECORD_TAIL_BYTES];
	uint64_t from = spool->kept > sizeof(tail) ? spool->kept - sizeof(tail) : 0;
	bool cut = false;
	ssize_t n;

	if (spool->fd < 0)
		return;
	n = fd_pread_all(spool->fd, tail, (size_t)(spool->kept - from), from);
	text_printf(body, ",\"%s\":", name);
	add_box_text(command->keeper, body, tail, n > 0 ? (size_t)n : 0, sizeof(tail) * 2, &cut);
}

void record_command_json(struct command *command, struct text *text)
{
	text_printf(text, "{\"command\":%u", command->id);
	result_add_json(command, text);
	add_tail(command, text, 0, "stdout_tail");
	add_tail(command, text, 1, "stderr_tail");
	text_add(text, "}");
}

void record_command_end(struct command *command)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	if (!command->keeper->records || command->keeper->recorder.fd < 0)
		return;
	record_command_json(command, &body);
	record(command->keeper, "command.end", &body, ABOX_DURABILITY_DATA);
}

/* What the box's network did. */
void record_event(struct keeper *keeper, const char *type, const struct text *body, uint32_t durability)
{
	record(keeper, type, body, durability);
}

/* What the library has found out and may have recorded: the receipt of a verify. */
int record_verify(struct keeper *keeper, const void *json, size_t len, struct fault *fault)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	if (!keeper->records || keeper->recorder.fd < 0)
		return 0;
	text_add_bytes(&body, json, len);
	return record_and_wait(keeper, "box.verify", &body, fault);
}

void record_end(struct keeper *keeper, const char *outcome, const struct text *report)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct fault fault;

	if (keeper->recorder.fd < 0)
		return;
	fault_init(&fault, ABOX_STAGE_STOP);
	text_printf(&body, "{\"outcome\":\"%s\",\"report\":", outcome);
	text_add_bytes(&body, report->data ? report->data : "null", report->data ? report->len : 4);
	text_add(&body, "}");
	if (record_and_wait(keeper, "box.stop", &body, &fault) < 0)
		report_add(keeper, REPORT_LEFT, "journal record of the stop", fault.message);
	keeper_watch(keeper, &keeper->recorder, 0);
	keeper->recorder.fd = fd_close(keeper->recorder.fd);
}
