/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Merging layers that have become many: a name that is nowhere costs a look into each of them. The newest
 * ones become one, files by hard link, so no content is copied; snapshots keep the layers that they name.
 * What is promised: the merged layer stands for exactly the same tree, and the chain changes in one
 * replacement of the record.
 *
 * How: the oldest of them is linked into a new layer, then each newer one is laid over it, whiteouts and
 * opaque folders included. Those stay in the result only where something lies below that they hide.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "workspace/attribute.h"
#include "workspace/home.h"
#include "workspace/layer.h"
#include "workspace/tree.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define MERGE_AT_LEAST (STORE_MERGE_ABOVE / 2 + 1)

struct merging {
	enum layer_flavour flavour;
	struct layer_stack below; /* what the merged layer will lie on, in lower_fds */
	struct text shows; /* a byte for each level of the target: whether something below shows through it */
	int to_fd;
	struct descent target;
	abox_error **reterr;
};

static int fail(const struct merging *merging, int sys_errno, const char *path, const char *what)
{
	return error_set_errno(
		merging->reterr, ABOX_E_IO, STAGE, path[0] ? path : ".", sys_errno, "cannot merge: %s", what);
}

/* What the newer layer hides. */
static int clear_name(const struct merging *merging, const char *name)
{
	int r = path_remove_tree(descent_fd(&merging->target), name);

	return r == -ENOENT ? 0 : r;
}

/* A mark that sends the reader elsewhere: such a layer was not made by us, and merging would lose what it
 * means. */
static bool is_redirect(const struct merging *merging, const char *name)
{
	size_t len = strlen(layer_attribute_prefix(merging->flavour));

	return string_starts_with(name, layer_attribute_prefix(merging->flavour)) &&
	       (strcmp(name + len, "redirect") == 0 || strcmp(name + len, "metacopy") == 0);
}

/* Marks of our own stay out, all that the box wrote comes along (a plain user's escaped
 * `user.overlay.overlay.`, too). */
static bool is_content(const struct merging *merging, const char *name)
{
	const char *prefix = layer_attribute_prefix(merging->flavour);
	size_t len = strlen(prefix);

	return !string_starts_with(name, prefix) || string_starts_with(name + len, "overlay.");
}

static int drop_attributes(int fd)
{
	_cleanup_(attribute_list_clear) struct attribute_list list = {0};
	char self[40];
	int r;

	r = attribute_list_read(fd, &list);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	for (size_t i = 0; r >= 0 && i < list.n; i++)
		if (removexattr(self, list.names[i]) < 0 && errno != ENODATA)
			r = -errno;
	return r;
}

static int copy_folder_attributes(const struct merging *merging, int from_fd, int to_fd, const char *path)
{
	_cleanup_(attribute_list_clear) struct attribute_list list = {0};
	int r;

	r = attribute_list_read(from_fd, &list);
	for (size_t i = 0; r >= 0 && i < list.n; i++) {
		_cleanup_(freep) void *value = NULL;
		size_t len;

		if (is_redirect(merging, list.names[i]))
			return error_set(merging->reterr, ABOX_E_UNSUPPORTED, STAGE, path,
				"the layer redirects this folder");
		if (!is_content(merging, list.names[i]))
			continue;
		r = attribute_read(from_fd, list.names[i], &value, &len);
		if (r >= 0)
			r = attribute_write(to_fd, list.names[i], value, len);
	}
	return r < 0 ? fail(merging, -r, path, "attributes") : 0;
}

/* A folder of the newer layer is as it says there. */
static int dress_folder(const struct merging *merging, const struct tree_entry *entry, int from_fd, int to_fd)
{
	struct timespec times[2] = {entry->st.st_atim, entry->st.st_mtim};
	int opaque = layer_is_opaque(to_fd, merging->flavour), r = opaque;

	if (r >= 0)
		r = drop_attributes(to_fd);
	if (r < 0)
		return fail(merging, -r, entry->path, "attributes");
	r = copy_folder_attributes(merging, from_fd, to_fd, entry->path);
	if (r < 0)
		return r;
	if (opaque > 0)
		r = layer_set_opaque(to_fd, merging->flavour);
	if (r >= 0 && geteuid() == 0 && fchown(to_fd, entry->st.st_uid, entry->st.st_gid) < 0)
		r = -errno;
	if (r >= 0 && (fchmod(to_fd, entry->st.st_mode & 07777) < 0 || futimens(to_fd, times) < 0))
		r = -errno;
	return r < 0 ? fail(merging, -r, entry->path, "owner, mode or times") : 0;
}

/*
 * Whether a folder of the layers below shows through the one at this path. A whiteout where nothing does is
 * not only needless: overlayfs hides whiteouts only when it lists a folder that has another one below it.
 */
static bool shows_below(const struct merging *merging, const char *path)
{
	for (size_t i = 0; i < merging->below.n_lowers; i++) {
		int fd = path_open_under(merging->below.lower_fds[i], path, O_PATH | O_DIRECTORY, 0, 0);

		if (fd >= 0)
			fd_close(fd);
		if (fd >= 0 || fd == -ENAMETOOLONG)
			return true;
		if (fd == -ENOTDIR)
			return false; /* hidden by a file or whiteout */
	}
	return false;
}

static bool level_shows(const struct merging *merging)
{
	return merging->shows.data[merging->shows.len - 1] != 0;
}

/* Makes the folder where it is not there, or is to be hidden. Returns 1 when whatever lies below stays
 * hidden. */
static int place_folder(const struct merging *merging, const struct tree_entry *entry, int opaque)
{
	int dir_fd = descent_fd(&merging->target), r = 0;
	struct stat st;

	if (fstatat(dir_fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return -errno;
		return mkdirat(dir_fd, entry->name, 0700) < 0 ? -errno : opaque;
	}
	if (S_ISDIR(st.st_mode) && !opaque)
		return 0;
	r = clear_name(merging, entry->name);
	if (r >= 0 && mkdirat(dir_fd, entry->name, 0700) < 0)
		r = -errno;
	return r < 0 ? r : 1;
}

/* Goes into the folder of the target; it hides what lies below when `hides`. */
static int enter_folder(struct merging *merging, const struct tree_entry *entry, bool hides)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	bool shows = level_shows(merging);
	int r = 0;

	fd = openat(
		descent_fd(&merging->target), entry->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (hides && shows)
		r = layer_set_opaque(fd, merging->flavour);
	else
		r = layer_is_opaque(fd, merging->flavour);
	if (r < 0)
		return r;
	shows = shows && !hides && r == 0 && shows_below(merging, entry->path);
	text_add_bytes(&merging->shows, shows ? "\1" : "\0", 1);
	if (merging->shows.failed)
		return -ENOMEM;
	/* Its own mode comes last; until then we must be able to write into it. */
	if (fchmod(fd, 0700) < 0)
		return -errno;
	return descent_push(&merging->target, steal_fd(fd));
}

static int on_enter(void *userdata, const struct tree_entry *entry, int fd)
{
	struct merging *merging = userdata;
	int r;

	if (entry->dir_fd < 0)
		return 0;
	r = layer_is_opaque(fd, merging->flavour);
	if (r >= 0)
		r = place_folder(merging, entry, r);
	if (r >= 0)
		r = enter_folder(merging, entry, r > 0);
	return r < 0 ? fail(merging, -r, entry->path, "the folder") : 0;
}

static int on_leave(void *userdata, const struct tree_entry *entry, int fd)
{
	_cleanup_(fd_closep) int to_fd = -EBADF;
	struct merging *merging = userdata;
	int r;

	to_fd = fcntl(descent_fd(&merging->target), F_DUPFD_CLOEXEC, 3);
	r = to_fd < 0 ? -errno : descent_pop(&merging->target);
	if (r < 0)
		return fail(merging, -r, entry->path, "the folder above");
	merging->shows.len--;
	return dress_folder(merging, entry, fd, to_fd);
}

static int on_other(void *userdata, const struct tree_entry *entry)
{
	struct merging *merging = userdata;
	int dir_fd = descent_fd(&merging->target), r;

	r = clear_name(merging, entry->name);
	if (r < 0)
		return fail(merging, -r, entry->path, "what it hides");
	if (layer_is_whiteout(&entry->st)) {
		r = level_shows(merging) ? layer_make_whiteout(dir_fd, entry->name) : 0;
		return r < 0 ? fail(merging, -r, entry->path, "the whiteout") : 0;
	}
	if (linkat(entry->dir_fd, entry->name, dir_fd, entry->name, 0) < 0)
		return fail(merging, errno, entry->path,
			"the link"); /* EMLINK too: the chain then stays as it is */
	return 0;
}

static int lay_over(struct merging *merging, int home_fd, const char *id)
{
	struct tree_visitor visitor = {
		.enter = on_enter, .leave = on_leave, .other = on_other, .userdata = merging};
	_cleanup_(fd_closep) int layer_fd = layer_open(home_fd, id, merging->reterr), data_fd = -EBADF;
	int fd, r;

	if (layer_fd < 0)
		return layer_fd;
	data_fd = layer_open_data(layer_fd, id, O_RDONLY, merging->reterr);
	if (data_fd < 0)
		return data_fd;
	merging->shows.len = 0;
	text_add_bytes(&merging->shows, merging->below.n_lowers > 0 ? "\1" : "\0", 1);
	fd = openat(merging->to_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : descent_push(&merging->target, fd);
	if (r < 0 || merging->shows.failed)
		return fail(merging, r < 0 ? -r : ENOMEM, "", "the new layer");
	r = tree_walk(data_fd, "layer", &visitor, merging->reterr);
	descent_clear(&merging->target);
	return r;
}

/* How many of the newest: at least half of those that are allowed, and further while the next one is not much
 * larger than all before it, so that each file is linked a few times only, however many snapshots there are.
 */
static size_t choose(const struct layer_chain *chain)
{
	size_t n_changes = chain->n, n = 0;
	uint64_t sum = 0;

	while (n_changes > 0 &&
		(chain->records[n_changes - 1].is_base || chain->records[n_changes - 1].is_full))
		n_changes--;
	if (n_changes <= STORE_MERGE_ABOVE)
		return 0;
	while (n < n_changes && (n < MERGE_AT_LEAST || chain->records[n].n_entries <= 2 * sum))
		sum += chain->records[n++].n_entries;
	/* What is left may still be too many: then all of it. */
	return n_changes - n + 1 > STORE_MERGE_ABOVE ? n_changes : n;
}

static int merge_layers(
	abox_workspace *workspace, const struct layer_chain *chain, size_t n, int to_fd, abox_error **reterr)
{
	struct merging merging = {.flavour = workspace->record.flavour, .to_fd = to_fd, .reterr = reterr};
	int r;

	merging.below = LAYER_STACK_INIT;
	r = workspace_open_chain(workspace, chain->records[n - 1].parent, &merging.below, reterr);
	for (size_t i = n; r >= 0 && i > 0; i--)
		r = lay_over(&merging, workspace->home_fd, chain->records[i - 1].id);
	layer_stack_clear(&merging.below);
	text_clear(&merging.shows);
	return r;
}

static int replace_chain(
	abox_workspace *workspace, const struct layer_chain *chain, size_t n, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = {0};
	_cleanup_(layer_build_clear) struct layer_build build = LAYER_BUILD_INIT;
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	struct layer_record layer = {0};
	int r;

	r = layer_build_begin(&build, reterr);
	if (r < 0)
		return r;
	build.flavour = workspace->record.flavour;
	build.ids = workspace->record.ids;
	r = merge_layers(workspace, chain, n, build.data_fd, reterr);
	if (r < 0)
		return r;
	memcpy(layer.parent, chain->records[n - 1].parent, STORE_ID_BYTES);
	r = layer_build_freeze(&build, &layer, reterr);
	if (r >= 0)
		r = workspace_record_copy(&workspace->record, &next);
	if (r >= 0)
		r = home_lock_store(workspace->home_fd, &store_lock_fd, reterr);
	if (r < 0)
		return r;
	memcpy(next.parent, build.id, STORE_ID_BYTES);
	r = workspace_commit(workspace, &next, reterr);
	if (r >= 0)
		layer_build_taken(&build);
	return r;
}

int workspace_merge(abox_workspace *workspace, abox_error **reterr)
{
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	size_t n;
	int r;

	r = layer_chain_read(
		workspace->home_fd, workspace->record.parent, workspace->record.flavour, &chain, reterr);
	if (r < 0)
		return r;
	n = choose(&chain);
	return n < 2 ? 0 : replace_chain(workspace, &chain, n, reterr);
}

int workspace_merge_newest(abox_workspace *workspace, size_t n, abox_error **reterr)
{
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	int r;

	r = layer_chain_read(
		workspace->home_fd, workspace->record.parent, workspace->record.flavour, &chain, reterr);
	if (r < 0)
		return r;
	return n < 2 || n > chain.n ? 0 : replace_chain(workspace, &chain, n, reterr);
}
