/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Repositories from anywhere: what a `.git` file, a `commondir`, a config and a link say may be a box's own work. Up to
 * the first NUL the input is a `.git` file and the text of a link, up to the next a `commondir`, the rest a config.
 * Nothing may crash, hang or leak, and every name that is found lies in the place.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "plan/protect.h"
#include "spec/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];
static int root_fd = -EBADF;

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void begin(void)
{
	static const char *const folders[] = { "a", "r", "r/.git", "r/.git/worktrees", "r/.git/worktrees/w" };

	snprintf(folder, sizeof(folder), "/dev/shm/agentbox-fuzz-%d", getpid());
	require(mkdir(folder, 0700) == 0);
	root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ELEMENTSOF(folders); i++)
		require(mkdirat(root_fd, folders[i], 0755) == 0);
}

static void put(const char *path, const uint8_t *data, size_t len)
{
	int fd = openat(root_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	require(fd >= 0 && fd_write_all(fd, data, len) == 0);
	fd_close(fd);
}

static void put_link(const uint8_t *data, size_t len)
{
	char *target = strndup((const char *)data, len);

	if (target && target[0])
		(void)!symlinkat(target, root_fd, "a/.envrc");
	free(target);
}

/* For each input anew: the program may end without a word. */
static void end(void)
{
	_cleanup_(fd_closep) int fd = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	root_fd = fd_close(root_fd);
	require(path_remove_tree(fd, strrchr(folder, '/') + 1) == 0);
}

static void look(const abox_spec *spec)
{
	struct view_layer layer = { .root_fd = root_fd, .flavour = VIEW_PLAIN };
	struct view view = { .layers = &layer, .n_layers = 1 };
	struct protect_place place = { .target = "/workspace", .view = &view, .host = folder, .workspace = true };
	struct plan_builder builder = { .spec = spec };
	struct protect_find find = { .builder = &builder, .place = &place };
	int r = protect_find(&find);

	require(r == 0 || r == ABOX_E_LIMIT);
	for (size_t i = 0; i < find.n_items; i++) {
		char *absolute = NULL;

		require(asprintf(&absolute, "/%s", find.items[i].path) > 0 && path_is_normal(absolute));
		free(absolute);
	}
	protect_find_clear(&find);
	builder_clear(&builder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static abox_spec *spec;
	size_t first = strnlen((const char *)data, size), second;

	begin();
	if (!spec)
		require(abox_spec_from_json("{\"version\":1,\"workspace\":{\"protect\":[\"x/y\",\"!r/**\"]}}", &spec, NULL) == 0);
	put("a/.git", data, first);
	put_link(data, first);
	data += first + (first < size);
	size -= first + (first < size);
	second = strnlen((const char *)data, size);
	put("r/.git/worktrees/w/HEAD", data, second);
	put("r/.git/worktrees/w/commondir", data, second);
	data += second + (second < size);
	size -= second + (second < size);
	put("r/.git/config", data, size);
	look(spec);
	end();
	return 0;
}
