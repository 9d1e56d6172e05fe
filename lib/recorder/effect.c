/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests of a box that are effects (effect/RULES.md, 13): egress asks before the first byte leaves, this process
 * writes, and egress sends. What egress does not tell is UNKNOWN, never guessed. Nobody is waited for in here: a
 * request that waits for a person, or for another one that is under way, is looked at again as the journal grows.
 *
 * A box works under the epoch that its task had when it was started, so that a newer attempt fences it. A task that
 * nobody controls, and a box without one, are controlled from here, at the first effect.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/memfd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "egress/wire.h"
#include "recorder/recorder.h"

#define HOLD_USEC (25 * USEC_PER_SEC) /* then many programs have given up */
#define LOOK_USEC (100 * USEC_PER_MSEC)
#define LOOK_SHARE 10 /* of the time between two looks one goes into looking */
#define REQUESTS_MAX 512 /* at a time */
#define DEFERRED_MAX (UINT64_C(1) << 30) /* bytes of those that are held back, of one box */
#define HEADERS_MAX 256
#define JSON_BYTES (8U << 20)
#define JSON_DEPTH 64

enum request_state {
	REQUEST_OTHER, /* waits for the end of another one with its key */
	REQUEST_APPROVAL,
	REQUEST_GONE, /* let go: under way, its outcome is to come */
};

struct request {
	struct request *next;
	enum request_state state;
	uint32_t life, serial;
	uint64_t deadline_usec;
	uint8_t *packet; /* as it came; the options point into it */
	const void *body; /* mapped */
	size_t body_len;
	char *payload; /* of a deferred one */
	size_t payload_len;
	char key[128], approval_text[512];
	const char *headers[HEADERS_MAX + 1], *credentials[2];
	struct abox_effect_options options;
	abox_effect *effect;
};

void effects_init(struct effects *effects, abox_journal *journal, const char *task, const char *box, bool wanted)
{
	effects->journal = journal;
	effects->wanted = wanted && journal;
	snprintf(effects->task_id, sizeof(effects->task_id), "%s%s", task[0] ? "" : "box/", task[0] ? task : box);
}

/* The epoch at the start of the box; nothing is raised. */
int effects_open(struct effects *effects, abox_error **reterr)
{
	int r;

	if (!effects->wanted)
		return 0;
	r = abox_task_open(effects->journal, effects->task_id, NULL, &effects->task, reterr);
	if (r == ABOX_TASK_NEW)
		effects->task = abox_task_unref(effects->task);
	return r < 0 ? r : 0;
}

static int take_task(struct effects *effects, abox_error **reterr)
{
	struct abox_task_options options;
	int r;

	if (effects->task)
		return 0;
	if (!effects->wanted)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_EFFECT, NULL,
			"the box was started without effects, so there is no journal or attempt for them");
	abox_task_options_init(&options);
	r = abox_task_open(effects->journal, effects->task_id, &options, &effects->task, reterr);
	effects->task = abox_task_unref(effects->task);
	if (r < 0)
		return r;
	/* Security: whoever took control after the start of this box did not start it for that attempt. */
	if (r != ABOX_TASK_NEW)
		return error_set(reterr, ABOX_E_FENCED, ABOX_STAGE_TASK, NULL,
			"somebody has taken control of task '%s' since the box was started", effects->task_id);
	options.access = ABOX_TASK_CONTROL;
	options.description = "made for the effects of a box";
	r = abox_task_open(effects->journal, effects->task_id, &options, &effects->task, reterr);
	return r < 0 ? r : 0;
}

/* -- answers -- */

static void answer(int fd, uint32_t life, uint32_t serial, enum effect_answer what, const char *id, const char *approval,
	uint32_t number, const char *reason, int with_fd)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, RECORDER_EFFECT_ANSWER);
	pack_u32(&writer, serial);
	pack_u32(&writer, life);
	pack_u32(&writer, what);
	pack_string(&writer, id);
	pack_string(&writer, approval);
	pack_u32(&writer, number);
	pack_string(&writer, reason);
	if (!writer.failed)
		socket_send(fd, writer.data, writer.len, &with_fd, with_fd >= 0);
}

static uint32_t status_of(int code)
{
	switch (code) {
	case ABOX_E_UNKNOWN:
		return 424;
	case ABOX_E_AMBIGUOUS:
	case ABOX_E_CONFLICT:
	case ABOX_E_IN_PROGRESS:
	case ABOX_E_FENCED:
		return 409;
	default:
		return 403;
	}
}

/* "effect ID" and "approval ID" are places of errors. */
static const char *id_in(const abox_error *error, const char *word)
{
	const char *place = abox_error_get_place(error);

	return place && strncmp(place, word, strlen(word)) == 0 ? place + strlen(word) : "";
}

static void refuse(struct effects *effects, const struct request *request, int code, const abox_error *error)
{
	const char *id = request->effect ? abox_effect_get_id(request->effect) : id_in(error, "effect ");
	const char *message = abox_error_get_message(error);

	answer(effects->keeper_fd, request->life, request->serial, EFFECT_REFUSED, id, id_in(error, "approval "),
		status_of(code), message ? message : abox_code_name(code), -EBADF);
}

static void request_free(struct request *request)
{
	abox_effect_unref(request->effect); /* says UNKNOWN, or releases, by itself */
	if (request->body)
		memfd_unmap(request->body, request->body_len);
	free(request->payload);
	free(request->packet);
	free(request);
}

static void forget(struct effects *effects, struct request *request)
{
	struct request **link = &effects->requests;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	request_free(request);
}

/* -- what is asked -- */

/* A key by the words of the rule: a digest, since what it is made of may be a secret of the box. */
static int make_key(struct request *request, const char *kind, const char *url, const void *data, size_t len)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	char digest[DIGEST_TEXT_BYTES];
	int r;

	pack_string(&writer, kind);
	pack_string(&writer, url);
	pack_bytes(&writer, data, len);
	if (writer.failed)
		return ABOX_E_MEMORY;
	r = digest_sha256_text(writer.data, writer.len, digest);
	if (r < 0)
		return r;
	snprintf(request->key, sizeof(request->key), "%.*s:%s", (int)strcspn(kind, ":"), kind, digest);
	request->options.key = request->key;
	return 0;
}

static int json_key(struct request *request, const char *kind, const char *url, abox_error **reterr)
{
	static const struct json_bounds bounds = { JSON_BYTES, JSON_DEPTH, ABOX_STAGE_EFFECT };
	_cleanup_(json_unrefp) struct json *tree = NULL;
	_cleanup_(text_clear) struct text value = TEXT_INIT;
	const struct json *at;
	int r;

	if (!request->body)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "body", "there is no body to find a key in");
	if (request->body_len > JSON_BYTES)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_EFFECT, "body", "is too long to find a key in it");
	r = json_parse(request->body, request->body_len, &bounds, &tree, reterr);
	if (r < 0)
		return r;
	at = json_at(tree, kind + strlen("json:"));
	if (!at)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, kind, "the body has nothing there");
	json_print(&value, at);
	if (value.failed)
		return ABOX_E_MEMORY;
	request->options.request.body_format = ABOX_BODY_JSON;
	return make_key(request, kind, url, value.data, value.len);
}

/* Security: who asks may have sent another file than it says, or none; what is approved and repeated is told by its bytes. */
static int take_body(struct request *request, int fd, uint64_t len, abox_error **reterr)
{
	if (len == 0)
		return 0;
	if (fd < 0 || memfd_map_sealed(fd, EFFECT_SPOOL_BYTES, &request->body, &request->body_len) < 0 ||
		request->body_len != len)
		return error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_EFFECT, "body", "has not come as it was told");
	request->options.request.body = request->body;
	request->options.request.body_len = request->body_len;
	return 0;
}

static int choose_key(struct request *request, const char *kind, const void *data, size_t len, abox_error **reterr)
{
	const struct abox_effect_request *http = &request->options.request;
	_cleanup_(text_clear) struct text url = TEXT_INIT;

	if (strcmp(kind, "auto") == 0)
		return 0; /* derived from target and fingerprint */
	/* A header's value is the client's own key, which it gives once to a host, whatever the path. */
	text_printf(&url, "%s:%u", http->host, http->port);
	if (strncmp(kind, "header:", 7) != 0)
		text_printf(&url, "%s%s%s", http->path, http->query ? "?" : "", http->query ? http->query : "");
	if (url.failed)
		return ABOX_E_MEMORY;
	if (strcmp(kind, "body") == 0)
		return make_key(request, kind, url.data, request->body ? request->body : "", request->body_len);
	if (strncmp(kind, "json:", 5) == 0)
		return json_key(request, kind, url.data, reterr);
	if (strcmp(kind, "git-refs") == 0) {
		/* What is pushed is named by the new ids; packs of the same objects differ. */
		request->options.request.body = data;
		request->options.request.body_len = len;
	}
	if (strcmp(kind, "target") == 0)
		return make_key(request, http->method, url.data, "", 0);
	return make_key(request, kind, url.data, data, len);
}

static int set_payload(struct request *request, const char *head, size_t len)
{
	if (!request->options.defer)
		return 0;
	request->payload_len = len + request->body_len;
	request->payload = malloc(request->payload_len + 1);
	if (!request->payload)
		return ABOX_E_MEMORY;
	memcpy(request->payload, head, len);
	if (request->body)
		memcpy(request->payload + len, request->body, request->body_len);
	request->options.payload = request->payload;
	request->options.payload_len = request->payload_len;
	return 0;
}

static int read_request(
	struct request *request, struct pack_reader *reader, int body_fd, const char *plan, abox_error **reterr)
{
	struct abox_effect_options *options = &request->options;
	struct abox_effect_request *http = &options->request;
	bool approval, has_query;
	const char *place, *kind, *key_data, *head;
	size_t key_len, head_len;
	uint64_t body_len;
	uint32_t n;
	int r;

	abox_effect_options_init(options);
	http->kind = ABOX_REQUEST_HTTP;
	options->effect_class = unpack_u32(reader);
	approval = unpack_u8(reader);
	options->defer = unpack_u8(reader);
	options->limit = unpack_u32(reader);
	place = unpack_string(reader);
	kind = unpack_string(reader);
	key_data = unpack_bytes(reader, &key_len);
	http->target = unpack_string(reader);
	http->method = unpack_string(reader);
	http->host = unpack_string(reader);
	http->port = unpack_u32(reader);
	http->path = unpack_string(reader);
	has_query = unpack_u8(reader);
	http->query = unpack_string(reader);
	if (!has_query)
		http->query = NULL;
	n = unpack_count(reader, 5);
	for (uint32_t i = 0; i < n && i < HEADERS_MAX; i++)
		request->headers[i] = unpack_string(reader);
	http->headers = request->headers;
	request->credentials[0] = unpack_string(reader);
	http->credentials = request->credentials[0][0] ? request->credentials : NULL;
	body_len = unpack_u64(reader);
	head = unpack_bytes(reader, &head_len);
	if (!unpack_done(reader) || n > HEADERS_MAX || options->defer > 1)
		return error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_EFFECT, NULL, "egress asked what it must not");
	options->plan_digest = plan && plan[0] ? plan : NULL;
	if (approval) {
		snprintf(request->approval_text, sizeof(request->approval_text), "%.16s %.100s%.256s, by %.64s", http->method,
			http->host, http->path, place);
		options->approval_text = request->approval_text;
	}
	r = take_body(request, body_fd, body_len, reterr);
	if (r >= 0)
		r = choose_key(request, kind, key_data, key_len, reterr);
	return r < 0 ? r : set_payload(request, head, head_len);
}

/* -- steps -- */

static void replay(struct effects *effects, struct request *request)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	size_t len = 0;
	const void *result = abox_effect_get_result(request->effect, &len);

	if (result && memfd_new_sealed("agentbox-answer", result, len, 0400, &fd) < 0)
		fd = -EBADF;
	answer(effects->keeper_fd, request->life, request->serial, EFFECT_REPLAY, abox_effect_get_id(request->effect), "",
		(uint32_t)abox_effect_get_code(request->effect), abox_effect_state_name(abox_effect_get_state(request->effect)),
		fd);
}

/* 1: it is answered and over, 0: it goes on */
static int dispatch(struct effects *effects, struct request *request)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(fd_closep) int lock = -EBADF;
	int r;

	r = abox_effect_dispatch(request->effect, &error);
	if (r == ABOX_E_APPROVAL && abox_error_get_retryable(error) && clock_monotonic_usec() < request->deadline_usec) {
		request->state = REQUEST_APPROVAL;
		return 0;
	}
	if (r == 0) /* without it, what egress sends after our death would be called UNKNOWN too early */
		lock = abox_task_dup_executor(effects->task, &error);
	if (r < 0 || lock < 0) {
		refuse(effects, request, r < 0 ? r : lock, error);
		return 1;
	}
	request->state = REQUEST_GONE;
	answer(effects->keeper_fd, request->life, request->serial, EFFECT_GO, abox_effect_get_id(request->effect), "",
		abox_effect_get_try(request->effect), "", lock);
	return 0;
}

static int begin(struct effects *effects, struct request *request)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	int r;

	r = abox_effect_begin(effects->task, &request->options, &request->effect, &error);
	if (r == ABOX_E_IN_PROGRESS && clock_monotonic_usec() < request->deadline_usec) {
		request->state = REQUEST_OTHER;
		return 0;
	}
	if (r == ABOX_BEGIN_GO)
		return dispatch(effects, request);
	if (r == ABOX_BEGIN_REPLAY)
		replay(effects, request);
	else if (r == ABOX_BEGIN_DEFERRED)
		answer(effects->keeper_fd, request->life, request->serial, EFFECT_DEFERRED,
			abox_effect_get_id(request->effect), "", 0, "", -EBADF);
	else
		refuse(effects, request, r, error);
	return 1;
}

/* Security: the box chooses how many there are, and how long; the disk is not its own. */
static int has_room(const struct effects *effects, abox_error **reterr)
{
	size_t n = 0;

	for (const struct request *request = effects->requests; request; request = request->next)
		n++;
	return n < REQUESTS_MAX ? 0
				: error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_EFFECT, NULL, "too many effects of the box are under way");
}

static int take_deferred(struct effects *effects, size_t len, abox_error **reterr)
{
	if (len > DEFERRED_MAX - effects->deferred)
		return error_set(reterr, ABOX_E_LIMIT, ABOX_STAGE_EFFECT, NULL, "too much of the box is held back already");
	effects->deferred += len;
	return 0;
}

int effects_ask(
	struct effects *effects, uint32_t serial, struct pack_reader *reader, int body_fd_taken, const char *plan)
{
	_cleanup_(fd_closep) int body_fd = body_fd_taken;
	struct request *request = calloc(1, sizeof(*request));
	_cleanup_(error_freep) abox_error *error = NULL;
	int r;

	if (!request)
		return ABOX_E_MEMORY;
	request->serial = serial;
	request->life = unpack_u32(reader);
	request->deadline_usec = clock_deadline(clock_monotonic_usec(), HOLD_USEC);
	request->packet = malloc(reader->len);
	if (!request->packet) {
		request_free(request);
		return ABOX_E_MEMORY;
	}
	memcpy(request->packet, reader->data, reader->len);
	reader->data = request->packet;
	r = has_room(effects, &error);
	if (r >= 0)
		r = take_task(effects, &error);
	if (r >= 0)
		r = read_request(request, reader, body_fd, plan, &error);
	if (r >= 0)
		r = take_deferred(effects, request->payload_len, &error);
	if (r < 0) {
		refuse(effects, request, r, error);
		request_free(request);
		return r == ABOX_E_MEMORY ? r : 0;
	}
	request->next = effects->requests;
	effects->requests = request;
	if (begin(effects, request))
		forget(effects, request);
	return 0;
}

static struct request *find(struct effects *effects, uint32_t life, uint32_t serial)
{
	for (struct request *request = effects->requests; request; request = request->next)
		if (request->life == life && request->serial == serial)
			return request;
	return NULL;
}

/* The answer of the outside, as egress has written it. */
static int take_result(struct request *request, int fd, uint32_t status)
{
	const void *data = NULL;
	size_t len = 0;
	int r = fd < 0 ? 0 : memfd_map_sealed(fd, EFFECT_ANSWER_BYTES + EGRESS_PACKET_MAX, &data, &len);

	if (r < 0)
		return r;
	r = abox_effect_set_result(request->effect, data, len, (int32_t)status);
	if (data)
		memfd_unmap(data, len);
	return r;
}

void effects_done(struct effects *effects, uint32_t serial, struct pack_reader *reader, int fd)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	uint32_t life = unpack_u32(reader), end = unpack_u32(reader), status = unpack_u32(reader);
	const char *reason = unpack_string(reader);
	struct request *request = find(effects, life, serial);
	int done = end == EFFECT_ANSWERED ? abox_effect_judge_http(status)
		   : end == EFFECT_KEPT	  ? ABOX_DONE_FAILED_RETRY
					  : ABOX_DONE_UNCLEAR;
	int r;

	if (!request || request->state != REQUEST_GONE || !unpack_done(reader))
		return;
	/* A result that could not be kept is no outcome: the handle says UNKNOWN when it is let go. */
	r = end == EFFECT_ANSWERED ? take_result(request, fd, status) : 0;
	if (r >= 0)
		r = abox_effect_finish(request->effect, done, reason[0] ? reason : NULL, &error);
	if (r == ABOX_E_ALREADY) /* a verdict came first; what happened is kept as evidence */
		r = abox_effect_get_state(request->effect);
	answer(effects->keeper_fd, life, serial, r < 0 ? EFFECT_UNRECORDED : EFFECT_RECORDED,
		abox_effect_get_id(request->effect), "", r < 0 ? 0 : (uint32_t)r,
		r < 0 && abox_error_get_message(error) ? abox_error_get_message(error) : "", -EBADF);
	forget(effects, request);
}

void effects_leave(struct effects *effects, uint32_t serial, struct pack_reader *reader)
{
	struct request *request = find(effects, unpack_u32(reader), serial);

	if (!request)
		return;
	if (request->state == REQUEST_GONE && unpack_u8(reader) < 2)
		abox_effect_finish(request->effect, ABOX_DONE_FAILED_RETRY, "nothing of it has left", NULL);
	forget(effects, request);
}

/* Those that wait are looked at again. */
void effects_look(struct effects *effects)
{
	uint64_t begin_usec = clock_monotonic_usec(), took;
	struct request *next;

	/* Security: to look reads bodies anew, and a box makes this process wake up as often as it likes. */
	if (begin_usec < effects->look_usec)
		return;

	for (struct request *request = effects->requests; request; request = next) {
		int over = 0;

		next = request->next;
		if (request->state == REQUEST_OTHER)
			over = begin(effects, request);
		else if (request->state == REQUEST_APPROVAL)
			over = dispatch(effects, request);
		if (over)
			forget(effects, request);
	}
	took = clock_monotonic_usec() - begin_usec;
	effects->look_usec = begin_usec + MAX(took * LOOK_SHARE, LOOK_USEC / 2);
}

int effects_poll_msec(const struct effects *effects)
{
	for (const struct request *request = effects->requests; request; request = request->next)
		if (request->state != REQUEST_GONE)
			return (int)(LOOK_USEC / USEC_PER_MSEC);
	return -1;
}

void effects_lost(struct effects *effects)
{
	while (effects->requests)
		forget(effects, effects->requests);
}

void effects_clear(struct effects *effects)
{
	effects_lost(effects);
	effects->task = abox_task_unref(effects->task);
}
