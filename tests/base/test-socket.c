/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/path.h"
#include "base/socket.h"

static int first_free(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

/* A message with the greatest number of descriptors arrives whole; the copies are close-on-exec. */
Test(socket, message_with_descriptors_arrives)
{
	int ends[2], sent[SOCKET_MAX_FDS], got[SOCKET_MAX_FDS];
	char data[16];
	size_t n;

	cr_assert_eq(socket_pair(ends), 0);
	for (size_t i = 0; i < SOCKET_MAX_FDS; i++)
		sent[i] = open("/dev/null", O_RDONLY);
	cr_assert_eq(socket_send(ends[0], "hello", 5, sent, SOCKET_MAX_FDS), 0);
	cr_assert_eq(socket_recv(ends[1], data, sizeof(data), got, &n), 5);
	cr_assert_eq(memcmp(data, "hello", 5), 0);
	cr_assert_eq(n, SOCKET_MAX_FDS);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(fcntl(got[i], F_GETFD), FD_CLOEXEC);
	cr_assert_eq(socket_send(ends[0], "x", 1, NULL, 0), 0);
	cr_assert_eq(socket_recv(ends[1], data, sizeof(data), got, &n), 1);
	cr_assert_eq(n, 0);
	close(ends[0]);
	cr_assert_eq(socket_recv(ends[1], data, sizeof(data), got, &n), 0);
	cr_assert_eq(socket_send(ends[1], "x", 1, NULL, 0), -EPIPE);
}

/* Too long a message, too many descriptors, descriptors where none are expected: refused, and nothing leaks.
 */
Test(socket, truncated_message_is_refused_and_leaks_nothing)
{
	int ends[2], many[SOCKET_MAX_FDS + 4], got[SOCKET_MAX_FDS];
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(many))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)"x", .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	char data[4];
	size_t n = 77;
	int before;

	cr_assert_eq(socket_pair(ends), 0);
	for (size_t i = 0; i < ELEMENTSOF(many); i++)
		many[i] = 0;
	before = first_free();
	cr_assert_eq(socket_send(ends[0], "longer", 6, many, 2), 0);
	cr_assert_eq(socket_recv(ends[1], data, sizeof(data), got, &n), -EMSGSIZE);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(many));
	memcpy(CMSG_DATA(&control.header), many, sizeof(many));
	cr_assert_eq(sendmsg(ends[0], &message, 0), 1);
	cr_assert_eq(socket_recv(ends[1], data, sizeof(data), got, &n), -EMSGSIZE);
	cr_assert_eq(socket_send(ends[0], "y", 1, many, 1), 0);
	cr_assert_eq(socket_recv(ends[1], data, sizeof(data), NULL, NULL), -EMSGSIZE);
	cr_assert_eq(n, 77);
	cr_assert_eq(first_free(), before);
	/* The socket is usable after each. */
	cr_assert_eq(socket_send(ends[0], "z", 1, NULL, 0), 0);
	cr_assert_eq(socket_recv(ends[1], data, sizeof(data), NULL, NULL), 1);
	cr_assert_eq(socket_send(ends[0], "z", 0, NULL, 0), -EINVAL);
	cr_assert_eq(socket_send(ends[0], "z", 1, many, SOCKET_MAX_FDS + 1), -EINVAL);
}

/* Waiting is bounded, in both directions. */
Test(socket, deadlines_hold)
{
	uint64_t now = clock_monotonic_usec();
	int ends[2], r = 0;
	char data[16];

	cr_assert_eq(socket_pair(ends), 0);
	cr_assert_eq(socket_recv_until(ends[0], data, sizeof(data), NULL, NULL, now + 20 * USEC_PER_MSEC),
		-ETIMEDOUT);
	cr_assert_geq(clock_monotonic_usec(), now + 20 * USEC_PER_MSEC);
	for (int i = 0; i < 100000 && r == 0; i++)
		r = socket_send_until(ends[0], data, sizeof(data), NULL, 0, 0);
	cr_assert_eq(r, -ETIMEDOUT);
}

/* A path socket works below a directory whose name is longer than sun_path, and is private from birth. */
Test(socket, listens_below_a_long_path)
{
	_cleanup_(fd_closep) int tmp_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char base[] = "/tmp/abox-sock-XXXXXX", name[101];
	int dir_fd, listen_fd = -EBADF, fd = -EBADF, peer_fd;
	struct stat st;
	mode_t mask;
	pid_t pid;
	uid_t uid;
	gid_t gid;

	cr_assert_not_null(mkdtemp(base));
	memset(name, 'd', 100);
	name[100] = 0;
	dir_fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 3; i++) {
		int next;

		cr_assert_eq(mkdirat(dir_fd, name, 0700), 0);
		next = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(dir_fd);
		dir_fd = next;
	}
	mask = umask(0);
	cr_assert_eq(socket_listen_at(dir_fd, "control", 8, &listen_fd), 0);
	umask(mask);
	cr_assert_eq(fstatat(dir_fd, "control", &st, AT_SYMLINK_NOFOLLOW), 0);
	cr_assert_eq(st.st_mode, S_IFSOCK | 0600);
	cr_assert_eq(socket_listen_at(dir_fd, "control", 8, &fd), -EEXIST);
	cr_assert_eq(socket_listen_at(dir_fd, "a/b", 8, &fd), -EINVAL);
	cr_assert_eq(socket_connect_at(dir_fd, "control", &fd), 0);
	peer_fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
	cr_assert_geq(peer_fd, 0);
	cr_assert_eq(socket_peer(peer_fd, &pid, &uid, &gid), 0);
	cr_assert_eq(pid, getpid());
	cr_assert_eq(uid, geteuid());
	cr_assert_eq(gid, getegid());
	cr_assert_eq(path_remove_tree(tmp_fd, base + 5), 0);
}

/* Nobody changes a sealed memory file, by whatever way it is opened again. */
Test(memfd, sealed_bytes_stay)
{
	char self[64], text[8] = { 0 };
	const void *data;
	int fd = -EBADF, again;
	struct stat st;
	size_t len;

	cr_assert_eq(memfd_new_sealed("test", "hello", 5, 0400, &fd), 0);
	cr_assert_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	cr_assert(memfd_is_sealed(fd));
	cr_assert_eq(read(fd, text, sizeof(text)), 5);
	cr_assert_str_eq(text, "hello");
	cr_assert_eq(pwrite(fd, "x", 1, 0), -1);
	cr_assert_eq(ftruncate(fd, 0), -1);
	cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	again = open(self, O_RDWR | O_CLOEXEC);
	if (again >= 0)
		cr_assert_eq(write(again, "x", 1), -1);
	fd_close(again);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(st.st_mode & 07777, 0400);
	cr_assert_eq(memfd_map_sealed(fd, 5, &data, &len), 0);
	cr_assert_eq(len, 5);
	cr_assert_eq(memcmp(data, "hello", 5), 0);
	memfd_unmap(data, len);
	cr_assert_eq(memfd_map_sealed(fd, 4, &data, &len), -EFBIG);
	close(fd);
	/* What is not sealed is not mapped. */
	fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	cr_assert_not(memfd_is_sealed(fd));
	cr_assert_eq(memfd_map_sealed(fd, 5, &data, &len), -EINVAL);
	close(fd);
	cr_assert_eq(memfd_new_sealed("empty", "", 0, 0400, &fd), 0);
	cr_assert_eq(memfd_map_sealed(fd, 5, &data, &len), 0);
	cr_assert_eq(len, 0);
	memfd_unmap(data, len);
	close(fd);
}

Test(socket, the_last_words_of_a_peer_that_left_something_unread)
{
	char got[16];
	int ends[2];

	cr_assert_eq(socket_pair(ends), 0);
	cr_assert_eq(socket_send(ends[0], "unread", 6, NULL, 0), 0);
	cr_assert_eq(socket_send(ends[1], "why", 3, NULL, 0), 0);
	close(ends[1]);
	cr_expect_eq(socket_recv(ends[0], got, sizeof(got), NULL, NULL), 3);
	cr_expect_eq(memcmp(got, "why", 3), 0);
	cr_expect_eq(socket_recv(ends[0], got, sizeof(got), NULL, NULL), 0);
	close(ends[0]);
}
