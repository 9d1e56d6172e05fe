/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file server: requests in, answers out, one after the other.
 *
 * Promises: nothing outside of the root is reached, whatever other processes put in the way (each name goes through
 * path_open_under(), and what was opened is looked at again); no fifo, device or socket is ever opened for longer than
 * that look, none blocks; without the right to write nothing is changed. What the library may want is left to it, and
 * so is the wall: the process that serves has entered one before.
 */
#include "file/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "file/packet.h"
#include "file/server.h"
#include "kernel/caps.h"
#include "kernel/compat.h"

#define LIST_MAX 256		/* entries in one answer */
#define TELL_USEC (200 * USEC_PER_MSEC)
#define CAP_CHOWN_BIT (1ULL << 0)
#define CAP_DAC_OVERRIDE_BIT (1ULL << 1)
#define CAP_DAC_READ_SEARCH_BIT (1ULL << 2)
#define CAP_FOWNER_BIT (1ULL << 3)
#define FILE_CAPS (CAP_CHOWN_BIT | CAP_DAC_OVERRIDE_BIT | CAP_DAC_READ_SEARCH_BIT | CAP_FOWNER_BIT)
#define NO_REPLACE 1		/* RENAME_NOREPLACE */
#define NO_TIME UINT32_MAX
#define NO_MODE UINT32_MAX

static struct file_stream stream;
static uint8_t answer[FILE_PACKET_MAX];

int server_protocol(struct server *server)
{
	return fault_set(&server->fault, ABOX_E_PROTOCOL, 0, "request", "its fields are not what they must be");
}

int server_fail(struct server *server, int sys_errno, const char *path, const char *what)
{
	struct fault *fault = &server->fault;

	switch (sys_errno) {
	case EXDEV:
		return fault_set(fault, ABOX_E_ESCAPE, 0, path, "%s: it leads outside of the workspace", what);
	case ENOENT:
	case ENOTDIR:
		return fault_set(fault, ABOX_E_NOT_FOUND, sys_errno, path, "%s", what);
	case EEXIST:
		return fault_set(fault, ABOX_E_EXISTS, sys_errno, path, "%s", what);
	case ENOTEMPTY:
	case EISDIR:
		return fault_set(fault, ABOX_E_STATE, sys_errno, path, "%s", what);
	case ESTALE:
		return fault_set(fault, ABOX_E_CONFLICT, 0, path, "%s: it was moved or replaced meanwhile", what);
	case EBUSY:
		return fault_set(fault, ABOX_E_BUSY, sys_errno, path, "%s", what);
	case EINVAL:
	case ENAMETOOLONG:
	case ELOOP:
		return fault_set(fault, ABOX_E_INVALID, sys_errno, path, "%s", what);
	case ECANCELED:
		return fault_set(fault, ABOX_E_CANCELED, 0, path, "%s: canceled", what);
	default:
		return fault_set(fault, ABOX_E_IO, sys_errno, path, "%s", what);
	}
}

struct slot *server_slot(struct server *server, uint32_t number, enum slot_kind kind)
{
	if (number >= FILE_SLOTS || server->slots[number].kind != kind)
		return NULL;
	return &server->slots[number];
}

struct slot *server_new_slot(struct server *server, enum slot_kind kind, uint32_t *retnumber)
{
	for (uint32_t i = 1; i < FILE_SLOTS; i++) {
		if (server->slots[i].kind != SLOT_FREE)
			continue;
		server->slots[i] = (struct slot){ .kind = kind, .fd = -EBADF, .parent_fd = -EBADF };
		*retnumber = i;
		return &server->slots[i];
	}
	fault_set(&server->fault, ABOX_E_LIMIT, 0, "files", "more than %d are in use at once", FILE_SLOTS);
	return NULL;
}

static void end_listing(struct slot *slot)
{
	if (slot->listing)
		closedir(slot->listing);
	slot->listing = NULL;
	free(slot->held);
	slot->held = NULL;
}

void server_free_slot(struct slot *slot)
{
	end_listing(slot);
	descent_clear(&slot->way);
	if (slot->temporary[0])
		unlinkat(slot->parent_fd, slot->temporary, 0);
	fd_close(slot->fd);
	fd_close(slot->parent_fd);
	*slot = (struct slot){ .kind = SLOT_FREE };
}

int server_place(struct server *server, uint32_t number)
{
	struct slot *slot = server_slot(server, number, SLOT_FOLDER);

	if (slot)
		return descent_fd(&slot->way);
	server_protocol(server);
	return -EBADF;
}

int server_parent(int place_fd, const char *path, bool make, int *retfd, char name[NAME_MAX + 1])
{
	char parent[PATH_MAX];
	size_t len = strlen(path), begin;
	int fd;

	while (len > 0 && path[len - 1] == '/')
		len--;
	begin = len;
	while (begin > 0 && path[begin - 1] != '/')
		begin--;
	if (path[0] == '/')
		return -EXDEV;
	if (len == 0)
		return -EINVAL;
	if (len - begin > NAME_MAX || begin >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(name, path + begin, len - begin);
	name[len - begin] = 0;
	if (strcmp(name, "..") == 0)
		return -EXDEV;
	if (strcmp(name, ".") == 0)
		return -EINVAL;
	memcpy(parent, path, begin);
	parent[begin] = 0;
	if (begin == 0)
		strcpy(parent, ".");
	if (make)
		fd = path_make_dirs_under(place_fd, parent, 0755, PATH_FOLLOW);
	else
		fd = path_open_under(place_fd, parent, O_PATH | O_DIRECTORY, 0, PATH_FOLLOW);
	if (fd < 0)
		return fd;
	*retfd = fd;
	return 0;
}

void server_entry(const struct stat *st, struct file_entry *ret)
{
	*ret = (struct file_entry){
		.mode = st->st_mode,
		.size = (uint64_t)st->st_size,
		.allocated = (uint64_t)st->st_blocks * 512,
		.seconds = st->st_mtim.tv_sec,
		.nanoseconds = (uint32_t)st->st_mtim.tv_nsec,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.n_links = (uint32_t)st->st_nlink,
		.target = "",
	};
}

/* With the target of a link, which belongs to dir_fd and name, or to the descriptor itself where the name is "". */
static int describe(int dir_fd, const char *name, const struct stat *st, char target[PATH_MAX], struct file_entry *ret)
{
	ssize_t n;

	server_entry(st, ret);
	if (!S_ISLNK(st->st_mode))
		return 0;
	n = readlinkat(dir_fd, name, target, PATH_MAX);
	if (n < 0)
		return -errno;
	if (n == 0 || n >= PATH_MAX)
		return -EIO;
	target[n] = 0;
	ret->target = target;
	return 0;
}

static int handle_stat(struct server *server)
{
	uint32_t place = unpack_u32(&server->in);
	const char *path = unpack_string(&server->in);
	uint8_t follow = unpack_u8(&server->in);
	_cleanup_(fd_closep) int fd = -EBADF;
	struct file_entry entry;
	char target[PATH_MAX];
	struct stat st;
	int place_fd, r;

	if (!unpack_done(&server->in))
		return server_protocol(server);
	place_fd = server_place(server, place);
	if (place_fd < 0)
		return ABOX_E_PROTOCOL;
	fd = path_open_under(place_fd, path[0] ? path : ".", O_PATH | (follow ? 0 : O_NOFOLLOW), 0, PATH_FOLLOW);
	if (fd < 0)
		return server_fail(server, -fd, path, "cannot be looked at");
	r = fstat(fd, &st) < 0 ? -errno : describe(fd, "", &st, target, &entry);
	if (r < 0)
		return server_fail(server, -r, path, "cannot be looked at");
	file_entry_pack(&entry, &server->out);
	return 0;
}

static int handle_open(struct server *server)
{
	uint32_t place = unpack_u32(&server->in), number = 0;
	const char *path = unpack_string(&server->in);
	_cleanup_(fd_closep) int fd = -EBADF;
	struct file_entry entry;
	struct slot *slot;
	struct stat st;
	int place_fd, r;

	if (!unpack_done(&server->in))
		return server_protocol(server);
	place_fd = server_place(server, place);
	if (place_fd < 0)
		return ABOX_E_PROTOCOL;
	fd = path_open_under(place_fd, path[0] ? path : ".", O_RDONLY | O_DIRECTORY, 0, PATH_FOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0)
		return server_fail(server, fd < 0 ? -fd : errno, path, "cannot be opened");
	slot = server_new_slot(server, SLOT_FOLDER, &number);
	if (!slot)
		return ABOX_E_LIMIT;
	r = descent_push(&slot->way, steal_fd(fd));
	if (r < 0) {
		server_free_slot(slot);
		return server_fail(server, -r, path, "cannot be opened");
	}
	server_entry(&st, &entry);
	pack_u32(&server->out, number);
	file_entry_pack(&entry, &server->out);
	return 0;
}

static int begin_listing(struct slot *slot)
{
	int fd = openat(descent_fd(&slot->way), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	slot->listing = fdopendir(fd);
	if (slot->listing)
		return 0;
	fd_close(fd);
	return -ENOMEM;
}

/* The next name: 1, 0 at the end, or -errno. */
static int next_name(struct slot *slot, const char **ret)
{
	struct dirent *entry;

	do {
		errno = 0;
		entry = readdir(slot->listing);
		if (!entry)
			return -errno;
	} while (!file_name_is_good(entry->d_name));
	*ret = entry->d_name;
	return 1;
}

/* One entry; 0 when it does not fit, -ENOENT when it has gone meanwhile. */
static int list_one(struct server *server, struct slot *slot, const char *name, struct pack_writer *list)
{
	size_t used = list->len;
	struct file_entry entry;
	char target[PATH_MAX];
	struct stat st;
	int r;

	(void)server;
	if (fstatat(descent_fd(&slot->way), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = describe(descent_fd(&slot->way), name, &st, target, &entry);
	if (r == -EINVAL)	/* it is no link any more */
		return -ENOENT;
	if (r < 0)
		return r;
	pack_string(list, name);
	file_entry_pack(&entry, list);
	if (!list->failed)
		return 1;
	list->failed = false;
	list->len = used;
	return 0;
}

static int list_some(struct server *server, struct slot *slot, struct pack_writer *list, uint32_t *retn, bool *retend)
{
	uint32_t n = 0;
	int r = 1;

	*retend = false;
	while (n < LIST_MAX) {
		const char *name = slot->held;

		r = name ? 1 : next_name(slot, &name);
		if (r <= 0)
			break;
		r = list_one(server, slot, name, list);
		if (r == 0) {
			if (!slot->held)
				slot->held = strdup(name);
			if (!slot->held)
				return -ENOMEM;
			break;
		}
		free(slot->held);
		slot->held = NULL;
		if (r < 0 && r != -ENOENT)
			return r;
		n += r > 0;
		r = 1;
	}
	*retend = r == 0 && !slot->held;
	*retn = n;
	return r < 0 ? r : 0;
}

static int handle_list(struct server *server)
{
	uint32_t place = unpack_u32(&server->in), n = 0;
	uint8_t restart = unpack_u8(&server->in);
	struct slot *slot = server_slot(server, place, SLOT_FOLDER);
	static uint8_t buffer[FILE_DATA_MAX];
	struct pack_writer list = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	bool end = false;
	int r = 0;

	if (!unpack_done(&server->in) || !slot)
		return server_protocol(server);
	if (restart)
		end_listing(slot);
	if (!slot->listing)
		r = begin_listing(slot);
	if (r == 0)
		r = list_some(server, slot, &list, &n, &end);
	if (r < 0)
		return server_fail(server, -r, "folder", "cannot be read");
	pack_u8(&server->out, end);
	pack_u32(&server->out, n);
	if (server->out.len + list.len > server->out.allocated)
		return server_protocol(server);
	memcpy(server->out.data + server->out.len, list.data, list.len);
	server->out.len += list.len;
	return 0;
}

static int handle_enter(struct server *server)
{
	uint32_t place = unpack_u32(&server->in);
	const char *name = unpack_string(&server->in);
	struct slot *slot = server_slot(server, place, SLOT_FOLDER);
	int fd, r;

	if (!unpack_done(&server->in) || !slot || place == 0 || !file_name_is_good(name))
		return server_protocol(server);
	end_listing(slot);
	fd = openat(descent_fd(&slot->way), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : descent_push(&slot->way, fd);
	return r < 0 ? server_fail(server, -r, name, "cannot be entered") : 0;
}

static int handle_leave(struct server *server)
{
	uint32_t place = unpack_u32(&server->in);
	struct slot *slot = server_slot(server, place, SLOT_FOLDER);
	int r;

	if (!unpack_done(&server->in) || !slot || slot->way.n < 2)
		return server_protocol(server);
	end_listing(slot);
	r = descent_pop(&slot->way);
	return r < 0 ? server_fail(server, -r, "..", "cannot be gone back to") : 0;
}

static int handle_close(struct server *server)
{
	uint32_t number = unpack_u32(&server->in);

	if (!unpack_done(&server->in) || number == 0 || number >= FILE_SLOTS)
		return server_protocol(server);
	server_free_slot(&server->slots[number]);
	return 0;
}

static int make_folder(int place_fd, const char *path, uint32_t mode, bool parents, bool *retmade)
{
	_cleanup_(fd_closep) int parent_fd = -EBADF, fd = -EBADF;
	char name[NAME_MAX + 1];
	int r;

	r = server_parent(place_fd, path, parents, &parent_fd, name);
	if (r < 0)
		return r;
	*retmade = mkdirat(parent_fd, name, mode & 0777) == 0;
	if (*retmade || (errno == EEXIST && !parents))
		return *retmade ? 0 : -EEXIST;
	if (errno != EEXIST)
		return -errno;
	fd = path_open_under(parent_fd, name, O_PATH | O_DIRECTORY, 0, PATH_FOLLOW);
	return fd == -ENOTDIR ? -EEXIST : fd < 0 ? fd : 0;
}

static int handle_make_folder(struct server *server)
{
	uint32_t place = unpack_u32(&server->in);
	const char *path = unpack_string(&server->in);
	uint32_t mode = unpack_u32(&server->in);
	uint8_t parents = unpack_u8(&server->in);
	bool made = false;
	int place_fd, r;

	if (!unpack_done(&server->in))
		return server_protocol(server);
	place_fd = server_place(server, place);
	if (place_fd < 0)
		return ABOX_E_PROTOCOL;
	r = make_folder(place_fd, path, mode, parents, &made);
	if (r < 0)
		return server_fail(server, -r, path, "the folder cannot be made");
	pack_u8(&server->out, made);
	return 0;
}

/* What comes while a request is carried out can only take it back. */
static int tell_progress(void *userdata)
{
	struct server *server = userdata;
	uint64_t now = clock_monotonic_usec();
	uint8_t buffer[32];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	const uint8_t *message;
	ssize_t n;

	if (now - server->told_usec < TELL_USEC)
		return 0;
	server->told_usec = now;
	n = file_stream_recv(&stream, 0, &message);
	if (n != -ETIMEDOUT)
		return -ECANCELED;
	pack_u32(&writer, FILE_PROGRESS);
	pack_u32(&writer, server->serial);
	return file_stream_send(server->socket_fd, writer.data, writer.len, UINT64_MAX);
}

static int handle_remove(struct server *server)
{
	uint32_t place = unpack_u32(&server->in);
	const char *path = unpack_string(&server->in);
	uint8_t recursive = unpack_u8(&server->in);
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	char name[NAME_MAX + 1];
	int place_fd, r;

	if (!unpack_done(&server->in))
		return server_protocol(server);
	place_fd = server_place(server, place);
	if (place_fd < 0)
		return ABOX_E_PROTOCOL;
	r = server_parent(place_fd, path, false, &parent_fd, name);
	if (r < 0)
		return server_fail(server, -r, path, "cannot be removed");
	if (recursive)
		r = path_remove_tree_ticking(parent_fd, name, tell_progress, server);
	else if (unlinkat(parent_fd, name, 0) < 0)
		r = errno != EISDIR && errno != EPERM ? -errno
			: unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
	/* deep trees are moved up to be removed, which those of a layer below cannot be in a user namespace */
	if (r == -ELOOP && recursive)
		return fault_set(&server->fault, ABOX_E_LIMIT, 0, path,
			"cannot be removed whole: folders of a layer below, more than 256 levels deep");
	return r < 0 ? server_fail(server, -r, path, "cannot be removed") : 0;
}

int server_rename(int from_fd, const char *from, int to_fd, const char *to, bool replace)
{
	struct stat st;

	if (replace)
		return renameat(from_fd, from, to_fd, to) < 0 ? -errno : 0;
	if (syscall(SYS_renameat2, from_fd, from, to_fd, to, NO_REPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* a kernel without it (gVisor): a second name never replaces either; folders have none */
	if (linkat(from_fd, from, to_fd, to, 0) == 0)
		return unlinkat(from_fd, from, 0) < 0 ? -errno : 0;
	if (errno != EPERM)
		return -errno;
	if (fstatat(to_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(from_fd, from, to_fd, to) < 0 ? -errno : 0;
}

static int rename_between(int root_fd, const char *from, const char *to, bool replace)
{
	_cleanup_(fd_closep) int from_fd = -EBADF, to_fd = -EBADF;
	char old[NAME_MAX + 1], new[NAME_MAX + 1];
	int r;

	r = server_parent(root_fd, from, false, &from_fd, old);
	if (r == 0)
		r = server_parent(root_fd, to, false, &to_fd, new);
	if (r < 0)
		return r;
	r = server_rename(from_fd, old, to_fd, new, replace);
	return r == -EXDEV ? -EOPNOTSUPP : r;	/* EXDEV is "outside" here */
}

static int handle_rename(struct server *server)
{
	const char *from = unpack_string(&server->in), *to = unpack_string(&server->in);
	uint8_t replace = unpack_u8(&server->in);
	int r;

	if (!unpack_done(&server->in))
		return server_protocol(server);
	r = rename_between(server_place(server, 0), from, to, replace);
	if (r == -EOPNOTSUPP) {
		fault_set(&server->fault, ABOX_E_UNSUPPORTED, 0, from,
			"cannot be renamed in one step: a folder of a layer below, or another mount");
		return fault_remedy(&server->fault, "copy it and remove the old one");
	}
	return r < 0 ? server_fail(server, -r, from, "cannot be renamed") : 0;
}

static int handle_link(struct server *server)
{
	uint32_t place = unpack_u32(&server->in);
	const char *path = unpack_string(&server->in), *target = unpack_string(&server->in);
	uint8_t replace = unpack_u8(&server->in);
	_cleanup_(fd_closep) int parent_fd = -EBADF;
	char name[NAME_MAX + 1];
	int place_fd, r;

	if (!unpack_done(&server->in) || !target[0])
		return server_protocol(server);
	place_fd = server_place(server, place);
	if (place_fd < 0)
		return ABOX_E_PROTOCOL;
	r = server_parent(place_fd, path, false, &parent_fd, name);
	if (r == 0 && symlinkat(target, parent_fd, name) < 0)
		r = -errno;
	if (r == -EEXIST && replace)
		r = unlinkat(parent_fd, name, 0) < 0 || symlinkat(target, parent_fd, name) < 0 ? -errno : 0;
	return r < 0 ? server_fail(server, -r, path, "the link cannot be made") : 0;
}

static int handle_dress(struct server *server)
{
	uint32_t place = unpack_u32(&server->in), mode = unpack_u32(&server->in);
	uint64_t seconds = unpack_u64(&server->in);
	uint32_t nanoseconds = unpack_u32(&server->in);
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { (time_t)seconds, nanoseconds } };
	int fd;

	if (!unpack_done(&server->in))
		return server_protocol(server);
	fd = server_place(server, place);
	if (fd < 0)
		return ABOX_E_PROTOCOL;
	if ((mode != NO_MODE && fchmod(fd, mode & 0777) < 0) || (nanoseconds != NO_TIME && futimens(fd, times) < 0))
		return server_fail(server, errno, "folder", "mode and time cannot be set");
	return 0;
}

static const struct {
	uint32_t type;
	bool writes;
	int (*handle)(struct server *server);
} handlers[] = {
	{ FILE_STAT, false, handle_stat },
	{ FILE_OPEN, false, handle_open },
	{ FILE_LIST, false, handle_list },
	{ FILE_ENTER, false, handle_enter },
	{ FILE_LEAVE, false, handle_leave },
	{ FILE_CLOSE, false, handle_close },
	{ FILE_READ_BEGIN, false, server_read_begin },
	{ FILE_READ, false, server_read },
	{ FILE_WRITE_BEGIN, true, server_write_begin },
	{ FILE_WRITE, true, server_write },
	{ FILE_WRITE_END, true, server_write_end },
	{ FILE_MAKE_FOLDER, true, handle_make_folder },
	{ FILE_REMOVE, true, handle_remove },
	{ FILE_RENAME, true, handle_rename },
	{ FILE_LINK, true, handle_link },
	{ FILE_DRESS, true, handle_dress },
};

static int dispatch(struct server *server, uint32_t type)
{
	for (size_t i = 0; i < ELEMENTSOF(handlers); i++) {
		if (handlers[i].type != type)
			continue;
		/* Security: the right was given when the server was started, and nothing that comes later raises it */
		if (handlers[i].writes && !server->writes)
			return fault_set(&server->fault, ABOX_E_STATE, 0, "request", "opened for reading only");
		return handlers[i].handle(server);
	}
	return server_protocol(server);
}

static void begin_answer(struct server *server, uint32_t type)
{
	server->out = PACK_WRITER_FIXED(answer, sizeof(answer));
	pack_u32(&server->out, type);
	pack_u32(&server->out, server->serial);
}

/* 0 when there was a request, and it was answered. */
static int serve_one(struct server *server)
{
	const uint8_t *message = NULL;
	ssize_t n = file_stream_recv(&stream, UINT64_MAX, &message);
	uint32_t type;
	int r;

	if (n <= 0)
		return -EPIPE;
	server->in = PACK_READER(message, (size_t)n);
	type = unpack_u32(&server->in);
	server->serial = unpack_u32(&server->in);
	if (server->in.failed)
		return -EPROTO;
	if (type == FILE_CANCEL)	/* too late: it has been answered */
		return 0;
	fault_init(&server->fault, ABOX_STAGE_FILE);
	begin_answer(server, FILE_OK);
	r = dispatch(server, type);
	if (r == 0 && server->out.failed)
		r = fault_set(&server->fault, ABOX_E_LIMIT, 0, "answer", "is too long");
	if (r < 0) {
		begin_answer(server, FILE_FAULT);
		fault_pack(&server->fault, &server->out);
	}
	return file_stream_send(server->socket_fd, server->out.data, server->out.len, UINT64_MAX);
}

static int begin(struct server *server, int root_fd)
{
	int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	r = fd < 0 ? -errno : descent_push(&server->slots[0].way, fd);
	if (r < 0)
		return r;
	server->slots[0].kind = SLOT_FOLDER;
	server->slots[0].fd = server->slots[0].parent_fd = -EBADF;
	begin_answer(server, FILE_READY);
	pack_u32(&server->out, FILE_WIRE_VERSION);
	return file_stream_send(server->socket_fd, server->out.data, server->out.len, UINT64_MAX);
}

void file_serve(int socket_fd, int root_fd, bool writes)
{
	static struct server server;

	server = (struct server){ .socket_fd = socket_fd, .writes = writes };
	stream.fd = socket_fd;
	umask(0);
	if (begin(&server, root_fd) == 0)
		while (serve_one(&server) == 0)
			;
	for (size_t i = 0; i < FILE_SLOTS; i++)
		if (server.slots[i].kind != SLOT_FREE)
			server_free_slot(&server.slots[i]);
}

void file_serve_fault(int socket_fd, const struct fault *fault)
{
	struct server server = { .socket_fd = socket_fd };

	begin_answer(&server, FILE_FAULT);
	fault_pack(fault, &server.out);
	file_stream_send(socket_fd, server.out.data, server.out.len, UINT64_MAX);
}

int file_serve_confine(uid_t uid, gid_t gid, struct fault *fault)
{
	struct caps now;
	int r;

	r = caps_read(&now);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "capabilities", "cannot be read");
	r = caps_drop_bounding(fault);
	if (r < 0)
		return r;
	/* Security: the effective ids alone, which files are made with; by the real one the box's user could send signals.
	 * Asked for by both ways that kernels know (SECBIT_NO_SETUID_FIXUP was set before), the capabilities stay. */
	prctl(PR_SET_KEEPCAPS, 1);
	if (syscall(SYS_setresgid, -1, gid, -1) < 0 || syscall(SYS_setresuid, -1, uid, -1) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "ids", "cannot become user %u", (unsigned int)uid);
	/* Security: mode bits of the box's files do not hold us up, whoever inside set them, as far as the guest of this wall
	 * has the right; nothing else is kept */
	r = caps_keep(now.permitted & FILE_CAPS, false, fault);
	if (r == 0)
		r = caps_no_new_privs(fault);
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0) < 0)
		r = fault_set(fault, ABOX_E_SYSTEM, errno, "dumpable", "cannot be set");
	return r;
}
