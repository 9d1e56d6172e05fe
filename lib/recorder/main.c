/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The recorder of a box: the one process between a keeper, which links no library, and what outlives the box.
 * It writes what the keeper tells into the journal, watches for the cancellation of the task, opens and
 * settles the workspace, and ends with the keeper; when the keeper ends without having told the end of the
 * box, the recorder settles by itself and says in the journal what happened.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/journal.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "kernel/pidfd.h"
#include "recorder/recorder.h"

#define LIBRARY_FD 3
#define KEEPER_FD 4
#define WALL_USEC (30 * USEC_PER_SEC) /* how long a guest may take to die after its keeper */

struct recorder {
	abox_journal *journal;
	abox_journal_reader *reader; /* follows the journal for the cancellation; NULL without a task */
	char *task, *box;
	struct keeping keeping; /* of the workspace */
	struct effects effects;
	int wall_fd; /* pidfd of the guest; -EBADF as long as there is none */
	bool ended; /* the keeper told the end of the box */
	bool canceled; /* and was told of the cancellation */
	uint8_t buffer[RECORDER_PACKET_MAX];
};

static int send_answer(int fd, struct pack_writer *writer, const int *fds, size_t n_fds)
{
	return writer->failed ? -ENOMEM : socket_send(fd, writer->data, writer->len, fds, n_fds);
}

static int answer_fault(int fd, uint32_t serial, int stage, int code, const abox_error *error)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct fault fault;

	pack_u32(&writer, RECORDER_FAULT);
	pack_u32(&writer, serial);
	fault_init(&fault, stage);
	fault_set(&fault, code, 0, abox_error_get_place(error), "%s",
		error && abox_error_get_message(error) ? abox_error_get_message(error)
						       : abox_code_name(code));
	fault.sys_errno = abox_error_get_errno(error);
	if (abox_error_get_remedy(error))
		fault_remedy(&fault, "%s", abox_error_get_remedy(error));
	fault_pack(&fault, &writer);
	return send_answer(fd, &writer, NULL, 0);
}

static int answer(int fd, uint32_t serial, uint64_t seq, int code, const abox_error *error)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	if (code < 0)
		return answer_fault(fd, serial, ABOX_STAGE_JOURNAL, code, error);
	pack_u32(&writer, RECORDER_OK);
	pack_u32(&writer, serial);
	pack_u64(&writer, seq);
	return send_answer(fd, &writer, NULL, 0);
}

/* From the newest record on: a task that was canceled before is refused by the library that starts the box.
 */
static int follow(struct recorder *recorder, abox_error **reterr)
{
	char hash[ABOX_DIGEST_TEXT_BYTES];
	uint64_t seq;
	int r;

	r = abox_journal_get_position(recorder->journal, &seq, hash, reterr);
	if (r < 0)
		return r;
	return abox_journal_reader_new(recorder->journal, seq + 1, 0, &recorder->reader, reterr);
}

static int open_journal(struct recorder *recorder, const char *path, abox_error **reterr)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	int r;

	if (!path[0])
		return 0;
	options.mode = ABOX_JOURNAL_APPEND;
	options.flags = ABOX_JOURNAL_CREATE;
	r = abox_journal_open(path, &options, &recorder->journal, reterr);
	if (r < 0 || !recorder->task[0])
		return r;
	return follow(recorder, reterr);
}

/* This process is born without an environment, and the store is where the caller's says. */
static int take_environment(struct pack_reader *reader)
{
	uint32_t n = unpack_count(reader, 4);

	for (uint32_t i = 0; i < n && !reader->failed; i++) {
		char *variable = strdup(unpack_string(reader));

		if (!variable || !strchr(variable, '=') || putenv(variable) < 0)
			return ABOX_E_MEMORY;
	}
	return 0;
}

static int set_names(struct recorder *recorder, const char *task, const char *box, const char *plan)
{
	recorder->task = strdup(task);
	recorder->box = strdup(box);
	recorder->keeping.task = strdup(task);
	recorder->keeping.box = strdup(box);
	recorder->keeping.plan = strdup(plan);
	return recorder->task && recorder->box && recorder->keeping.task && recorder->keeping.box &&
			       recorder->keeping.plan
		       ? 0
		       : ABOX_E_MEMORY;
}

static int take_open(struct recorder *recorder, struct pack_reader *reader, int order_fd, abox_error **reterr)
{
	uint32_t version = unpack_u32(reader);
	const char *path = unpack_string(reader), *task = unpack_string(reader), *box = unpack_string(reader);
	const char *plan = unpack_string(reader);
	int r = take_environment(reader);
	bool effects = unpack_u8(reader);

	if (r < 0)
		return r;
	if (!unpack_done(reader) || version != RECORDER_VERSION)
		return error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_JOURNAL, NULL,
			"library and recorder do not fit together");
	r = set_names(recorder, task, box, plan);
	if (r == 0)
		r = open_journal(recorder, path, reterr);
	if (r >= 0) {
		effects_init(&recorder->effects, recorder->journal, task, box, effects);
		r = effects_open(&recorder->effects, reterr);
	}
	if (r >= 0 && order_fd >= 0)
		r = keeping_read_order(&recorder->keeping, order_fd, reterr);
	return r;
}

static int recover(struct recorder *recorder, struct pack_reader *reader, uint32_t serial, int order_fd,
	abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	uint32_t version = unpack_u32(reader), end = unpack_u32(reader);
	const char *box = unpack_string(reader), *workspace = unpack_string(reader),
		   *plan = unpack_string(reader);
	_cleanup_(freep) char *json = NULL, *left = NULL;
	int r = take_environment(reader);

	if (r < 0)
		return r;
	if (order_fd < 0 || !unpack_done(reader) || version != RECORDER_VERSION || end > RECORDER_N_ENDS)
		return error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_WORKSPACE, NULL,
			"library and recorder do not fit together");
	r = set_names(recorder, "", box, plan);
	if (r == 0)
		r = keeping_read_order(&recorder->keeping, order_fd, reterr);
	if (r == 0)
		r = keeping_recover(&recorder->keeping, workspace, (enum recorder_end)end, &json, &left, reterr);
	if (r < 0)
		return r;
	pack_u32(&writer, RECORDER_OK);
	pack_u32(&writer, serial);
	pack_string(&writer, left);
	pack_string(&writer, json);
	return send_answer(LIBRARY_FD, &writer, NULL, 0);
}

static int serve_library(struct recorder *recorder)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(fd_closep) int order_fd = -EBADF;
	struct pack_reader reader;
	int fds[SOCKET_MAX_FDS], r;
	size_t n_fds = SOCKET_MAX_FDS;
	uint32_t type, serial;
	ssize_t n;

	n = socket_recv(LIBRARY_FD, recorder->buffer, sizeof(recorder->buffer), fds, &n_fds);
	if (n <= 0)
		return -EPIPE;
	for (size_t i = 0; i < n_fds; i++) {
		if (i == 0)
			order_fd = fds[i];
		else
			fd_close(fds[i]);
	}
	reader = PACK_READER(recorder->buffer, (size_t)n);
	type = unpack_u32(&reader);
	serial = unpack_u32(&reader);
	if (type == RECORDER_RECOVER) {
		r = recover(recorder, &reader, serial, order_fd, &error);
		if (r < 0)
			answer_fault(LIBRARY_FD, serial, ABOX_STAGE_WORKSPACE, r, error);
		recorder->ended = true;
		return -ECANCELED; /* there is no keeper */
	}
	if (type != RECORDER_OPEN)
		return -EPROTO;
	r = take_open(recorder, &reader, order_fd, &error);
	answer(LIBRARY_FD, serial, 0, r, error);
	fd_close(LIBRARY_FD);
	return r;
}

static int append(struct recorder *recorder, const char *type, const char *body, uint32_t durability,
	uint64_t *retseq, abox_error **reterr)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;

	entry.type = type;
	entry.task = recorder->task[0] ? recorder->task : NULL;
	entry.box = recorder->box;
	entry.body = body;
	entry.durability = durability;
	return abox_journal_append(recorder->journal, &entry, retseq, reterr);
}

/*
 * A record that cannot be written ends the recorder, whether or not an answer was wanted: a box that was to
 * be recorded does not go on unrecorded (the keeper stops it when the recorder is gone).
 */
static int serve_append(struct recorder *recorder, struct pack_reader *reader, uint32_t serial)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	uint32_t durability = unpack_u32(reader);
	const char *record = unpack_string(reader), *body = unpack_string(reader);
	uint64_t seq = 0;
	int r;

	if (!unpack_done(reader) || !recorder->journal)
		return -EPROTO;
	r = append(recorder, record, body, durability, &seq, &error);
	if (r == 0 && strcmp(record, "box.stop") == 0)
		recorder->ended = true;
	if (serial)
		answer(KEEPER_FD, serial, seq, r, error);
	return r;
}

static void pack_layer(struct pack_writer *writer, int fd, const char *path)
{
	struct stat st = { 0 };

	if (path && fstat(fd, &st) < 0)
		writer->failed = true;
	pack_string(writer, path);
	pack_u64(writer, st.st_dev);
	pack_u64(writer, st.st_ino);
}

static int answer_opened(struct recorder *recorder, uint32_t serial, const struct opened *opened,
	bool wants_names, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(layer_paths_clear) struct layer_paths paths = { 0 };
	const struct layer_stack *stack = &opened->stack;
	_cleanup_(fd_closep) int lock_fd = workspace_lock_fd(recorder->keeping.workspace);
	_cleanup_(fd_closep) int names_fd = -EBADF;
	int fds[3] = { lock_fd, opened->mount_fd }, n_fds = opened->mount_fd >= 0 ? 2 : 1, r;

	if (lock_fd < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_WORKSPACE, "lock", -lock_fd, "cannot be handed on");
	if (wants_names) {
		r = keeping_open_names(&recorder->keeping, &names_fd, reterr);
		if (r < 0)
			return r;
		fds[n_fds++] = names_fd;
	}
	pack_u32(&writer, RECORDER_OK);
	pack_u32(&writer, serial);
	pack_string(&writer, workspace_id(recorder->keeping.workspace));
	pack_u8(&writer, opened->mount_fd < 0 ? 0 : recorder->keeping.quota.upper_fd < 0 ? 1 : 2);
	if (opened->mount_fd < 0) {
		bool whole = stack->is_full || stack->n_lowers == 0 ||
			     workspace_mode(recorder->keeping.workspace) == WORKSPACE_DIRECT;

		r = layer_stack_paths(stack, &paths, reterr);
		if (r < 0)
			return r;
		pack_layer(&writer, stack->top_fd, paths.top);
		pack_layer(&writer, stack->work_fd, whole ? NULL : paths.work);
		pack_u32(&writer, whole ? 0 : (uint32_t)paths.n_lowers);
		for (size_t i = 0; !whole && i < paths.n_lowers; i++)
			pack_layer(&writer, stack->lower_fds[i], paths.lowers[i]);
	}
	if (!writer.failed && writer.len > RECORDER_PACKET_MAX)
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_WORKSPACE,
				workspace_id(recorder->keeping.workspace), "it has too many layers"),
			"run agentbox workspace gc, which merges them");
	return send_answer(KEEPER_FD, &writer, fds, (size_t)n_fds);
}

static int serve_begin(struct recorder *recorder, struct pack_reader *reader, uint32_t serial)
{
	_cleanup_(opened_clear) struct opened opened = OPENED_INIT;
	_cleanup_(error_freep) abox_error *error = NULL;
	bool wants_names = unpack_u8(reader);
	int r;

	if (!unpack_done(reader) || !recorder->keeping.order || recorder->keeping.workspace)
		return -EPROTO;
	r = keeping_begin(&recorder->keeping, &opened, &error);
	if (r >= 0)
		r = answer_opened(recorder, serial, &opened, wants_names, &error);
	if (r < 0)
		answer_fault(KEEPER_FD, serial, ABOX_STAGE_WORKSPACE, r, error);
	return 0;
}

static int settle(struct recorder *recorder, enum recorder_end end, const char *evidence, char **retjson,
	char **retleft)
{
	int r = keeping_settle(&recorder->keeping, end, evidence, retjson, retleft);

	if (r < 0)
		return r;
	recorder->keeping.workspace = abox_workspace_unref(recorder->keeping.workspace);
	return 0;
}

static int serve_settle(struct recorder *recorder, struct pack_reader *reader, uint32_t serial)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(freep) char *json = NULL, *left = NULL;
	uint32_t end = unpack_u32(reader);
	const char *evidence = unpack_string(reader);
	int r;

	if (!unpack_done(reader) || end > RECORDER_UNBORN || !recorder->keeping.workspace)
		return -EPROTO;
	r = settle(recorder, end, evidence, &json, &left);
	if (r < 0)
		return answer_fault(KEEPER_FD, serial, ABOX_STAGE_WORKSPACE, r, NULL);
	pack_u32(&writer, RECORDER_OK);
	pack_u32(&writer, serial);
	pack_string(&writer, left);
	pack_string(&writer, json);
	return send_answer(KEEPER_FD, &writer, NULL, 0);
}

static int serve_snapshot(struct recorder *recorder, struct pack_reader *reader, uint32_t serial)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct abox_snapshot_options options = ABOX_SNAPSHOT_OPTIONS_INIT;
	_cleanup_(error_freep) abox_error *error = NULL;
	const char *name = unpack_string(reader);
	char id[STORE_ID_BYTES];
	int r;

	options.ttl_usec = unpack_u64(reader);
	options.keep_last = unpack_u32(reader);
	options.name = name[0] ? name : NULL;
	if (!unpack_done(reader) || !recorder->keeping.workspace)
		return -EPROTO;
	r = keeping_snapshot(&recorder->keeping, &options, id, &error);
	if (r < 0)
		return answer_fault(KEEPER_FD, serial, ABOX_STAGE_WORKSPACE, r, error);
	pack_u32(&writer, RECORDER_OK);
	pack_u32(&writer, serial);
	pack_string(&writer, id);
	return send_answer(KEEPER_FD, &writer, NULL, 0);
}

static int serve_keeper(struct recorder *recorder)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = SOCKET_MAX_FDS;
	struct pack_reader reader;
	uint32_t type, serial;
	ssize_t n;

	n = socket_recv(KEEPER_FD, recorder->buffer, sizeof(recorder->buffer), fds, &n_fds);
	if (n <= 0)
		return -EPIPE;
	reader = PACK_READER(recorder->buffer, (size_t)n);
	type = unpack_u32(&reader);
	serial = unpack_u32(&reader);
	for (size_t i = 0; i < n_fds; i++) {
		if (type == RECORDER_WALL && i == 0 && recorder->wall_fd < 0)
			recorder->wall_fd = fds[i];
		else if (type == RECORDER_WALL && i == 1 && recorder->keeping.quota.upper_fd < 0)
			recorder->keeping.quota.upper_fd = fds[i];
		else if (i == 0 && (type == RECORDER_EFFECT || type == RECORDER_EFFECT_DONE))
			fd = fds[i];
		else
			fd_close(fds[i]);
	}
	switch (type) {
	case RECORDER_EFFECT:
		return effects_ask(&recorder->effects, serial, &reader, steal_fd(fd), recorder->keeping.plan);
	case RECORDER_EFFECT_DONE:
		effects_done(&recorder->effects, serial, &reader, fd);
		return 0;
	case RECORDER_EFFECT_LEAVE:
		effects_leave(&recorder->effects, serial, &reader);
		return 0;
	case RECORDER_EFFECTS_LOST:
		effects_lost(&recorder->effects);
		return 0;
	case RECORDER_APPEND:
		return serve_append(recorder, &reader, serial);
	case RECORDER_BEGIN:
		return serve_begin(recorder, &reader, serial);
	case RECORDER_WALL:
		return 0;
	case RECORDER_SETTLE:
		return serve_settle(recorder, &reader, serial);
	case RECORDER_SNAPSHOT:
		return serve_snapshot(recorder, &reader, serial);
	default:
		return -EPROTO;
	}
}

static void tell_canceled(struct recorder *recorder)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, RECORDER_CANCELED);
	pack_u32(&writer, 0);
	if (!writer.failed)
		socket_send(KEEPER_FD, writer.data, writer.len, NULL, 0);
	recorder->canceled = true;
}

static int look_for_cancel(struct recorder *recorder)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	int r;

	while ((r = abox_journal_reader_next(recorder->reader, &record, NULL)) == 1)
		if (record.task && strcmp(record.task, recorder->task) == 0 &&
			strcmp(record.type, "task.cancel") == 0 && !recorder->canceled)
			tell_canceled(recorder);
	return r;
}

static int loop(struct recorder *recorder)
{
	struct pollfd fds[2] = { { .fd = KEEPER_FD, .events = POLLIN }, { .fd = -EBADF, .events = POLLIN } };
	int r;

	if (recorder->reader)
		fds[1].fd = abox_journal_reader_get_fd(recorder->reader, NULL);
	for (;;) {
		int n = poll(fds, ELEMENTSOF(fds), effects_poll_msec(&recorder->effects));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0)
			fds[0].revents = fds[1].revents = 0;
		if (fds[0].revents) {
			r = serve_keeper(recorder);
			if (r < 0)
				return r;
		}
		if (fds[1].revents && look_for_cancel(recorder) < 0)
			return -EIO;
		effects_look(&recorder->effects);
	}
}

/* The keeper is gone; its guest dies of that. Nobody may write any more while the workspace is settled. */
static bool wall_is_gone(const struct recorder *recorder)
{
	struct pollfd poll_fd = { .fd = recorder->wall_fd, .events = POLLIN };

	if (recorder->wall_fd < 0)
		return true;
	pidfd_signal(recorder->wall_fd, SIGKILL);
	return poll(&poll_fd, 1, (int)(WALL_USEC / USEC_PER_MSEC)) == 1;
}

static void settle_alone(struct recorder *recorder, char **retjson)
{
	_cleanup_(freep) char *left = NULL;

	if (recorder->keeping.workspace && wall_is_gone(recorder))
		settle(recorder, RECORDER_FAILURE,
			"{\"evidence\":\"the keeper ended without a word\",\"commands\":[]}", retjson, &left);
}

int main(void)
{
	static struct recorder recorder = {
		.wall_fd = -EBADF, .keeping.quota = QUOTA_INIT, .effects.keeper_fd = KEEPER_FD };
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	_cleanup_(freep) char *settled = NULL;
	uint64_t seq;

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_NAME, "agentbox-record");
	if (serve_library(&recorder) < 0)
		return recorder.ended ? 0 : 1;
	loop(&recorder);
	effects_clear(&recorder.effects);
	settle_alone(&recorder, &settled);
	if (!recorder.ended && recorder.journal) {
		text_printf(&body,
			"{\"outcome\":\"lost\",\"evidence\":\"the keeper ended without a word\",\"workspace\":%s}",
			settled ? settled : "null");
		if (!body.failed)
			append(&recorder, "box.stop", body.data, ABOX_DURABILITY_FULL, &seq, NULL);
	}
	abox_journal_reader_unref(recorder.reader);
	abox_journal_unref(recorder.journal);
	keeping_clear(&recorder.keeping);
	return recorder.ended ? 0 : 1;
}
