/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The files of a machine over a port. The server of files (virtiofsd) speaks with a device of a machine through queues in
 * shared memory (vhost-user); this is that device, without a machine around it: requests come in bytes from the guest
 * (guest/files.h), lie in memory that is shared with the server and with nobody else, and their answers go back in bytes.
 *
 * Security: requests are the box's. They are judged by their length, and lie in a place of their own each, of that length;
 * so the server sees nothing but what a device would have handed it. Answers go where nothing outside of the box is.
 */
#include "backend/microvm/microvm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/socket.h"
#include "guest/files.h"
#include "kernel/compat.h"

/* Of the vhost-user protocol. */
enum {
	VU_GET_FEATURES = 1,
	VU_SET_FEATURES = 2,
	VU_SET_OWNER = 3,
	VU_SET_MEM_TABLE = 5,
	VU_SET_VRING_NUM = 8,
	VU_SET_VRING_ADDR = 9,
	VU_SET_VRING_BASE = 10,
	VU_SET_VRING_KICK = 12,
	VU_SET_VRING_CALL = 13,
	VU_GET_PROTOCOL_FEATURES = 15,
	VU_SET_PROTOCOL_FEATURES = 16,
	VU_SET_VRING_ENABLE = 18,
};
#define VU_VERSION 1U
#define VU_ANSWER (1U << 2)
#define FEATURE_PROTOCOL (1ULL << 30)
#define FEATURE_VERSION_1 (1ULL << 32)

#define QUEUES 2		/* one for urgent requests, which is not used, and one for all */
#define QUEUE_SIZE 32U		/* descriptors: two a request */
#define SLOTS (QUEUE_SIZE / 2)	/* requests at a time; more wait in the port */
#define OPCODE_READ 15
#define READ_SIZE_AT (FILES_REQUEST_HEAD + 16)	/* how many bytes are wanted */
#define DESC_NEXT 1U
#define DESC_WRITE 2U
#define ADDRESS 0x100000000ULL	/* of the shared memory, as the queues name it */

struct vring_desc {
	uint64_t address;
	uint32_t len;
	uint16_t flags, next;
};
struct vring {
	struct vring_desc desc[QUEUE_SIZE];
	struct {
		uint16_t flags, index, ring[QUEUE_SIZE], event;
	} avail;
	struct {
		_Alignas(4) uint16_t flags;
		uint16_t index;
		struct {
			uint32_t id, len;
		} ring[QUEUE_SIZE];
		uint16_t event;
	} used;
};
struct slot {
	_Alignas(4096) uint8_t request[FILES_REQUEST_MAX];
	_Alignas(4096) uint8_t answer[FILES_REQUEST_MAX];
};
struct shared {
	_Alignas(4096) struct vring rings[QUEUES];
	struct slot slots[SLOTS];
};

struct front {
	int listen_fd, port_fd, server_fd, memory_fd;
	bool asked;		/* the machine has begun */
	int kick_fds[QUEUES], call_fds[QUEUES];
	struct shared *shared;
	uint16_t used_index;
	uint32_t free_slots;	/* a bit each */
	size_t len;		/* of what has come from the port */
};

static struct front front;
static uint8_t incoming[FILES_REQUEST_MAX];

_Static_assert(SLOTS == 16, "a bit of free_slots each");

/* -- sockets in the outer root -- */

int microvm_listen(const char *path, struct fault *fault)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, path, "no socket for it");
	return steal_fd(fd);
}

int microvm_accept(int listen_fd, uint64_t deadline_usec, const char *name, struct fault *fault)
{
	struct pollfd entry = { .fd = listen_fd, .events = POLLIN };
	int fd;

	while (poll(&entry, 1, clock_poll_msec(clock_monotonic_usec(), deadline_usec)) < 0 && errno == EINTR)
		;
	if (!entry.revents)
		return fault_set(fault, ABOX_E_TIMEOUT, 0, name, "it does not come to its socket");
	fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	return fd < 0 ? fault_set(fault, ABOX_E_SYSTEM, errno, name, "its connection cannot be taken") : fd;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	_cleanup_(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return steal_fd(fd);
}

/* -- the server -- */

static int vu_send(uint32_t request, const void *payload, uint32_t len, int fd)
{
	uint8_t message[128];
	uint32_t head[3] = { request, VU_VERSION, len };

	memcpy(message, head, sizeof(head));
	memcpy(message + sizeof(head), payload, len);
	return socket_send(front.server_fd, message, sizeof(head) + len, &fd, fd >= 0 ? 1 : 0);
}

static int vu_set(uint32_t request, uint64_t value, int fd)
{
	return vu_send(request, &value, sizeof(value), fd);
}

static int vu_set_ring(uint32_t request, uint32_t ring, uint32_t value)
{
	return vu_send(request, (const uint32_t[]){ ring, value }, 8, -EBADF);
}

static int vu_get(uint32_t request, uint64_t *ret)
{
	uint8_t answer[12 + sizeof(*ret)];
	uint32_t head[3];
	int r = vu_send(request, "", 0, -EBADF);

	if (r < 0)
		return r;
	if (fd_read_all(front.server_fd, answer, sizeof(answer)) != sizeof(answer))
		return -ECONNRESET;
	memcpy(head, answer, sizeof(head));
	memcpy(ret, answer + sizeof(head), sizeof(*ret));
	return head[0] == request && (head[1] & VU_ANSWER) && head[2] == sizeof(*ret) ? 0 : -EPROTO;
}

static int agree(void)
{
	uint64_t offered, protocol;
	int r = vu_get(VU_GET_FEATURES, &offered);

	if (r == 0 && !(offered & FEATURE_VERSION_1))
		r = -EPROTO;
	if (r == 0 && (offered & FEATURE_PROTOCOL)) {
		r = vu_get(VU_GET_PROTOCOL_FEATURES, &protocol);
		if (r == 0)
			r = vu_set(VU_SET_PROTOCOL_FEATURES, 0, -EBADF);
	}
	if (r == 0)
		r = vu_set(VU_SET_OWNER, 0, -EBADF);
	if (r == 0)
		r = vu_set(VU_SET_FEATURES, FEATURE_VERSION_1 | (offered & FEATURE_PROTOCOL), -EBADF);
	return r;
}

/* Addresses are ours where the server is told where a queue is, and ADDRESS + offset in the queue itself. */
static int share_memory(void)
{
	struct {
		uint32_t n, padding;
		uint64_t address, size, user_address, offset;
	} table = { 1, 0, ADDRESS, sizeof(struct shared), (uintptr_t)front.shared, 0 };

	return vu_send(VU_SET_MEM_TABLE, &table, sizeof(table), front.memory_fd);
}

static int start_ring(uint32_t number)
{
	const struct vring *ring = &front.shared->rings[number];
	struct {
		uint32_t index, flags;
		uint64_t desc, used, avail, log;
	} address = { number, 0, (uintptr_t)ring->desc, (uintptr_t)&ring->used, (uintptr_t)&ring->avail, 0 };
	int r = vu_set_ring(VU_SET_VRING_NUM, number, QUEUE_SIZE);

	if (r == 0)
		r = vu_set_ring(VU_SET_VRING_BASE, number, 0);
	if (r == 0)
		r = vu_send(VU_SET_VRING_ADDR, &address, sizeof(address), -EBADF);
	if (r == 0)
		r = vu_set(VU_SET_VRING_CALL, number, front.call_fds[number]);
	if (r == 0)
		r = vu_set(VU_SET_VRING_KICK, number, front.kick_fds[number]);
	return r;
}

/* Each request has two descriptors of its own, always the same ones. */
static void lay_out(void)
{
	struct vring *ring = &front.shared->rings[QUEUES - 1];

	for (uint16_t i = 0; i < SLOTS; i++) {
		uint64_t slot = ADDRESS + offsetof(struct shared, slots) + i * sizeof(struct slot);

		ring->desc[2 * i] = (struct vring_desc){ slot + offsetof(struct slot, request), 0, DESC_NEXT, (uint16_t)(2 * i + 1) };
		ring->desc[2 * i + 1] = (struct vring_desc){ slot + offsetof(struct slot, answer), FILES_REQUEST_MAX, DESC_WRITE, 0 };
	}
	front.free_slots = (1U << SLOTS) - 1;
}

static int meet_server(void)
{
	uint64_t offered;
	int r = agree();

	if (r == 0)
		r = share_memory();
	for (uint32_t i = 0; r == 0 && i < QUEUES; i++)
		r = start_ring(i);
	if (r == 0)
		r = vu_get(VU_GET_FEATURES, &offered);
	for (uint32_t i = 0; r == 0 && (offered & FEATURE_PROTOCOL) && i < QUEUES; i++)
		r = vu_set_ring(VU_SET_VRING_ENABLE, i, 1);
	return r;
}

/* -- requests and answers -- */

/* A device would give room for what is wanted, and the server reads a file as far as there is room. */
static uint32_t room_for(const uint8_t *request, uint32_t len)
{
	uint32_t opcode, size;

	memcpy(&opcode, request + 4, sizeof(opcode));
	if (opcode != OPCODE_READ || len < READ_SIZE_AT + sizeof(size))
		return FILES_REQUEST_MAX;
	memcpy(&size, request + READ_SIZE_AT, sizeof(size));
	return MIN(size, FILES_REQUEST_MAX - FILES_ANSWER_HEAD) + FILES_ANSWER_HEAD;
}

static void ask(const uint8_t *request, uint32_t len)
{
	struct vring *ring = &front.shared->rings[QUEUES - 1];
	int slot = __builtin_ctz(front.free_slots);
	uint16_t index = ring->avail.index;

	front.asked = true;
	front.free_slots &= ~(1U << slot);
	memcpy(front.shared->slots[slot].request, request, len);
	ring->desc[2 * slot].len = len;
	ring->desc[2 * slot + 1].len = room_for(request, len);
	ring->avail.ring[index % QUEUE_SIZE] = (uint16_t)(2 * slot);
	__atomic_store_n(&ring->avail.index, (uint16_t)(index + 1), __ATOMIC_RELEASE);
}

/* What is whole, as far as there are places. 0, or -EPROTO. */
static int take_requests(void)
{
	size_t used = 0;
	uint64_t one = 1;
	bool asked = false;
	uint32_t len;

	while (front.free_slots && front.len - used >= FILES_REQUEST_HEAD) {
		memcpy(&len, incoming + used, sizeof(len));
		if (len < FILES_REQUEST_HEAD || len > sizeof(incoming))
			return -EPROTO;
		if (front.len - used < len)
			break;
		ask(incoming + used, len);
		used += len;
		asked = true;
	}
	front.len -= used;
	memmove(incoming, incoming + used, front.len);
	if (asked && write(front.kick_fds[QUEUES - 1], &one, sizeof(one)) != sizeof(one))
		return -errno;
	return 0;
}

static int give_answer(uint32_t id)
{
	uint32_t slot = id / 2, len;
	const uint8_t *answer;

	if (id % 2 || slot >= SLOTS || (front.free_slots & (1U << slot)))
		return -EPROTO;
	answer = front.shared->slots[slot].answer;
	memcpy(&len, answer, sizeof(len));
	front.free_slots |= 1U << slot;
	if (len < FILES_ANSWER_HEAD || len > FILES_REQUEST_MAX)
		return -EPROTO;
	return fd_write_all(front.port_fd, answer, len);
}

static int give_answers(void)
{
	struct vring *ring = &front.shared->rings[QUEUES - 1];
	int r = 0;

	while (r == 0 && front.used_index != __atomic_load_n(&ring->used.index, __ATOMIC_ACQUIRE)) {
		uint32_t at = front.used_index++ % QUEUE_SIZE;

		if (ring->used.ring[at].len)
			r = give_answer(ring->used.ring[at].id);
		else if (ring->used.ring[at].id / 2 < SLOTS)	/* one that wants no answer */
			front.free_slots |= 1U << ring->used.ring[at].id / 2;
	}
	return r;
}

/* A machine that could not go on ends before it has asked for anything, and another one comes. */
static int take_machine(struct fault *fault)
{
	fd_close(front.port_fd);
	front.len = 0;
	front.port_fd = microvm_accept(front.listen_fd, UINT64_MAX, "qemu", fault);
	return front.port_fd < 0 ? front.port_fd : 0;
}

/* 1, or that it is over. The port may have more than there are places for: then it is left until one is free. */
static int turn(void)
{
	struct pollfd polls[] = {
		{ .fd = front.call_fds[QUEUES - 1], .events = POLLIN },
		{ .fd = front.len < sizeof(incoming) && front.free_slots ? front.port_fd : -1, .events = POLLIN },
		{ .fd = front.server_fd, .events = POLLIN },
	};
	struct fault ignored;
	uint64_t count;
	ssize_t n;
	int r = 0;

	if (poll(polls, ELEMENTSOF(polls), -1) < 0)
		return errno == EINTR ? 1 : -errno;
	if (polls[2].revents)
		return -ECONNRESET;
	if (polls[0].revents) {
		if (read(front.call_fds[QUEUES - 1], &count, sizeof(count)) < 0 && errno != EAGAIN)
			return -errno;
		r = give_answers();
	}
	if (r == 0 && polls[1].revents) {
		n = read(front.port_fd, incoming + front.len, sizeof(incoming) - front.len);
		if (n <= 0 && front.asked)
			return n == 0 ? 0 : -errno;
		if (n <= 0)
			return take_machine(&ignored) < 0 ? 0 : 1;
		front.len += (size_t)n;
	}
	if (r == 0)
		r = take_requests();
	return r == 0 ? 1 : r;
}

/* -- the process -- */

static int prepare(int listen_fd, struct fault *fault)
{
	void *shared;
	int r;

	front.server_fd = connect_to(MICROVM_SERVER);
	if (front.server_fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -front.server_fd, "virtiofsd", "cannot be reached");
	front.memory_fd = memfd_begin("agentbox-files", 0600);
	if (front.memory_fd < 0 || ftruncate(front.memory_fd, sizeof(struct shared)) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "virtiofsd", "no memory to share with it");
	shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, front.memory_fd, 0);
	if (shared == MAP_FAILED)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "virtiofsd", "no memory to share with it");
	front.shared = shared;
	for (size_t i = 0; i < QUEUES; i++) {
		front.kick_fds[i] = eventfd(0, EFD_CLOEXEC);
		front.call_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (front.kick_fds[i] < 0 || front.call_fds[i] < 0)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "virtiofsd", "no descriptors for its queues");
	}
	lay_out();
	r = meet_server();
	if (r < 0)
		return fault_set(fault, ABOX_E_PROTOCOL, -r, "virtiofsd", "it does not speak as it should");
	front.listen_fd = listen_fd;
	front.port_fd = -EBADF;
	return take_machine(fault);
}

/* Nothing is open but the way to the machine, and where to say what is wrong. */
_noreturn_ static void run(const struct flat_plan *plan, int listen_fd, int log_fd)
{
	struct fault fault;
	int r;

	fault_init(&fault, ABOX_STAGE_START);
	prctl(PR_SET_NAME, "agentbox-files");
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || dup2(listen_fd, 0) < 0 || dup2(log_fd, 1) < 0 || dup2(log_fd, 2) < 0 ||
		sys_close_range(3, CLOSE_RANGE_REST, 0) < 0)
		_exit(1);
	r = bridge_confine(plan, 0, &fault);
	if (r == 0)
		r = prepare(0, &fault);
	if (r < 0)
		dprintf(2, "agentbox-files: %s: %s\n", fault.place, fault.message);
	while (r >= 0 && (r = turn()) > 0)
		;
	if (r < 0)
		dprintf(2, "agentbox-files: %s\n", strerror(-r));
	/* the server has gone: PID 1 tells that, and would hear from the machine instead if that lost its port first */
	while (r == -ECONNRESET)
		pause();
	_exit(1);
}

int microvm_files_start(const struct flat_plan *plan, int listen_fd_taken, int log_fd, struct fault *fault)
{
	pid_t pid = fork();

	if (pid == 0)
		run(plan, listen_fd_taken, log_fd);
	fd_close(listen_fd_taken);
	return pid < 0 ? fault_set(fault, ABOX_E_SYSTEM, errno, "files", "cannot start a process") : 0;
}
