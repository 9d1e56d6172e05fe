/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The mounts that the user brings in besides the workspace. Sources are made canonical here and opened anew,
 * without following links, at the start; targets are checked against what the steps so far have put there.
 */
#include "plan/builder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "kernel/landlock.h"
#include "plan/protect.h"

int plan_open_source(struct plan_builder *builder, const char *pointer, const char *path, bool writable,
	struct flat_source *ret, bool *retdirectory, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct flat_source source = { 0 };
	char real[PATH_MAX];
	struct stat st;

	if (!path || !realpath(path, real) || (fd = open(real, O_PATH | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
		fstat(fd, &st) < 0)
		return spec_refuse(builder->spec, reterr,
			errno == EACCES ? ABOX_E_PERMISSION : ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, pointer,
			"cannot reach %s: %s", path ? path : "it", strerror(errno));
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, pointer,
			"%s is neither a folder nor a regular file", real);
	if (writable && strcmp(real, "/") == 0)
		return spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, pointer,
			"the root of the host cannot be given away for writing");
	source.path = builder_text(builder, "%s", real);
	source.kind = S_ISDIR(st.st_mode) ? FLAT_DIRECTORY : FLAT_FILE;
	source.owner_uid = st.st_uid;
	source.owner_gid = st.st_gid;
	source.idmap = builder->flat.map == FLAT_MAP_RANGE && host_facts_can_idmap(fd, builder->verdict);
	if (builder->flat.map == FLAT_MAP_RANGE && !source.idmap) {
		if (writable)
			return error_remedy(reterr,
				spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN,
					pointer,
					"the filesystem of %s cannot show its files under other ids, so a box of root could not write "
					"there as their owner",
					real),
				"give it read-only, use an overlay workspace, or start as the owner instead of as root");
		builder_warn(builder,
			"%s: its filesystem cannot show files under other ids; in the box only what everybody "
			"may read can be read",
			real);
	}
	*ret = source;
	if (retdirectory)
		*retdirectory = S_ISDIR(st.st_mode);
	return 0;
}

static int open_source(struct plan_builder *builder, const char *pointer, const char *path, bool writable,
	int32_t *retsource, bool *retdirectory, abox_error **reterr)
{
	struct flat_source source;
	int r = plan_open_source(builder, pointer, path, writable, &source, retdirectory, reterr);

	if (r == 0)
		*retsource = builder_source(builder, &source);
	return r;
}

static void unlimited_place(struct plan_builder *builder, const char *target)
{
	const char *detail = builder_text(
		builder, "%s is a folder of the host that is written directly, without a quota", target);
	const char *by = builder_text(builder, "nothing for %s", target);

	enforcement_add_place(builder, &(struct enforcement){ .name = "limits.disk",
					 .by = by,
					 .pointer = "/limits/disk",
					 .status = ENFORCEMENT_NONE,
					 .required = spec_written(builder->spec, "/limits/disk"),
					 .detail = detail });
	enforcement_add_place(builder, &(struct enforcement){ .name = "limits.inodes", .by = by,
		.pointer = "/limits/inodes", .status = ENFORCEMENT_NONE,
		.required = spec_written(builder->spec, "/limits/inodes"), .detail = detail });
}

/* What the box may not touch in a folder of the host that it may write. */
static int build_protection(struct plan_builder *builder, const char *target, int32_t source, abox_error **reterr)
{
	const char *host = builder->flat.sources[source].path;
	_cleanup_(fd_closep) int fd = open(host, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct view_layer layer = { .root_fd = fd, .flavour = VIEW_PLAIN };
	struct view view = { .layers = &layer, .n_layers = 1 };

	return plan_protect(builder,
		&(struct protect_place){
			.target = target,
			.view = fd >= 0 ? &view : NULL,
			.host = host,
			.direct = true,
		},
		reterr);
}

/* Whether the part of path behind its first `start` bytes leads through a link; what is not there is none. */
static bool has_link(const char *path, size_t start)
{
	char part[PATH_MAX * 2];
	struct stat st;

	for (size_t i = start + 1; path[start] && i <= strlen(path); i++) {
		if (path[i] && path[i] != '/')
			continue;
		snprintf(part, sizeof(part), "%.*s", (int)i, path);
		if (lstat(part, &st) == 0 && S_ISLNK(st.st_mode))
			return true;
	}
	return false;
}

/* A mount point that the box cannot make must be there: below a folder of the host nothing is ever created. And no
 * link leads to it: who may write to that folder would choose the place. */
static int check_target(
	struct plan_builder *builder, const char *pointer, const char *target, abox_error **reterr)
{
	const struct flat_step *step = builder_covering(builder, target);
	const char *source;
	char path[PATH_MAX * 2];
	struct stat st;

	if (!step || step->source < 0 || strcmp(step->target, target) == 0)
		return 0;
	source = builder->flat.sources[step->source].path;
	if (source[0] != '/')	/* layers: the guest follows no link there */
		return 0;
	snprintf(path, sizeof(path), "%s%s", source, target + strlen(step->target));
	if (has_link(path, strlen(source)))
		return error_remedy(reterr,
			spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, pointer,
				"%s is reached through a link in %s", target, step->target),
			"name the place that the link leads to");
	if (step->op == FLAT_OP_OVERLAY || builder->flat.sources[step->source].kind == FLAT_WORKSPACE ||
		lstat(path, &st) == 0)
		return 0;
	return error_remedy(reterr,
		spec_refuse(builder->spec, reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, pointer,
			"%s lies in %s, a folder of the host, and is not there", target, step->target),
		"make %s first, or choose a target outside of %s", path, step->target);
}

static void build_tmpfs(struct plan_builder *builder, size_t i, const char *target)
{
	uint64_t inodes = spec_u64(builder->spec, "/limits/inodes"),
		 size_bytes = spec_u64(builder->spec, "/limits/disk");

	if (spec_has(builder->spec, "/mounts/%zu/size", i))
		size_bytes = spec_u64(builder->spec, "/mounts/%zu/size", i);
	builder_parents(builder, target, true);
	builder_step(builder, &(struct flat_step){ .op = FLAT_OP_TMPFS,
				      .target = target,
				      .mode = 0755,
				      .source = -1,
				      .attr = FLAT_ATTR_OWNER_BOX,
				      .size_bytes = size_bytes,
				      .inodes = inodes });
	builder_landlock(builder, target, LANDLOCK_RW);
}

static int build_mount(struct plan_builder *builder, size_t i, abox_error **reterr)
{
	const abox_spec *spec = builder->spec;
	const char *target = spec_string(spec, "/mounts/%zu/target", i),
		   *mode = spec_string(spec, "/mounts/%zu/mode", i);
	const char *pointer = builder_text(builder, "/mounts/%zu/source", i);
	bool writable = strcmp(mode, "rw") == 0, directory;
	int32_t source = -1;
	uint32_t attr;
	int r;

	r = check_target(builder, builder_text(builder, "/mounts/%zu/target", i), target, reterr);
	if (r < 0)
		return r;
	if (strcmp(mode, "tmpfs") == 0) {
		build_tmpfs(builder, i, target);
		return 0;
	}
	r = open_source(builder, pointer, spec_string(spec, "/mounts/%zu/source", i), writable, &source,
		&directory, reterr);
	if (r < 0)
		return r;
	attr = writable ? 0 : FLAT_ATTR_RDONLY;
	if (builder->failed)
		return ABOX_E_MEMORY;
	if (directory && !writable && !builder->flat.sources[source].idmap)
		attr |= FLAT_ATTR_RECURSIVE; /* an idmapped tree is taken alone: one submount that cannot
						would fail it whole */
	builder_bind(builder, source, target, attr);
	if (!writable)
		return 0;
	builder_landlock(builder, target, LANDLOCK_RW);
	unlimited_place(builder, target);
	if (builder->failed)
		return ABOX_E_MEMORY;
	return directory ? build_protection(builder, target, source, reterr) : 0;
}

struct order {
	size_t index;
	const char *target;
};

static int by_target(const void *a, const void *b)
{
	return strcmp(((const struct order *)a)->target, ((const struct order *)b)->target);
}

/* Parents before children whatever the order in which they were written: /a must not hide /a/b. */
int plan_build_mounts(struct plan_builder *builder, abox_error **reterr)
{
	size_t n = spec_count(builder->spec, "/mounts");
	_cleanup_(freep) struct order *order = calloc(n + 1, sizeof(*order));
	int r;

	if (!order)
		return ABOX_E_MEMORY;
	r = plan_build_workspace(builder, reterr);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		order[i] = (struct order){ i, spec_string(builder->spec, "/mounts/%zu/target", i) };
	qsort(order, n, sizeof(*order), by_target);
	for (size_t i = 0; i < n; i++) {
		r = build_mount(builder, order[i].index, reterr);
		if (r < 0)
			return r;
	}
	builder_step(builder, &(struct flat_step){ .op = FLAT_OP_READONLY, .target = "/", .source = -1 });
	return 0;
}
