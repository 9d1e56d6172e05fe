/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * verify: the probes of a receipt. Prints "NAME<TAB>EXPECTED<TAB>OUTCOME<TAB>DETAIL" for each and "end N"
 * last: a receipt without that line is none. EXPECTED and OUTCOME are "denied" or "allowed"; each denial has
 * a control of the same kind that is expected to be allowed, so that a probe which cannot run never counts as
 * a proof.
 *
 * Words: hidden=PATH (a host path that must not be there; several), network=none or network=cell; with a cell
 * port=N (a port that its rules name), unnamed=N (one that none names), and named=loopback, named=metadata
 * where a rule lets those in; environ=shared where the plan says that all of the box read environments.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static unsigned n_lines;

static void check(const char *name, bool allowed, probe_function function, const char **args)
{
	int signal_number;
	long result = attempt(function, args, &signal_number);
	const char *outcome = !signal_number && result >= 0 ? "allowed" : "denied";
	char detail[64];

	if (signal_number)
		snprintf(detail, sizeof(detail), "signal %d", signal_number);
	else
		snprintf(detail, sizeof(detail), "%s", result < 0 ? errno_name((int)-result) : "");
	printf("%s\t%s\t%s\t%s\n", name, allowed ? "allowed" : "denied", outcome, detail);
	n_lines++;
}

static long write_there(const char **args)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/.agentbox-probe", args[0]);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	close(fd);
	unlink(path);
	return 0;
}

static long see(const char **args)
{
	struct stat st;

	return RAW(lstat(args[0], &st));
}

static long open_for_reading(const char **args)
{
	int fd = open(args[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static long to_address(const char *text, int port, int type)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(error);

	if (fd < 0)
		return -errno;
	inet_pton(AF_INET, text, &address.sin_addr);
	if (type == SOCK_DGRAM)
		return RAW(sendto(fd, "x", 1, 0, (struct sockaddr *)&address, sizeof(address)));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (poll(&p, 1, 2000) == 0)
		return -ETIMEDOUT;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	return -error;
}

static long reach_out(const char **args)
{
	return to_address("192.0.2.1", 80, SOCK_STREAM);
}
static long reach_metadata(const char **args)
{
	return to_address("169.254.169.254", 80, SOCK_STREAM);
}
static long reach_dns(const char **args)
{
	return to_address("8.8.8.8", 53, SOCK_DGRAM);
}

/* Where the host has ssh or a web server, its loopback would answer: port 1 would be refused there too, so
 * the name of the network namespace's only interface is what proves it; here the usual ports are tried. */
static long reach_loopback(const char **args)
{
	static const int ports[] = { 22, 25, 53, 80, 111, 443, 631, 2375, 3000, 3306, 5432, 6379, 8080,
		9222 };
	long r = -ECONNREFUSED;

	for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
		r = to_address("127.0.0.1", ports[i], SOCK_STREAM);
		if (r >= 0)
			return r;
	}
	return r;
}

static long own_loopback(const char **args)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (server < 0 || client < 0 || bind(server, (struct sockaddr *)&address, len) < 0 ||
		listen(server, 1) < 0 || getsockname(server, (struct sockaddr *)&address, &len) < 0)
		return -errno;
	return RAW(connect(client, (struct sockaddr *)&address, len));
}

static long raw_socket(const char **args)
{
	return RAW(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, 1));
}
static long packet_socket(const char **args)
{
	return RAW(socket(17, SOCK_RAW | SOCK_CLOEXEC, 768));
}
static long vsock(const char **args)
{
	return RAW(socket(40, SOCK_STREAM | SOCK_CLOEXEC, 0));
}
static long unix_pair(const char **args)
{
	int fds[2];

	return RAW(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
}

/* Any abstract name that listens in our network namespace is the box's own; the usual ones of a host must not
 * be. */
static long host_abstract(const char **args)
{
	static const char *const names[] = { "/tmp/.X11-unix/X0", "/tmp/dbus-test", "/containerd-shim",
		"ISCSIADM_ABSTRACT_NAMESPACE" };

	for (size_t i = args[0] ? 0 : 1; i < sizeof(names) / sizeof(names[0]) + 1; i++) {
		const char *name = i == 0 ? args[0] : names[i - 1];
		struct sockaddr_un address = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		strncpy(address.sun_path + 1, name, sizeof(address.sun_path) - 2);
		if (connect(fd, (struct sockaddr *)&address,
			    (socklen_t)(sizeof(sa_family_t) + 1 + strlen(name))) == 0)
			return 0;
		close(fd);
	}
	return -ECONNREFUSED;
}

static long own_abstract(const char **args)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	/* a name, since not every kernel chooses one */
	int n = snprintf(address.sun_path + 1, 64, "agentbox-probe-%d", (int)getpid());
	socklen_t len = (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)n);
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
	    client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (server < 0 || client < 0 || bind(server, (struct sockaddr *)&address, len) < 0 || listen(server, 1) < 0)
		return -errno;
	return RAW(connect(client, (struct sockaddr *)&address, len));
}

static long trace_init(const char **args)
{
	return RAW(ptrace(PTRACE_ATTACH, 1, NULL, NULL));
}
static long signal_self(const char **args)
{
	return RAW(kill(getpid(), 0));
}
static long limit_init(const char **args)
{
	struct {
		uint64_t now, most;
	} old;

	return RAW(syscall(SYS_prlimit64, 1, 0, NULL, &old));
}
static long limit_self(const char **args)
{
	struct {
		uint64_t now, most;
	} old;

	return RAW(syscall(SYS_prlimit64, 0, 0, NULL, &old));
}
static long keyring(const char **args)
{
	return RAW(syscall(SYS_keyctl, 0, -3, 0));
}
static long mount_tmpfs(const char **args)
{
	return RAW(mount("x", "/tmp", "tmpfs", 0, NULL));
}
static long open_tree_clone(const char **args)
{
	return RAW(syscall(428, AT_FDCWD, "/", 1));
}
static long user_namespace(const char **args)
{
	return RAW(syscall(SYS_unshare, 0x10000000));
}
static long bpf_call(const char **args)
{
	return RAW(syscall(SYS_bpf, 0, 0, 0));
}
static long uring(const char **args)
{
	char parameters[256] = { 0 };

	return RAW(syscall(425, 1, parameters));
}
static long plain_fork(const char **args)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	return child < 0 ? -errno : RAW(waitpid(child, NULL, 0));
}
static long tty_input(const char **args)
{
	char byte = 'x';

	return RAW(syscall(SYS_ioctl, 0, 0x5412, &byte));
}

/* Allowed when there is any capability: in the box's commands there must be none. */
static long any_capability(const char **args)
{
	struct {
		uint32_t version;
		int pid;
	} head = { 0x20080522, 0 };
	struct {
		uint32_t effective, permitted, inheritable;
	} data[2] = { { 0 } };

	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		if (data[i].effective | data[i].permitted | data[i].inheritable)
			return 0;
	for (int capability = 0; capability < 64; capability++)
		if (prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1)
			return 0;
	return -EPERM;
}

static long no_new_privs(const char **args)
{
	return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : -EPERM;
}
static long filtered(const char **args)
{
	return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? 0 : -EPERM;
}
static long any_group(const char **args)
{
	return getgroups(0, NULL) > 0 ? 0 : -ENOENT;
}

static void check_files(const char **args)
{
	const char *init = "read /proc/1/environ", **words = args;
	static const char *const closed[] = { "/", "/usr", "/etc", "/proc/sys", "/sys" };

	for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
		char name[64];

		snprintf(name, sizeof(name), "write %s", closed[i]);
		check(name, false, write_there, (const char *[]){ closed[i], NULL });
	}
	check("write /tmp (control)", true, write_there, (const char *[]){ "/tmp", NULL });
	for (; *args; args++)
		if (!strncmp(*args, "hidden=", 7))
			check("hidden path", false, see, (const char *[]){ *args + 7, NULL });
	for (; *words; words++)
		if (!strcmp(*words, "environ=shared"))
			init = "read /proc/1/mem";
	check("see /usr (control)", true, see, (const char *[]){ "/usr", NULL });
	check("read /proc/kcore", false, open_for_reading, (const char *[]){ "/proc/kcore", NULL });
	check(init, false, open_for_reading, (const char *[]){ init + strlen("read "), NULL });
	check("read /proc/self/status (control)", true, open_for_reading,
		(const char *[]){ "/proc/self/status", NULL });
}

/*
 * A connection to a port of the rules always comes about: it ends at egress, which says no in the words of
 * HTTP or closes it. Allowed is every other answer.
 */
static long ask(const char *host, int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char text[1024];
	ssize_t n;

	inet_pton(AF_INET, host, &address.sin_addr);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	n = snprintf(
		text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n", host, port);
	if (send(fd, text, (size_t)n, MSG_NOSIGNAL) < 0)
		return -errno;
	if (poll(&p, 1, 3000) != 1)
		return -ETIMEDOUT;
	n = recv(fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return n < 0 ? -errno : -ECONNRESET;
	text[n] = 0;
	return strstr(text, "\nAbox-Denied:") ? -EACCES : 0;
}

static long ask_metadata(const char **args)
{
	return ask("169.254.169.254", atoi(args[0]));
}
static long ask_loopback(const char **args)
{
	return ask("127.0.0.1", atoi(args[0]));
}
static long reach_unnamed(const char **args)
{
	return to_address("203.0.113.9", atoi(args[0]), SOCK_STREAM);
}
static long send_unnamed(const char **args)
{
	return to_address("203.0.113.9", atoi(args[0]), SOCK_DGRAM);
}
static long reach_egress(const char **args)
{
	return to_address("203.0.113.9", atoi(args[0]), SOCK_STREAM);
}
static long ask_names(const char **args)
{
	static const char query[] = "\1\2\1\0\0\1\0\0\0\0\0\0\11localhost\0\0\1\0";
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(53) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char answer[512];

	inet_pton(AF_INET, "8.8.8.8", &address.sin_addr);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		send(fd, query, sizeof(query), 0) < 0)
		return -errno;
	if (poll(&p, 1, 3000) != 1)
		return -ETIMEDOUT;
	return RAW(recv(fd, answer, sizeof(answer), 0));
}
static long steal_port(const char **args)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(args[0])) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return RAW(listen(fd, 1));
}

static const char *word_of(const char **args, const char *name, const char *fallback)
{
	size_t len = strlen(name);

	for (; *args; args++)
		if (!strncmp(*args, name, len))
			return *args + len;
	return fallback;
}

static void check_cell(const char **args)
{
	const char *port[] = { word_of(args, "port=", "80"), NULL },
		   *unnamed[] = { word_of(args, "unnamed=", "1"), NULL };
	bool loopback = false, metadata = false;

	for (const char **word = args; *word; word++) {
		loopback = loopback || !strcmp(*word, "named=loopback");
		metadata = metadata || !strcmp(*word, "named=metadata");
	}
	check("egress (control)", true, reach_egress, port);
	check("name server at any address (control)", true, ask_names, NULL);
	check("connect out past egress", false, reach_unnamed, unnamed);
	check("send out past egress", false, send_unnamed, unnamed);
	check("take a port of egress", false, steal_port, port);
	if (!metadata)
		check("metadata address", false, ask_metadata, port);
	if (!loopback)
		check("host loopback", false, ask_loopback, port);
}

static void check_network(const char **args)
{
	if (!strcmp(word_of(args, "network=", "none"), "cell")) {
		check_cell(args);
	} else {
		check("connect out", false, reach_out, NULL);
		check("DNS out", false, reach_dns, NULL);
		check("metadata address", false, reach_metadata, NULL);
		check("host loopback", false, reach_loopback, NULL);
	}
	check("own loopback (control)", true, own_loopback, NULL);
	check("raw socket", false, raw_socket, NULL);
	check("packet socket", false, packet_socket, NULL);
	check("vsock", false, vsock, NULL);
	check("socket pair (control)", true, unix_pair, NULL);
	check("host abstract socket", false, host_abstract, (const char *[]){ NULL, NULL });
	check("own abstract socket (control)", true, own_abstract, NULL);
}

static void check_kernel(void)
{
	check("trace PID 1", false, trace_init, NULL);
	check("limits of PID 1", false, limit_init, NULL);
	check("own limits (control)", true, limit_self, NULL);
	check("signal to self (control)", true, signal_self, NULL);
	check("keyring", false, keyring, NULL);
	check("mount", false, mount_tmpfs, NULL);
	check("open_tree", false, open_tree_clone, NULL);
	check("new user namespace", false, user_namespace, NULL);
	check("fork (control)", true, plain_fork, NULL);
	check("bpf", false, bpf_call, NULL);
	check("io_uring", false, uring, NULL);
	check("terminal input", false, tty_input, NULL);
	check("any capability", false, any_capability, NULL);
	check("no_new_privs (control)", true, no_new_privs, NULL);
	check("filter (control)", true, filtered, NULL);
	check("supplementary groups", false, any_group, NULL);
}

int run_verify(const char **args)
{
	check_files(args);
	check_network(args);
	check_kernel();
	printf("end %u\n", n_lines);
	return 0;
}
