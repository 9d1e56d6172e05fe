/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keeper between a guest and an egress that the test plays itself: a guest that says nothing, or what it
 * must not, and an egress that says nothing or is gone. Clocks are told what time it is; nothing is waited for.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/command.h>
#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/socket.h"
#include "egress/wire.h"
#include "guest/message.h"
#include "keeper/keeper.h"
#include "keeper/network.h"
#include "kernel/pidfd.h"

static struct keeper keeper;
static int client_fd, guest_fd, egress_fd;
static char folder[] = "/tmp/abox-test.XXXXXX";
static uint32_t plan_ports[] = { 80, 443 };
static uint8_t packet[WIRE_PACKET_MAX];
static struct pack_reader body;
static uint32_t serial_of;
static int fds[SOCKET_MAX_FDS];
static size_t n_fds;

static void pair(int *retours, int *rettheirs)
{
	int both[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both), 0);
	*retours = both[0];
	*rettheirs = both[1];
}

static void setup(void)
{
	struct fault fault;
	int fd;

	cr_assert(mkdtemp(folder));
	keeper.state_fd = keeper.boxes_fd = keeper.lock_fd = keeper.scratch_fd = keeper.layer_fd = -EBADF;
	keeper.names_fd = keeper.held_fd = keeper.listener.fd = keeper.wall.fd = keeper.recorder.fd = keeper.egress_pidfd = -EBADF;
	keeper.box_fd = open(folder, O_DIRECTORY | O_CLOEXEC);
	keeper.wall_at = keeper.idle_at = keeper.owner_at = keeper.stop_at = UINT64_MAX;
	keeper.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	keeper.epoch = 1;
	keeper.state = ABOX_SANDBOX_RUNNING;
	keeper.plan.network = (struct flat_network){ .mode = FLAT_NETWORK_ALLOW, .ports = plan_ports, .n_ports = 2 };
	pair(&client_fd, &fd);
	cr_assert(client_new(&keeper, fd, CLIENT_OWNER));
	pair(&guest_fd, &keeper.guest.fd);
	keeper.guest.ready = link_ready;
	pair(&egress_fd, &keeper.egress.fd);
	fault_init(&fault, ABOX_STAGE_START);
	cr_assert_eq(network_run(&keeper, &fault), 0, "%s", fault.message);
	cr_assert_eq(keeper_watch(&keeper, &keeper.guest, EPOLLIN), 0);
}

static void teardown(void)
{
	char name[128];

	snprintf(name, sizeof(name), "%s/%s", folder, STATE_NETWORK);
	unlink(name);
	rmdir(folder);
}

TestSuite(network, .init = setup, .fini = teardown, .timeout = 60);

static void turn(void)
{
	struct epoll_event event;

	while (epoll_wait(keeper.epoll_fd, &event, 1, 0) > 0)
		((struct io *)event.data.ptr)->ready(&keeper, event.data.ptr, event.events);
	clocks_run(&keeper, clock_monotonic_usec());
	client_sweep(&keeper);
}

/* The next packet of this end; its type, 0 when there is none. */
static uint32_t next(int fd)
{
	ssize_t n;
	uint32_t type;

	turn();
	for (size_t i = 0; i < n_fds; i++)
		close(fds[i]);
	n_fds = 0;
	n = socket_recv(fd, packet, sizeof(packet), fds, &n_fds);
	if (n <= 0)
		return 0;
	body = PACK_READER(packet, (size_t)n);
	type = unpack_u32(&body);
	serial_of = unpack_u32(&body);
	return type == WIRE_LOG && fd == client_fd ? next(fd) : type;
}

static void ask(uint32_t serial, const uint32_t *ports, uint32_t n)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	char json[32];
	int both[2];

	snprintf(json, sizeof(json), "{\"change\":%u}", serial);
	cr_assert_eq(memfd_new_sealed("rules", "rules", 5, 0400, &both[0]), 0);
	cr_assert_eq(memfd_new_sealed("json", json, strlen(json), 0400, &both[1]), 0);
	pack_u32(&writer, WIRE_NET_RULES);
	pack_u32(&writer, serial);
	pack_u64(&writer, 1);
	pack_u8(&writer, 1);
	pack_u32(&writer, n);
	for (uint32_t i = 0; i < n; i++)
		pack_u32(&writer, ports[i]);
	cr_assert_eq(socket_send(client_fd, writer.data, writer.len, both, 2), 0);
	close(both[0]);
	close(both[1]);
	turn();
}
#define ask_ports(serial, ...) ask(serial, (const uint32_t[]){ __VA_ARGS__ }, sizeof((const uint32_t[]){ __VA_ARGS__ }) / 4)

static void say(int fd, uint32_t type, uint32_t serial, const char *bytes, size_t len, const int *with, size_t n)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, type);
	pack_u32(&writer, serial);
	for (size_t i = 0; i < len; i++)
		pack_u8(&writer, (uint8_t)bytes[i]);
	cr_assert_eq(socket_send(fd, writer.data, writer.len, with, n), 0);
	turn();
}

static void egress_takes(uint32_t serial)
{
	say(egress_fd, EGRESS_OK, serial, "\1\0\0\0", 4, NULL, 0);
}

static void guest_brings(uint32_t serial, uint32_t port, int fd)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, GUEST_LISTENERS);
	pack_u32(&writer, serial);
	pack_u32(&writer, 1);
	pack_u32(&writer, EGRESS_LISTENER_TCP);
	pack_u32(&writer, port);
	cr_assert_eq(socket_send(guest_fd, writer.data, writer.len, &fd, 1), 0);
	close(fd);
	turn();
}

static int tcp(bool listens)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert(fd >= 0 && (!listens || listen(fd, 1) == 0));
	return fd;
}

static void wants_answer(uint32_t type, uint32_t serial, int code)
{
	struct fault fault;

	cr_assert_eq(next(client_fd), type);
	cr_assert_eq(serial_of, serial, "%u", serial_of);
	if (type != WIRE_FAULT)
		return;
	fault_init(&fault, 0);
	fault_unpack(&fault, &body);
	cr_assert_eq(fault.code, code, "%d %s", fault.code, fault.message);
}

static const char *kept_json(void)
{
	static char text[64];
	_cleanup_(fd_closep) int fd = openat(keeper.box_fd, STATE_NETWORK, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = 0;
	return text;
}

/* The control of all that follows. */
Test(network, a_port_that_is_new_is_bound_first_then_the_rules_go_to_egress)
{
	uint32_t order;

	ask_ports(7, 80, 8080);
	cr_assert_eq(next(guest_fd), GUEST_LISTEN);
	order = serial_of;
	cr_assert_eq(next(egress_fd), 0);
	guest_brings(order, 8080, tcp(true));
	cr_assert_eq(next(egress_fd), EGRESS_LISTEN);
	cr_assert_eq(n_fds, 1);
	say(guest_fd, GUEST_LISTENING, order, NULL, 0, NULL, 0);
	cr_assert_eq(next(egress_fd), EGRESS_RULES);
	cr_assert_str_eq(kept_json(), "");
	egress_takes(serial_of);
	wants_answer(WIRE_OK, 7, 0);
	cr_assert_str_eq(kept_json(), "{\"change\":7}");
	cr_assert_eq(network_next(), UINT64_MAX);
	ask_ports(8, 8080);
	cr_assert_eq(next(guest_fd), 0, "the port is known by now");
	cr_assert_eq(next(egress_fd), EGRESS_RULES);
}

/* A guest that never answers holds up what needs it, and nothing that narrows. */
Test(network, rules_that_need_nothing_of_the_guest_take_the_place_of_those_that_wait)
{
	ask_ports(1, 80, 8080);
	cr_assert_eq(next(guest_fd), GUEST_LISTEN);
	ask_ports(2, 80, 8080);
	wants_answer(WIRE_FAULT, 2, ABOX_E_BUSY);
	ask_ports(3, 80);
	wants_answer(WIRE_FAULT, 1, ABOX_E_CANCELED);
	cr_assert_eq(next(egress_fd), EGRESS_RULES);
	egress_takes(serial_of);
	wants_answer(WIRE_OK, 3, 0);
	cr_assert_str_eq(kept_json(), "{\"change\":3}");
}

Test(network, a_guest_that_never_answers_is_waited_for_until_the_keepers_clock_says_so)
{
	uint64_t at;
	uint32_t order;

	ask_ports(1, 8080);
	cr_assert_eq(next(guest_fd), GUEST_LISTEN);
	order = serial_of;
	at = clocks_next(&keeper);
	cr_assert(at != UINT64_MAX && at <= clock_monotonic_usec() + 60 * USEC_PER_SEC);
	clocks_run(&keeper, at - 1);
	cr_assert_eq(next(client_fd), 0);
	clocks_run(&keeper, at);
	wants_answer(WIRE_FAULT, 1, ABOX_E_TIMEOUT);
	cr_assert_eq(clocks_next(&keeper), UINT64_MAX);
	/* the port was never bound: it is asked for again, by the order that is on its way */
	ask_ports(2, 9090);
	wants_answer(WIRE_FAULT, 2, ABOX_E_BUSY);
	ask_ports(3, 80);
	cr_assert_eq(next(egress_fd), EGRESS_RULES);
	egress_takes(serial_of);
	wants_answer(WIRE_OK, 3, 0);
	ask_ports(4, 8080);
	cr_assert_eq(next(guest_fd), 0);
	cr_assert_eq(next(egress_fd), 0);
	/* it comes late, and is served */
	guest_brings(order, 8080, tcp(true));
	cr_assert_eq(next(egress_fd), EGRESS_LISTEN);
	say(guest_fd, GUEST_LISTENING, order, NULL, 0, NULL, 0);
	cr_assert_eq(next(egress_fd), EGRESS_RULES);
	egress_takes(serial_of);
	wants_answer(WIRE_OK, 4, 0);
}

Test(network, a_port_that_could_not_be_bound_is_asked_for_again)
{
	struct fault fault;
	uint32_t order;

	fault_init(&fault, ABOX_STAGE_COMMAND);
	fault_set(&fault, ABOX_E_EXISTS, 0, "network", "taken");
	ask_ports(1, 8080);
	cr_assert_eq(next(guest_fd), GUEST_LISTEN);
	order = serial_of;
	cr_assert_eq(guest_message_send_fault(guest_fd, GUEST_LISTEN_FAULT, order, &fault), 0);
	wants_answer(WIRE_FAULT, 1, ABOX_E_EXISTS);
	ask_ports(2, 8080);
	cr_assert_eq(next(guest_fd), GUEST_LISTEN);
	cr_assert_neq(serial_of, order);
}

/* Serials that are none, ports that nobody asked for, sockets that are none: nothing of it reaches egress. */
Test(network, a_guest_that_lies_moves_nothing)
{
	uint32_t order;
	int both[2];

	guest_brings(0, 8080, tcp(true));
	guest_brings(1, 8080, tcp(true));
	say(guest_fd, GUEST_LISTENING, 0, NULL, 0, NULL, 0);
	ask_ports(1, 8080);
	cr_assert_eq(next(guest_fd), GUEST_LISTEN);
	order = serial_of;
	say(guest_fd, GUEST_LISTENING, order + 1, NULL, 0, NULL, 0);
	say(guest_fd, GUEST_LISTENING, 0, NULL, 0, NULL, 0);
	say(guest_fd, GUEST_LISTEN_FAULT, order + 1, NULL, 0, NULL, 0);
	guest_brings(order + 1, 8080, tcp(true));
	guest_brings(order, 9090, tcp(true));
	guest_brings(order, 8080, tcp(false));
	cr_assert_eq(pipe(both), 0);
	guest_brings(order, 8080, both[0]);
	close(both[1]);
	cr_assert_eq(next(egress_fd), 0);
	cr_assert_eq(next(client_fd), 0);
	/* and more than there can be of one port */
	for (uint32_t i = 0; i < 50; i++)
		guest_brings(order, 8080, tcp(true));
	for (order = 0; next(egress_fd) == EGRESS_LISTEN; order++)
		;
	cr_assert_leq(order, CELL_LISTENERS_MAX(1));
	cr_assert_neq(order, 0);
}

static void pack_publish(struct pack_writer *writer, uint32_t serial)
{
	pack_u32(writer, WIRE_NET_PUBLISH);
	pack_u32(writer, serial);
	pack_u64(writer, 1);
	pack_u32(writer, 3000);
	pack_u32(writer, 0);
	pack_string(writer, "127.0.0.1");
	pack_u8(writer, 0);
}

/* Whoever waits when egress goes is told, and nothing of a change stays. */
Test(network, a_lost_egress_answers_all_who_wait)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	ask_ports(1, 80, 8080);
	cr_assert_eq(next(guest_fd), GUEST_LISTEN);
	pack_publish(&writer, 2);
	cr_assert_eq(socket_send(client_fd, writer.data, writer.len, NULL, 0), 0);
	cr_assert_eq(next(egress_fd), EGRESS_PUBLISH);
	close(egress_fd);
	wants_answer(WIRE_FAULT, 2, ABOX_E_GONE);
	wants_answer(WIRE_FAULT, 1, ABOX_E_GONE);
	cr_assert_eq(network_next(), UINT64_MAX);
	say(guest_fd, GUEST_LISTENING, 1, NULL, 0, NULL, 0);
	ask_ports(3, 80);
	wants_answer(WIRE_FAULT, 3, ABOX_E_GONE);
	cr_assert_str_eq(kept_json(), "");
}

/* Rules that egress does not take are not in force, so it carries nothing any more. */
Test(network, an_egress_that_takes_no_rules_is_ended)
{
	uint64_t at;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	keeper.egress_pidfd = pidfd_new(pid);
	cr_assert_geq(keeper.egress_pidfd, 0);
	ask_ports(1, 80);
	cr_assert_eq(next(egress_fd), EGRESS_RULES);
	ask_ports(2, 80);
	wants_answer(WIRE_FAULT, 2, ABOX_E_BUSY);
	at = clocks_next(&keeper);
	clocks_run(&keeper, at);
	wants_answer(WIRE_FAULT, 1, ABOX_E_TIMEOUT);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	cr_assert_lt(keeper.egress.fd, 0);
}

/* An answer that has come already counts, however late the keeper looks. */
Test(network, an_answer_that_is_there_is_in_time)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	ask_ports(1, 80);
	cr_assert_eq(next(egress_fd), EGRESS_RULES);
	pack_u32(&writer, EGRESS_OK);
	pack_u32(&writer, serial_of);
	pack_u32(&writer, 1);
	cr_assert_eq(socket_send(egress_fd, writer.data, writer.len, NULL, 0), 0);
	clocks_run(&keeper, clocks_next(&keeper));
	wants_answer(WIRE_OK, 1, 0);
	cr_assert_geq(keeper.egress.fd, 0);
}
