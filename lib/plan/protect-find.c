/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which names of a place are protected. One walk, folders near the root first, bounded; a name is followed
 * part by part, and each link on the way is protected as well, since whoever turns it turns the name.
 *
 * Security: everything that is read here may have been written by an earlier box. A link or a `gitdir:` line
 * that leads out of the place grants and protects nothing. What is found is not trusted later: the guest goes
 * the same way again without following any link.
 */
#include "plan/protect.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "workspace/pattern.h"

#define FOLDERS_MAX 2048	/* looked into for the default names */
#define FOLDERS_WHOLE_MAX 262144	/* when a written pattern has to be matched */
#define ITEMS_MAX 1024
#define LINKS_MAX 40
#define LINK_FILE_MAX 4096
#define CONFIG_MAX (1024 * 1024)

/* Names that programs of the host obey wherever they stand. PROTECT.md says the same in words. */
static const char *const names[] = {
	/* start files of shells */
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".login",
	".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".envrc",
	/* git */
	".gitconfig", ".githooks", ".husky",
	/* editors and debuggers */
	".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".devcontainer.json", ".vimrc", ".nvimrc",
	".nvim.lua", ".exrc", ".emacs", ".dir-locals.el", ".gdbinit", ".lldbinit",
	/* agents */
	".mcp.json",
};

/* In any folder whose own name begins with a dot: tools keep what they obey under these. */
static const char *const dot_names[] = {
	"settings.json", "settings.local.json", "mcp.json", "hooks.json", "hooks", "commands", "agents",
};

static bool is_among(const char *name, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(name, list[i]) == 0)
			return true;
	return false;
}

static bool is_obeyed(const char *folder, const char *name)
{
	const char *slash = strrchr(folder, '/');
	const char *last = slash ? slash + 1 : folder, *dot = strrchr(name, '.');

	if (name[0] == '.')
		return is_among(name, names, ELEMENTSOF(names));
	if (dot && strcmp(dot, ".code-workspace") == 0)
		return true;
	return last[0] == '.' && is_among(name, dot_names, ELEMENTSOF(dot_names));
}

/* Room for one more text in a list. */
static bool list_add(struct protect_find *find, const char ***list, size_t *n, size_t *allocated,
	const char *text)
{
	const char **grown;
	size_t wanted = *allocated ? *allocated * 2 : 64;

	if (*n == *allocated) {
		grown = reallocarray(*list, wanted, sizeof(*grown));
		if (!grown) {
			find->builder->failed = true;
			return false;
		}
		*list = grown;
		*allocated = wanted;
	}
	(*list)[(*n)++] = text;
	return !find->builder->failed;
}

static const char *join(struct protect_find *find, const char *folder, const char *name)
{
	return builder_text(find->builder, "%s%s%s", folder, *folder ? "/" : "", name);
}

/* A written `!pattern` takes a default away. */
static bool is_taken_away(const struct protect_find *find, const char *path)
{
	const abox_spec *spec = find->builder->spec;
	size_t n = find->place->workspace ? spec_count(spec, "/workspace/protect") : 0;

	for (size_t i = 0; i < n; i++) {
		const char *pattern = spec_string(spec, "/workspace/protect/%zu", i);

		if (pattern[0] == '!' && pattern_match(pattern + 1, path))
			return true;
	}
	return false;
}

static void item_add(struct protect_find *find, const struct protect_item *item)
{
	struct protect_item *grown;
	size_t wanted = find->allocated_items ? find->allocated_items * 2 : 32;

	if (!item->written && is_taken_away(find, item->path))
		return;
	for (size_t i = 0; i < find->n_items; i++) {
		if (strcmp(find->items[i].path, item->path) != 0)
			continue;
		find->items[i].written |= item->written;
		return;
	}
	if (find->n_items == find->allocated_items) {
		grown = reallocarray(find->items, wanted, sizeof(*grown));
		if (!grown) {
			find->builder->failed = true;
			return;
		}
		find->items = grown;
		find->allocated_items = wanted;
	}
	find->items[find->n_items] = *item;
	find->items[find->n_items++].path = builder_text(find->builder, "%s", item->path);
}

/* What an absolute link means in the place, if it leads there; else NULL. */
static const char *absolute_in_place(const struct protect_find *find, const char *path)
{
	const char *const roots[] = { find->place->host, find->place->target };

	for (size_t i = 0; i < ELEMENTSOF(roots); i++) {
		size_t len = roots[i] ? strlen(roots[i]) : 0;

		if (len && strncmp(path, roots[i], len) == 0 && (path[len] == '/' || !path[len]))
			return path + len;
	}
	return NULL;
}

struct way {
	char done[PATH_MAX]; /* from the root of the place, without a link */
	char rest[PATH_MAX]; /* still to be gone */
	struct view_entry entry; /* of `done`; nothing: st_mode 0 */
	unsigned int n_links;
	bool written;
};

/* The next part of way->rest, cut off; false at the end. */
static bool next_part(struct way *way, char part[NAME_MAX + 1])
{
	size_t skip = strspn(way->rest, "/"), len = strcspn(way->rest + skip, "/");

	if (!len || len > NAME_MAX)
		return false;
	memcpy(part, way->rest + skip, len);
	part[len] = 0;
	memmove(way->rest, way->rest + skip + len, strlen(way->rest + skip + len) + 1);
	return true;
}

static bool go_up(struct way *way)
{
	char *slash = strrchr(way->done, '/');

	if (!way->done[0])
		return false;
	if (slash)
		*slash = 0;
	else
		way->done[0] = 0;
	return true;
}

static bool append(char path[PATH_MAX], const char *part)
{
	size_t len = strlen(path);

	if (len + strlen(part) + 2 > PATH_MAX)
		return false;
	if (len)
		path[len++] = '/';
	strcpy(path + len, part);
	return true;
}

/* A link at `candidate`: it is protected, and the way goes on where it leads. */
static bool follow(struct protect_find *find, struct way *way, const char *candidate,
	const struct view_dir *dir, const char *name)
{
	_cleanup_(freep) char *target = NULL;
	char rest[PATH_MAX];
	const char *from;

	item_add(find, &(struct protect_item){ .path = candidate, .written = way->written });
	if (++way->n_links > LINKS_MAX || view_read_link(find->place->view, dir, name, &way->entry, &target) < 0)
		return false;
	from = target;
	if (target[0] == '/') {
		from = absolute_in_place(find, target);
		if (!from)
			return false;
		way->done[0] = 0;
	}
	if (snprintf(rest, sizeof(rest), "%s/%s", from, way->rest) >= (int)sizeof(rest))
		return false;
	strcpy(way->rest, rest);
	return true;
}

/* What is called `path` in the place; st_mode 0 when nothing is, or it cannot be seen. */
static int look(struct protect_find *find, const char *path, struct view_dir *dir, struct view_entry *entry,
	const char **retname)
{
	int r;

	memset(entry, 0, sizeof(*entry));
	if (!find->place->view)
		return 0;
	r = view_find(find->place->view, path, dir, entry, retname);
	if (r == -ENOENT || r == -ENOTDIR)
		memset(entry, 0, sizeof(*entry));
	else if (r < 0) {
		find->incomplete = true;
		return r;
	}
	return 0;
}

/* True when the way ends in the place: way->done is where, way->entry what is there. */
static bool walk(struct protect_find *find, struct way *way)
{
	char part[NAME_MAX + 1], candidate[PATH_MAX];

	memset(&way->entry, 0, sizeof(way->entry));
	while (next_part(way, part)) {
		_cleanup_(view_dir_clear) struct view_dir dir = VIEW_DIR_INIT;
		const char *name = part;

		if (strcmp(part, ".") == 0)
			continue;
		if (strcmp(part, "..") == 0) {
			if (!go_up(way))
				return false;
			continue;
		}
		strcpy(candidate, way->done);
		if (!append(candidate, part) || look(find, candidate, &dir, &way->entry, &name) < 0)
			return false;
		if (S_ISLNK(way->entry.st.st_mode)) {
			if (!follow(find, way, candidate, &dir, name))
				return false;
			continue;
		}
		strcpy(way->done, candidate);
		/* a file has nothing in it, and a name in it cannot come to be while it is held */
		if (way->entry.st.st_mode && !S_ISDIR(way->entry.st.st_mode))
			return !way->rest[strspn(way->rest, "/")];
	}
	return way->done[0] != 0;
}

/* Protects what `path` means. False when that is not in the place. */
static bool protect_path(struct protect_find *find, const char *path, bool folder, const char *content,
	bool written)
{
	struct way way = { .written = written };
	bool absent;

	if (snprintf(way.rest, sizeof(way.rest), "%s", path) >= (int)sizeof(way.rest) || !walk(find, &way))
		return false;
	absent = way.entry.st.st_mode == 0;
	item_add(find, &(struct protect_item){
		.path = way.done,
		.absent = absent,
		.folder = folder,
		.content = content,
		.written = written,
		.shared = S_ISREG(way.entry.st.st_mode) && way.entry.st.st_nlink > 1,
	});
	return true;
}

static bool there(struct protect_find *find, const char *path, struct view_entry *entry)
{
	_cleanup_(view_dir_clear) struct view_dir dir = VIEW_DIR_INIT;
	const char *name;

	return look(find, path, &dir, entry, &name) == 0 && entry->st.st_mode;
}

static char *read_file(struct protect_find *find, const char *path, size_t max)
{
	_cleanup_(view_dir_clear) struct view_dir dir = VIEW_DIR_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	struct view_entry entry;
	const char *name;
	char *data = NULL;

	if (look(find, path, &dir, &entry, &name) < 0 || !S_ISREG(entry.st.st_mode))
		return NULL;
	if (view_open_file(find->place->view, &dir, name, &entry, &fd) < 0 ||
		fd_read_text(fd, max, &data, NULL) < 0) {
		find->incomplete = true;
		return NULL;
	}
	return data;
}

typedef void (*each_name)(struct protect_find *find, const char *folder, const char *name, unsigned char type);

static int open_folder(struct protect_find *find, const char *path, struct view_dir *ret)
{
	struct view_dir dir = VIEW_DIR_INIT, next;
	char part[NAME_MAX + 1];
	struct way way = { 0 };
	int r;

	strcpy(way.rest, path);
	r = view_open_root(find->place->view, &dir);
	while (r >= 0 && next_part(&way, part)) {
		r = view_open_dir(find->place->view, &dir, part, &next);
		view_dir_clear(&dir);
		if (r >= 0)
			dir = next;
	}
	if (r >= 0)
		*ret = dir;
	return r;
}

static bool in_newer(const struct view_dir *dir, size_t part, const char *name)
{
	for (size_t i = 0; i < part; i++)
		if (faccessat(dir->parts[i].fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			return true;
	return false;
}

/* Takes fd. The names in one folder of one layer, but those that newer layers have. */
static void each_of(struct protect_find *find, const char *path, int fd, const struct view_dir *dir, size_t part,
	each_name call)
{
	DIR *stream = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!stream) {
		fd_close(fd);
		find->incomplete = true;
		return;
	}
	while (!find->builder->failed && (entry = readdir(stream))) {
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			(!dir || !in_newer(dir, part, entry->d_name)))
			call(find, path, entry->d_name, entry->d_type);
	}
	closedir(stream);
}

/* Every name in a folder, in no order. One layer needs no merging, and is what most places have. */
static void each(struct protect_find *find, const char *path, each_name call)
{
	_cleanup_(view_dir_clear) struct view_dir dir = VIEW_DIR_INIT;
	const struct view *view = find->place->view;
	int r;

	if (!view)
		return;
	if (view->n_layers == 1 && view->layers[0].flavour == VIEW_PLAIN) {
		r = path_open_under(view->layers[0].root_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, 0);
		if (r >= 0)
			each_of(find, path, r, NULL, 0, call);
	} else {
		r = open_folder(find, path, &dir);
		for (size_t i = 0; r >= 0 && i < dir.n_parts; i++)
			each_of(find, path, openat(dir.parts[i].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
				&dir, i, call);
	}
	if (r < 0 && r != -ENOENT && r != -ENOTDIR && r != -ELOOP)
		find->incomplete = true;
}

/* Protects what a line of a config names, seen from `base`; NULL: nobody knows from where. */
static void protect_named(struct protect_find *find, const char *base, char *value, bool folder)
{
	const char *path = value + strspn(value, " \t\"");
	char *end = value + (path - value) + strcspn(path, "\"\r#;");

	while (end > path && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	*end = 0;
	if (path[0] == '/') {
		path = absolute_in_place(find, path);
		base = "";
	}
	if (path && *path && *path != '~' && base)
		protect_path(find, join(find, base, path), folder, "", false);
}

/*
 * The places that a git config names and whose files git runs or reads as config: `core.hooksPath`, seen from
 * the work tree, and `include.path`, seen from the folder of the config.
 */
static void read_config(struct protect_find *find, const char *gitdir, const char *tree)
{
	_cleanup_(freep) char *data = read_file(find, join(find, gitdir, "config"), CONFIG_MAX);
	bool in_core = false, in_include = false;
	char *save = NULL;

	for (char *line = data ? strtok_r(data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		char *value;

		line += strspn(line, " \t");
		if (line[0] == '[') {
			in_core = strncasecmp(line, "[core]", 6) == 0;
			in_include = strncasecmp(line, "[include", 8) == 0;
			value = strchr(line, ']');
			line = value ? value + 1 + strspn(value + 1, " \t") : line;
		}
		value = strchr(line, '=');
		if (value && in_core && strncasecmp(line, "hookspath", 9) == 0)
			protect_named(find, tree, value + 1, true);
		else if (value && in_include && strncasecmp(line, "path", 4) == 0)
			protect_named(find, gitdir, value + 1, false);
	}
}

static void scan_repository(struct protect_find *find, const char *gitdir, const char *tree);

static void scan_module(struct protect_find *find, const char *folder, const char *name, unsigned char type)
{
	const char *path = join(find, folder, name);
	struct view_entry entry;
	unsigned int depth = 0;

	for (const char *c = path; *c; c++)
		depth += *c == '/';
	if ((type != DT_DIR && type != DT_UNKNOWN) || depth > 64)
		return;
	if (there(find, join(find, path, "HEAD"), &entry))
		scan_repository(find, path, NULL);
	else if (there(find, path, &entry) && S_ISDIR(entry.st.st_mode))
		each(find, path, scan_module);
}

/* A linked work tree's own folder in the repository. */
static void scan_linked(struct protect_find *find, const char *folder, const char *name, unsigned char type)
{
	const char *path = join(find, folder, name);
	struct view_entry entry;

	(void)type;
	if (!there(find, join(find, path, "HEAD"), &entry))
		return;
	protect_path(find, join(find, path, "commondir"), false, "../..\n", false);
	protect_path(find, join(find, path, "config.worktree"), false, "", false);
}

/* `commondir` makes git take config and hooks from elsewhere; one that says "here" changes nothing. */
static void scan_repository(struct protect_find *find, const char *gitdir, const char *tree)
{
	for (size_t i = 0; i < find->n_repositories; i++)
		if (strcmp(find->repositories[i], gitdir) == 0)
			return;
	if (!list_add(find, &find->repositories, &find->n_repositories, &find->allocated_repositories, gitdir))
		return;
	protect_path(find, join(find, gitdir, "hooks"), true, "", false);
	protect_path(find, join(find, gitdir, "config"), false, "", false);
	protect_path(find, join(find, gitdir, "config.worktree"), false, "", false);
	protect_path(find, join(find, gitdir, "commondir"), false, ".\n", false);
	read_config(find, gitdir, tree);
	each(find, join(find, gitdir, "modules"), scan_module);
	each(find, join(find, gitdir, "worktrees"), scan_linked);
}

/* What is called `path`, seen from `base`: its canonical path, or NULL when it is not a folder of the place. */
static const char *folder_at(struct protect_find *find, const char *base, const char *path)
{
	struct way way = { 0 };
	const char *from = path[0] == '/' ? absolute_in_place(find, path) : path;

	if (!from || snprintf(way.rest, sizeof(way.rest), "%s/%s", path[0] == '/' ? "" : base, from) >=
			     (int)sizeof(way.rest))
		return NULL;
	if (!walk(find, &way) || !S_ISDIR(way.entry.st.st_mode))
		return NULL;
	return builder_text(find->builder, "%s", way.done);
}

/* A `.git` that is a file, as a linked work tree and a submodule have it. */
static void scan_git_file(struct protect_find *find, const char *path, const char *tree)
{
	_cleanup_(freep) char *line = read_file(find, path, LINK_FILE_MAX), *common = NULL;
	const char *gitdir, *shared;

	protect_path(find, path, false, "", false);
	if (!line || strncmp(line, "gitdir:", 7) != 0)
		return;
	line[strcspn(line, "\r\n")] = 0;
	gitdir = folder_at(find, tree, line + 7 + strspn(line + 7, " "));
	if (!gitdir)
		return;
	common = read_file(find, join(find, gitdir, "commondir"), LINK_FILE_MAX);
	if (!common) {
		scan_repository(find, gitdir, tree);
		return;
	}
	common[strcspn(common, "\r\n")] = 0;
	protect_path(find, join(find, gitdir, "commondir"), false, "", false);
	protect_path(find, join(find, gitdir, "config.worktree"), false, "", false);
	shared = folder_at(find, gitdir, common);
	if (shared)
		scan_repository(find, shared, tree);
}

static void scan_git(struct protect_find *find, const char *tree)
{
	struct way way = { 0 };

	if (snprintf(way.rest, sizeof(way.rest), "%s/.git", tree) >= (int)sizeof(way.rest))
		return;
	if (!walk(find, &way)) /* a link that leads out is held by now */
		return;
	if (S_ISDIR(way.entry.st.st_mode))
		scan_repository(find, builder_text(find->builder, "%s", way.done), tree);
	else if (S_ISREG(way.entry.st.st_mode))
		scan_git_file(find, builder_text(find->builder, "%s", way.done), tree);
}

static void match_written(struct protect_find *find, const char *path)
{
	const abox_spec *spec = find->builder->spec;
	size_t n = spec_count(spec, "/workspace/protect");

	for (size_t i = 0; i < n; i++) {
		const char *pattern = spec_string(spec, "/workspace/protect/%zu", i);

		if (pattern[0] != '!' && pattern_match(pattern, path))
			protect_path(find, path, false, "", true);
	}
}

static void see_name(struct protect_find *find, const char *folder, const char *name, unsigned char type)
{
	bool obeyed = is_obeyed(folder, name);
	const char *path;

	if (strcmp(name, ".git") == 0) {
		scan_git(find, builder_text(find->builder, "%s", folder));
		return;
	}
	if (!obeyed && !find->whole && type != DT_DIR && type != DT_UNKNOWN)
		return;
	path = join(find, folder, name);
	if (obeyed)
		protect_path(find, path, false, "", false);
	if (find->whole)
		match_written(find, path);
	if (type == DT_DIR || type == DT_UNKNOWN)
		list_add(find, &find->queue, &find->n_queue, &find->allocated_queue, path);
}

/* A repository without a work tree: the place itself is one. */
static void scan_bare(struct protect_find *find)
{
	struct view_entry entry;

	if (there(find, "HEAD", &entry) && there(find, "objects", &entry) && there(find, "refs", &entry))
		scan_repository(find, "", NULL);
}

/* What the user wrote, as far as it is a path; patterns are matched in the walk. */
static void find_written(struct protect_find *find)
{
	const abox_spec *spec = find->builder->spec;
	size_t n = spec_count(spec, "/workspace/protect");

	for (size_t i = 0; i < n; i++) {
		const char *pattern = spec_string(spec, "/workspace/protect/%zu", i);
		size_t len = strlen(pattern);
		bool folder = len > 3 && strcmp(pattern + len - 3, "/**") == 0;
		char path[PATH_MAX];

		if (pattern[0] == '!')
			continue;
		snprintf(path, sizeof(path), "%.*s", (int)(folder ? len - 3 : len), pattern);
		if (path[strcspn(path, "*?[\\")]) {
			find->open_pattern = pattern;
			find->whole = true;
		} else
			protect_path(find, path, folder, "", true);
	}
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct protect_item *)a)->path, ((const struct protect_item *)b)->path);
}

/* What lies in a protected folder needs nothing of its own. */
static void drop_covered(struct protect_find *find)
{
	size_t n = 0;

	if (find->n_items > 1)
		qsort(find->items, find->n_items, sizeof(*find->items), by_path);
	for (size_t i = 0; i < find->n_items; i++) {
		bool covered = false;

		for (size_t k = 0; k < n && !covered; k++) {
			size_t len = strlen(find->items[k].path);

			covered = strncmp(find->items[i].path, find->items[k].path, len) == 0 &&
				  find->items[i].path[len] == '/';
		}
		if (!covered)
			find->items[n++] = find->items[i];
	}
	find->n_items = n;
}

int protect_find(struct protect_find *find)
{
	size_t max;

	if (find->place->workspace)
		find_written(find);
	max = find->whole || spec_boolean(find->builder->spec, "/strict") ? FOLDERS_WHOLE_MAX : FOLDERS_MAX;
	if (find->place->view)
		scan_bare(find);
	list_add(find, &find->queue, &find->n_queue, &find->allocated_queue, "");
	for (size_t i = 0; find->place->view && !find->builder->failed && i < find->n_queue; i++) {
		if (i >= max || find->n_items > ITEMS_MAX) {
			find->incomplete = true;
			break;
		}
		each(find, find->queue[i], see_name);
	}
	if (find->builder->failed)
		return ABOX_E_MEMORY;
	drop_covered(find);
	return find->n_items > ITEMS_MAX ? ABOX_E_LIMIT : 0;
}

void protect_find_clear(struct protect_find *find)
{
	free(find->items);
	free(find->queue);
	free(find->repositories);
	*find = (struct protect_find){ 0 };
}
