/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Talk with the minter (credential/wire.h). A credential is asked for at each use, since who mints it knows until when
 * it holds. What the keeper wants of the minter goes through here as well.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/pack.h"
#include "base/socket.h"
#include "credential/wire.h"
#include "egress/egress.h"

/* -- what requests want of it -- */

bool injection_ask(struct connection *connection)
{
	struct egress *egress = connection->egress;
	const struct rules_credential *credential = connection->verdict.credential;
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	bool signs = credential->inject == RULES_INJECT_SIGN;
	struct question *question;

	if (egress->minter.fd < 0)
		return false;
	question = calloc(1, sizeof(*question));
	if (!question)
		return false;
	question->serial = ++egress->serial;
	question->connection = connection;
	pack_u32(&writer, signs ? MINTER_SIGN : MINTER_ASK);
	pack_u32(&writer, question->serial);
	pack_string(&writer, credential->name);
	if ((signs && !exchange_pack(connection, credential, &writer)) || writer.failed ||
		writer.len > MINTER_PACKET_MAX - 4096 || socket_send_until(egress->minter.fd, writer.data, writer.len, NULL, 0, 0) < 0) {
		free(question);
		return false;
	}
	question->next = egress->asks;
	egress->asks = question;
	return true;
}

/* -- what the keeper wants of it -- */

struct relayed {
	struct relayed *next;
	uint32_t serial; /* of the minter's answer */
	uint32_t keeper_serial;
	int refused; /* the code of a refusal */
};

void minter_relay(struct egress *egress, uint32_t keeper_serial, struct pack_writer *message, uint32_t serial,
	const int *fds, size_t n_fds, int refused, struct fault *fault)
{
	struct relayed *relayed = calloc(1, sizeof(*relayed));
	int r = message->failed || !relayed ? -ENOMEM : -EPIPE;

	if (r == -EPIPE && egress->minter.fd >= 0)
		r = socket_send_until(egress->minter.fd, message->data, message->len, fds, n_fds, 0);
	if (r < 0) {
		free(relayed);
		fault_set(fault, r == -ENOMEM ? ABOX_E_MEMORY : ABOX_E_GONE, -r, "minter",
			"nobody mints for the box any more");
		return;
	}
	*relayed = (struct relayed){ egress->relayed, serial, keeper_serial, refused };
	egress->relayed = relayed;
}

static void add_names(struct pack_writer *more, struct pack_reader *reader)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	uint32_t n = unpack_count(reader, 5);

	text_add(&text, "[");
	for (uint32_t i = 0; i < n; i++) {
		const char *name = unpack_string(reader);

		text_add(&text, i ? "," : "");
		text_add_json(&text, name, strlen(name));
	}
	text_add(&text, "]");
	pack_string(more, text.data);
	more->failed = more->failed || text.failed;
}

static bool relay_back(struct egress *egress, uint32_t type, uint32_t serial, struct pack_reader *reader)
{
	_cleanup_(pack_writer_clearp) struct pack_writer more = PACK_WRITER_INIT;
	struct relayed **link = &egress->relayed, *relayed;
	struct fault fault;

	while (*link && (*link)->serial != serial)
		link = &(*link)->next;
	relayed = *link;
	if (!relayed)
		return false;
	*link = relayed->next;
	fault_init(&fault, ABOX_STAGE_CREDENTIAL);
	if (type == MINTER_DONE) {
		add_names(&more, reader);
		add_names(&more, reader);
	} else {
		fault_set(&fault, type == MINTER_REFUSED ? relayed->refused : ABOX_E_GONE, 0, "credential", "%s",
			type == MINTER_REFUSED ? unpack_string(reader) : "nobody mints for the box any more");
	}
	control_reply(egress, relayed->keeper_serial, &fault, &more);
	free(relayed);
	return true;
}

/* -- what it says -- */

static void minter_gone(struct egress *egress)
{
	struct pack_reader none = PACK_READER(NULL, 0);

	watch_close(&egress->minter);
	while (egress->relayed)
		relay_back(egress, 0, egress->relayed->serial, &none);
	while (egress->asks) {
		struct question *question = egress->asks;

		egress->asks = question->next;
		if (question->connection)
			exchange_credential(question->connection, NULL, 0, "nobody is there to mint it");
		free(question);
	}
}

static void dropped(struct egress *egress, struct pack_reader *reader)
{
	const char *name = unpack_string(reader);
	uint32_t drop = unpack_u32(reader);
	const char *wrong = unpack_string(reader);

	if (unpack_done(reader))
		event_revoke(egress, name, drop, wrong);
}

static void answered(struct egress *egress, uint8_t *buffer, size_t len)
{
	struct pack_reader reader = PACK_READER(buffer, len);
	uint32_t type = unpack_u32(&reader), serial = unpack_u32(&reader);
	struct question **link = &egress->asks, *question;
	struct connection *connection;
	size_t secret_len;
	const char *secret;

	if (type == MINTER_DROPPED) {
		dropped(egress, &reader);
		return;
	}
	if (relay_back(egress, type, serial, &reader))
		return;
	while (*link && (*link)->serial != serial)
		link = &(*link)->next;
	question = *link;
	if (!question)
		return;
	*link = question->next;
	connection = question->connection;
	free(question);
	if (!connection)
		return;
	if (type == MINTER_SIGNED) {
		exchange_signed(connection, &reader);
		return;
	}
	secret = unpack_bytes(&reader, &secret_len);
	if (type == MINTER_SECRET && unpack_done(&reader))
		exchange_credential(connection, secret, secret_len, NULL);
	else /* the text says why, and names no value */
		exchange_credential(connection, NULL, 0, reader.failed ? "it could not be minted" : secret);
}

void minter_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	static uint8_t buffer[MINTER_PACKET_MAX];
	ssize_t n;

	while ((n = socket_recv_until(watch->fd, buffer, sizeof(buffer), NULL, NULL, 0)) > 0) {
		answered(egress, buffer, (size_t)n);
		explicit_bzero(buffer, (size_t)n);
	}
	if (n != -ETIMEDOUT)
		minter_gone(egress);
}
