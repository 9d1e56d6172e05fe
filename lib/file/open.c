/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where file servers come from: the guest of a running box makes one; for a workspace at rest the library starts one, under
 * the workspace's lock.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/helper.h"
#include "file/files.h"
#include "file/stand.h"
#include "keeper/wire.h"
#include "kernel/pidfd.h"
#include "kernel/spawn.h"
#include "sandbox/sandbox.h"
#include "workspace/store.h"

#define LOCK_USEC (2 * USEC_PER_SEC)
#define LEAVE_USEC (10 * USEC_PER_SEC)

static int check_flags(const void *what, uint32_t flags, abox_files **ret, abox_error **reterr)
{
	if (what && ret && !(flags & ~(uint32_t)ABOX_FILES_WRITE))
		return 0;
	return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL,
		"a box or workspace, flags that are known, and ret are required");
}

static int make_pair(int *retserver_fd, abox_files **ret, abox_error **reterr)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, FILE_STAGE, NULL, errno, "cannot make a socket");
	r = files_new(pair[0], ret, reterr);
	if (r < 0)
		fd_close(pair[1]);
	else
		*retserver_fd = pair[1];
	return r;
}

int abox_files_open_sandbox(abox_sandbox *box, uint32_t flags, abox_files **ret, abox_error **reterr)
{
	_cleanup_(files_unrefp) abox_files *files = NULL;
	_cleanup_(fd_closep) int server_fd = -EBADF;
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	r = check_flags(box, flags, ret, reterr);
	if (r == 0)
		r = make_pair(&server_fd, &files, reterr);
	if (r < 0)
		return r;
	files->box = abox_sandbox_ref(box);
	client_begin(&box->client, &writer, flags & ABOX_FILES_WRITE ? WIRE_CHANGE_FILES : WIRE_LOOK_AT_FILES);
	if (flags & ABOX_FILES_WRITE)
		pack_u64(&writer, box->mode == ABOX_OPEN_CONTROL ? box->epoch : 0);
	r = client_call(&box->client, &writer, &server_fd, 1, UINT64_MAX, &reader, reterr);
	client_end(&box->client, &writer);
	/* Security: with our copy open the end of the server would not be seen */
	server_fd = fd_close(server_fd);
	if (r == 0)
		r = files_await_ready(files, reterr);
	if (r < 0)
		return r;
	*ret = steal_ptr(files);
	return 0;
}

static int add_layer(struct pack_writer *writer, int fd, const char *path, abox_error **reterr)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_IO, FILE_STAGE, path, errno, "the layer cannot be looked at");
	pack_string(writer, path);
	pack_u64(writer, st.st_dev);
	pack_u64(writer, st.st_ino);
	return 0;
}

/* Which layer has ids of the host: the folder itself, or the base below the others. */
static uint32_t host_layer(const abox_workspace *workspace, const struct layer_stack *stack)
{
	if (workspace_mode(workspace) == WORKSPACE_DIRECT)
		return 0;
	if (stack->is_full || !stack->base_is_host || stack->n_base == 0)
		return UINT32_MAX;
	return (uint32_t)(stack->n_lowers - 1 + (stack->top_fd >= 0));
}

static int write_order(const abox_workspace *workspace, const struct layer_stack *stack, bool writes,
	struct pack_writer *writer, abox_error **reterr)
{
	_cleanup_(layer_paths_clear) struct layer_paths paths = { 0 };
	const struct layer_ids *ids = &stack->ids;
	bool has_top = stack->top_fd >= 0;
	/* a whole tree hides what it began as */
	size_t n_lowers = stack->is_full ? !has_top : stack->n_lowers;
	int r;

	r = layer_stack_paths(stack, &paths, reterr);
	if (r < 0)
		return r;
	pack_u32(writer, FILE_STAND_VERSION);
	pack_u8(writer, writes);
	pack_u8(writer, layer_process_is_root());
	pack_u32(writer, LAYER_RANGE_BASE);
	pack_u32(writer, LAYER_RANGE_COUNT);
	pack_u32(writer, LAYER_INSIDE_ID);
	pack_u32(writer, LAYER_INSIDE_ID);
	pack_u32(writer, ids->owner_uid);
	pack_u32(writer, ids->owner_gid);
	pack_u8(writer, stack->flavour == LAYER_USER);
	pack_u32(writer, host_layer(workspace, stack));
	pack_string(writer, writes && has_top && n_lowers > 0 ? paths.work : NULL);
	pack_u32(writer, (uint32_t)(n_lowers + has_top));
	if (has_top)
		r = add_layer(writer, stack->top_fd, paths.top, reterr);
	for (size_t i = 0; r == 0 && i < n_lowers; i++)
		r = add_layer(writer, stack->lower_fds[i], paths.lowers[i], reterr);
	if (r == 0 && writer->failed)
		return ABOX_E_MEMORY;
	if (r == 0 && writer->len > FILE_PACKET_MAX)
		return error_set(reterr, ABOX_E_LIMIT, FILE_STAGE, NULL, "the workspace has too many layers");
	return r;
}

static int spawn_server(int server_fd, int *retpidfd, abox_error **reterr)
{
	static const char *const argv[] = { FILE_STAND_NAME, NULL };
	_cleanup_(fd_closep) int program_fd = -EBADF;
	pid_t pid;
	int r;

	r = helper_open("keeper", &program_fd, reterr);
	if (r < 0)
		return r;
	return spawn_helper(&(struct spawn_request){ .program_fd = program_fd,
				    .argv = argv,
				    .fds = &server_fd,
				    .n_fds = 1,
				    .stage = FILE_STAGE },
		retpidfd, &pid, reterr);
}

static int start_server(abox_files *files, const char *snapshot, bool writes, int server_fd, abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	r = workspace_open_stack(files->workspace, snapshot, &stack, reterr);
	if (r == 0)
		r = write_order(files->workspace, &stack, writes, &writer, reterr);
	if (r == 0)
		r = spawn_server(server_fd, &files->pidfd, reterr);
	if (r < 0)
		return r;
	r = file_stream_send(files->fd, writer.data, writer.len, clock_monotonic_usec() + LEAVE_USEC);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, FILE_STAGE, NULL, -r, "cannot reach the file server");
	return 0;
}

int abox_files_open_workspace(abox_workspace *workspace, const char *snapshot, uint32_t flags, abox_files **ret,
	abox_error **reterr)
{
	_cleanup_(files_unrefp) abox_files *files = NULL;
	_cleanup_(fd_closep) int server_fd = -EBADF;
	bool writes = flags & ABOX_FILES_WRITE;
	int r;

	r = check_flags(workspace, flags, ret, reterr);
	if (r < 0)
		return r;
	if (writes && snapshot)
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, snapshot, "a snapshot never changes");
	r = make_pair(&server_fd, &files, reterr);
	if (r == 0)
		r = workspace_lock(workspace, writes ? WORKSPACE_EXCLUSIVE : WORKSPACE_SHARED, LOCK_USEC, reterr);
	if (r < 0)
		return r;
	files->workspace = abox_workspace_ref(workspace);
	if (writes) {
		r = workspace_begin_use(workspace, reterr);
		files->in_use = r == 0;
	}
	if (r == 0)
		r = start_server(files, snapshot, writes, server_fd, reterr);
	server_fd = fd_close(server_fd);
	if (r == 0)
		r = files_await_ready(files, reterr);
	if (r < 0)
		return r;
	*ret = steal_ptr(files);
	return 0;
}

abox_files *abox_files_ref(abox_files *files)
{
	if (files)
		atomic_fetch_add(&files->n_refs, 1);
	return files;
}

/* The layers are unmounted with its end. One that hangs is killed: what it did not write it has not told as done. */
static void wait_for_end(int pidfd)
{
	if (pidfd_wait(pidfd, clock_monotonic_usec() + LEAVE_USEC) == 1)
		return;
	pidfd_signal(pidfd, SIGKILL);
	pidfd_wait(pidfd, UINT64_MAX);
}

static int close_files(abox_files *files, abox_error **reterr)
{
	int r = 0;

	files->fd = fd_close(files->fd);
	if (files->pidfd >= 0)
		wait_for_end(files->pidfd);
	files->pidfd = fd_close(files->pidfd);
	if (files->in_use)
		r = workspace_end_use(files->workspace, reterr);
	files->in_use = false;
	if (files->workspace) {
		workspace_unlock(files->workspace);
		files->workspace = abox_workspace_unref(files->workspace);
	}
	files->box = abox_sandbox_unref(files->box);
	return r;
}

int abox_files_close(abox_files *files, abox_error **reterr)
{
	if (!files)
		return error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL, "files are required");
	return close_files(files, reterr);
}

abox_files *abox_files_unref(abox_files *files)
{
	if (!files || atomic_fetch_sub(&files->n_refs, 1) > 1)
		return NULL;
	close_files(files, NULL);
	free(files->name);
	free(files->stream);
	free(files);
	return NULL;
}

void files_unrefp(abox_files **files)
{
	abox_files_unref(*files);
}
