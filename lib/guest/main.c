/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The guest as a program of its own, for walls that no fork of the keeper can pass: PID 1 of a gVisor container, or of a
 * virtual machine. Descriptors 0 and 1 (or the port that its first argument names) are the channel, through which
 * only bytes go: a relay below the guest makes messages with descriptors of them. The first one says what is to be set
 * up; the answer is GUEST_READY, and nothing of the box runs before.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/boot.h"
#include "guest/files.h"
#include "guest/group.h"
#include "guest/guest.h"
#include "guest/network.h"
#include "guest/relay.h"
#include "guest/setup.h"
#include "kernel/caps.h"
#include "kernel/compat.h"

#define END_MSEC 10000
#define ASK_MSEC 1000
#define RNDADDENTROPY 0x40085203
#define RNDRESEEDCRNG 0x5207
#define GUEST_REAL_ID 65533	/* nobody in the box has it */

static struct relay relay;
static uint8_t frame_bytes[RELAY_HEAD + RELAY_PAYLOAD_MAX];
static struct guest_setup setup;
static int group_fd = -EBADF;
static int files_fd = -EBADF;	/* the second port */
static uint64_t went_usec;	/* on this kernel's clock, which may have stood still in a template: when the setup could come */

/* -- the first message -- */

/* Here a template is cut: the machine may stand still between any two of these lines, and go on more than once. */
static int wait_for_go(int fd, struct fault *fault)
{
	char byte = SETUP_HERE;

	if (fd_write_all(fd, &byte, 1) < 0 || fd_read_all(fd, &byte, 1) != 1 || byte != SETUP_GO)
		return fault_set(fault, ABOX_E_GONE, errno, "channel", "it ended before the machine was to go on");
	went_usec = clock_monotonic_usec();
	byte = SETUP_GOING;
	return fd_write_all(fd, &byte, 1) < 0 ? fault_set(fault, ABOX_E_GONE, errno, "channel", "cannot be answered") : 0;
}

static int read_setup(int fd, struct fault *fault)
{
	struct relay_frame frame;
	size_t len = 0;
	ssize_t n, r = 0;

	while (r == 0) {
		/* not a byte beyond it: what follows is the relay's */
		size_t wanted = len < RELAY_HEAD ? RELAY_HEAD - len : RELAY_HEAD + frame.len - len;

		n = read(fd, frame_bytes + len, wanted);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return fault_set(fault, ABOX_E_GONE, n < 0 ? errno : 0, "channel", "it ended before the setup came");
		len += (size_t)n;
		r = relay_frame_parse(frame_bytes, len, &frame);
	}
	if (r < 0 || frame.type != RELAY_MESSAGE || setup_unpack(frame.payload, frame.len, &setup) < 0)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "setup", "not a setup of version %d", SETUP_VERSION);
	return 0;
}

/* -- what it asks for -- */

static int seed(struct fault *fault)
{
	struct {
		int32_t bits, size;
		uint8_t bytes[SETUP_ENTROPY_BYTES];
	} pool = { .bits = SETUP_ENTROPY_BYTES * 8, .size = SETUP_ENTROPY_BYTES };
	_cleanup_(fd_closep) int fd = -EBADF;

	if (!setup.entropy_len)
		return 0;
	memcpy(pool.bytes, setup.entropy, SETUP_ENTROPY_BYTES);
	fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, &pool) < 0 || ioctl(fd, RNDRESEEDCRNG, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "entropy", "the random pool cannot be seeded");
	return 0;
}

/* The time is that of an answer, so this clock is rather ahead of the one that files are dated by than behind; in a machine that went on
 * it is that of then. */
static int set_clock(struct fault *fault)
{
	uint64_t usec = setup.wall_usec + clock_monotonic_usec() - went_usec;
	struct timeval now = { .tv_sec = (time_t)(usec / USEC_PER_SEC), .tv_usec = (suseconds_t)(usec % USEC_PER_SEC) };

	if (setup.wall_usec && settimeofday(&now, NULL) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "clock", "cannot be set");
	return 0;
}

static int mask(const char *target)
{
	struct stat st;

	if (stat(target, &st) < 0)
		return errno == ENOENT ? 0 : -1;
	if (S_ISDIR(st.st_mode))
		return mount("none", target, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,nr_inodes=2,mode=0");
	return mount("/dev/null", target, NULL, MS_BIND, NULL);
}

static int make_readonly(const char *target)
{
	if (mount(target, target, NULL, MS_BIND | MS_REC, NULL) < 0)
		return errno == ENOENT ? 0 : -1;
	return mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

/* Below a new root the targets are without its name. */
static int make_mount(const struct setup_mount *wanted, const char *target, struct fault *fault)
{
	int r;

	if (strcmp(wanted->type, SETUP_MASK) == 0) {
		r = mask(target);
	} else if (strcmp(wanted->type, SETUP_READONLY) == 0) {
		r = make_readonly(target);
	} else {
		if (mkdir(target, 0755) < 0 && errno != EEXIST && errno != EROFS)
			return fault_set(fault, ABOX_E_SYSTEM, errno, target, "cannot make the mount point");
		if (strcmp(wanted->type, SETUP_FILES) == 0)
			return guest_files_mount(files_fd, target, wanted->flags, fault);
		r = mount(wanted->source, target, wanted->type, wanted->flags, wanted->options);
	}
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, target, "cannot mount %s", wanted->type);
	return 0;
}

static int make_mounts(struct fault *fault)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < setup.n_mounts; i++)
		r = make_mount(&setup.mounts[i], setup.mounts[i].target, fault);
	return r;
}

/* Moved, since in a merely chrooted place no user namespace can be made. */
static int enter_root(struct fault *fault)
{
	if (!setup.root[0])
		return 0;
	if (chdir(setup.root) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, setup.root, "cannot become the root");
	return 0;
}

static int make_group(struct fault *fault)
{
	if (!setup.own_kernel)
		return 0;
	group_fd = group_make(setup.memory_bytes, setup.pids, fault);
	if (group_fd < 0)
		return group_fd;
	group_fd = fd_move_above(group_fd, GUEST_FD_FREE);
	return group_fd < 0 ? fault_set(fault, ABOX_E_SYSTEM, -group_fd, "groups", "no descriptor left for them") : 0;
}

static int set_up(struct fault *fault)
{
	int r;

	r = seed(fault);
	if (r == 0)
		r = make_group(fault);
	if (r == 0)
		r = set_clock(fault);
	if (r == 0)
		r = make_mounts(fault);
	if (r == 0)
		r = enter_root(fault);
	if (r == 0 && setup.link)
		r = guest_link_up(setup.link_v6, setup.ports, setup.n_ports, fault);
	else if (r == 0 && setup.loopback)
		r = guest_loopback_up(fault);
	if (r == 0 && setup.hostname[0] && sethostname(setup.hostname, strlen(setup.hostname)) < 0)
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "hostname", "cannot be set");
	/* devices of gVisor's that no box has */
	if (r == 0 && !setup.own_kernel)
		unlink("/dev/fuse");
	/* nothing that is executed from here on gains anything */
	return r < 0 ? r : caps_drop_bounding(fault);
}

/* -- relay and guest -- */

/* Nothing in it returns: the guest ends with it, and with the guest the box. */
_noreturn_ static void run_relay(int local_fd, int in_fd, int out_fd)
{
	prctl(PR_SET_NAME, "agentbox-relay");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Security: the real ids stay those of root, so that nobody with these gets at the relay */
	if (syscall(SYS_setresgid, -1, setup.gid, -1) < 0 || syscall(SYS_setresuid, -1, setup.uid, -1) < 0)
		_exit(1);
	prctl(PR_SET_DUMPABLE, 0);
	fcntl(in_fd, F_SETFL, fcntl(in_fd, F_GETFL) | O_NONBLOCK);
	fcntl(out_fd, F_SETFL, fcntl(out_fd, F_GETFL) | O_NONBLOCK);
	relay_init(&relay, true, local_fd, in_fd, out_fd);
	relay.far = setup.link;
	while (relay_turn(&relay, -EBADF, UINT64_MAX) > 0)
		;
	_exit(1);
}

static int fork_relay(int in_fd, int out_fd, struct fault *fault)
{
	int pair[2];
	pid_t pid;

	if (socket_pair(pair) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "relay", "no socket for it");
	pair[0] = fd_move_above(pair[0], GUEST_FD_FREE);
	pid = fork();
	if (pid == 0) {
		fd_close(pair[0]);
		run_relay(pair[1], in_fd, out_fd);
	}
	fd_close(pair[1]);
	if (pid < 0 || dup3(pair[0], GUEST_FD_CHANNEL, O_CLOEXEC) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "relay", "cannot be started");
	fd_close(pair[0]);
	return 0;
}

/* A mount namespace of gVisor's shows its mounts to everybody, so there /proc stays that of the whole box. */
static int renew_proc(const void *userdata, struct fault *fault)
{
	size_t len = strlen(setup.root);
	int r = 0;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "/proc", "cannot be mounted anew");
	for (size_t i = 0; r == 0 && i < setup.n_mounts; i++) {
		const char *target = setup.mounts[i].target;

		if (strncmp(target, setup.root, len) == 0 && strncmp(target + len, "/proc", 5) == 0)
			r = make_mount(&setup.mounts[i], target + len, fault);
	}
	return r;
}

static int fill_box(struct guest_box *box, struct fault *fault)
{
	struct filter_insn *filter = malloc(setup.filter_len);

	if (!filter)
		return fault_set(fault, ABOX_E_MEMORY, 0, "filter", "no memory for it");
	memcpy(filter, setup.filter, setup.filter_len);
	*box = (struct guest_box){ .filter = filter,
		.n_filter = setup.filter_len / sizeof(*filter),
		.new_pidns = true,
		.renew_proc = setup.own_kernel ? renew_proc : NULL,
		.filtered_shepherds = true,
		.has_group = setup.own_kernel,
		.has_link = setup.link,
		.link_v6 = setup.link_v6,
		.tied_signals = !setup.own_kernel };
	return 0;
}

/*
 * Security: behind gVisor a command may be root, without capabilities; and PID 1 of a pid namespace is not spared there by
 * what runs in it. So guest and shepherds have other real ids, by which signals are judged; they act as root.
 */
static int take_ids(struct fault *fault)
{
	if (setup.own_kernel)
		return 0;
	if (syscall(SYS_setresgid, GUEST_REAL_ID, -1, GUEST_REAL_ID) < 0 ||
		syscall(SYS_setresuid, GUEST_REAL_ID, -1, GUEST_REAL_ID) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "ids", "cannot be told apart from those of commands");
	return 0;
}

static int make_ready(struct guest_box *box, struct fault *fault)
{
	uint8_t buffer[16];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	int r;

	r = take_ids(fault);
	if (r == 0)
		r = guest_open_null(fault);
	if (r == 0 && group_fd >= 0) {
		if (dup3(group_fd, GUEST_FD_GROUP, O_CLOEXEC) < 0)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "groups", "no descriptor left for them");
		group_fd = fd_close(group_fd);
	}
	if (r == 0)
		r = guest_block_signals(fault);
	if (r == 0)
		r = fill_box(box, fault);
	if (r < 0)
		return r;
	guest_message_begin(&writer, GUEST_READY, 0);
	r = guest_message_send(GUEST_FD_CHANNEL, &writer, NULL, 0);
	return r < 0 ? fault_set(fault, ABOX_E_GONE, -r, "channel", "the relay is gone") : 0;
}

/* Without a relay yet: a frame by hand. */
static void tell_fault(int fd, const struct fault *fault)
{
	static uint8_t packet[sizeof(*fault) + 64];
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));
	uint8_t head[RELAY_HEAD];
	struct pack_writer head_writer = PACK_WRITER_FIXED(head, sizeof(head));

	guest_message_begin(&writer, GUEST_FAULT, 0);
	fault_pack(fault, &writer);
	pack_u32(&head_writer, (uint32_t)writer.len);
	pack_u32(&head_writer, RELAY_MESSAGE);
	pack_u32(&head_writer, 0);
	if (fd_write_all(fd, head, sizeof(head)) == 0)
		fd_write_all(fd, packet, writer.len);
}

/* The end of a machine's first program is a panic, and what it has said last would be lost on the way. */
static int wait_for_end(void)
{
	if (setup.own_kernel)
		poll(NULL, 0, END_MSEC);
	return 1;
}

/* Said again where nothing comes: what the kernel writes may have got into the line. */
static void ask_for_setup(int fd)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };

	went_usec = clock_monotonic_usec();
	do
		boot_tell("setup");
	while (poll(&entry, 1, ASK_MSEC) == 0);
}

int main(int argc, char **argv)
{
	static struct guest_box box;
	int in_fd = STDIN_FILENO, out_fd = STDOUT_FILENO, r;
	struct fault fault;

	fault_init(&fault, ABOX_STAGE_START);
	prctl(PR_SET_NAME, "agentbox-guest");
	prctl(PR_SET_DUMPABLE, 0);
	umask(0);
	if (argc > 1) {
		boot_start();
		in_fd = out_fd = boot_open_port(argv[1]);
		if (argc > 2)
			files_fd = fd_move_above(boot_open_port(argv[2]), GUEST_FD_FREE);
	} else {
		boot_tell_at(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, GUEST_FD_FREE));
	}
	in_fd = fd_move_above(in_fd, GUEST_FD_FREE);
	out_fd = argc > 1 ? in_fd : fd_move_above(out_fd, GUEST_FD_FREE);
	if (in_fd < 0 || out_fd < 0)
		return 1;
	if (files_fd >= 0) {
		boot_tell("setup");
		r = wait_for_go(in_fd, &fault);
	} else {
		ask_for_setup(in_fd);
		r = 0;
	}
	if (r == 0)
		r = read_setup(in_fd, &fault);
	if (r == 0) {
		boot_tell("root");
		r = set_up(&fault);
	}
	if (r < 0) {
		tell_fault(out_fd, &fault);
		return wait_for_end();
	}
	boot_tell("ready");
	boot_tell_end();
	r = fork_relay(in_fd, out_fd, &fault);
	fd_close(in_fd);
	if (out_fd != in_fd)
		fd_close(out_fd);
	files_fd = fd_close(files_fd);
	if (r == 0)
		r = make_ready(&box, &fault);
	if (r == 0)
		guest_run(&box);
	guest_message_send_fault(GUEST_FD_CHANNEL, GUEST_FAULT, 0, &fault);
	return wait_for_end();
}
