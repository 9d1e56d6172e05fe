/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which modules have to be loaded, and in which order. modules.dep lists for each module what it needs; what is in
 * modules.builtin is part of the kernel. Packed modules (.ko.xz) travel as they are: the guest's kernel unpacks them.
 */
#include "machine/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"

#define LIST_MAX (16U << 20)
#define DEPTH_MAX 16

struct search {
	const char *dep, *builtin;	/* the two files; builtin may be "" */
	struct machine_modules *found;
	int stage;
	abox_error **reterr;
};

/* Whether the path of a module, up to `end`, is that of `name`: files may spell '_' as '-'. */
static bool is_module(const char *path, const char *end, const char *name)
{
	const char *slash = memrchr(path, '/', (size_t)(end - path));
	const char *p = slash ? slash + 1 : path;

	for (; *name; name++, p++) {
		if (p == end || (*p == '-' ? '_' : *p) != (*name == '-' ? '_' : *name))
			return false;
	}
	return end - p >= 3 && memcmp(p, ".ko", 3) == 0;
}

/* The line of the file whose first path is the module's. */
static const char *find_line(const char *text, const char *name)
{
	while (*text) {
		size_t len = strcspn(text, ":\n");

		if (is_module(text, text + len, name))
			return text;
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return NULL;
}

static int add_path(struct search *search, const char *path, size_t len)
{
	struct machine_modules *found = search->found;

	for (size_t i = 0; i < found->n; i++) {
		if (strlen(found->paths[i]) == len && memcmp(found->paths[i], path, len) == 0)
			return 0;
	}
	if (found->n == ELEMENTSOF(found->paths))
		return error_set(search->reterr, ABOX_E_INVALID, search->stage, "modules.dep",
			"a module needs more than %d others", MACHINE_MODULES_MAX);
	found->paths[found->n] = strndup(path, len);
	return found->paths[found->n] ? (found->n++, 0) : ABOX_E_MEMORY;
}

/* A line lists all that the module needs, the deepest last: they are loaded from the end. */
static int add_line(struct search *search, const char *line)
{
	size_t own = strcspn(line, ":\n"), len = strcspn(line, "\n"), at = len;
	int r = 0;

	while (r == 0 && at > own + 1) {
		size_t begin = at;

		while (begin > own + 1 && line[begin - 1] != ' ')
			begin--;
		if (begin < at)
			r = add_path(search, line + begin, at - begin);
		at = begin > own + 1 ? begin - 1 : begin;
	}
	return r < 0 ? r : add_path(search, line, own);
}

static int add_module(struct search *search, const char *name)
{
	const char *line = find_line(search->dep, name);

	if (line)
		return add_line(search, line);
	if (find_line(search->builtin, name))
		return 0;
	return error_set(search->reterr, ABOX_E_NOT_FOUND, search->stage, name,
		"this kernel has no such driver, neither built in nor as a module");
}

static int read_list(const struct machine_kernel *kernel, const char *name, int stage, char **ret, abox_error **reterr)
{
	char path[PATH_MAX];
	int r;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", kernel->modules, name) >= sizeof(path))
		return error_set(reterr, ABOX_E_INVALID, stage, kernel->modules, "its path is too long");
	r = file_read_text(AT_FDCWD, path, LIST_MAX, ret, NULL);
	if (r == -ENOMEM)
		return ABOX_E_MEMORY;
	return r < 0 ? error_set_errno(reterr, ABOX_E_SYSTEM, stage, path, -r, "cannot read the list of modules") : 0;
}

int machine_modules_find(const struct machine_kernel *kernel, const char *const *names, int stage,
	struct machine_modules *ret, abox_error **reterr)
{
	_cleanup_(freep) char *dep = NULL, *builtin = NULL;
	struct search search = { .found = ret, .stage = stage, .reterr = reterr };
	int r;

	memset(ret, 0, sizeof(*ret));
	r = read_list(kernel, "modules.dep", stage, &dep, reterr);
	if (r == 0)
		r = read_list(kernel, "modules.builtin", stage, &builtin, reterr);
	search.dep = dep;
	search.builtin = builtin;
	for (size_t i = 0; r == 0 && names[i]; i++)
		r = add_module(&search, names[i]);
	if (r < 0)
		machine_modules_clear(ret);
	return r;
}

void machine_modules_clear(struct machine_modules *modules)
{
	for (size_t i = 0; i < modules->n; i++)
		free(modules->paths[i]);
	modules->n = 0;
}
