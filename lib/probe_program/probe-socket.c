/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Probes of sockets and other channels: families and types, abstract and path names, the network, System V objects.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <net/if.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "probe.h"

static int chosen_family, chosen_type, chosen_protocol;

static long make_socket(const char **args)
{
	return RAW(socket(chosen_family, chosen_type | SOCK_CLOEXEC, chosen_protocol));
}

static long pair_works(const char **args)
{
	int fds[2], on = 1;
	char byte;

	if (socketpair(AF_UNIX, chosen_type | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	if (setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return -errno;
	if (sendto(fds[0], "x", 1, 0, NULL, 0) != 1 || recvfrom(fds[1], &byte, 1, 0, NULL, NULL) != 1)
		return -errno;
	return 0;
}

static int run_families(const char **args)
{
	static const struct { const char *name; int type; } types[] = {
		{ "stream", SOCK_STREAM }, { "dgram", SOCK_DGRAM }, { "raw", SOCK_RAW }, { "seqpacket", SOCK_SEQPACKET },
		{ "packet", 10 },
	};
	char name[64];

	for (chosen_family = 0; chosen_family <= 46; chosen_family++)
		for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
			chosen_type = types[i].type;
			chosen_protocol = 0;
			snprintf(name, sizeof(name), "socket:%d:%s", chosen_family, types[i].name);
			report(name, make_socket, NULL);
		}
	chosen_family = 16;
	chosen_type = SOCK_RAW;
	for (chosen_protocol = 0; chosen_protocol <= 22; chosen_protocol++) {
		snprintf(name, sizeof(name), "netlink:%d", chosen_protocol);
		report(name, make_socket, NULL);
	}
	chosen_type = SOCK_STREAM;
	report("socketpair:stream", pair_works, NULL);
	chosen_type = SOCK_DGRAM;
	report("socketpair:dgram", pair_works, NULL);
	chosen_type = SOCK_SEQPACKET;
	report("socketpair:seqpacket", pair_works, NULL);
	return 0;
}

/* -- unix sockets -- */

static long connect_unix(const char *name, bool abstract)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	long r;

	if (fd < 0)
		return -errno;
	if (len + 1 >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path + (abstract ? 1 : 0), name, len);
	r = RAW(connect(fd, (struct sockaddr *)&address,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1)));
	close(fd);
	return r;
}

static long connect_abstract(const char **args)
{
	return connect_unix(args[0], true);
}

static long connect_path(const char **args)
{
	return connect_unix(args[0], false);
}

static int run_abstract(const char **args)
{
	if (!args[0])
		return 2;
	report("abstract", connect_abstract, args);
	return 0;
}

static int run_unix(const char **args)
{
	static const char *const usual[] = {
		"/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/notify",
		"/run/systemd/private", "/tmp/.X11-unix/X0", "/run/user/0/bus", "/run/user/1000/bus", "/run/containerd/containerd.sock",
		"/run/user/1000/wayland-0", "/run/user/1000/pipewire-0", "/run/user/1000/gnupg/S.gpg-agent", "/run/nscd/socket",
	};

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
		char name[96];
		const char *one[] = { usual[i], NULL };

		snprintf(name, sizeof(name), "unix:%s", usual[i]);
		report(name, connect_path, one);
	}
	for (; *args; args++) {
		char name[128];
		const char *one[] = { *args, NULL };

		snprintf(name, sizeof(name), "unix:%.100s", *args);
		report(name, connect_path, one);
	}
	return 0;
}

/* -- network -- */

struct target {
	const char *name;
	int type;
	const char *address;
	int port;
};

/* 9.9.9.9 and the documentation addresses stand for "any"; nothing is waited for longer than a second. */
static const struct target targets[] = {
	{ "udp-dns", SOCK_DGRAM, "8.8.8.8", 53 },
	{ "tcp-any", SOCK_STREAM, "192.0.2.1", 80 },
	{ "tcp-dns", SOCK_STREAM, "8.8.8.8", 53 },
	{ "tcp6-any", SOCK_STREAM, "2001:db8::1", 443 },
	{ "metadata", SOCK_STREAM, "169.254.169.254", 80 },
	{ "multicast", SOCK_DGRAM, "224.0.0.251", 5353 },
	{ "broadcast", SOCK_DGRAM, "255.255.255.255", 9 },
	{ "multicast6", SOCK_DGRAM, "ff02::fb", 5353 },
	{ "link-local6", SOCK_STREAM, "fe80::1", 80 },
	{ "private", SOCK_STREAM, "10.0.0.1", 80 },
};

static struct target chosen_target;

static socklen_t fill_address(const struct target *target, struct sockaddr_storage *storage)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)storage;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)storage;

	memset(storage, 0, sizeof(*storage));
	if (inet_pton(AF_INET, target->address, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)target->port);
		return sizeof(*v4);
	}
	inet_pton(AF_INET6, target->address, &v6->sin6_addr);
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)target->port);
	return sizeof(*v6);
}

static long connect_bounded(int fd, const struct sockaddr_storage *address, socklen_t len)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int error = 0;
	socklen_t error_len = sizeof(error);

	if (connect(fd, (const struct sockaddr *)address, len) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (poll(&p, 1, 1000) == 0)
		return -ETIMEDOUT;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len);
	return -error;
}

static long reach(const char **args)
{
	struct sockaddr_storage address;
	socklen_t len = fill_address(&chosen_target, &address);
	int fd = socket(address.ss_family, chosen_target.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
	long r;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
	if (chosen_target.type == SOCK_STREAM)
		r = connect_bounded(fd, &address, len);
	else
		r = RAW(sendto(fd, "x", 1, 0, (struct sockaddr *)&address, len));
	close(fd);
	return r;
}

static long icmp_socket(const char **args)
{
	return RAW(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
}

static long packet_socket(const char **args)
{
	return RAW(socket(17, SOCK_RAW | SOCK_CLOEXEC, htons(3)));
}

static long ping_socket(const char **args)
{
	unsigned char echo[8] = { 8 };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x08080808) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);

	if (fd < 0)
		return -errno;
	return RAW(sendto(fd, echo, sizeof(echo), 0, (struct sockaddr *)&to, sizeof(to)));
}

/* The box's own loopback is its own: a server in it can be reached from it. */
static long own_loopback(const char **args)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (server < 0 || client < 0)
		return -errno;
	if (bind(server, (struct sockaddr *)&address, len) < 0 || listen(server, 1) < 0
	    || getsockname(server, (struct sockaddr *)&address, &len) < 0)
		return -errno;
	return RAW(connect(client, (struct sockaddr *)&address, len));
}

/* Further words are HOST:PORT of services that must not be reached. */
static int run_network(const char **args)
{
	char name[96];

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		chosen_target = targets[i];
		snprintf(name, sizeof(name), "net:%s", targets[i].name);
		report(name, reach, NULL);
	}
	report("net:icmp", icmp_socket, NULL);
	report("net:ping", ping_socket, NULL);
	report("net:packet", packet_socket, NULL);
	report("net:own-loopback", own_loopback, NULL);
	for (; *args; args++) {
		const char *colon = strrchr(*args, ':');
		char host[64];

		if (!colon)
			return 2;
		snprintf(host, sizeof(host), "%.*s", (int)(colon - *args), *args);
		chosen_target = (struct target){ "", SOCK_STREAM, host, atoi(colon + 1) };
		snprintf(name, sizeof(name), "net:to:%.80s", *args);
		report(name, reach, NULL);
	}
	return 0;
}

static int run_interfaces(const char **args)
{
	struct if_nameindex *all = if_nameindex();

	for (struct if_nameindex *one = all; one && one->if_index; one++)
		printf("interface:%s\n", one->if_name);
	return 0;
}

/* -- vsock -- */

static long connect_vsock(const char **args)
{
	struct { unsigned short family, reserved; unsigned port, cid; unsigned char zero[4]; } address = { 40, 0, 0, 2, { 0 } };
	long worst = -ECONNREFUSED;

	for (unsigned port = 1; port < 1024; port++) {
		int fd = socket(40, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		address.port = port;
		if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
			worst = 0;
		close(fd);
	}
	return worst;
}

static int run_vsock(const char **args)
{
	report("vsock", connect_vsock, NULL);
	return 0;
}

/* -- ipc KEY: System V objects and queues of somebody else with this key or name -- */

static long shm_of_key(const char **args)
{
	return RAW(shmget((key_t)atoi(args[0]), 1, 0));
}

static long sem_of_key(const char **args)
{
	return RAW(semget((key_t)atoi(args[0]), 1, 0));
}

static long msg_of_key(const char **args)
{
	return RAW(msgget((key_t)atoi(args[0]), 0));
}

static long queue_of_name(const char **args)
{
	char name[64];

	snprintf(name, sizeof(name), "/probe-%s", args[0]);
	return RAW(mq_open(name, O_RDONLY | O_CLOEXEC));
}

static long shm_file_of_name(const char **args)
{
	char name[64];

	snprintf(name, sizeof(name), "/dev/shm/probe-%s", args[0]);
	return RAW(open(name, O_RDONLY | O_CLOEXEC));
}

static long own_shm(const char **args)
{
	int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);

	if (id < 0)
		return -errno;
	return RAW(shmctl(id, IPC_RMID, NULL));
}

static int run_ipc(const char **args)
{
	if (!args[0])
		return 2;
	report("ipc:shm", shm_of_key, args);
	report("ipc:sem", sem_of_key, args);
	report("ipc:msg", msg_of_key, args);
	report("ipc:mq", queue_of_name, args);
	report("ipc:dev-shm", shm_file_of_name, args);
	report("ipc:own", own_shm, args);
	return 0;
}

/* Makes what `ipc` looks for, and removes it when standard input ends: the other half of the test. */
static int run_ipc_hold(const char **args)
{
	char name[64], byte;
	int shm, sem, msg, file, queue;

	if (!args[0])
		return 2;
	shm = shmget((key_t)atoi(args[0]), 4096, IPC_CREAT | 0666);
	sem = semget((key_t)atoi(args[0]), 1, IPC_CREAT | 0666);
	msg = msgget((key_t)atoi(args[0]), IPC_CREAT | 0666);
	snprintf(name, sizeof(name), "/probe-%s", args[0]);
	queue = mq_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666, NULL);
	file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	printf("holding %d %d %d %d %d\n", shm >= 0, sem >= 0, msg >= 0, queue >= 0, file >= 0);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	shmctl(shm, IPC_RMID, NULL);
	semctl(sem, 0, IPC_RMID);
	msgctl(msg, IPC_RMID, NULL);
	mq_unlink(name);
	shm_unlink(name);
	return 0;
}

const struct probe_group probe_socket_groups[] = {
	{ "families", "", run_families },
	{ "abstract", "NAME", run_abstract },
	{ "unix", "[PATH...]", run_unix },
	{ "network", "[HOST:PORT...]", run_network },
	{ "interfaces", "", run_interfaces },
	{ "vsock", "", run_vsock },
	{ "ipc", "KEY", run_ipc },
	{ "ipc-hold", "KEY", run_ipc_hold },
	{ 0 }
};
