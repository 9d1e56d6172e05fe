/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packing of the messages between keeper and guest. Promises that a message is whole, with its descriptors
 * owned by exactly one side; what it means is left to the two ends.
 */
#include "guest/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/error.h>

#include "base/fd.h"

#define MAX_STRINGS                                                                                          \
	131072 /* as many arguments or variables as MAX_ARG_STRLEN's kernel would take in GUEST_BLOB_MAX */

int guest_message_recv(int fd, uint8_t *buffer, struct guest_message *ret)
{
	ssize_t n;

	memset(ret, 0, sizeof(*ret));
	fd_init_array(ret->fds, ELEMENTSOF(ret->fds));
	n = socket_recv(fd, buffer, GUEST_PACKET_MAX, ret->fds, &ret->n_fds);
	if (n <= 0)
		return (int)n;
	ret->body = PACK_READER(buffer, (size_t)n);
	ret->type = unpack_u32(&ret->body);
	ret->command = unpack_u32(&ret->body);
	if (!ret->body.failed)
		return 1;
	guest_message_close_fds(ret);
	return -EPROTO;
}

void guest_message_close_fds(struct guest_message *message)
{
	for (size_t i = 0; i < ELEMENTSOF(message->fds); i++)
		message->fds[i] = fd_close(message->fds[i]);
	message->n_fds = 0;
}

void guest_message_begin(struct pack_writer *writer, uint32_t type, uint32_t command)
{
	pack_u32(writer, type);
	pack_u32(writer, command);
}

int guest_message_send(int fd, const struct pack_writer *writer, const int *fds, size_t n_fds)
{
	if (writer->failed)
		return -ENOMEM;
	return socket_send(fd, writer->data, writer->len, fds, n_fds);
}

int guest_message_send_fault(int fd, uint32_t type, uint32_t command, const struct fault *fault)
{
	uint8_t buffer[sizeof(*fault) + 64];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));

	guest_message_begin(&writer, type, command);
	fault_pack(fault, &writer);
	return guest_message_send(fd, &writer, NULL, 0);
}

void guest_order_pack(struct pack_writer *writer, const struct guest_order *order)
{
	pack_strings(writer, order->argv);
	pack_strings(writer, order->env);
	pack_string(writer, order->cwd);
	pack_u32(writer, order->uid);
	pack_u32(writer, order->gid);
	pack_u8(writer, order->pty);
	pack_u32(writer, order->rows);
	pack_u32(writer, order->columns);
	pack_u64(writer, order->cpu_usec);
	pack_u64(writer, order->file_bytes);
	pack_u32(writer, order->open_files);
	pack_u64(writer, order->pids);
	pack_u64(writer, order->address_bytes);
	pack_u32(writer, order->survivors);
}

static int unpack_list(struct pack_reader *reader, const char ***ret)
{
	uint32_t n = unpack_count(reader, sizeof(uint32_t) + 1);
	const char **list;

	if (reader->failed || n > MAX_STRINGS)
		return ABOX_E_PROTOCOL;
	list = calloc((size_t)n + 1, sizeof(*list));
	if (!list)
		return ABOX_E_MEMORY;
	for (uint32_t i = 0; i < n; i++)
		list[i] = unpack_string(reader);
	*ret = list;
	return 0;
}

int guest_order_unpack(const void *data, size_t len, struct guest_order *ret)
{
	struct pack_reader reader = PACK_READER(data, len);
	int r;

	memset(ret, 0, sizeof(*ret));
	r = unpack_list(&reader, &ret->argv);
	if (r == 0)
		r = unpack_list(&reader, &ret->env);
	if (r == 0) {
		ret->cwd = unpack_string(&reader);
		ret->uid = unpack_u32(&reader);
		ret->gid = unpack_u32(&reader);
		ret->pty = unpack_u8(&reader);
		ret->rows = unpack_u32(&reader);
		ret->columns = unpack_u32(&reader);
		ret->cpu_usec = unpack_u64(&reader);
		ret->file_bytes = unpack_u64(&reader);
		ret->open_files = unpack_u32(&reader);
		ret->pids = unpack_u64(&reader);
		ret->address_bytes = unpack_u64(&reader);
		ret->survivors = unpack_u32(&reader);
		if (!unpack_done(&reader) || !ret->argv[0])
			r = ABOX_E_PROTOCOL;
	}
	if (r < 0)
		guest_order_clear(ret);
	return r;
}

void guest_order_clear(struct guest_order *order)
{
	free(order->argv);
	free(order->env);
	memset(order, 0, sizeof(*order));
}
