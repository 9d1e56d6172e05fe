/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Netlink messages. Their lengths are the program's own, so that one which does not fit is a mistake in it;
 * it is refused when it is sent.
 */
#include "kernel/netlink.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define ROUTE_PROTOCOL 0 /* NETLINK_ROUTE */
#define MESSAGE_ERROR 2 /* NLMSG_ERROR: also an acknowledgement, with 0 */
#define FLAGS 0x05 /* NLM_F_REQUEST | NLM_F_ACK */
#define ALIGN(n) (((n) + 3) & ~(size_t)3)

struct head {
	uint32_t len;
	uint16_t type, flags;
	uint32_t seq, pid;
};
struct attribute {
	uint16_t len, type;
};

int netlink_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, ROUTE_PROTOCOL);

	return fd < 0 ? -errno : fd;
}

/* Room for len bytes more, zeroed; NULL (and a message that cannot be sent) when there is none. */
static void *room(struct netlink_message *message, size_t len)
{
	size_t at = message->len;

	if (at > sizeof(message->data) || ALIGN(len) > sizeof(message->data) - at) {
		message->len = sizeof(message->data) + 1;
		return NULL;
	}
	message->len = at + ALIGN(len);
	return memset(message->data + at, 0, ALIGN(len));
}

void netlink_begin(
	struct netlink_message *message, uint16_t type, uint16_t flags, const void *head, size_t len)
{
	const struct head begin = { .type = type, .flags = FLAGS | flags, .seq = 1 };

	message->len = 0;
	memcpy(room(message, sizeof(begin)), &begin, sizeof(begin));
	memcpy(room(message, len), head, len);
}

void netlink_add(struct netlink_message *message, uint16_t type, const void *data, size_t len)
{
	const struct attribute attribute = { .len = (uint16_t)(sizeof(attribute) + len), .type = type };
	uint8_t *at = room(message, sizeof(attribute) + len);

	if (!at)
		return;
	memcpy(at, &attribute, sizeof(attribute));
	if (len)
		memcpy(at + sizeof(attribute), data, len);
}

void netlink_add_u32(struct netlink_message *message, uint16_t type, uint32_t value)
{
	netlink_add(message, type, &value, sizeof(value));
}

size_t netlink_nest(struct netlink_message *message, uint16_t type)
{
	size_t at = message->len;

	netlink_add(message, type, NULL, 0);
	return at;
}

void netlink_end(struct netlink_message *message, size_t nest)
{
	uint16_t len;

	if (message->len > sizeof(message->data))
		return;
	len = (uint16_t)(message->len - nest);
	memcpy(message->data + nest, &len, sizeof(len));
}

int netlink_call(int fd, struct netlink_message *message)
{
	_Alignas(8) uint8_t answer[sizeof(struct head) + sizeof(int32_t) + sizeof(message->data) + 256];
	uint32_t len = (uint32_t)message->len;
	struct head head;
	int32_t error;
	ssize_t n;

	if (len > sizeof(message->data))
		return -EMSGSIZE;
	memcpy(message->data, &len, sizeof(len));
	do {
		n = send(fd, message->data, len, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	do {
		n = recv(fd, answer, sizeof(answer), 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(head) + sizeof(error))
		return -EPROTO;
	memcpy(&head, answer, sizeof(head));
	memcpy(&error, answer + sizeof(head), sizeof(error));
	return head.type == MESSAGE_ERROR ? error : -EPROTO;
}
