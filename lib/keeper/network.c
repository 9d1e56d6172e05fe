/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network of a box, as far as it is the keeper's. Promises that listeners of the cell are nowhere but in
 * egress, that the box and its owner hear when that is lost, and that a change of rules which fails leaves
 * the old ones in force.
 */
#include "keeper/network.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/journal.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "egress/wire.h"
#include "guest/message.h"
#include "keeper/names.h"
#include "keeper/publish.h"
#include "kernel/pidfd.h"

#define ANSWER_USEC (10 * USEC_PER_SEC)
#define END_USEC (2 * USEC_PER_SEC)
#define MESSAGES_A_TURN 16
#define LAST_MESSAGES 4096
#define RULES_JSON_MAX (4U << 20)
#define LOST "the egress of the box is gone"

static uint8_t packet[EGRESS_PACKET_MAX];

/* The state of what has a box at all: one a process. */
static struct {
	bool served; /* listeners and ports stand, events are taken */
	bool lost;
	uint32_t serial; /* of the last request to egress or guest */
	uint32_t n_pending; /* LISTENs at the start that egress has not answered */
	bool mints; /* egress has a minter */
	uint32_t awaited; /* serial of what network_await() waits for */
	uint32_t next_publish;
	struct published published[PUBLISHED_MAX];
	uint8_t ports[65536 / 8]; /* that the cell answers at */

	/* What the guest was told to listen at; serial 0: nothing. One at a time, and what it brings is served
	 * also when the change that wanted it has been given up. */
	struct {
		uint32_t serial, n, n_taken;
		uint32_t ports[CELL_PORTS_MAX];
	} order;

	/* A change of rules; serial 0: none. It waits for the order, then for egress. */
	struct {
		uint32_t serial;
		bool cut, sent;
		int rules_fd, json_fd;
		uint64_t deadline_usec;
	} change;
} network = { .change = { .rules_fd = -EBADF, .json_fd = -EBADF } };

static bool has_network(const struct keeper *keeper)
{
	return keeper->plan.network.mode != FLAT_NETWORK_NONE;
}

static void begin(struct pack_writer *writer, uint32_t type, uint32_t serial)
{
	pack_u32(writer, type);
	pack_u32(writer, serial);
}

static int send_egress(struct keeper *keeper, const struct pack_writer *writer, const int *fds, size_t n_fds)
{
	if (writer->failed)
		return -ENOMEM;
	if (keeper->egress.fd < 0)
		return -EPIPE;
	return socket_send_until(keeper->egress.fd, writer->data, writer->len, fds, n_fds,
		clock_deadline(clock_monotonic_usec(), ANSWER_USEC));
}

/* -- requests that wait for egress or guest -- */

static bool is_ours(const struct waiter *waiter)
{
	return waiter->type == WIRE_NET_RULES || waiter->type == WIRE_NET_PUBLISH ||
	       waiter->type == WIRE_NET_UNPUBLISH || waiter->type == WIRE_CREDENTIAL_SERVE ||
	       waiter->type == WIRE_CREDENTIAL_REVOKE;
}

/* The waiter of a request that was given this serial; its client in *retclient. */
static struct waiter *find_waiter(struct keeper *keeper, uint32_t serial, struct client **retclient)
{
	for (struct client *client = keeper->clients; client; client = client->next)
		for (struct waiter *waiter = client->waiters; waiter; waiter = waiter->next)
			if (is_ours(waiter) && waiter->cursor == serial) {
				*retclient = client;
				return waiter;
			}
	return NULL;
}

static struct published *find_published(uint32_t id)
{
	for (size_t i = 0; i < PUBLISHED_MAX; i++)
		if (network.published[i].id == id)
			return &network.published[i];
	return NULL;
}

static void change_forget(void)
{
	network.change.serial = 0;
	network.change.rules_fd = fd_close(network.change.rules_fd);
	network.change.json_fd = fd_close(network.change.json_fd);
}

/* For who looks at the box later, `agentbox net allow` above all. */
static void keep_json(struct keeper *keeper)
{
	const void *data;
	size_t len;

	if (memfd_map_sealed(network.change.json_fd, RULES_JSON_MAX, &data, &len) < 0)
		return;
	state_write(keeper, STATE_NETWORK, data, len);
	memfd_unmap(data, len);
}

static void answer_ok(struct keeper *keeper, uint32_t serial, struct pack_reader *reader)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct client *client;
	struct waiter *waiter = find_waiter(keeper, serial, &client);
	struct published *published;

	if (serial && serial == network.change.serial) {
		keep_json(keeper);
		change_forget();
	}
	if (serial && serial == network.awaited) {
		network.awaited = 0;
		credentials_ended(keeper, reader);
	}
	if (!waiter)
		return;
	client_begin(&writer, WIRE_OK, waiter->serial);
	published = waiter->type == WIRE_NET_RULES ? NULL : find_published(waiter->command);
	if (waiter->type == WIRE_NET_RULES) {
		pack_u32(&writer, unpack_u32(reader));
	} else if (waiter->type == WIRE_CREDENTIAL_SERVE || waiter->type == WIRE_CREDENTIAL_REVOKE) {
		pack_string(&writer, unpack_string(reader));
		pack_string(&writer, unpack_string(reader));
	} else if (waiter->type == WIRE_NET_PUBLISH && published) {
		pack_u32(&writer, published->id);
		pack_u32(&writer, published->host_port);
		pack_string(&writer, published->token);
	} else if (published) {
		memset(published, 0, sizeof(*published));
	}
	client_send(keeper, client, &writer);
	client_waiter_free(client, waiter);
}

static void answer_fault(struct keeper *keeper, uint32_t serial, const struct fault *fault)
{
	struct client *client;
	struct waiter *waiter = find_waiter(keeper, serial, &client);
	struct published *published;

	if (serial && serial == network.change.serial)
		change_forget();
	if (!waiter)
		return;
	published = waiter->type == WIRE_NET_PUBLISH ? find_published(waiter->command) : NULL;
	if (published)
		memset(published, 0, sizeof(*published));
	client_answer_fault(keeper, client, waiter->serial, fault);
	client_waiter_free(client, waiter);
}

static void change_fail(struct keeper *keeper, int code, const char *place, const char *why)
{
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	fault_set(&fault, code, 0, place, "%s", why);
	answer_fault(keeper, network.change.serial, &fault);
}

/* Nobody waits for it any longer. */
static void answer_lost(struct keeper *keeper)
{
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	fault_set(&fault, ABOX_E_GONE, 0, "egress", LOST);
	for (struct client *client = keeper->clients; client; client = client->next) {
		struct waiter *waiter = client->waiters, *next;

		for (; waiter; waiter = next) {
			next = waiter->next;
			if (!is_ours(waiter))
				continue;
			client_answer_fault(keeper, client, waiter->serial, &fault);
			client_waiter_free(client, waiter);
		}
	}
}

/* Connections are refused from here on, by the kernel: whoever held the listeners is gone. */
static void egress_lost(struct keeper *keeper)
{
	if (network.lost)
		return;
	network.lost = true;
	keeper_watch(keeper, &keeper->egress, 0);
	keeper->egress.fd = fd_close(keeper->egress.fd);
	memset(network.published, 0, sizeof(network.published));
	change_forget();
	answer_lost(keeper);
	effects_lost(keeper);
	keeper_log(keeper, ABOX_LOG_ERROR,
		"the egress of the box is gone: its connections are refused from now on");
	network_tell(keeper, "net.lost",
		keeper->plan.network.stop_on_loss ? "{\"then\":\"stop\"}" : "{\"then\":\"refuse\"}",
		ABOX_DURABILITY_DATA);
	if (keeper->plan.network.stop_on_loss)
		stop_begin(keeper, ABOX_STOP_FAILURE, ABOX_CAUSE_POLICY, keeper->plan.limits.grace_usec);
}

/* A connection came for a published port: the guest makes the socket for it. */
static void want_socket(struct keeper *keeper, uint32_t serial, uint32_t id)
{
	const struct published *published = find_published(id);
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, GUEST_SOCKET, serial);
	pack_u32(&writer, published ? published->port : 0);
	guest_message_send(keeper->guest.fd, &writer, NULL, 0);
}

/* A name that cannot be kept might be given another address in a later life: it is told, and the box goes on. */
static void take_name(struct keeper *keeper, const char *name)
{
	int r = keeper->names_fd >= 0 ? names_append(keeper->names_fd, name) : 0;

	if (r < 0)
		keeper_log(keeper, ABOX_LOG_WARNING,
			"a name of the box cannot be kept beside its workspace: %s", strerror(-r));
}

/* 1 for a message, 0 when there is none, negative at the end. */
static int take_message(struct keeper *keeper, uint64_t deadline_usec, struct fault *fault)
{
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;
	ssize_t n = socket_recv_until(keeper->egress.fd, packet, sizeof(packet), fds, &n_fds, deadline_usec);
	struct pack_reader reader;
	uint32_t type, serial;
	struct fault told;

	if (n == -EAGAIN || n == -ETIMEDOUT)
		return 0;
	if (n <= 0)
		return -EPIPE;
	reader = PACK_READER(packet, (size_t)n);
	type = unpack_u32(&reader);
	serial = unpack_u32(&reader);
	if (type == EGRESS_EFFECT || type == EGRESS_EFFECT_DONE || type == EGRESS_EFFECT_LEAVE)
		effect_ask(keeper, type, serial, &reader, fds, n_fds);
	for (size_t i = 0; i < n_fds; i++)
		fd_close(fds[i]);
	if (type == EGRESS_EVENT) {
		network_event(keeper, &reader);
	} else if (type == EGRESS_WANT) {
		want_socket(keeper, serial, unpack_u32(&reader));
	} else if (type == EGRESS_NAME) {
		take_name(keeper, unpack_string(&reader));
	} else if (type == EGRESS_OK) {
		network.n_pending -= network.n_pending > 0;
		answer_ok(keeper, serial, &reader);
	} else if (type == EGRESS_FAULT) {
		fault_init(&told, ABOX_STAGE_START);
		fault_unpack(&told, &reader);
		if (reader.failed || told.code >= 0)
			fault_set(&told, ABOX_E_PROTOCOL, 0, "egress", "it failed without a reason");
		answer_fault(keeper, serial, &told);
		if (!network.served) {
			if (fault)
				*fault = told;
			return told.code;
		}
	}
	return 1;
}

int network_send(struct keeper *keeper, const struct pack_writer *writer, const int *fds, size_t n_fds)
{
	return send_egress(keeper, writer, fds, n_fds);
}

void network_take_egress(struct keeper *keeper)
{
	if (take_message(keeper, 0, NULL) < 0)
		egress_lost(keeper);
}

static void egress_ready(struct keeper *keeper, struct io *io, uint32_t events)
{
	for (int i = 0; i < MESSAGES_A_TURN && io->events; i++) {
		int r = take_message(keeper, 0, NULL);

		if (r < 0)
			egress_lost(keeper);
		if (r <= 0)
			return;
	}
}

/* -- stages -- */

static int take_trust(struct keeper *keeper, struct fault *fault)
{
	ssize_t n = socket_recv_until(keeper->egress.fd, packet, sizeof(packet), NULL, NULL,
		clock_deadline(clock_monotonic_usec(), ANSWER_USEC));
	struct pack_reader reader = PACK_READER(packet, n > 0 ? (size_t)n : 0);
	uint32_t type = unpack_u32(&reader);
	struct fault told;
	const void *pem;
	size_t len, der_len;
	char *copy;

	unpack_u32(&reader);
	if (type == EGRESS_FAULT) {
		fault_unpack(&told, &reader);
		if (!reader.failed && told.code < 0)
			*fault = told;
		return told.code < 0 ? told.code : ABOX_E_PROTOCOL;
	}
	pem = unpack_bytes(&reader, &len);
	unpack_bytes(&reader, &der_len);
	network.mints = unpack_u8(&reader);
	if (type != EGRESS_READY || reader.failed)
		return fault_set(
			fault, ABOX_E_GONE, n < 0 ? (int)-n : 0, "egress", "it did not become ready");
	copy = malloc(len + 1);
	if (!copy)
		return fault_set(fault, ABOX_E_MEMORY, 0, "egress", "no memory for its certificate");
	memcpy(copy, pem, len);
	copy[len] = 0;
	keeper->plan.trust_pem = copy;
	keeper->plan.trust_pem_len = len;
	return 0;
}

/* What an earlier box on this workspace has asked for. */
static int send_names(struct keeper *keeper, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	if (keeper->names_fd < 0)
		return 0;
	r = names_read(keeper->names_fd, &fd);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "names", "those of the workspace cannot be read");
	begin(&writer, EGRESS_NAMES, ++network.serial);
	r = send_egress(keeper, &writer, &fd, 1);
	network.n_pending += r == 0;
	return r < 0 ? fault_set(fault, ABOX_E_GONE, -r, "egress", "cannot be reached") : 0;
}

int network_egress_run(struct keeper *keeper, struct fault *fault)
{
	int r;

	if (!has_network(keeper))
		return 0;
	if (keeper->egress.fd < 0)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "egress",
			"the plan has a network, but no egress came along");
	network_log_open(keeper);
	r = take_trust(keeper, fault);
	if (r == 0)
		r = send_names(keeper, fault);
	if (r < 0)
		network_egress_undo(keeper, NULL);
	return r;
}

bool network_await(struct keeper *keeper, uint32_t type, const struct pack_writer *body, uint64_t deadline_usec)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r = 1;

	network.awaited = ++network.serial;
	begin(&writer, type, network.awaited);
	pack_append(&writer, body);
	if (send_egress(keeper, &writer, NULL, 0) < 0)
		return false;
	while (network.awaited && r > 0)
		r = take_message(keeper, deadline_usec, NULL);
	return !network.awaited;
}

/* It ends with its socket; where it does not, it is ended. */
int network_egress_undo(struct keeper *keeper, struct fault *fault)
{
	int pidfd = keeper->egress_pidfd, r = 1;

	effects_drain(keeper);
	keeper_watch(keeper, &keeper->egress, 0);
	if (network.mints && keeper->egress.fd >= 0)
		credentials_end(keeper);
	/* what it said last */
	for (int i = 0; i < LAST_MESSAGES && keeper->egress.fd >= 0 && network.served; i++)
		if (take_message(keeper, 0, NULL) <= 0)
			break;
	/* whoever started the box may still hold a copy */
	if (keeper->egress.fd >= 0)
		shutdown(keeper->egress.fd, SHUT_RDWR);
	keeper->egress.fd = fd_close(keeper->egress.fd);
	network_log_close();
	if (pidfd < 0)
		return 0;
	if (pidfd_wait(pidfd, clock_deadline(clock_monotonic_usec(), END_USEC)) == 0) {
		pidfd_signal(pidfd, SIGKILL);
		r = pidfd_wait(pidfd, clock_deadline(clock_monotonic_usec(), END_USEC));
	}
	keeper->egress_pidfd = fd_close(pidfd);
	effects_lost(keeper);
	return r == 0 ? fault_set(fault, ABOX_E_TIMEOUT, 0, "egress", "does not end") : 0;
}

static void note_ports(const struct flat_network *plan)
{
	for (uint32_t i = 0; i < plan->n_ports; i++)
		network.ports[plan->ports[i] / 8] |= (uint8_t)(1U << plan->ports[i] % 8);
}

/* Binds, and asks egress to serve. The entry stands already when its answer comes. */
static int publish(struct keeper *keeper, const struct flat_publish *wish, uint32_t serial, uint32_t *retid,
	struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct published *slot = find_published(0), entry = { .port = wish->port };
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	if (!slot)
		return fault_set(
			fault, ABOX_E_LIMIT, 0, "publish", "a box publishes at most %d ports", PUBLISHED_MAX);
	if (network.lost)
		return fault_set(fault, ABOX_E_GONE, 0, "egress", LOST);
	if (wish->token && publish_token(entry.token) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "publish", "cannot make a token");
	r = publish_bind(wish->address, wish->host_port, &fd, &entry.host_port, fault);
	if (r < 0)
		return r;
	entry.id = ++network.next_publish;
	snprintf(entry.address, sizeof(entry.address), "%s", wish->address);
	begin(&writer, EGRESS_PUBLISH, serial);
	pack_u32(&writer, entry.id);
	pack_u32(&writer, entry.port);
	pack_string(&writer, entry.token);
	r = send_egress(keeper, &writer, &fd, 1);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "egress", "cannot be reached");
	*slot = entry;
	*retid = entry.id;
	return 0;
}

/* Everything that was asked of egress for the start has been done. */
static int wait_served(struct keeper *keeper, struct fault *fault)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), ANSWER_USEC);
	int r = 1;

	while (network.n_pending > 0 && r > 0)
		r = take_message(keeper, deadline, fault);
	if (r < 0 && r != -EPIPE)
		return r;
	return r > 0 ? 0 : fault_set(fault, ABOX_E_GONE, 0, "egress", "it does not serve the box");
}

int network_run(struct keeper *keeper, struct fault *fault)
{
	const struct flat_network *plan = &keeper->plan.network;
	uint32_t id;
	int r = 0;

	if (!has_network(keeper))
		return 0;
	note_ports(plan);
	for (uint32_t i = 0; r == 0 && i < plan->n_publish; i++) {
		r = publish(keeper, &plan->publish[i], 0x80000000U + i, &id, fault);
		network.n_pending += r == 0;
	}
	if (r == 0)
		r = wait_served(keeper, fault);
	if (r < 0)
		return r;
	network.served = true;
	keeper->egress.ready = egress_ready;
	r = keeper_watch(keeper, &keeper->egress, EPOLLIN);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, "egress", "cannot be watched") : 0;
}

int network_undo(struct keeper *keeper, struct fault *fault)
{
	change_forget();
	return 0;
}

/* -- the guest's word -- */

static bool is_socket(int fd, int type, int protocol, bool listens)
{
	int got_type = 0, got_protocol = 0, got_listens = 0;
	socklen_t len = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &got_type, &len) == 0 && got_type == type &&
	       getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &got_protocol, &len) == 0 && got_protocol == protocol &&
	       getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &got_listens, &len) == 0 && !got_listens == !listens;
}

static bool is_ordered(uint32_t port)
{
	for (uint32_t i = 0; i < network.order.n; i++)
		if (network.order.ports[i] == port)
			return true;
	return false;
}

/* Security: from inside the wall. Only what was asked for, and no more of it than there can be. */
static bool listener_is_sound(const struct flat_network *plan, int fd, uint32_t kind, uint32_t port)
{
	uint32_t most = CELL_LISTENERS_MAX(network.served ? network.order.n : plan->n_ports);

	if (network.order.n_taken++ >= most || (network.served && !is_ordered(port)))
		return false;
	if (kind == EGRESS_LISTENER_DNS_UDP)
		return !network.served && is_socket(fd, SOCK_DGRAM, IPPROTO_UDP, false);
	return (kind == EGRESS_LISTENER_TCP || (kind == EGRESS_LISTENER_DNS_TCP && !network.served)) &&
	       is_socket(fd, SOCK_STREAM, IPPROTO_TCP, true);
}

static int pass_listeners(struct keeper *keeper, struct guest_message *message, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	uint32_t n = unpack_count(&message->body, 8);
	bool sound = n == message->n_fds && n > 0;
	int r;

	begin(&writer, EGRESS_LISTEN, network.served ? 0 : ++network.serial);
	pack_u32(&writer, n);
	for (uint32_t i = 0; sound && i < n; i++) {
		uint32_t kind = unpack_u32(&message->body), port = unpack_u32(&message->body);

		pack_u32(&writer, kind);
		pack_u32(&writer, port);
		sound = listener_is_sound(&keeper->plan.network, message->fds[i], kind, port);
	}
	if (!sound || !unpack_done(&message->body))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "it sent listeners that are none");
	r = send_egress(keeper, &writer, message->fds, n);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "egress", "cannot be reached");
	network.n_pending += !network.served;
	return 0;
}

/* Security: from inside the wall. Egress uses it for one connection to the box itself; anything but a TCP
 * socket is refused. */
static void pass_socket(struct keeper *keeper, struct guest_message *message)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	size_t n = message->n_fds;

	if (n != 1 || !is_socket(message->fds[0], SOCK_STREAM, IPPROTO_TCP, false))
		n = 0;
	begin(&writer, EGRESS_SOCKET, message->command);
	send_egress(keeper, &writer, message->fds, n);
}

static void send_rules(struct keeper *keeper)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	begin(&writer, EGRESS_RULES, network.change.serial);
	pack_u8(&writer, network.change.cut);
	network.change.sent = true;
	if (send_egress(keeper, &writer, &network.change.rules_fd, 1) < 0)
		change_fail(keeper, ABOX_E_GONE, "egress", "cannot be reached");
	network.change.rules_fd = fd_close(network.change.rules_fd);
}

/* The order has been carried out; the change that waits for it goes on. */
static void ports_ready(struct keeper *keeper)
{
	for (uint32_t i = 0; i < network.order.n; i++)
		network.ports[network.order.ports[i] / 8] |= (uint8_t)(1U << network.order.ports[i] % 8);
	network.order.serial = 0;
	if (network.change.serial && !network.change.sent)
		send_rules(keeper);
}

static void ports_failed(struct keeper *keeper, struct guest_message *message, struct fault *fault)
{
	fault_unpack(fault, &message->body);
	if (message->body.failed || fault->code >= 0)
		fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "it failed without a reason");
	network.order.serial = 0;
	if (network.change.serial && !network.change.sent)
		answer_fault(keeper, network.change.serial, fault);
}

int network_take(struct keeper *keeper, struct guest_message *message, struct fault *fault)
{
	bool is_answer = message->command == (network.served ? network.order.serial : 0);

	if (!has_network(keeper))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "it sent what it must not");
	if (message->type == GUEST_SOCKET_MADE)
		pass_socket(keeper, message);
	/* Security: what answers no order is dropped, its sockets with it. */
	if (!is_answer || (network.served && !network.order.serial))
		return 0;
	if (message->type == GUEST_LISTENERS)
		return pass_listeners(keeper, message, fault);
	if (message->type == GUEST_LISTENING && network.served)
		ports_ready(keeper);
	else if (message->type == GUEST_LISTEN_FAULT && network.served)
		ports_failed(keeper, message, fault);
	return 0;
}

/* -- requests -- */

static int check_network(struct keeper *keeper, struct fault *fault)
{
	if (!has_network(keeper))
		return fault_set(fault, ABOX_E_STATE, 0, "network", "the box was started without a network");
	if (network.lost)
		return fault_set(fault, ABOX_E_GONE, 0, "egress", LOST);
	return 0;
}

static int wait_for(struct request *request, uint32_t serial, struct waiter **ret, struct fault *fault)
{
	struct waiter *waiter = client_wait(request->client, request->type, request->serial);

	if (!waiter)
		return fault_set(fault, ABOX_E_LIMIT, 0, "request", "too many requests wait for an answer");
	waiter->cursor = serial;
	*ret = waiter;
	return 0;
}

static int order_ports(struct keeper *keeper, const uint32_t *ports, uint32_t n)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	network.order.serial = ++network.serial;
	network.order.n = n;
	network.order.n_taken = 0;
	memcpy(network.order.ports, ports, n * sizeof(*ports));
	guest_message_begin(&writer, GUEST_LISTEN, network.order.serial);
	pack_u32(&writer, n);
	for (uint32_t i = 0; i < n; i++)
		pack_u32(&writer, ports[i]);
	r = guest_message_send(keeper->guest.fd, &writer, NULL, 0);
	if (r < 0)
		network.order.serial = 0;
	return r;
}

/*
 * Security: the guest may be a liar, and a box that is paused answers nothing. So rules which need nothing of
 * it never wait for it, and take the place of those that do.
 */
static int make_way(struct keeper *keeper, const uint32_t *fresh, uint32_t n, struct fault *fault)
{
	bool is_ahead = network.order.serial != 0;

	for (uint32_t i = 0; i < n && is_ahead; i++)
		is_ahead = is_ordered(fresh[i]);
	if ((network.change.serial && (n > 0 || network.change.sent)) ||
		(n > 0 && network.order.serial && !is_ahead))
		return fault_set(
			fault, ABOX_E_BUSY, 0, "network", "another change of the rules is being made");
	if (network.change.serial)
		change_fail(keeper, ABOX_E_CANCELED, "network", "a later change came while the box took its time");
	return 0;
}

int network_rules(struct keeper *keeper, struct request *request, struct fault *fault)
{
	uint8_t cut = unpack_u8(&request->body);
	uint32_t n = unpack_count(&request->body, 4), n_new = 0, fresh[CELL_PORTS_MAX];
	struct waiter *waiter = NULL;
	int r = check_network(keeper, fault);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n && n <= CELL_PORTS_MAX; i++) {
		uint32_t port = unpack_u32(&request->body);

		if (port == 0 || port > 65535)
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "request", "no such port");
		if (!(network.ports[port / 8] & 1U << port % 8))
			fresh[n_new++] = port;
	}
	if (!unpack_done(&request->body) || n > CELL_PORTS_MAX || request->n_fds != 2)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "request", "not a change of rules");
	r = make_way(keeper, fresh, n_new, fault);
	if (r == 0 && n_new > 0 && !network.order.serial && order_ports(keeper, fresh, n_new) < 0)
		return fault_set(fault, ABOX_E_GONE, 0, "guest", "cannot be reached");
	if (r == 0)
		r = wait_for(request, ++network.serial, &waiter, fault);
	if (r < 0)
		return r;
	network.change.serial = network.serial;
	network.change.rules_fd = steal_fd(request->fds[0]);
	network.change.json_fd = steal_fd(request->fds[1]);
	network.change.cut = cut;
	network.change.sent = false;
	network.change.deadline_usec = clock_deadline(clock_monotonic_usec(), ANSWER_USEC);
	if (n_new == 0)
		send_rules(keeper);
	return 0;
}

uint64_t network_next(void)
{
	return network.change.serial ? network.change.deadline_usec : UINT64_MAX;
}

void network_late(struct keeper *keeper, uint64_t now)
{
	if (now < network_next())
		return;
	/* what has come, and was not looked at yet */
	while (network.change.sent && keeper->egress.fd >= 0 && take_message(keeper, 0, NULL) > 0)
		;
	if (!network.change.serial)
		return;
	if (!network.change.sent) {
		change_fail(keeper, ABOX_E_TIMEOUT, "guest", "the box does not listen at the new ports in time");
		return;
	}
	/* Security: rules that were asked for are not in force. An egress that takes none carries nothing. */
	change_fail(keeper, ABOX_E_TIMEOUT, "egress", "it does not take the rules, and is ended");
	pidfd_signal(keeper->egress_pidfd, SIGKILL);
	egress_lost(keeper);
}

int network_publish(struct keeper *keeper, struct request *request, struct fault *fault)
{
	struct flat_publish wish = { .port = unpack_u32(&request->body),
		.host_port = unpack_u32(&request->body) };
	struct waiter *waiter = NULL;
	uint32_t id;
	int r = check_network(keeper, fault);

	wish.address = unpack_string(&request->body);
	wish.token = unpack_u8(&request->body) != 0;
	if (r < 0)
		return r;
	if (!unpack_done(&request->body) || wish.port == 0 || wish.port > 65535 || wish.host_port > 65535)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "request", "not a port to be published");
	r = publish(keeper, &wish, ++network.serial, &id, fault);
	if (r == 0)
		r = wait_for(request, network.serial, &waiter, fault);
	if (r == 0)
		waiter->command = id;
	return r;
}

int network_unpublish(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	uint32_t id = unpack_u32(&request->body);
	struct waiter *waiter = NULL;
	int r = check_network(keeper, fault);

	if (r < 0)
		return r;
	if (!unpack_done(&request->body) || id == 0 || !find_published(id))
		return fault_set(
			fault, ABOX_E_NOT_FOUND, 0, "publish", "no port is published under this number");
	begin(&writer, EGRESS_UNPUBLISH, ++network.serial);
	pack_u32(&writer, id);
	r = send_egress(keeper, &writer, NULL, 0);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "egress", "cannot be reached");
	r = wait_for(request, network.serial, &waiter, fault);
	if (r == 0)
		waiter->command = id;
	return r;
}

int network_forward(struct keeper *keeper, struct request *request, uint32_t type, const struct pack_writer *body,
	struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct waiter *waiter;
	int r = check_network(keeper, fault);

	if (r < 0)
		return r;
	begin(&writer, type, ++network.serial);
	pack_append(&writer, body);
	r = send_egress(keeper, &writer, request->fds, request->n_fds);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "egress", "cannot be reached");
	return wait_for(request, network.serial, &waiter, fault);
}

/* Tokens are for those who may act on the box. */
int network_info(struct keeper *keeper, struct request *request, struct fault *fault)
{
	static const char *const modes[] = { "none", "allow", "open" };
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	bool may_act = request->client->kind == CLIENT_OWNER || request->client->mode != ABOX_OPEN_READ;
	const char *separator = "";

	if (!unpack_done(&request->body))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "request", "has more than it should");
	text_printf(&text, "{\"mode\":\"%s\",\"egress\":\"%s\",\"egress_pid\":%d,\"published\":[",
		modes[keeper->plan.network.mode],
		!has_network(keeper) ? "none"
		: network.lost       ? "lost"
				     : "running",
		keeper->egress_pidfd >= 0 && !network.lost ? (int)pidfd_get_pid(keeper->egress_pidfd) : 0);
	for (size_t i = 0; i < PUBLISHED_MAX; i++) {
		const struct published *entry = &network.published[i];

		if (!entry->id)
			continue;
		text_printf(&text,
			"%s{\"id\":%u,\"port\":%u,\"address\":\"%s\",\"host_port\":%u,\"token\":", separator,
			entry->id, entry->port, entry->address, entry->host_port);
		if (entry->token[0] && may_act)
			text_printf(&text, "\"%s\"}", entry->token);
		else
			text_add(&text, entry->token[0] ? "\"(hidden)\"}" : "null}");
		separator = ",";
	}
	text_add(&text, "]}");
	if (text.failed)
		return fault_set(fault, ABOX_E_MEMORY, 0, "network", "no memory for the answer");
	client_begin(&writer, WIRE_OK, request->serial);
	pack_string(&writer, text.data);
	client_send(keeper, request->client, &writer);
	return 0;
}
