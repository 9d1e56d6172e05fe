/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * See box.h. The plan is what the library would make for "rootfs: host" in short: /usr, a few devices, /proc, scratch places.
 */
#include "keeper/box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/path.h"
#include "base/socket.h"
#include "base/strings.h"
#include "keeper/wire.h"
#include "kernel/landlock.h"
#include "kernel/pidfd.h"
#include "kernel/seccomp.h"
#include "kernel/spawn.h"

#ifndef KEEPER_PROGRAM
#error "the build says where the keeper is"
#endif

static uint8_t answer[WIRE_PACKET_MAX];

int box_state_make(char *ret, size_t size)
{
	char path[128];

	snprintf(ret, size, "/tmp/agentbox-keeper-XXXXXX");
	if (!mkdtemp(ret))
		return -errno;
	snprintf(path, sizeof(path), "%s/boxes", ret);
	if (mkdir(path, 0700) < 0)
		return -errno;
	snprintf(path, sizeof(path), "%s/names", ret);
	return mkdir(path, 0700) < 0 ? -errno : 0;
}

void box_state_remove(const char *path)
{
	_cleanup_(fd_closep) int tmp_fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	path_remove_tree(tmp_fd, path + strlen("/tmp/"));
}

static bool is_empty(const char *state, const char *name)
{
	char path[128];
	bool empty = true;
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%s", state, name);
	dir = opendir(path);
	if (!dir)
		return false;
	while ((entry = readdir(dir)))
		empty = empty && entry->d_name[0] == '.';
	closedir(dir);
	return empty;
}

bool box_state_is_empty(const char *path)
{
	return is_empty(path, "boxes") && is_empty(path, "names");
}

/* -- plan -- */

#define STEP(...) steps[n] = (struct flat_step){ __VA_ARGS__ }, steps[n].source--, n++	/* sources are named + 1: 0 is none */

static struct flat_source sources[] = {
	{ .path = "/usr", .kind = FLAT_DIRECTORY },
	{ .path = "/dev/null", .kind = FLAT_DEVICE, .device_major = 1, .device_minor = 3 },
	{ .path = "/dev/zero", .kind = FLAT_DEVICE, .device_major = 1, .device_minor = 5 },
	{ .path = "/dev/urandom", .kind = FLAT_DEVICE, .device_major = 1, .device_minor = 9 },
	{ .path = "/dev/tty", .kind = FLAT_DEVICE, .device_major = 5, .device_minor = 0 },
	{ .path = "/nowhere", .kind = FLAT_ANY },
};
static struct flat_landlock rules[] = {
	{ "/usr", LANDLOCK_RO }, { "/etc", LANDLOCK_RO }, { "/proc", LANDLOCK_RW }, { "/dev", LANDLOCK_RW | LANDLOCK_DEVICE },
	{ "/tmp", LANDLOCK_RW }, { "/workspace", LANDLOCK_RW }, { "/home", LANDLOCK_RW }, { "/extra", LANDLOCK_RO },
	{ "/", LANDLOCK_READ },
};
static const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent", "TMPDIR=/tmp", NULL };

static size_t make_steps(struct flat_step *steps, const struct box_options *options)
{
	static const char *const directories[] = { "/usr", "/etc", "/proc", "/dev", "/tmp", "/workspace", "/home" };
	static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/urandom", "/dev/tty" };
	static const char *const links[] = { "bin", "sbin", "lib", "lib64" };
	static char targets[4][16], texts[4][16];
	static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";
	size_t n = 0;

	for (size_t i = 0; i < ELEMENTSOF(directories); i++)
		STEP(.op = FLAT_OP_DIRECTORY, .mode = 0755, .target = directories[i]);
	STEP(.op = FLAT_OP_BIND, .attr = FLAT_ATTR_RDONLY | FLAT_ATTR_RECURSIVE, .source = 1, .target = "/usr");
	for (size_t i = 0; i < ELEMENTSOF(links); i++) {
		snprintf(targets[i], sizeof(targets[i]), "/%s", links[i]);
		snprintf(texts[i], sizeof(texts[i]), "usr/%s", links[i]);
		STEP(.op = FLAT_OP_SYMLINK, .target = targets[i], .content = texts[i], .content_len = strlen(texts[i]));
	}
	STEP(.op = FLAT_OP_FILE, .mode = 0644, .target = "/etc/passwd", .content = passwd, .content_len = strlen(passwd));
	STEP(.op = FLAT_OP_TMPFS, .mode = 0755, .size_bytes = 65536, .inodes = 64, .target = "/dev");
	for (size_t i = 0; i < ELEMENTSOF(devices); i++)
		STEP(.op = FLAT_OP_BIND, .source = (int32_t)i + 2, .target = devices[i]);
	STEP(.op = FLAT_OP_DIRECTORY, .mode = 0755, .target = "/dev/pts");
	STEP(.op = FLAT_OP_DEVPTS, .target = "/dev/pts");
	STEP(.op = FLAT_OP_SYMLINK, .target = "/dev/ptmx", .content = "pts/ptmx", .content_len = 8);
	STEP(.op = FLAT_OP_DIRECTORY, .mode = 0755, .target = "/dev/shm");
	STEP(.op = FLAT_OP_SCRATCH, .mode = 01777, .target = "/dev/shm", .name = "shm");
	STEP(.op = FLAT_OP_PROC, .target = "/proc");
	STEP(.op = FLAT_OP_MASK, .target = "/proc/kcore");
	STEP(.op = FLAT_OP_MASK, .target = "/proc/acpi");
	STEP(.op = FLAT_OP_READONLY, .target = "/proc/sys");
	STEP(.op = FLAT_OP_SCRATCH, .mode = 01777, .target = "/tmp", .name = "tmp");
	STEP(.op = FLAT_OP_SCRATCH, .attr = FLAT_ATTR_OWNER_BOX, .mode = 0755, .target = "/workspace", .name = "workspace");
	STEP(.op = FLAT_OP_SCRATCH, .attr = FLAT_ATTR_OWNER_BOX, .mode = 0755, .target = "/home", .name = "home");
	if (options->extra_source) {
		sources[5].path = options->extra_source;
		STEP(.op = FLAT_OP_BIND, .source = 6, .target = "/extra");
	}
	STEP(.op = FLAT_OP_READONLY, .target = "/");
	return n;
}

static void fill_plan(struct flat_plan *plan, struct flat_step *steps, const struct box_options *options)
{
	bool root = geteuid() == 0;

	*plan = (struct flat_plan){
		.digest = "0", .backend = "namespaces", .name = options->name,
		.hostname = options->hostname ? options->hostname : "agentbox", .host_is_root = root,
		.map = root ? FLAT_MAP_RANGE : FLAT_MAP_SINGLE, .base_uid = 2000000, .base_gid = 2000000,
		.map_count = root ? 65536 : 1, .outside_uid = geteuid(), .outside_gid = getegid(),
		.inside_uid = 1000, .inside_gid = 1000, .userxattr = 1, .env = env, .cwd = "/workspace", .home = "/home/agent",
		.root_source = -1, .root_size_bytes = 1 << 20, .clear_groups = root, .lo_up = 1, .detach = options->detach,
		.owner_grace_usec = options->owner_grace_usec ? options->owner_grace_usec : UINT64_MAX,
		.kill = options->cgroup2 ? FLAT_KILL_CGROUP2 : options->no_kill_scope ? FLAT_KILL_PIDNS : FLAT_KILL_SCOPE,
		.landlock_abi = (uint32_t)landlock_abi(), .landlock_scope = !options->no_kill_scope && !options->cgroup2,
		.limits = {
			.wall_usec = options->wall_usec, .idle_usec = options->idle_usec,
			.grace_usec = options->grace_usec ? options->grace_usec : USEC_PER_SEC / 5,
			.output_bytes = options->output_bytes ? options->output_bytes : 1 << 20,
			.disk_bytes = options->disk_bytes ? options->disk_bytes : 64 << 20,
			.inodes = options->inodes ? options->inodes : 10000, .pids = options->pids,
			.pids_by_rlimit = options->pids > 0, .open_files = 1024,
		},
		.sources = sources, .n_sources = options->extra_source ? 6 : 5, .steps = steps, .landlock = rules,
		.n_landlock = ELEMENTSOF(rules),
	};
	plan->n_steps = (uint32_t)make_steps(steps, options);
	if (options->cgroup2 || options->memory_bytes || options->group_pids) {
		plan->use_cgroup = 1;
		cgroup_detect(&plan->cgroup);
		plan->cgroup_limits.memory_bytes = options->memory_bytes;
		plan->cgroup_limits.pids = options->group_pids;
		plan->limits.memory_bytes = options->memory_bytes;
		if (options->group_pids)
			plan->limits.pids = options->group_pids;
	}
}

static int pack_start(struct pack_writer *blob, const struct box_options *options)
{
	_cleanup_(pack_writer_clearp) struct pack_writer flat = PACK_WRITER_INIT;
	struct filter_insn *filter = NULL;
	struct flat_step steps[64];
	struct flat_plan plan;
	size_t n_insns;
	int r;

	r = filter_compile(&(struct filter_policy){ .allow = NULL }, &filter, &n_insns, NULL);
	if (r < 0)
		return r;
	fill_plan(&plan, steps, options);
	plan.filter = filter;
	plan.filter_len = n_insns * sizeof(*filter);
	if (!flat_pack(&plan, &flat)) {
		free(filter);
		return ABOX_E_MEMORY;
	}
	free(filter);
	pack_string(blob, "{}");
	pack_bytes(blob, flat.data, flat.len);
	return 0;
}

/* -- messages -- */

void box_request(struct pack_writer *writer, uint32_t type, uint32_t serial)
{
	pack_u32(writer, type);
	pack_u32(writer, serial);
}

int box_call(int fd, uint32_t *serial, const struct pack_writer *request, const int *fds, size_t n_fds,
	struct pack_reader *retanswer, struct fault *fault)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), 30 * USEC_PER_SEC);
	int r;

	r = socket_send(fd, request->data, request->len, fds, n_fds);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "keeper", "cannot be reached");
	for (;;) {
		ssize_t n = socket_recv_until(fd, answer, sizeof(answer), NULL, NULL, deadline);
		uint32_t type, got;

		if (n <= 0)
			return fault_set(fault, ABOX_E_GONE, (int)-n, "keeper", "does not answer");
		*retanswer = PACK_READER(answer, (size_t)n);
		type = unpack_u32(retanswer);
		got = unpack_u32(retanswer);
		if (got != *serial) {
			if (type == WIRE_LOG) {
				unpack_u32(retanswer);
				fprintf(stderr, "keeper: %s\n", unpack_string(retanswer));
			}
			continue;
		}
		(*serial)++;
		if (type == WIRE_OK)
			return 0;
		fault_unpack(fault, retanswer);
		return fault->code < 0 ? fault->code : ABOX_E_PROTOCOL;
	}
}

static int send_start(struct box *box, const struct box_options *options, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT, blob = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int blob_fd = -EBADF;
	struct pack_reader reader;
	int fds[2], r;

	r = pack_start(&blob, options);
	if (r < 0)
		return r;
	if (memfd_new_sealed("plan", blob.data, blob.len, 0400, &blob_fd) < 0)
		return ABOX_E_SYSTEM;
	box_request(&writer, WIRE_START, box->serial);
	pack_u32(&writer, WIRE_VERSION);
	pack_string(&writer, box->id);
	pack_string(&writer, "{\"record\":1}");
	pack_u8(&writer, 0);	/* no recorder */
	pack_u64(&writer, 0);
	pack_bytes(&writer, "", 0);
	fds[0] = blob_fd;
	fds[1] = box->state_fd;
	r = box_call(box->fd, &box->serial, &writer, fds, 2, &reader, fault);
	if (r == 0)
		box->epoch = unpack_u64(&reader);
	return r;
}

int box_start(struct box *box, const struct box_options *options, struct fault *fault)
{
	static const char *const argv[] = { "agentbox-keeper", NULL };
	_cleanup_(fd_closep) int program_fd = -EBADF;
	uint8_t random[16];
	int pair[2], r;

	memset(box, 0, sizeof(*box));
	box->serial = 1;
	box->fd = box->pidfd = box->state_fd = -EBADF;
	fault_init(fault, 0);
	snprintf(box->state, sizeof(box->state), "%s", options->state);
	getrandom(random, sizeof(random), 0);
	hex_encode(random, sizeof(random), box->id);
	box->state_fd = open(options->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	program_fd = open(KEEPER_PROGRAM, O_PATH | O_CLOEXEC);
	if (box->state_fd < 0 || program_fd < 0 || socket_pair(pair) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "box", "cannot prepare");
	r = spawn_helper(&(struct spawn_request){ .program_fd = program_fd, .argv = argv, .fds = &pair[1], .n_fds = 1 },
		&box->pidfd, &box->keeper_pid, NULL);
	fd_close(pair[1]);
	box->fd = pair[0];
	if (r < 0)
		return fault_set(fault, r, errno, "box", "cannot start the keeper");
	return send_start(box, options, fault);
}

int box_connect(const struct box *box, int mode, uint64_t *retepoch, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int dir_fd = -EBADF, fd = -EBADF;
	struct pack_reader reader;
	uint32_t serial = 1;
	char path[80];
	int r;

	snprintf(path, sizeof(path), "boxes/%s", box->id);
	dir_fd = openat(box->state_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return fault_set(fault, ABOX_E_NOT_FOUND, errno, "box", "no folder");
	r = socket_connect_at(dir_fd, STATE_SOCKET, &fd);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "box", "cannot connect");
	box_request(&writer, WIRE_HELLO, serial);
	pack_u32(&writer, WIRE_VERSION);
	pack_u32(&writer, (uint32_t)mode);
	r = box_call(fd, &serial, &writer, NULL, 0, &reader, fault);
	if (r < 0)
		return r;
	if (retepoch)
		*retepoch = unpack_u64(&reader);
	return steal_fd(fd);
}

int box_stop(struct box *box, int mode, char *retjson, size_t size, uint32_t *retleft, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	int r;

	box_request(&writer, WIRE_STOP, box->serial);
	pack_u64(&writer, box->epoch);
	pack_u32(&writer, (uint32_t)mode);
	pack_u64(&writer, UINT64_MAX);
	r = box_call(box->fd, &box->serial, &writer, NULL, 0, &reader, fault);
	if (r < 0)
		return r;
	snprintf(retjson, size, "%s", unpack_string(&reader));
	*retleft = unpack_u32(&reader);
	return 0;
}

bool box_wait_gone(const struct box *box, uint64_t timeout_usec)
{
	return pidfd_wait(box->pidfd, clock_deadline(clock_monotonic_usec(), timeout_usec)) == 1;
}

void box_close(struct box *box)
{
	box->fd = fd_close(box->fd);
	box->state_fd = fd_close(box->state_fd);
	box->pidfd = fd_close(box->pidfd);
}

/* -- commands -- */

static void pack_exec(struct pack_writer *blob, const struct box_exec *exec)
{
	pack_string(blob, exec->token);
	pack_strings(blob, exec->argv);
	pack_strings(blob, exec->env);
	pack_string(blob, exec->cwd);
	pack_string(blob, exec->user);
	pack_u32(blob, exec->stdin_mode);
	pack_u32(blob, exec->stdout_mode);
	pack_u32(blob, exec->stderr_mode);
	pack_u8(blob, exec->join);
	pack_u8(blob, exec->pty);
	pack_u32(blob, 0);
	pack_u32(blob, 0);
	pack_u32(blob, exec->survivors);
	pack_u8(blob, exec->output_kill);
	pack_u64(blob, exec->timeout_usec);
	pack_u64(blob, exec->grace_usec);
	pack_u64(blob, exec->output_bytes);
	pack_u64(blob, exec->memory_bytes);
	pack_u64(blob, exec->pids);
	pack_u64(blob, exec->cpu_usec);
	pack_u64(blob, exec->file_bytes);
	pack_u32(blob, exec->open_files);
}

int box_exec(struct box *box, const struct box_exec *exec, uint32_t *retcommand, int *retevent_fd, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT, blob = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int ours = -EBADF, theirs = -EBADF, blob_fd = -EBADF;
	struct pack_reader reader;
	int fds[8], pair[2], r;
	uint32_t io = 0;
	size_t n = 0;

	if (socket_pair(pair) < 0)
		return ABOX_E_SYSTEM;
	ours = pair[0];
	theirs = pair[1];
	pack_exec(&blob, exec);
	if (blob.len > WIRE_INLINE_MAX) {
		if (memfd_new_sealed("exec", blob.data, blob.len, 0400, &blob_fd) < 0)
			return ABOX_E_SYSTEM;
		fds[n++] = blob_fd;
	}
	fds[n++] = theirs;
	if (exec->stdin_fd)
		io |= WIRE_IO_STDIN, fds[n++] = exec->stdin_fd;
	if (exec->stdout_fd)
		io |= WIRE_IO_STDOUT, fds[n++] = exec->stdout_fd;
	if (exec->stderr_fd)
		io |= WIRE_IO_STDERR, fds[n++] = exec->stderr_fd;
	box_request(&writer, WIRE_EXEC, box->serial);
	pack_u64(&writer, box->epoch);
	pack_u32(&writer, io);
	pack_bytes(&writer, blob_fd >= 0 ? "" : (const void *)blob.data, blob_fd >= 0 ? 0 : blob.len);
	fault_init(fault, 0);
	r = box_call(box->fd, &box->serial, &writer, fds, n, &reader, fault);
	if (r < 0)
		return r;
	*retcommand = unpack_u32(&reader);
	*retevent_fd = steal_fd(ours);
	return unpack_u8(&reader);
}

int box_wait_end(int event_fd, uint64_t timeout_usec, struct box_end *ret)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), timeout_usec);
	ssize_t n = socket_recv_until(event_fd, answer, sizeof(answer), NULL, NULL, deadline);
	struct pack_reader reader = PACK_READER(answer, n > 0 ? (size_t)n : 0);

	if (unpack_u32(&reader) != WIRE_ENDED)
		return n < 0 ? (int)n : ABOX_E_GONE;
	unpack_u32(&reader);
	ret->cause = unpack_u32(&reader);
	ret->exit_code = unpack_i32(&reader);
	ret->signal = unpack_i32(&reader);
	ret->wall_usec = unpack_u64(&reader);
	ret->cpu_usec = unpack_u64(&reader);
	ret->memory_peak_bytes = unpack_u64(&reader);
	ret->survivors = unpack_u32(&reader);
	ret->limits_struck = unpack_u32(&reader);
	ret->total[0] = unpack_u64(&reader);
	ret->total[1] = unpack_u64(&reader);
	ret->truncated = unpack_u8(&reader);
	snprintf(ret->evidence, sizeof(ret->evidence), "%s", unpack_string(&reader));
	return unpack_done(&reader) ? 0 : ABOX_E_PROTOCOL;
}

int box_run(struct box *box, const struct box_exec *exec, char *out, size_t size, struct box_end *ret,
	struct fault *fault)
{
	struct box_exec copy = *exec;
	uint32_t command;
	size_t len = 0;
	int pipe_fds[2], event_fd, r;

	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return ABOX_E_SYSTEM;
	if (!copy.stdout_fd && copy.stdout_mode == ABOX_STREAM_NULL && !copy.pty) {
		copy.stdout_fd = pipe_fds[1];
		copy.stdout_mode = ABOX_STREAM_CAPTURE;
		copy.join = !copy.stderr_fd && copy.stderr_mode == ABOX_STREAM_NULL;
	}
	r = box_exec(box, &copy, &command, &event_fd, fault);
	close(pipe_fds[1]);
	while (r >= 0 && len + 1 < size) {
		struct pollfd polls[2] = { { .fd = pipe_fds[0], .events = POLLIN }, { .fd = event_fd, .events = POLLIN } };
		ssize_t n;

		if (poll(polls, 2, 30000) <= 0 || !polls[0].revents)
			break;
		n = read(pipe_fds[0], out + len, size - 1 - len);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	out[len] = 0;
	close(pipe_fds[0]);
	if (r < 0)
		return r;
	r = box_wait_end(event_fd, 30 * USEC_PER_SEC, ret);
	close(event_fd);
	return r;
}

int box_sh(struct box *box, const char *script, char *out, size_t size, struct box_end *ret, struct fault *fault)
{
	const char *const argv[] = { "sh", "-c", script, NULL };

	return box_run(box, &(struct box_exec){ .argv = argv }, out, size, ret, fault);
}
