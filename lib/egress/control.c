/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Talk with the library and the keeper (wire.h). What comes is checked as if it came from elsewhere; a
 * message that cannot be read ends egress, since then the two do not fit together.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "credential/wire.h"
#include "egress/egress.h"
#include "egress/wire.h"

#define TRUSTED_MAX (16U << 20)

enum {
	DEFAULT_CONNECTIONS = 512,
	DEFAULT_HALF_OPEN = 128,
	DEFAULT_RATE = 500,
};

static uint8_t packet[EGRESS_PACKET_MAX];

void control_forget(void)
{
	explicit_bzero(packet, sizeof(packet));
}

static void reply(
	struct egress *egress, int fd, uint32_t serial, struct fault *fault, struct pack_writer *more)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, fault->code < 0 ? EGRESS_FAULT : EGRESS_OK);
	pack_u32(&writer, serial);
	if (fault->code < 0)
		fault_pack(fault, &writer);
	if (writer.failed || (more && more->failed))
		return;
	if (fault->code >= 0 && more && more->len > 0) {
		uint8_t *joined = malloc(writer.len + more->len);

		if (!joined)
			return;
		memcpy(joined, writer.data, writer.len);
		memcpy(joined + writer.len, more->data, more->len);
		free(writer.data);
		writer.data = joined;
		writer.len += more->len;
	}
	if (egress && fd == egress->keeper.fd)
		keeper_send(egress, writer.data, writer.len, -EBADF);
	else
		socket_send(fd, writer.data, writer.len, NULL, 0);
}

void control_reply(struct egress *egress, uint32_t serial, struct fault *fault, struct pack_writer *more)
{
	reply(egress, egress->keeper.fd, serial, fault, more);
}

/* Without fstat(), which is a call too many once confined. */
static int read_sealed(int fd, size_t max, uint8_t **retdata, size_t *retlen)
{
	size_t size = 65536, len = 0;
	uint8_t *data = NULL, *grown;
	ssize_t n;

	if (!memfd_is_sealed(fd))
		return -EINVAL;
	for (;;) {
		grown = realloc(data, size);
		if (!grown)
			break;
		data = grown;
		n = fd_pread_all(fd, data + len, size - len, len);
		if (n < 0)
			break;
		len += (size_t)n;
		if (len < size) {
			*retdata = data;
			*retlen = len;
			return 0;
		}
		if (size > max)
			break;
		size *= 2;
	}
	free(data);
	return -EFBIG;
}

static int take_rules(struct egress *egress, int fd, struct fault *fault)
{
	_cleanup_(rules_unrefp) struct rules *rules = NULL;
	_cleanup_(freep) uint8_t *data = NULL;
	size_t len;
	int r;

	r = read_sealed(fd, EGRESS_RULES_MAX, &data, &len);
	if (r < 0)
		return fault_set(fault, ABOX_E_PROTOCOL, -r, "rules", "the rules cannot be read");
	r = rules_unpack(data, len, &rules, fault);
	if (r < 0)
		return r == ABOX_E_MEMORY ? fault_set(fault, r, 0, "rules", "no memory for the rules") : r;
	rules_unref(egress->rules);
	egress->rules = steal_ptr(rules);
	egress->generation++;
	return 0;
}

/* -- the library, once -- */

static int open_with(
	struct egress *egress, struct pack_reader *reader, int *fds, size_t n_fds, struct fault *fault)
{
	_cleanup_(freep) uint8_t *trusted = NULL;
	const char *box, *proxy, *no_proxy;
	uint32_t version, uid, gid;
	size_t trusted_len;
	int r;

	version = unpack_u32(reader);
	box = unpack_string(reader);
	proxy = unpack_string(reader);
	no_proxy = unpack_string(reader);
	egress->max_connections = unpack_u32(reader);
	egress->max_half_open = unpack_u32(reader);
	egress->max_rate = unpack_u32(reader);
	uid = unpack_u32(reader);
	gid = unpack_u32(reader);
	if (!unpack_done(reader) || version != EGRESS_VERSION || n_fds < 2 || n_fds > 3)
		return fault_set(
			fault, ABOX_E_PROTOCOL, 0, "egress", "library and egress do not fit together");
	egress->max_connections = egress->max_connections ? egress->max_connections : DEFAULT_CONNECTIONS;
	egress->max_half_open = egress->max_half_open ? egress->max_half_open : DEFAULT_HALF_OPEN;
	egress->max_rate = MIN(egress->max_rate ? egress->max_rate : DEFAULT_RATE, 1000000U);
	egress->tokens_milli = (uint64_t)egress->max_rate * 2000;
	strncpy(egress->box, box, sizeof(egress->box) - 1);
	r = take_rules(egress, fds[0], fault);
	if (r < 0)
		return r;
	r = read_sealed(fds[1], TRUSTED_MAX, &trusted, &trusted_len);
	if (r < 0)
		return fault_set(
			fault, ABOX_E_PROTOCOL, -r, "certificates", "the certificates cannot be read");
	/* Security: before there is a secret, since it is a copy of this process. */
	r = resolver_start(uid, gid, &egress->resolver.fd, fault);
	if (r < 0)
		return r;
	proxy_set(egress, proxy, no_proxy, fault);
	if (fault->code < 0)
		return fault->code;
	r = tls_new(egress, (const char *)trusted, trusted_len, fault);
	if (r < 0)
		return r;
	if (n_fds == 3)
		egress->minter.fd = steal_fd(fds[2]);
	return egress_become(uid, gid, fault);
}

int control_open(struct egress *egress, int library_fd)
{
	int fds[SOCKET_MAX_FDS];
	struct pack_reader reader;
	struct fault fault;
	size_t n_fds = 0;
	uint32_t serial;
	ssize_t n;

	n = socket_recv(library_fd, packet, sizeof(packet), fds, &n_fds);
	if (n <= 0)
		return -EPIPE;
	reader = PACK_READER(packet, (size_t)n);
	fault_init(&fault, ABOX_STAGE_NETWORK);
	if (unpack_u32(&reader) != EGRESS_OPEN)
		return -EPROTO;
	serial = unpack_u32(&reader);
	open_with(egress, &reader, fds, n_fds, &fault);
	explicit_bzero(packet, (size_t)n); /* the proxy's password */
	for (size_t i = 0; i < n_fds; i++)
		fd_close(fds[i]);
	if (fault.code >= 0)
		egress_confine(&fault);
	reply(NULL, library_fd, serial, &fault, NULL);
	fd_close(library_fd);
	return fault.code < 0 ? -EINVAL : 0;
}

int control_tell_ready(struct egress *egress)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(freep) uint8_t *pem = NULL, *der = NULL;
	size_t pem_len, der_len;

	if (tls_ca(egress, true, &pem, &pem_len) < 0 || tls_ca(egress, false, &der, &der_len) < 0)
		return -ENOMEM;
	pack_u32(&writer, EGRESS_READY);
	pack_u32(&writer, 0);
	pack_bytes(&writer, pem, pem_len);
	pack_bytes(&writer, der, der_len);
	pack_u8(&writer, egress->minter.fd >= 0);
	return writer.failed ? -ENOMEM : socket_send(egress->keeper.fd, writer.data, writer.len, NULL, 0);
}

/* -- the keeper -- */

static int listen_on(
	struct egress *egress, struct pack_reader *reader, int *fds, size_t n_fds, struct fault *fault)
{
	uint32_t n = unpack_count(reader, 8);

	if (n != n_fds)
		return fault_set(
			fault, ABOX_E_PROTOCOL, 0, "listen", "not as many sockets as were announced");
	for (uint32_t i = 0; i < n; i++) {
		uint32_t kind = unpack_u32(reader), port = unpack_u32(reader);

		if (kind < EGRESS_LISTENER_TCP || kind > EGRESS_LISTENER_PROXY || port > 65535 ||
			reader->failed)
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "listen", "a listener of no known kind");
		if (listener_add(egress, kind, (uint16_t)port, steal_fd(fds[i])) < 0)
			return fault_set(fault, ABOX_E_MEMORY, 0, "listen", "a listener cannot be served");
	}
	return 0;
}

static int names_of(struct egress *egress, const int *fds, size_t n_fds, struct fault *fault)
{
	_cleanup_(freep) uint8_t *data = NULL;
	size_t len;
	int r = n_fds == 1 ? read_sealed(fds[0], EGRESS_NAMES_MAX, &data, &len) : -EPROTO;

	if (r == 0)
		r = names_count(egress->names) == 0 ? names_restore(egress->names, data, len) : -EPROTO;
	return r < 0 ? fault_set(fault, ABOX_E_PROTOCOL, -r, "names",
			       "the names of an earlier life cannot be read")
		     : 0;
}

static int publish(
	struct egress *egress, struct pack_reader *reader, int *fds, size_t n_fds, struct fault *fault)
{
	uint32_t id = unpack_u32(reader), port = unpack_u32(reader);
	const char *token = unpack_string(reader);

	if (reader->failed || n_fds != 1 || id == 0 || port == 0 || port > 65535)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "publish", "no port to publish");
	if (publish_add(egress, id, (uint16_t)port, token, steal_fd(fds[0])) < 0)
		return fault_set(fault, ABOX_E_MEMORY, 0, "publish", "the port cannot be served");
	return 0;
}

static void pack_stats(struct egress *egress, struct pack_writer *more)
{
	pack_u32(more, egress->n_connections);
	pack_u64(more, egress->accepted);
	pack_u64(more, egress->denied);
	pack_u64(more, egress->capped);
	pack_u64(more, egress->sent);
	pack_u64(more, egress->received);
	pack_u32(more, egress->generation);
}

/* True: the minter's answer is the answer. */
static bool ask_minter(struct egress *egress, uint32_t type, uint32_t keeper_serial, struct pack_reader *reader,
	const int *fds, size_t n_fds, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer message = PACK_WRITER_INIT;
	bool serves = type == EGRESS_SERVE;
	uint32_t serial = ++egress->serial;

	pack_u32(&message, serves ? MINTER_SERVE : MINTER_REVOKE);
	pack_u32(&message, serial);
	if (!serves)
		pack_string(&message, unpack_string(reader));
	pack_u8(&message, unpack_u8(reader));
	if (!serves)
		pack_u32(&message, unpack_u32(reader));
	if (!unpack_done(reader) || n_fds != (serves ? 1 : 0))
		fault_set(fault, ABOX_E_PROTOCOL, 0, "credential", "a message that cannot be read");
	else if (egress->minter.fd < 0)
		fault_set(fault, ABOX_E_STATE, 0, "credential", "nobody mints for the box");
	else
		minter_relay(egress, keeper_serial, &message, serial, fds, n_fds, serves ? ABOX_E_STATE : ABOX_E_NOT_FOUND,
			fault);
	return fault->code >= 0;
}

static void serve(struct egress *egress, uint32_t type, uint32_t serial, struct pack_reader *reader, int *fds,
	size_t n_fds)
{
	_cleanup_(pack_writer_clearp) struct pack_writer more = PACK_WRITER_INIT;
	struct fault fault;
	uint8_t cut = 0;

	fault_init(&fault, ABOX_STAGE_NETWORK);
	switch (type) {
	case EGRESS_NAMES:
		names_of(egress, fds, n_fds, &fault);
		break;
	case EGRESS_LISTEN:
		listen_on(egress, reader, fds, n_fds, &fault);
		break;
	case EGRESS_RULES:
		cut = unpack_u8(reader);
		if (n_fds != 1)
			fault_set(&fault, ABOX_E_PROTOCOL, 0, "rules", "no rules came with the message");
		else if (take_rules(egress, fds[0], &fault) >= 0 && cut)
			connections_judge_again(egress);
		pack_u32(&more, egress->generation);
		break;
	case EGRESS_PUBLISH:
		publish(egress, reader, fds, n_fds, &fault);
		break;
	case EGRESS_UNPUBLISH:
		if (!publish_remove(egress, unpack_u32(reader)))
			fault_set(&fault, ABOX_E_NOT_FOUND, 0, "unpublish",
				"no port is published under this number");
		break;
	case EGRESS_SOCKET:
		publish_socket(egress, serial, n_fds == 1 ? steal_fd(fds[0]) : -EBADF);
		return;
	case EGRESS_EFFECT_ANSWER:
		effect_answer(egress, serial, reader, fds, n_fds);
		return;
	case EGRESS_SERVE:
	case EGRESS_REVOKE:
		if (ask_minter(egress, type, serial, reader, fds, n_fds, &fault))
			return;
		break;
	case EGRESS_STATS:
		pack_stats(egress, &more);
		break;
	default:
		fault_set(&fault, ABOX_E_PROTOCOL, 0, "egress", "a message of no known type");
	}
	if (fault.code >= 0 && !unpack_done(reader))
		fault_set(&fault, ABOX_E_PROTOCOL, 0, "egress", "a message that is too long or too short");
	if (serial)
		reply(egress, egress->keeper.fd, serial, &fault, &more);
}

void control_ready(struct egress *egress, struct watch *watch, uint32_t events)
{
	int fds[SOCKET_MAX_FDS];

	keeper_flush(egress);
	for (;;) {
		struct pack_reader reader;
		uint32_t type, serial;
		size_t n_fds = 0;
		ssize_t n;

		n = socket_recv_until(watch->fd, packet, sizeof(packet), fds, &n_fds, 0);
		if (n == -ETIMEDOUT)
			return;
		if (n <= 0)
			_Exit(0); /* the keeper is gone: so are we, and every listener with us */
		reader = PACK_READER(packet, (size_t)n);
		type = unpack_u32(&reader);
		serial = unpack_u32(&reader);
		if (reader.failed)
			_Exit(1);
		serve(egress, type, serial, &reader, fds, n_fds);
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
	}
}
