/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests that a rule calls effects. Egress asks, and sends when it is told to; it writes nothing itself. The order
 * is what counts: the body is held whole, the keeper is asked, the request leaves, its answer is held, the outcome is
 * written, and only then the client has the end of its answer. A client that leaves meanwhile changes nothing: what
 * was let go is carried through, so that it is known how it ended.
 *
 * Whatever ends an exchange ends its effect: nothing left, or nobody knows.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <agentbox/effect.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "egress/exchange.h"
#include "egress/wire.h"

#define ASK_USEC (60ULL * 1000000) /* longer than anybody is held for approval */
#define ORPHAN_USEC (120ULL * 1000000) /* for an answer that nobody waits for any more */
#define HEAD_ROOM 16 /* bytes at the end of an answer without which no client takes it for whole */
#define TARGET_MAX 1000

enum step {
	STEP_ASKED = 0,
	STEP_RUNNING, /* it was let go */
	STEP_TELLING, /* its outcome is being written */
	STEP_OVER,
};

/* As the keeper and the recorder hear of one that is given up. */
enum leave {
	LEAVE_ASKED = 0,
	LEAVE_KEPT, /* it was let go, and nothing has left */
	LEAVE_SENT,
};

struct effect {
	struct effect *next;
	struct connection *connection;
	uint32_t serial;
	enum step step;
	char id[64], approval[64];
	bool left; /* some of it may have reached the server */
	bool too_long; /* its answer is beyond what is kept */
	struct buffer stored; /* the answer as it is kept */
	struct buffer out; /* the answer as the client gets it, until the outcome is on disk */
	unsigned int status; /* of our own answer, which waits for the outcome too; 0: none */
	char reason[512], place[RULES_PLACE_MAX];
};

const char *effect_id(const struct exchange *exchange)
{
	return exchange->effect ? exchange->effect->id : "";
}

const char *effect_approval(const struct exchange *exchange)
{
	return exchange->effect ? exchange->effect->approval : "";
}

/* For reason phrases and bodies: what errors say, as plain text. */
static void set_reason(struct effect *effect, const char *reason)
{
	snprintf(effect->reason, sizeof(effect->reason), "%s", reason);
	for (char *p = effect->reason; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
			*p = '?';
}

/* -- life -- */

static void send_leave(struct egress *egress, uint32_t serial, enum leave how)
{
	uint8_t data[16];
	struct pack_writer writer = PACK_WRITER_FIXED(data, sizeof(data));

	pack_u32(&writer, EGRESS_EFFECT_LEAVE);
	pack_u32(&writer, serial);
	pack_u8(&writer, how);
	keeper_send(egress, data, writer.len, -EBADF);
}

void effect_free(struct connection *connection)
{
	struct effect *effect = connection->exchange->effect;
	struct effect **link = &connection->egress->effects;

	if (!effect)
		return;
	connection->exchange->effect = NULL;
	while (*link && *link != effect)
		link = &(*link)->next;
	if (*link)
		*link = effect->next;
	if (effect->step == STEP_ASKED)
		send_leave(connection->egress, effect->serial, LEAVE_ASKED);
	if (effect->step == STEP_RUNNING)
		send_leave(connection->egress, effect->serial, effect->left ? LEAVE_SENT : LEAVE_KEPT);
	buffer_clear(&effect->stored, false);
	buffer_clear(&effect->out, false);
	free(effect);
}

static void ask_late(struct connection *connection)
{
	effect_free(connection);
	exchange_respond(connection, 403, "nobody has answered whether it may leave", connection->verdict.place, false);
}

static void orphan_late(struct connection *connection)
{
	exchange_over(connection, "the server has not answered");
}

/* True: the client is gone, and the request goes on without it. */
bool effect_outlives(struct connection *connection)
{
	struct effect *effect = connection->exchange->effect;

	if (!effect || (effect->step != STEP_RUNNING && effect->step != STEP_TELLING))
		return false;
	if (connection->exchange->phase == PHASE_ACTIVE && connection->deadline_usec == UINT64_MAX)
		connection_deadline(connection, ORPHAN_USEC, orphan_late);
	return true;
}

/* -- what is asked -- */

static const char *push_key(const struct exchange *exchange, struct buffer *out, bool *retnone)
{
	static const char suffix[] = "/git-receive-pack";
	const struct http_text path = exchange->request.path;
	const struct http_field *coding = http_find(&exchange->request, "content-encoding");

	if (strcmp(exchange->method, "POST") != 0 || path.len < sizeof(suffix) - 1 ||
		memcmp(path.data + path.len - (sizeof(suffix) - 1), suffix, sizeof(suffix) - 1) != 0)
		return "key git-refs: it is no push";
	if (coding && !http_is(coding->value, "identity"))
		return "key git-refs: the push is encoded";
	return refs_read(buffer_at(&exchange->held), buffer_len(&exchange->held), out, retnone);
}

/* What the key is made of. NULL, or why there is none; *retnone: it is no effect at all. */
static const char *read_key(const struct exchange *exchange, const char *key, struct buffer *out, bool *retnone)
{
	const struct http_head *head = &exchange->request;
	const struct http_field *found = NULL;

	if (strcmp(key, "git-refs") == 0)
		return push_key(exchange, out, retnone);
	if (strncmp(key, "header:", 7) != 0)
		return NULL;
	for (size_t i = 0; i < head->n_fields; i++) {
		/* Security: one that `Connection` names is not sent on, and is no key that the server has seen. */
		if (head->fields[i].hop || !http_is(head->fields[i].name, key + 7))
			continue;
		if (found)
			return "it has the header that is its key twice";
		found = &head->fields[i];
	}
	if (!found || found->value.len == 0)
		return "it has not the header that is its key";
	return buffer_add(out, found->value.data, found->value.len) ? NULL : "no memory";
}

static void pack_text(struct pack_writer *writer, struct http_text text)
{
	pack_bytes(writer, text.data ? text.data : "", text.len);
}

/* Where its earlier tries, and others like it, are looked for: by the rule's own pattern where it has one. */
static void pack_target(struct pack_writer *writer, const struct connection *connection)
{
	const struct http_head *head = &connection->exchange->request;
	struct rules_request request = { .path = head->path.data, .path_len = head->path.len };
	const char *pattern = rules_pattern(connection->rules, &connection->verdict, &request);
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	text_printf(&text, "%s %s:%u", connection->exchange->method, connection_name(connection),
		connection->target.port);
	if (pattern)
		text_add(&text, pattern);
	else
		text_add_bytes(&text, head->path.data, head->path.len);
	if (text.failed || text.len > TARGET_MAX)
		writer->failed = true;
	else
		pack_string(writer, text.data);
}

static void pack_headers(struct pack_writer *writer, const struct connection *connection)
{
	const struct http_head *head = &connection->exchange->request;
	const char *name;
	uint32_t n = 0;

	for (int way = 0; way < 2; way++) {
		if (way == 1)
			pack_u32(writer, n);
		for (size_t k = 0; (name = rules_header(connection->rules, &connection->verdict, k)); k++)
			for (size_t i = 0; i < head->n_fields; i++) {
				_cleanup_(text_clear) struct text line = TEXT_INIT;

				if (head->fields[i].hop || !http_is(head->fields[i].name, name))
					continue;
				n += way == 0;
				if (way == 0)
					continue;
				text_printf(&line, "%s: ", name);
				text_add_bytes(&line, head->fields[i].value.data, head->fields[i].value.len);
				pack_string(writer, line.failed ? NULL : line.data);
				writer->failed = writer->failed || line.failed;
			}
	}
}

/* Security: what the box shows for itself does not get into the journal, nor what it has put where a credential goes. */
static bool is_a_right(const struct connection *connection, struct http_text name)
{
	static const char *const names[] = { "authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "private-token" };
	const struct rules_credential *credential = connection->verdict.credential;

	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		if (http_is(name, names[i]))
			return true;
	return credential && credential->inject == RULES_INJECT_HEADER && http_is(name, credential->field);
}

/* For whoever carries a deferred one out, with rights of its own. */
static void pack_head(struct pack_writer *writer, const struct connection *connection)
{
	const struct http_head *head = &connection->exchange->request;
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	if (connection->verdict.effect->defer) {
		text_printf(&text, "%s ", connection->exchange->method);
		text_add_bytes(&text, head->path.data, head->path.len);
		if (head->query.data) {
			text_add(&text, "?");
			text_add_bytes(&text, head->query.data, head->query.len);
		}
		text_printf(&text, " HTTP/1.1\r\nHost: %s:%u\r\n", connection_name(connection), connection->target.port);
		for (size_t i = 0; i < head->n_fields; i++) {
			if (head->fields[i].hop || http_is(head->fields[i].name, "host") ||
				http_is(head->fields[i].name, "expect") || is_a_right(connection, head->fields[i].name))
				continue;
			text_add_bytes(&text, head->fields[i].name.data, head->fields[i].name.len);
			text_add(&text, ": ");
			text_add_bytes(&text, head->fields[i].value.data, head->fields[i].value.len);
			text_add(&text, "\r\n");
		}
		text_printf(&text, "Content-Length: %zu\r\n\r\n", buffer_len(&connection->exchange->held));
	}
	writer->failed = writer->failed || text.failed;
	pack_bytes(writer, text.data ? text.data : "", text.len);
}

static void pack_ask(
	struct pack_writer *writer, const struct connection *connection, uint32_t serial, const struct buffer *key)
{
	const struct rules_effect *rule = connection->verdict.effect;
	const struct exchange *exchange = connection->exchange;
	const struct http_head *head = &exchange->request;

	pack_u32(writer, EGRESS_EFFECT);
	pack_u32(writer, serial);
	pack_u32(writer, rule->effect_class);
	pack_u8(writer, rule->approval);
	pack_u8(writer, rule->defer);
	pack_u32(writer, rule->limit);
	pack_string(writer, connection->verdict.place);
	pack_string(writer, rule->key);
	pack_bytes(writer, buffer_at(key), buffer_len(key));
	pack_target(writer, connection);
	pack_string(writer, exchange->method);
	pack_string(writer, connection_name(connection));
	pack_u32(writer, connection->target.port);
	pack_text(writer, head->path);
	pack_u8(writer, head->query.data != NULL);
	pack_text(writer, head->query);
	pack_headers(writer, connection);
	pack_string(writer, connection->verdict.credential ? connection->verdict.credential->name : "");
	pack_u64(writer, buffer_len(&exchange->held));
	pack_head(writer, connection);
}

static struct effect *effect_new(struct connection *connection)
{
	struct egress *egress = connection->egress;
	struct effect *effect = calloc(1, sizeof(*effect));

	if (!effect)
		return NULL;
	effect->connection = connection;
	effect->serial = ++egress->serial;
	effect->next = egress->effects;
	egress->effects = effect;
	connection->exchange->effect = effect;
	return effect;
}

void effect_ask(struct connection *connection)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct exchange *exchange = connection->exchange;
	const char *place = connection->verdict.place, *why;
	struct buffer key = { 0 };
	struct effect *effect;
	bool none = false;
	int fd = -EBADF;

	why = read_key(exchange, connection->verdict.effect->key, &key, &none);
	if (!why && none) {
		buffer_clear(&key, false);
		exchange_admitted(connection);
		return;
	}
	if (!why && buffer_len(&exchange->held) > 0 &&
		memfd_new_sealed("agentbox-body", buffer_at(&exchange->held), buffer_len(&exchange->held), 0400, &fd) < 0)
		why = "no memory for its body";
	effect = why ? NULL : effect_new(connection);
	if (effect)
		pack_ask(&writer, connection, effect->serial, &key);
	buffer_clear(&key, false);
	if (!why && (!effect || writer.failed || writer.len > EGRESS_PACKET_MAX - 64)) {
		why = "its head is too long to be recorded, or there is no memory";
		if (effect) { /* nobody has heard of it */
			effect->step = STEP_OVER;
			effect_free(connection);
		}
	}
	if (why) {
		fd_close(fd);
		event_deny(connection, place, why);
		exchange_respond(connection, 403, why, place, false);
		return;
	}
	exchange->phase = PHASE_WAIT;
	connection_deadline(connection, ASK_USEC, ask_late);
	keeper_send(connection->egress, writer.data, writer.len, fd);
}

/* -- answers that were stored -- */

static bool add_text(struct buffer *out, const char *text)
{
	return buffer_add(out, text, strlen(text));
}

/* The answer towards the client stands in its buffer; what is left is to send it. */
static void give(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;

	upstream_free(connection);
	end_close(&connection->server, true);
	exchange->answer.keep_alive = false;
	exchange->answered = exchange->up_done = exchange->down_done = true;
	exchange->effect->step = STEP_OVER;
	exchange->phase = PHASE_ACTIVE;
	connection_deadline(connection, UINT64_MAX, NULL);
}

static bool add_end_of_head(struct connection *connection, size_t len, bool bare)
{
	struct buffer *out = &connection->client.out;
	struct exchange *exchange = connection->exchange;
	char text[256];

	snprintf(text, sizeof(text), "Abox-Replayed: 1\r\nAbox-Effect: %s\r\n%s", exchange->effect->id,
		exchange->keep ? exchange->request.minor == 1 ? "" : "Connection: keep-alive\r\n"
			       : "Connection: close\r\n");
	if (!add_text(out, text))
		return false;
	snprintf(text, sizeof(text), "Content-Length: %zu\r\n", len);
	return (bare || add_text(out, text)) && add_text(out, "\r\n");
}

/* A result that no server has sent: somebody has said how it ended. */
static bool add_other(struct connection *connection, unsigned int status, const char *data, size_t len)
{
	char line[128];

	snprintf(line, sizeof(line), "HTTP/1.1 %u Recorded\r\nContent-Type: application/octet-stream\r\n",
		status >= 200 && status <= 599 ? status : 200);
	return add_text(&connection->client.out, line) && add_end_of_head(connection, len, false) &&
	       buffer_add(&connection->client.out, data, len);
}

static bool add_stored(struct connection *connection, unsigned int status, const char *data, size_t len)
{
	const char *end = memmem(data, len, "\r\n\r\n", 4);
	bool bare = status == 204 || status == 304 || strcmp(connection->exchange->method, "HEAD") == 0;

	if (!end || len < 9 || memcmp(data, "HTTP/1.1 ", 9) != 0)
		return add_other(connection, status, data, len);
	end += 4;
	len -= (size_t)(end - data);
	return buffer_add(&connection->client.out, data, (size_t)(end - data) - 2) &&
	       add_end_of_head(connection, bare ? 0 : len, bare) &&
	       (bare || buffer_add(&connection->client.out, end, len));
}

static void replay(struct connection *connection, unsigned int status, int fd)
{
	struct effect *effect = connection->exchange->effect;
	_cleanup_(freep) char *data = NULL;
	off_t len = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;

	if (fd < 0 && strcmp(effect->reason, "COMMITTED") == 0 && status > 0) {
		effect->step = STEP_OVER;
		exchange_respond(connection, 409, "it was done, and its answer was too long to be kept",
			connection->verdict.place, connection->exchange->keep);
		return;
	}
	if (fd >= 0 && (len < 0 || len > (off_t)EFFECT_ANSWER_BYTES + EGRESS_PACKET_MAX ||
			       !(data = malloc((size_t)len + 1)) || fd_pread_all(fd, data, (size_t)len, 0) != len)) {
		connection_reset(connection);
		return;
	}
	if (!add_stored(connection, status, data ? data : "", (size_t)len)) {
		connection_reset(connection);
		return;
	}
	connection->exchange->status = status;
	event_request(connection, &connection->exchange->request, status);
	give(connection);
}

/* -- outcomes -- */

static void tell(struct connection *connection, enum effect_end end, unsigned int status, const char *reason)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct effect *effect = connection->exchange->effect;
	int fd = -EBADF;

	if (end == EFFECT_ANSWERED && !effect->too_long &&
		memfd_new_sealed("agentbox-answer", buffer_at(&effect->stored), buffer_len(&effect->stored), 0400, &fd) < 0) {
		end = EFFECT_CUT; /* an outcome without its result is none */
		reason = "no memory for the answer";
	}
	pack_u32(&writer, EGRESS_EFFECT_DONE);
	pack_u32(&writer, effect->serial);
	pack_u32(&writer, end);
	pack_u32(&writer, status);
	pack_string(&writer, reason);
	if (writer.failed) {
		fd_close(fd);
		connection_reset(connection);
		return;
	}
	effect->step = STEP_TELLING;
	connection_deadline(connection, UINT64_MAX, NULL);
	keeper_send(connection->egress, writer.data, writer.len, fd);
}

bool effect_finish(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	struct effect *effect = exchange->effect;

	if (!effect || effect->step == STEP_OVER)
		return true;
	if (effect->step == STEP_RUNNING)
		tell(connection, EFFECT_ANSWERED, exchange->status, "");
	return false;
}

bool effect_holds_answer(struct connection *connection, unsigned int status, const char *reason, const char *place)
{
	struct exchange *exchange = connection->exchange;
	struct effect *effect = exchange->effect;

	if (!effect || effect->step == STEP_OVER || effect->step == STEP_ASKED)
		return false;
	if (effect->step == STEP_TELLING)
		return true;
	upstream_free(connection);
	end_close(&connection->server, true);
	effect->status = status;
	set_reason(effect, reason);
	snprintf(effect->place, sizeof(effect->place), "%s", place);
	exchange->phase = PHASE_WAIT;
	tell(connection, effect->left ? EFFECT_CUT : EFFECT_KEPT, 0, effect->reason);
	return true;
}

/* The outcome is on disk: the client may have its answer. */
static void recorded(struct connection *connection, bool unknown)
{
	struct exchange *exchange = connection->exchange;
	struct effect *effect = exchange->effect;
	char reason[sizeof(effect->reason) + 64];

	effect->step = STEP_OVER;
	if (effect->status == 0) {
		if (!buffer_add(&connection->client.out, buffer_at(&effect->out), buffer_len(&effect->out)))
			connection_reset(connection);
		return;
	}
	snprintf(reason, sizeof(reason), "%s%s", unknown ? "whether it happened is not known: " : "", effect->reason);
	exchange_respond(connection, unknown ? 424 : effect->status, reason, effect->place, false);
}

/* -- the keeper's word -- */

static void answered(struct connection *connection, uint32_t what, uint32_t number, int *fds, size_t n_fds)
{
	struct exchange *exchange = connection->exchange;
	struct effect *effect = exchange->effect;
	struct egress *egress = connection->egress;
	const char *place = connection->verdict.place;

	if (what == EFFECT_RECORDED || what == EFFECT_UNRECORDED) {
		if (effect->step != STEP_TELLING)
			return;
		if (what == EFFECT_RECORDED) {
			recorded(connection, number == ABOX_EFFECT_UNKNOWN);
			return;
		}
		/* Security: whoever heard of it now could be told another thing later. */
		effect->step = STEP_OVER;
		connection_reset(connection);
		return;
	}
	if (effect->step != STEP_ASKED)
		return;
	if (what == EFFECT_GO && n_fds == 1) {
		if (egress->executor_fd < 0)
			egress->executor_fd = steal_fd(fds[0]);
		effect->step = STEP_RUNNING;
		exchange_admitted(connection);
		return;
	}
	if (what == EFFECT_REPLAY) {
		replay(connection, number, n_fds == 1 ? fds[0] : -EBADF);
		return;
	}
	effect->step = STEP_OVER;
	if (what == EFFECT_DEFERRED) {
		exchange_respond(connection, 202, "held back until the task commits", place, exchange->keep);
		return;
	}
	event_deny(connection, place, effect->reason);
	exchange_respond(connection, number == 409 || number == 424 ? number : 403, effect->reason, place, exchange->keep);
}

void effect_answer(struct egress *egress, uint32_t serial, struct pack_reader *reader, int *fds, size_t n_fds)
{
	uint32_t what = unpack_u32(reader), number;
	const char *id = unpack_string(reader), *approval = unpack_string(reader), *reason;
	struct effect *effect = egress->effects;
	struct connection *connection;

	number = unpack_u32(reader);
	reason = unpack_string(reader);
	if (!unpack_done(reader))
		_Exit(1);
	while (effect && effect->serial != serial)
		effect = effect->next;
	if (!effect) {
		if (what == EFFECT_GO) /* whoever asked is gone */
			send_leave(egress, serial, LEAVE_KEPT);
		return;
	}
	connection = effect->connection;
	snprintf(effect->id, sizeof(effect->id), "%s", id);
	snprintf(effect->approval, sizeof(effect->approval), "%s", approval);
	if (what == EFFECT_REFUSED || what == EFFECT_REPLAY)
		set_reason(effect, reason);
	answered(connection, what, number, fds, n_fds);
	if (!connection->dead)
		connection_wake(connection);
}

/* -- the answer of the server -- */

struct buffer *effect_out(struct connection *connection)
{
	struct effect *effect = connection->exchange->effect;

	return effect && effect->step != STEP_OVER ? &effect->out : &connection->client.out;
}

bool effect_is_held(const struct connection *connection)
{
	const struct effect *effect = connection->exchange->effect;

	return effect && effect->step != STEP_OVER && !effect->too_long;
}

/* Security: not what a server has set in the client for its later requests, which is a right of its own. */
static bool is_kept(struct http_text name)
{
	return !http_is(name, "set-cookie") && !http_is(name, "alt-svc") &&
	       !(name.len > 5 && strncasecmp(name.data, "abox-", 5) == 0);
}

bool effect_keep_head(struct connection *connection)
{
	struct exchange *exchange = connection->exchange;
	const struct http_head *answer = &exchange->answer;
	struct effect *effect = exchange->effect;
	struct buffer *out;
	char line[32];
	bool good;

	if (!effect)
		return true;
	effect->left = true;
	out = &effect->stored;
	snprintf(line, sizeof(line), "HTTP/1.1 %u ", answer->status);
	good = add_text(out, line) && buffer_add(out, answer->reason.data, answer->reason.len) && add_text(out, "\r\n");
	for (size_t i = 0; good && i < answer->n_fields; i++) {
		const struct http_field *field = &answer->fields[i];

		if (!is_kept(field->name) || (field->hop && !(http_is(field->name, "content-length") &&
								     strcmp(exchange->method, "HEAD") == 0)))
			continue;
		good = buffer_add(out, field->name.data, field->name.len) && add_text(out, ": ") &&
		       buffer_add(out, field->value.data, field->value.len) && add_text(out, "\r\n");
	}
	scrub_once(&exchange->scrub, buffer_at(out), buffer_len(out));
	return good && add_text(out, "\r\n");
}

bool effect_keep(struct connection *connection, const char *data, size_t len)
{
	struct effect *effect = connection->exchange->effect;

	if (!effect || effect->too_long)
		return true;
	if (buffer_len(&effect->stored) + len <= EFFECT_ANSWER_BYTES)
		return buffer_add(&effect->stored, data, len);
	effect->too_long = true;
	buffer_clear(&effect->stored, false);
	return true;
}

/* Of an answer that is too long to be held all but its end goes on. */
bool effect_let_through(struct connection *connection)
{
	struct effect *effect = connection->exchange->effect;
	size_t len;

	if (!effect || effect->step == STEP_OVER || !effect->too_long || buffer_len(&effect->out) <= HEAD_ROOM)
		return true;
	len = buffer_len(&effect->out) - HEAD_ROOM;
	if (!connection->client.broken && !buffer_add(&connection->client.out, buffer_at(&effect->out), len))
		return false;
	buffer_take(&effect->out, len);
	return true;
}

void effect_sent(struct connection *connection)
{
	if (connection->exchange->effect)
		connection->exchange->effect->left = true;
}

/* What a server that knows such keys goes by; the client's own stays. */
bool effect_add_key(struct connection *connection, struct buffer *out)
{
	const struct effect *effect = connection->exchange->effect;
	const struct http_field *own = http_find(&connection->exchange->request, "idempotency-key");

	if (!effect || connection->verdict.effect->effect_class != ABOX_EFFECT_IDEMPOTENT || (own && !own->hop))
		return true;
	return add_text(out, "Idempotency-Key: ") && add_text(out, effect->id) && add_text(out, "\r\n");
}
