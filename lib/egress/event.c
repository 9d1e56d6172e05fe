/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is told: each decision with the rule that made it, and the bytes of each connection. Denials that
 * repeat are counted and told once per window, so that a program that tries on and on does not fill a
 * journal; so is what was let through after the first two thousand. Data of the box is escaped and bounded; queries and
 * fields are never told, since they may hold secrets.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <agentbox/credential.h>
#include <agentbox/journal.h>

#include "base/fd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "egress/egress.h"
#include "egress/exchange.h"
#include "egress/wire.h"

#define QUEUE_MAX 4096
#define PATH_SHOWN 256
#define SLOTS 64
#define WINDOW_USEC (10ULL * 1000000)
#define TOLD_MAX 2000 /* events of what was let through that are told one by one */

/* -- to the keeper; never waited for -- */

struct message {
	struct message *next;
	size_t len;
	int fd;
	uint8_t data[];
};

void keeper_flush(struct egress *egress)
{
	while (egress->messages) {
		struct message *message = egress->messages;
		int r = socket_send_until(egress->keeper.fd, message->data, message->len, &message->fd, message->fd >= 0, 0);

		if (r == -ETIMEDOUT)
			return;
		egress->messages = message->next;
		if (!egress->messages)
			egress->messages_end = &egress->messages;
		egress->n_messages--;
		fd_close(message->fd);
		free(message);
	}
}

void keeper_send(struct egress *egress, const void *data, size_t len, int fd)
{
	struct message *message;

	if (!egress->messages && socket_send_until(egress->keeper.fd, data, len, &fd, fd >= 0, 0) != -ETIMEDOUT) {
		fd_close(fd);
		return;
	}
	/* Security: a decision that cannot be told is not made: without room for its events nothing is served
	 * on. */
	message = egress->n_messages < QUEUE_MAX ? malloc(sizeof(*message) + len) : NULL;
	if (!message)
		_Exit(1);
	message->next = NULL;
	message->len = len;
	message->fd = fd;
	memcpy(message->data, data, len);
	*egress->messages_end = message;
	egress->messages_end = &message->next;
	egress->n_messages++;
}

static void tell(struct egress *egress, const char *type, struct text *body)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	text_add(body, "}");
	pack_u32(&writer, EGRESS_EVENT);
	pack_u32(&writer, 0);
	pack_u32(&writer, ABOX_DURABILITY_NONE);
	pack_string(&writer, type);
	pack_bytes(&writer, body->data, body->len);
	if (body->failed || writer.failed)
		_Exit(1);
	keeper_send(egress, writer.data, writer.len, -EBADF);
}

static void add_member(struct text *body, const char *name, const char *value, size_t len)
{
	text_printf(body, "%s\"%s\":", body->len > 1 ? "," : "", name);
	text_add_json(body, value, len);
}

static void add_string(struct text *body, const char *name, const char *value)
{
	add_member(body, name, value, strlen(value));
}

/*
 * Security: in ASCII alone, the rest written as escapes. Bytes that are no UTF-8, and letters that turn a
 * line around, would keep a reader of the log from seeing the event.
 */
static void add_path(struct text *body, struct http_text path)
{
	char shown[PATH_SHOWN * 3 + 1];
	size_t n = 0;

	for (size_t i = 0; i < MIN(path.len, (size_t)PATH_SHOWN); i++) {
		unsigned char c = (unsigned char)path.data[i];

		if (c < 0x80)
			shown[n++] = (char)c;
		else
			n += (size_t)snprintf(shown + n, sizeof(shown) - n, "%%%02X", c);
	}
	add_member(body, "path", shown, n);
}

static void add_target(struct text *body, const struct connection *connection)
{
	char address[ADDRESS_TEXT_MAX];

	text_add(body, "{");
	add_string(body, "host", connection_name(connection));
	text_printf(body, ",\"port\":%u", connection->target.port);
	if (connection->pinned.len) {
		address_format(&connection->pinned, address);
		add_string(body, "address", address);
	} else if (connection->by_proxy) {
		add_string(body, "address", "unchecked (proxy)");
	}
}

/* -- what is counted: denials always, the rest after the first ones -- */

struct tally {
	const char *type;
	char *key; /* the body without its end; NULL: free */
	uint64_t until_usec;
	uint64_t count, sent, received; /* not told yet */
};

struct denials {
	struct tally slots[SLOTS];
	uint64_t n_told; /* of what was let through, one by one */
};

struct denials *denials_new(void)
{
	return calloc(1, sizeof(struct denials));
}

static void tally_tell(struct egress *egress, struct tally *tally)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	text_add(&body, tally->key);
	if (tally->count > 1)
		text_printf(&body, ",\"count\":%llu", (unsigned long long)tally->count);
	if (strcmp(tally->type, "net.close") == 0)
		text_printf(&body, ",\"sent\":%llu,\"received\":%llu", (unsigned long long)tally->sent,
			(unsigned long long)tally->received);
	tell(egress, tally->type, &body);
	tally->count = tally->sent = tally->received = 0;
	tally->until_usec = egress->now_usec + WINDOW_USEC;
	egress->next_usec = MIN(egress->next_usec, tally->until_usec);
}

/* The one of this kind, which is told at once when it is new. */
static void tally_add(
	struct egress *egress, const char *type, struct text *body, uint64_t sent, uint64_t received)
{
	struct tally *found = NULL, *oldest = &egress->denials->slots[0];
	char *key = NULL;

	if (text_take(body, &key) < 0)
		_Exit(1);
	for (size_t i = 0; i < SLOTS && !found; i++) {
		struct tally *slot = &egress->denials->slots[i];

		if (slot->key && slot->type == type && strcmp(slot->key, key) == 0)
			found = slot;
		else if (!slot->key || (oldest->key && slot->until_usec < oldest->until_usec))
			oldest = slot;
	}
	if (found) {
		free(key);
	} else {
		if (oldest->key && oldest->count)
			tally_tell(egress, oldest);
		free(oldest->key);
		*oldest = (struct tally){ .type = type, .key = key };
		found = oldest;
	}
	found->count++;
	found->sent += sent;
	found->received += received;
	if (egress->now_usec >= found->until_usec)
		tally_tell(egress, found);
}

static void denial_add(struct egress *egress, struct text *body)
{
	tally_add(egress, "net.deny", body, 0, 0);
}

void events_flush(struct egress *egress, bool all)
{
	for (size_t i = 0; i < SLOTS; i++) {
		struct tally *slot = &egress->denials->slots[i];

		if (!slot->key)
			continue;
		if (!all && egress->now_usec < slot->until_usec) {
			egress->next_usec = MIN(egress->next_usec, slot->until_usec);
			continue;
		}
		if (slot->count) {
			tally_tell(egress, slot);
			continue;
		}
		free(slot->key);
		*slot = (struct tally){ 0 };
	}
}

/* One by one so far; from then on by host, port and rule, so that a journal stays bounded by time. */
static bool is_counted(struct egress *egress)
{
	if (egress->denials->n_told == TOLD_MAX)
		return true;
	egress->denials->n_told++;
	return false;
}

static void count_allowed(struct connection *connection, const char *mode)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	add_target(&body, connection);
	add_string(&body, "rule", connection->verdict.place);
	add_string(&body, "as", mode);
	tally_add(connection->egress, "net.allow", &body, 0, 0);
}

void event_deny(struct connection *connection, const char *place, const char *reason)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct exchange *exchange = connection->exchange;

	connection->egress->denied++;
	add_target(&body, connection);
	add_string(&body, "rule", place);
	add_string(&body, "reason", reason);
	if (exchange && exchange->method[0] && exchange->phase != PHASE_ACCEPT) {
		add_string(&body, "method", exchange->method);
		add_path(&body, exchange->request.path);
	}
	denial_add(connection->egress, &body);
}

void event_capped(struct egress *egress, const char *reason)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	egress->capped++;
	text_add(&body, "{");
	add_string(&body, "host", "*");
	add_string(&body, "rule", "limits");
	add_string(&body, "reason", reason);
	denial_add(egress, &body);
}

/* -- what was let through -- */

void event_allow(struct connection *connection, const char *mode)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	connection->told = true;
	if (is_counted(connection->egress)) {
		count_allowed(connection, mode);
		return;
	}
	add_target(&body, connection);
	add_string(&body, "rule", connection->verdict.place);
	add_string(&body, "as", mode);
	if (connection->hello.ech)
		text_add(&body, ",\"ech\":true");
	tell(connection->egress, "net.allow", &body);
}

void event_request(struct connection *connection, const struct http_head *head, unsigned int status)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	connection->told = true;
	if (is_counted(connection->egress)) {
		count_allowed(connection, "http");
		return;
	}
	add_target(&body, connection);
	add_string(&body, "rule", connection->verdict.place);
	add_string(&body, "as", "http");
	add_string(&body, "method", connection->exchange->method);
	add_path(&body, head->path);
	text_printf(&body, ",\"status\":%u", status);
	if (injection_is_set(&connection->exchange->injection))
		add_string(&body, "credential", connection->verdict.credential->name);
	if (effect_id(connection->exchange)[0])
		add_string(&body, "effect", effect_id(connection->exchange));
	tell(connection->egress, "net.allow", &body);
}

void event_credential(struct connection *connection, const char *credential, const char *what)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	add_target(&body, connection);
	add_string(&body, "credential", credential);
	if (connection->exchange && connection->exchange->method[0])
		add_string(&body, "method", connection->exchange->method);
	tell(connection->egress, what, &body);
}

void event_revoke(struct egress *egress, const char *credential, uint32_t drop, const char *wrong)
{
	static const char *const words[] = { [ABOX_CREDENTIAL_ASKED] = "asked",
		[ABOX_CREDENTIAL_RENEWED] = "renewed",
		[ABOX_CREDENTIAL_END] = "end" };
	_cleanup_(text_clear) struct text body = TEXT_INIT;

	text_add(&body, "{");
	add_string(&body, "credential", credential);
	add_string(&body, "why", drop < ELEMENTSOF(words) ? words[drop] : "?");
	if (wrong[0])
		add_string(&body, "failed", wrong);
	tell(egress, "credential.revoke", &body);
}

void event_close(struct connection *connection)
{
	_cleanup_(text_clear) struct text body = TEXT_INIT;
	struct egress *egress = connection->egress;

	egress->sent += connection->client.received;
	egress->received += connection->client.sent;
	if (!connection->told)
		return;
	add_target(&body, connection);
	if (is_counted(egress)) {
		tally_add(egress, "net.close", &body, connection->client.received, connection->client.sent);
		return;
	}
	text_printf(&body, ",\"sent\":%llu,\"received\":%llu,\"usec\":%llu",
		(unsigned long long)connection->client.received, (unsigned long long)connection->client.sent,
		(unsigned long long)(egress->now_usec - connection->since_usec));
	tell(egress, "net.close", &body);
}
