/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The walk through one merged tree, or two side by side. It needs memory for the names on the way down and no
 * more; descriptors stay below a bound whatever the depth: folders far above are closed and opened again, by
 * their names from the root, when the walk comes back to them.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/error.h"
#include "workspace/view.h"

#define MAX_OPEN 256 /* descriptors of folders, all levels and both trees together */

struct frame {
	struct view_dir now;
	struct view_dir was;
	bool has_now;
	bool has_was;
	bool open;
	char **names; /* sorted, each once */
	size_t n_names;
	size_t next;
	size_t path_len; /* of the folder itself, in the walk's path */
};

struct view_walk {
	struct view now;
	struct view was;
	bool two;
	unsigned int n_new; /* layers of `now` above those of `was`; 0: they have nothing in common */
	struct frame *frames;
	size_t n_frames;
	size_t n_allocated;
	size_t n_open;
	char *path;
	size_t path_len;
	size_t path_allocated;
	bool enter; /* the last step was a folder, to be gone into */
	bool enter_now;
	bool enter_was;
};

static void frame_close(struct view_walk *walk, struct frame *frame)
{
	walk->n_open -= frame->now.n_parts + frame->was.n_parts;
	view_dir_clear(&frame->now);
	view_dir_clear(&frame->was);
	frame->open = false;
}

static void frame_clear(struct view_walk *walk, struct frame *frame)
{
	frame_close(walk, frame);
	for (size_t i = 0; i < frame->n_names; i++)
		free(frame->names[i]);
	free(frame->names);
	*frame = (struct frame){0};
}

static void frame_opened(struct view_walk *walk, struct frame *frame)
{
	frame->open = true;
	walk->n_open += frame->now.n_parts + frame->was.n_parts;
	/* The uppermost go first, but never the root and the newest two. */
	for (size_t i = 1; i + 2 < walk->n_frames && walk->n_open > MAX_OPEN; i++)
		if (walk->frames[i].open && &walk->frames[i] != frame)
			frame_close(walk, &walk->frames[i]);
}

static int path_set(struct view_walk *walk, size_t len, const char *name)
{
	size_t name_len = strlen(name), need = len + name_len + 2;

	if (need > walk->path_allocated) {
		char *path = realloc(walk->path, need * 2);

		if (!path)
			return -ENOMEM;
		walk->path = path;
		walk->path_allocated = need * 2;
	}
	if (len > 0)
		walk->path[len++] = '/';
	memcpy(walk->path + len, name, name_len + 1);
	walk->path_len = len + name_len;
	return 0;
}

struct names {
	char **items;
	size_t n;
	size_t allocated;
};

static int names_add(struct names *names, const char *name)
{
	if (names->n == names->allocated) {
		size_t allocated = names->allocated ? names->allocated * 2 : 32;
		char **items = realloc(names->items, allocated * sizeof(*items));

		if (!items)
			return -ENOMEM;
		names->items = items;
		names->allocated = allocated;
	}
	names->items[names->n] = strdup(name);
	if (!names->items[names->n])
		return -ENOMEM;
	names->n++;
	return 0;
}

static int names_read(struct names *names, int dir_fd)
{
	struct dirent *entry;
	DIR *dir;
	int fd, r = 0;

	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	while (r >= 0) {
		errno = 0;
		entry = readdir(dir);
		if (!entry) {
			r = -errno;
			break;
		}
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = names_add(names, entry->d_name);
	}
	closedir(dir);
	return r;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_sort(struct names *names)
{
	size_t kept = 0;

	if (names->n == 0)
		return;
	qsort(names->items, names->n, sizeof(*names->items), compare_names);
	for (size_t i = 1; i < names->n; i++) {
		if (strcmp(names->items[kept], names->items[i]) == 0)
			free(names->items[i]);
		else
			names->items[++kept] = names->items[i];
	}
	names->n = kept + 1;
}

/* True when the old folder shows through whole: then only names of the newer layers can differ. */
static bool is_above(const struct view_walk *walk, const struct frame *frame, size_t *retn_parts)
{
	size_t n = 0;

	if (!frame->has_now || !frame->has_was || walk->n_new == 0)
		return false;
	while (n < frame->now.n_parts && frame->now.parts[n].layer < walk->n_new)
		n++;
	if (frame->now.n_parts - n != frame->was.n_parts)
		return false;
	for (size_t i = 0; i < frame->was.n_parts; i++)
		if (frame->now.parts[n + i].device != frame->was.parts[i].device ||
			frame->now.parts[n + i].inode != frame->was.parts[i].inode)
			return false;
	*retn_parts = n;
	return true;
}

static int frame_read(const struct view_walk *walk, struct frame *frame)
{
	struct names names = {0};
	size_t n_parts = frame->now.n_parts;
	bool above = is_above(walk, frame, &n_parts);
	int r = 0;

	for (size_t i = 0; i < n_parts && r >= 0; i++)
		r = names_read(&names, frame->now.parts[i].fd);
	for (size_t i = 0; !above && i < frame->was.n_parts && r >= 0; i++)
		r = names_read(&names, frame->was.parts[i].fd);
	names_sort(&names);
	frame->names = names.items;
	frame->n_names = names.n;
	return r;
}

/* Opens the folders of a frame whose parent frame is open. */
static int frame_open(
	struct view_walk *walk, struct frame *frame, const struct frame *parent, const char *name)
{
	int r = 0;

	if (frame->has_now)
		r = parent ? view_open_dir(&walk->now, &parent->now, name, &frame->now)
			   : view_open_root(&walk->now, &frame->now);
	if (r >= 0 && frame->has_was)
		r = parent ? view_open_dir(&walk->was, &parent->was, name, &frame->was)
			   : view_open_root(&walk->was, &frame->was);
	if (r >= 0)
		frame_opened(walk, frame);
	else {
		view_dir_clear(&frame->now);
		view_dir_clear(&frame->was);
	}
	return r;
}

static int push(struct view_walk *walk, bool has_now, bool has_was, const char *name, size_t path_len)
{
	struct frame *frame;

	if (walk->n_frames == walk->n_allocated) {
		size_t allocated = walk->n_allocated ? walk->n_allocated * 2 : 16;
		struct frame *frames = realloc(walk->frames, allocated * sizeof(*frames));

		if (!frames)
			return -ENOMEM;
		walk->frames = frames;
		walk->n_allocated = allocated;
	}
	frame = &walk->frames[walk->n_frames++];
	*frame = (struct frame){.has_now = has_now, .has_was = has_was, .path_len = path_len};
	return frame_open(walk, frame, walk->n_frames > 1 ? frame - 1 : NULL, name);
}

/* Opens frame i again, and with it those right above it, which the walk will need next. */
static int reopen(struct view_walk *walk, size_t i)
{
	int r;

	for (size_t level = 1; level <= i; level++) {
		struct frame *frame = &walk->frames[level];
		const struct frame *parent = frame - 1;
		size_t begin = parent->path_len > 0 ? parent->path_len + 1 : 0;
		char *end = walk->path + frame->path_len, kept = *end;

		if (frame->open)
			continue;
		*end = 0;
		r = frame_open(walk, frame, parent, walk->path + begin);
		*end = kept;
		if (r < 0)
			return r;
	}
	return 0;
}

int view_walk_new(const struct view *now, const struct view *was, struct view_walk **ret)
{
	struct view_walk *walk = calloc(1, sizeof(*walk));

	if (!walk)
		return ABOX_E_MEMORY;
	walk->now = *now;
	if (was) {
		walk->was = *was;
		walk->two = true;
		if (was->n_layers < now->n_layers &&
			was->layers == now->layers + (now->n_layers - was->n_layers))
			walk->n_new = (unsigned int)(now->n_layers - was->n_layers);
	}
	*ret = walk;
	return 0;
}

static int begin(struct view_walk *walk)
{
	int r;

	r = path_set(walk, 0, "");
	if (r < 0)
		return r;
	r = push(walk, true, walk->two && walk->was.n_layers > 0, "", 0);
	if (r < 0)
		return r;
	return frame_read(walk, &walk->frames[0]);
}

static int enter(struct view_walk *walk)
{
	const struct frame *parent = &walk->frames[walk->n_frames - 1];
	const char *name = parent->names[parent->next - 1];
	int r;

	walk->enter = false;
	r = push(walk, walk->enter_now, walk->enter_was, name, walk->path_len);
	if (r < 0)
		return r;
	return frame_read(walk, &walk->frames[walk->n_frames - 1]);
}

static int step(struct view_walk *walk, struct frame *frame, struct view_step *ret)
{
	const char *name = frame->names[frame->next++];
	int r;

	*ret = (struct view_step){.name = name};
	r = path_set(walk, frame->path_len, name);
	if (r < 0)
		return r;
	ret->path = walk->path;
	if (frame->has_now) {
		ret->now_dir = &frame->now;
		r = view_lookup(&walk->now, &frame->now, name, &ret->now);
		if (r < 0)
			return r;
	}
	if (frame->has_was) {
		ret->was_dir = &frame->was;
		r = view_lookup(&walk->was, &frame->was, name, &ret->was);
		if (r < 0)
			return r;
	}
	walk->enter_now = S_ISDIR(ret->now.st.st_mode);
	walk->enter_was = S_ISDIR(ret->was.st.st_mode);
	walk->enter = walk->enter_now || walk->enter_was;
	return ret->now.st.st_mode != 0 || ret->was.st.st_mode != 0;
}

static int next(struct view_walk *walk, struct view_step *ret)
{
	int r = 0;

	if (!walk->path)
		r = begin(walk);
	else if (walk->enter)
		r = enter(walk);
	while (r >= 0 && walk->n_frames > 0) {
		struct frame *frame = &walk->frames[walk->n_frames - 1];

		if (frame->next >= frame->n_names) {
			frame_clear(walk, frame);
			walk->n_frames--;
			continue;
		}
		if (!frame->open) {
			r = reopen(walk, walk->n_frames - 1);
			if (r < 0)
				break;
		}
		r = step(walk, frame, ret);
		if (r != 0)
			break;
	}
	return r;
}

int view_walk_next(struct view_walk *walk, struct view_step *ret, abox_error **reterr)
{
	int r = next(walk, ret);

	if (r > 0 && !progress_add(walk->now.progress, 1, 0))
		return error_set(reterr, ABOX_E_CANCELED, ABOX_STAGE_WORKSPACE, ret->path, "canceled");
	if (r == -ENOMEM)
		return ABOX_E_MEMORY;
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE,
			walk->path && walk->path[0] ? walk->path : ".", -r, "cannot read the workspace here");
	return r;
}

void view_walk_skip(struct view_walk *walk)
{
	walk->enter = false;
}

struct view_walk *view_walk_free(struct view_walk *walk)
{
	if (!walk)
		return NULL;
	while (walk->n_frames > 0)
		frame_clear(walk, &walk->frames[--walk->n_frames]);
	free(walk->frames);
	free(walk->path);
	free(walk);
	return NULL;
}

void view_walk_freep(struct view_walk **walk)
{
	view_walk_free(*walk);
}
