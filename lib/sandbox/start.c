/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Making a box: a keeper is started beside the host (it never becomes the host's child), gets the plan, and
 * answers when the box stands or says which step failed. Everything on the host is made and undone by the
 * keeper.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "keeper/wire.h"
#include "kernel/spawn.h"
#include "machine/machine.h"
#include "plan/plan.h"
#include "sandbox/network.h"
#include "sandbox/record.h"

#define START_TIMEOUT_USEC (30 * USEC_PER_SEC)
#define MACHINE_TIMEOUT_USEC (120 * USEC_PER_SEC)
#define COPY_TIMEOUT_USEC (3600 * USEC_PER_SEC)	/* where the workspace is a copy */
#define UNDO_TIMEOUT_MSEC 10000

static int new_id(char ret[STATE_ID_LEN + 1])
{
	uint8_t bytes[STATE_ID_LEN / 2];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -errno;
	hex_encode(bytes, sizeof(bytes), ret);
	return 0;
}

static void add_boot_id(struct text *text)
{
	_cleanup_(freep) char *boot = NULL;
	size_t len;

	if (file_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, &len) < 0)
		return;
	boot[strcspn(boot, "\n")] = 0;
	text_add(text, ",\"boot_id\":");
	text_add_json(text, boot, strlen(boot));
}

/* Facts about the box for whoever finds it later. pid, start and boot are for people: the lock tells who
 * lives. */
static int make_record(
	const struct plan_view *view, const abox_plan *plan, const char *id, pid_t keeper, char **ret)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	text_printf(&text, "{\"format\":1,\"id\":\"%s\",\"name\":", id);
	if (view->name)
		text_add_json(&text, view->name, strlen(view->name));
	else
		text_add(&text, "null");
	text_printf(&text,
		",\"backend\":\"%s\",\"plan_digest\":\"%s\",\"created_usec\":%llu,\"uid\":%u,\"pid\":%d,\"owner_death\":\"%s\""
		",\"ttl_usec\":%lld,\"output_bytes\":%llu,\"output_written\":%s",
		abox_plan_get_backend(plan), abox_plan_get_digest(plan),
		(unsigned long long)clock_wall_usec(), geteuid(), (int)keeper, view->keep ? "keep" : "stop",
		(long long)view->ttl_usec, (unsigned long long)view->output_bytes,
		view->output_written ? "true" : "false");
	add_boot_id(&text);
	text_add(&text, "}\n");
	return text_take(&text, ret);
}

/* The keeper is told to undo what it had done (SIGTERM), and after a while is ended. Never by pid: it may be
 * gone. */
static void end_keeper(int pidfd)
{
	struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };

	syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0);
	if (poll(&poll_fd, 1, UNDO_TIMEOUT_MSEC) == 1)
		return;
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	poll(&poll_fd, 1, UNDO_TIMEOUT_MSEC);
}

static int spawn_keeper(
	const struct plan_view *view, int *retfd, int *retpidfd, pid_t *retpid, abox_error **reterr)
{
	static const char *const argv[] = { "agentbox-keeper", NULL };
	int pair[2], r;

	r = socket_pair(pair);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_START, "socketpair", -r, "cannot reach a keeper");
	r = spawn_helper(&(struct spawn_request){ .program_fd = view->keeper_fd,
				 .argv = argv,
				 .fds = &pair[1],
				 .n_fds = 1,
				 .stage = ABOX_STAGE_START },
		retpidfd, retpid, reterr);
	fd_close(pair[1]);
	if (r < 0) {
		fd_close(pair[0]);
		return r;
	}
	*retfd = pair[0];
	return 0;
}

/* How long the guest may take where the caller has set a bound for all of it: whoever is nearest to the guest knows most of
 * what is in the way, and so gives up first. */
static uint64_t ready_usec(uint64_t deadline_usec)
{
	uint64_t now = clock_monotonic_usec(), left = now < deadline_usec ? deadline_usec - now : 0;

	return MAX(left - MIN(left / 8, USEC_PER_SEC), 1);
}

static int send_start(abox_sandbox *box, const struct plan_view *view, const char *record, int recorder_fd,
	const struct network_helper *network, bool bounded, uint64_t deadline_usec, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	int fds[5], r;
	size_t n = 0;

	client_begin(&box->client, &writer, WIRE_START);
	pack_u32(&writer, WIRE_VERSION);
	pack_string(&writer, box->id);
	pack_string(&writer, record);
	pack_u8(&writer, (view->journal ? WIRE_RECORDER_JOURNAL : 0) |
				 (view->workspace_fd >= 0 ? WIRE_RECORDER_WORKSPACE : 0) |
				 (network->fd >= 0 ? WIRE_EGRESS : 0));
	pack_u64(&writer, bounded ? ready_usec(deadline_usec) : 0);
	pack_bytes(&writer, view->blob, view->blob_fd >= 0 ? 0 : view->blob_len);
	if (view->blob_fd >= 0)
		fds[n++] = view->blob_fd;
	if (recorder_fd >= 0)
		fds[n++] = recorder_fd;
	if (network->fd >= 0) {
		fds[n++] = network->fd;
		fds[n++] = network->pidfd;
	}
	fds[n++] = box->state_fd;
	r = client_call(&box->client, &writer, fds, n, deadline_usec, &reader, reterr);
	if (r == 0) {
		box->epoch = unpack_u64(&reader);
		if (reader.failed)
			r = ABOX_E_PROTOCOL;
	}
	client_end(&box->client, &writer);
	return r;
}

/* A name whose box has died must not stand in the way. */
static void clear_name(int state_fd, const char *name)
{
	char id[STATE_ID_LEN + 1];

	if (name && state_resolve(state_fd, name, ABOX_STAGE_START, id, NULL) == 0)
		gc_box(state_fd, id, false, NULL, ABOX_STAGE_START, NULL);
}

static int start(abox_sandbox *box, abox_plan *plan, const struct abox_start_options *options,
	uint64_t deadline_usec, abox_error **reterr)
{
	const struct plan_view *view = plan_view(plan);
	_cleanup_(json_unrefp) struct json *parsed = NULL;
	_cleanup_(fd_closep) int pidfd = -EBADF, recorder_fd = -EBADF;
	_cleanup_(network_helper_clear) struct network_helper network = NETWORK_HELPER_INIT;
	_cleanup_(freep) char *record = NULL;
	struct json_bounds bounds = { .max_bytes = 65536, .max_depth = 8, .stage = ABOX_STAGE_START };
	pid_t keeper = 0;
	int fd = -EBADF, r;

	r = view->kernel ? machine_kernel_make(view->kernel, view->kernel_place, ABOX_STAGE_START, reterr) : 0;
	if (r == 0 && view->kernel)
		r = machine_templates_tidy(ABOX_STAGE_START, reterr);
	if (r < 0)
		return r;
	r = record_start(view, abox_plan_get_digest(plan), box->id, deadline_usec, &recorder_fd, reterr);
	if (r < 0)
		return r;
	r = network_start(view, box->id, deadline_usec, &network, reterr);
	if (r < 0)
		return r;
	r = spawn_keeper(view, &fd, &pidfd, &keeper, reterr);
	if (r < 0)
		return r;
	r = client_init(&box->client, fd, ABOX_STAGE_START);
	abox_sandbox_set_log(box, options->log, options->log_userdata);
	if (r == 0)
		r = make_record(view, plan, box->id, keeper, &record);
	if (r == 0)
		r = send_start(box, view, record, recorder_fd, &network, options->timeout_usec > 0, deadline_usec, reterr);
	if (r == 0)
		r = json_parse(record, strlen(record), &bounds, &parsed, reterr);
	if (r == 0)
		r = sandbox_adopt_record(box, parsed);
	if (r == 0) {
		box->box_fd = state_open_box(box->state_fd, box->id, ABOX_STAGE_START, reterr);
		r = MIN(box->box_fd, 0);
	}
	if (r < 0) {
		box->client.fd = fd_close(box->client.fd);
		end_keeper(pidfd);
		gc_box(box->state_fd, box->id, true, NULL, ABOX_STAGE_START, NULL);
	}
	return r;
}

int abox_sandbox_start(abox_plan *plan, const struct abox_start_options *options, abox_sandbox **retbox,
	abox_error **reterr)
{
	struct abox_start_options full = { .size = sizeof(full) };
	_cleanup_(sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(error_freep) abox_error *error = NULL;
	char id[STATE_ID_LEN + 1];
	uint64_t timeout_usec;
	int state_fd, r;

	if (!plan || !retbox || (options && options->size < sizeof(size_t)))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_START, NULL, "plan and retbox are required");
	if (options)
		memcpy(&full, options, MIN(options->size, sizeof(full)));
	timeout_usec = full.timeout_usec                    ? full.timeout_usec
		       : plan_view(plan)->workspace_copies ? COPY_TIMEOUT_USEC
		       : plan_view(plan)->kernel	   ? MACHINE_TIMEOUT_USEC
							    : START_TIMEOUT_USEC;
	r = new_id(id);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_START, "getrandom", -r, "cannot make an id");
	state_fd = state_open(ABOX_STAGE_START, reterr);
	if (state_fd < 0)
		return state_fd;
	r = sandbox_new(state_fd, -EBADF, id, ABOX_OPEN_CONTROL, &box);
	if (r < 0)
		return r;
	clear_name(state_fd, plan_view(plan)->name);
	r = start(box, plan, &full, clock_deadline(clock_monotonic_usec(), timeout_usec), &error);
	plan_tell_host(plan, r == 0, error);
	if (reterr && error)
		*reterr = steal_ptr(error);
	if (r < 0)
		return r;
	*retbox = steal_ptr(box);
	return 0;
}
