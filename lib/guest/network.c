/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Makes and widens the cell, and makes sockets in it. A socket that is handed out belongs to the box's
 * namespace wherever it is used: what listens is served by egress outside, what is to connect reaches the
 * box's own servers.
 *
 * Security: no copy stays here. A listener that somebody else kept open would let connects succeed and hang
 * when egress is dead, instead of being refused.
 */
#include "guest/network.h"

#include <errno.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <agentbox/error.h>

#include "base/fd.h"

static int send_listeners(int channel_fd, uint32_t serial, struct cell_listener *listeners, size_t n)
{
	int r = 0;

	for (size_t at = 0; at < n; at += SOCKET_MAX_FDS) {
		size_t count = MIN(n - at, (size_t)SOCKET_MAX_FDS);
		uint8_t buffer[16 + 8 * SOCKET_MAX_FDS];
		struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
		int fds[SOCKET_MAX_FDS];

		guest_message_begin(&writer, GUEST_LISTENERS, serial);
		pack_u32(&writer, (uint32_t)count);
		for (size_t i = 0; i < count; i++) {
			pack_u32(&writer, listeners[at + i].kind);
			pack_u32(&writer, listeners[at + i].port);
			fds[i] = listeners[at + i].fd;
		}
		if (r == 0)
			r = guest_message_send(channel_fd, &writer, fds, count);
		for (size_t i = 0; i < count; i++)
			fd_close(fds[i]);
	}
	return r;
}

static int listen_and_send(const struct flat_network *network, const uint16_t *ports, size_t n_ports,
	bool dns, int channel_fd, uint32_t serial, struct fault *fault)
{
	struct cell_listener listeners[CELL_LISTENERS_MAX(CELL_PORTS_MAX)];
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	size_t n;
	int r;

	r = cell_listen(&network->cell, ports, n_ports, dns, listeners, &n, fault);
	if (r < 0)
		return r;
	r = send_listeners(channel_fd, serial, listeners, n);
	guest_message_begin(&writer, GUEST_LISTENING, serial);
	if (r == 0)
		r = guest_message_send(channel_fd, &writer, NULL, 0);
	return r < 0 ? fault_set(fault, ABOX_E_GONE, -r, "channel", "the keeper is gone") : 0;
}

int guest_network_enter(const struct flat_network *network, int channel_fd, struct fault *fault)
{
	uint16_t ports[CELL_PORTS_MAX];
	int r;

	for (uint32_t i = 0; i < network->n_ports; i++)
		ports[i] = (uint16_t)network->ports[i];
	r = cell_make(&network->cell, fault);
	if (r < 0)
		return r;
	return listen_and_send(network, ports, network->n_ports, true, channel_fd, 0, fault);
}

static int handle_listen(
	const struct flat_network *network, int channel_fd, const struct guest_message *message)
{
	struct pack_reader body = message->body;
	uint32_t n = unpack_count(&body, 4);
	uint16_t ports[CELL_PORTS_MAX];
	struct fault fault;
	int r;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	for (uint32_t i = 0; i < n && i < CELL_PORTS_MAX; i++)
		ports[i] = (uint16_t)unpack_u32(&body);
	if (n > CELL_PORTS_MAX || !unpack_done(&body))
		r = fault_set(&fault, ABOX_E_PROTOCOL, 0, "network", "not an order to listen");
	else
		r = listen_and_send(network, ports, n, false, channel_fd, message->command, &fault);
	if (r == 0)
		return 0;
	return guest_message_send_fault(channel_fd, GUEST_LISTEN_FAULT, message->command, &fault);
}

static int handle_socket(int channel_fd, const struct guest_message *message)
{
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	guest_message_begin(&writer, GUEST_SOCKET_MADE, message->command);
	r = guest_message_send(channel_fd, &writer, &fd, fd >= 0);
	fd_close(fd);
	return r;
}

int guest_network_handle(
	const struct flat_network *network, int channel_fd, const struct guest_message *message)
{
	return message->type == GUEST_LISTEN ? handle_listen(network, channel_fd, message)
					     : handle_socket(channel_fd, message);
}

static int lead_ports(bool v6, const uint32_t *list, size_t n, bool dns, struct fault *fault)
{
	uint16_t ports[CELL_PORTS_MAX];

	if (n > CELL_PORTS_MAX)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "network", "too many ports");
	for (size_t i = 0; i < n; i++)
		ports[i] = (uint16_t)list[i];
	return cell_link_ports(v6, ports, n, dns, fault);
}

int guest_link_up(bool v6, const uint32_t *ports, size_t n_ports, struct fault *fault)
{
	int r = cell_link_make(v6, fault);

	return r < 0 ? r : lead_ports(v6, ports, n_ports, true, fault);
}

int guest_link_handle(bool v6, const struct guest_message *message)
{
	struct pack_reader body = message->body;
	uint32_t n = unpack_count(&body, 4), ports[CELL_PORTS_MAX];
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	for (uint32_t i = 0; i < n && i < CELL_PORTS_MAX; i++)
		ports[i] = unpack_u32(&body);
	return unpack_done(&body) ? lead_ports(v6, ports, n, false, &fault) : ABOX_E_PROTOCOL;
}

int guest_loopback_up(struct fault *fault)
{
	_cleanup_(fd_closep) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = "lo" };

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "lo", "cannot be looked at");
	request.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "lo", "cannot be brought up");
	return 0;
}
