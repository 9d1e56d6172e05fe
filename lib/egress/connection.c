/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of a connection: made by a listener, driven by steps, ended in order or by a reset, buried after
 * the events of one round are handled (a step may end a connection whose event is still to come). And the
 * plain relay.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/exchange.h"

#define STEPS_AT_ONCE 64 /* then others get their turn */

struct connection *connection_new(struct egress *egress, int fd)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (!connection)
		return NULL;
	connection->egress = egress;
	end_init(&connection->client, connection);
	end_init(&connection->server, connection);
	hello_init(&connection->hello);
	connection->client.watch.fd = fd;
	connection->deadline_usec = UINT64_MAX;
	connection->since_usec = egress->now_usec;
	connection->verdict.rule = -1;
	if (watch_add(egress, &connection->client.watch) < 0) {
		free(connection);
		return NULL;
	}
	connection->next = egress->connections;
	if (connection->next)
		connection->next->previous = connection;
	egress->connections = connection;
	egress->n_connections++;
	egress->n_half_open++;
	connection->half_open = true;
	return connection;
}

const char *connection_name(const struct connection *connection)
{
	return connection->target.host ? connection->target.host : connection->literal;
}

const struct rules *connection_rules(struct connection *connection)
{
	struct rules *old = connection->rules;

	connection->rules = rules_ref(connection->egress->rules);
	rules_unref(old);
	return connection->rules;
}

void connection_known(struct connection *connection)
{
	if (connection->half_open)
		connection->egress->n_half_open--;
	connection->half_open = false;
}

void connection_deadline(
	struct connection *connection, uint64_t usec, void (*late)(struct connection *connection))
{
	connection->deadline_usec = usec == UINT64_MAX ? usec : connection->egress->now_usec + usec;
	connection->late = late;
	connection->egress->next_usec = MIN(connection->egress->next_usec, connection->deadline_usec);
}

static void forget_questions(struct question *list, const struct connection *connection)
{
	for (; list; list = list->next)
		if (list->connection == connection)
			list->connection = NULL;
}

void connection_end(struct connection *connection)
{
	struct egress *egress = connection->egress;

	if (connection->dead)
		return;
	connection->dead = true;
	connection_known(connection);
	event_close(connection);
	forget_questions(egress->lookups, connection);
	forget_questions(egress->asks, connection);
	forget_questions(egress->wants, connection);
	upstream_free(connection);
	exchange_free(connection);
	end_close(&connection->server, true);
	end_close(&connection->client, true);
	hello_clear(&connection->hello);
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		egress->connections = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	egress->n_connections--;
	connection->next_dead = egress->dead;
	egress->dead = connection;
	listeners_again(egress);
}

void connection_reset(struct connection *connection)
{
	struct linger linger = { .l_onoff = 1 };

	if (connection->client.watch.fd >= 0)
		setsockopt(connection->client.watch.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	connection_end(connection);
}

void connections_bury(struct egress *egress)
{
	struct connection **link = &egress->dead;

	while (*link) {
		struct connection *connection = *link;

		if (connection->is_ready) { /* still in the list of those that are to run */
			link = &connection->next_dead;
			continue;
		}
		*link = connection->next_dead;
		rules_unref(connection->rules);
		free(connection);
	}
}

void connection_run(struct connection *connection)
{
	for (int i = 0; i < STEPS_AT_ONCE; i++)
		if (connection->dead || !connection->step(connection))
			return;
	connection_wake(connection);
}

void connections_late(struct egress *egress)
{
	struct connection *next;

	if (egress->now_usec < egress->next_usec)
		return;
	egress->next_usec = UINT64_MAX;
	for (struct connection *connection = egress->connections; connection; connection = next) {
		next = connection->next;
		if (connection->deadline_usec > egress->now_usec) {
			egress->next_usec = MIN(egress->next_usec, connection->deadline_usec);
			continue;
		}
		connection->deadline_usec = UINT64_MAX;
		connection->late(connection);
		if (!connection->dead)
			connection_wake(connection);
	}
}

/* Decided by the old rules, and not done yet: an address, a credential or the rest of a held body is still to come. */
static bool is_on_its_way(const struct connection *connection)
{
	const struct exchange *exchange = connection->exchange;

	return connection->upstream || (exchange && (exchange->phase == PHASE_WAIT || exchange->phase == PHASE_BODY));
}

/* After a change of rules: what they do not allow any more is cut. */
void connections_judge_again(struct egress *egress)
{
	struct rules_verdict verdict;
	struct connection *next;

	for (struct connection *connection = egress->connections; connection; connection = next) {
		next = connection->next;
		if (connection->target.port == 0)
			continue;
		if (connection->half_open) { /* it has not said all yet */
			if (!connection->exchange)
				rules_judge_target(connection_rules(connection), &connection->target,
					&connection->verdict);
			continue;
		}
		rules_judge_target(egress->rules, &connection->target, &verdict);
		if (verdict.action != RULES_DENY && connection->pinned.len)
			rules_judge_address(
				egress->rules, &connection->target, &connection->pinned, &verdict);
		/* Nor may one go on unseen that would now be looked into. */
		if (verdict.action != RULES_DENY && !is_on_its_way(connection) &&
			(verdict.action == RULES_PASS || connection->exchange))
			continue;
		event_deny(connection, verdict.place, "the rules have changed");
		connection_reset(connection);
	}
}

bool step_goodbye(struct connection *connection)
{
	char rest[4096];
	ssize_t n;

	if (end_flush(&connection->client) == 0)
		return false;
	end_finish(&connection->client);
	/* What the client still sends is read and dropped: unread bytes would reset the answer on its way. */
	n = end_read(&connection->client, rest, sizeof(rest));
	if (n == -EAGAIN)
		return false;
	if (n <= 0)
		connection_end(connection);
	return n > 0;
}

/* -- the relay: bytes of one side to the other, as they are -- */

/* 1: got on, 0: nothing to do now, -1: broken */
static int relay(struct connection *connection, struct end *from, struct end *to)
{
	char *buffer = connection->egress->relay;
	ssize_t n, put;

	if (buffer_len(&to->out) > 0) {
		int r = end_flush(to);

		return r < 0 ? -1 : r;
	}
	if (buffer_len(&from->in) > 0) { /* read before it was known whom it is for */
		buffer_clear(&to->out, false);
		to->out = from->in;
		from->in = (struct buffer){ 0 };
		return 1;
	}
	if (from->in_ended) {
		if (to->out_ended)
			return 0;
		end_finish(to);
		return 1;
	}
	n = end_read(from, buffer, RELAY_BYTES);
	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return -1;
	if (n == 0)
		return 1;
	put = end_write(to, buffer, (size_t)n);
	if (put < 0 && put != -EAGAIN)
		return -1;
	put = MAX(put, 0);
	if (put < n && !buffer_add(&to->out, buffer + put, (size_t)(n - put)))
		return -1;
	return 1;
}

bool step_relay(struct connection *connection)
{
	int up = 0, down;

	if (connection->gate) {
		if (sniff_gate(connection))
			return true;
		if (connection->dead)
			return false;
	}
	if (!connection->gate)
		up = relay(connection, &connection->client, &connection->server);
	down = relay(connection, &connection->server, &connection->client);
	if (up < 0 || down < 0) {
		connection_reset(connection);
		return false;
	}
	if (connection->client.in_ended && connection->server.in_ended && connection->client.out_ended &&
		connection->server.out_ended) {
		connection_end(connection);
		return false;
	}
	if ((connection->client.broken || connection->server.broken) && !up && !down) {
		connection_reset(connection);
		return false;
	}
	return up || down;
}
