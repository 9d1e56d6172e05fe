/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The workspace of a box: in which way it is there, and what becomes of it. Three ways:
 *
 * - in memory: an empty folder, or a layer above a folder of the host, in the scratch of the box. All of it
 *   goes with the box, and nobody has to settle anything.
 *
 * - direct: the folder itself, bound.
 *
 * - stored: in the store of workspaces. Whatever survives in some case, archives, snapshots, workspaces that
 *   are there already, and copies. What is done at the start and at the end stands in the order (a JSON
 *   object), which the recorder carries out and the plan shows.
 */
#include "plan/builder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <agentbox/workspace.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/place.h"
#include "base/secret.h"
#include "plan/protect.h"
#include "workspace/change.h"
#include "workspace/layer.h"
#include "workspace/quota.h"
#include "workspace/workspace.h"

#define WORKSPACE "/workspace"
#define N_ENDS 4

static const char *const end_keys[N_ENDS] = {
	"/workspace/on_success",
	"/workspace/on_failure",
	"/workspace/on_cancel",
	"/workspace/on_timeout",
};
static const char *const end_names[N_ENDS] = { "on_success", "on_failure", "on_cancel", "on_timeout" };
static const char *const class_names[] = { "keep", "cache", "scratch", "artifact", "never" };

struct choice {
	int kind; /* SPEC_SOURCE_* */
	int mode; /* SPEC_WORKSPACE_* */
	bool is_whole; /* a copy without overlay */
	const char *why; /* why this mode */
	const char *path, *id;
	const char *actions[N_ENDS];
	bool survives; /* something may, in some case */
	uint32_t owner_uid, owner_gid; /* of the folder */
	bool idmap;
	const char *base; /* folder of the host below the layers; NULL for none */
	struct layer_stack stack; /* of a workspace or snapshot: what it shows, for protection */
	struct stack_views views;
	bool is_bounded; /* the layer of the box has a filesystem of its own */
	enum quota_kind quota; /* which, where it has one */
	const char *why_memory; /* why it is none on the disk; NULL when it is */
	uint64_t limit_bytes, limit_inodes;
	bool has_limit; /* the workspace has one of its own */
	struct text layers; /* elements of a JSON array, uppermost first */
};

/* -- what survives -- */

static void choose_actions(struct plan_builder *builder, struct choice *choice)
{
	const char *absent = choice->kind == SPEC_SOURCE_WORKSPACE ? "keep" : "discard";

	for (size_t i = 0; i < N_ENDS; i++) {
		const char *written = spec_string(builder->spec, "%s", end_keys[i]);

		choice->actions[i] = written ? written : i == 3 ? choice->actions[1] : absent;
		choice->survives = choice->survives || strcmp(choice->actions[i], "discard") != 0;
	}
}

static int check_classes(struct plan_builder *builder, const struct choice *choice, abox_error **reterr)
{
	const abox_spec *spec = builder->spec;

	for (size_t i = 0; i < N_ENDS; i++)
		if (strcmp(choice->actions[i], "artifacts") == 0 &&
			spec_count(spec, "/workspace/artifact") == 0)
			return error_remedy(reterr,
				spec_refuse(spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, end_keys[i],
					"nothing says what the artifacts are"),
				"add \"artifact\" with the patterns of what is to be collected");
	if (spec_count(spec, "/workspace/artifact") > 0 && !choice->survives)
		return error_remedy(reterr,
			spec_refuse(spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, "/workspace/artifact",
				"they would never be collected"),
			"write \"on_success\": \"artifacts\"");
	if (choice->mode != SPEC_WORKSPACE_DIRECT)
		return 0;
	for (size_t i = 0; i < N_ENDS; i++)
		if (spec_written(spec, "%s", end_keys[i]) && strcmp(choice->actions[i], "discard") == 0)
			return error_remedy(reterr,
				spec_refuse(spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, end_keys[i],
					"the folder itself is the workspace: its changes cannot be thrown away"),
				"use mode \"overlay\"");
	if (spec_count(spec, "/workspace/scratch") > 0)
		return spec_refuse(spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, "/workspace/scratch",
			"the folder itself is the workspace: nothing is removed from it");
	return 0;
}

/* -- which mode -- */

/* Why no upper layer can lie in the store; NULL when one can. */
static const char *store_blocks_overlay(void)
{
	static const struct {
		unsigned long magic;
		const char *why;
	} kinds[] = {
		{ 0x794c7630, "workspaces are kept on an overlay, which takes no layer above it" },
		{ 0x6969, "workspaces are kept on NFS, which takes no overlay" },
		{ 0x65735546, "workspaces are kept on a FUSE filesystem, which takes no overlay" },
		{ 0x01021997, "workspaces are kept on 9p, which takes no overlay" },
		{ 0xfe534d42, "workspaces are kept on SMB, which takes no overlay" },
		{ 0x4d44, "workspaces are kept on FAT, which takes no overlay" },
	};
	char path[PATH_MAX], *slash;
	struct statfs fs;

	if (place_path(PLACE_STATE, path, sizeof(path)) < 0)
		return NULL;
	while (statfs(path, &fs) < 0 && (slash = strrchr(path, '/')) && slash > path)
		*slash = 0;
	for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
		if ((unsigned long)fs.f_type == kinds[i].magic)
			return kinds[i].why;
	/* where a layer's marks are kept: a tmpfs has no attributes of users before Linux 6.6 */
	if (getxattr(path, layer_process_is_root() ? "trusted.overlay.opaque" : "user.overlay.opaque", NULL, 0) < 0 &&
		errno == EOPNOTSUPP)
		return "workspaces are kept on a filesystem without the attributes that an overlay needs";
	return NULL;
}

/* Overlay where it is wanted and can be had, else a copy; never anything weaker without a word. */
static void choose_mode(struct plan_builder *builder, struct choice *choice)
{
	const char *blocker =
		builder->facts->overlay ? NULL : "this host allows no overlay mount to this user";

	choice->mode = spec_enum(builder->spec, "/workspace/mode");
	choice->why = "as written";
	if (choice->mode == SPEC_WORKSPACE_OVERLAY && !spec_written(builder->spec, "/workspace/mode"))
		choice->why = "the default";
	if (choice->mode == SPEC_WORKSPACE_DIRECT || (choice->kind == SPEC_SOURCE_EMPTY && !choice->survives))
		return;
	if (!blocker && choice->survives)
		blocker = store_blocks_overlay();
	if (!blocker && choice->mode == SPEC_WORKSPACE_OVERLAY && choice->kind == SPEC_SOURCE_DIR &&
		builder->flat.map == FLAT_MAP_RANGE && !choice->idmap && choice->survives)
		blocker = "the filesystem of the folder cannot show its files under other ids";
	if (choice->kind == SPEC_SOURCE_TAR)
		choice->why = "an archive is unpacked";
	if (!blocker)
		return;
	choice->is_whole = strstr(blocker, "other ids") == NULL;
	if (choice->kind != SPEC_SOURCE_EMPTY && choice->mode == SPEC_WORKSPACE_OVERLAY)
		builder_warn(builder, "the workspace is a copy: %s", blocker);
	choice->mode = SPEC_WORKSPACE_COPY;
	choice->why = blocker;
}

static bool is_in_memory(const struct choice *choice)
{
	return !choice->survives && choice->mode == SPEC_WORKSPACE_OVERLAY &&
	       (choice->kind == SPEC_SOURCE_EMPTY || choice->kind == SPEC_SOURCE_DIR);
}

/* -- sources -- */

static int open_folder(struct plan_builder *builder, struct choice *choice, abox_error **reterr)
{
	bool direct = spec_enum(builder->spec, "/workspace/mode") == SPEC_WORKSPACE_DIRECT, directory;
	struct flat_source found;
	int r;

	r = plan_open_source(builder, "/workspace/source/path",
		spec_string(builder->spec, "/workspace/source/path"), direct, &found, &directory, reterr);
	if (r < 0)
		return r;
	if (!directory)
		return spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN,
			"/workspace/source/path", "a workspace is a folder");
	choice->path = choice->base = found.path;
	choice->owner_uid = found.owner_uid;
	choice->owner_gid = found.owner_gid;
	choice->idmap = found.idmap;
	return 0;
}

static int open_archive(struct plan_builder *builder, struct choice *choice, abox_error **reterr)
{
	const char *path = spec_string(builder->spec, "/workspace/source/path");
	char real[PATH_MAX];
	struct stat st;

	if (!path || !realpath(path, real) || stat(real, &st) < 0)
		return spec_refuse(builder->spec, reterr,
			errno == EACCES ? ABOX_E_PERMISSION : ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN,
			"/workspace/source/path", "cannot reach %s: %s", path ? path : "it", strerror(errno));
	if (!S_ISREG(st.st_mode))
		return spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN,
			"/workspace/source/path", "an archive is a regular file");
	choice->path = builder_text(builder, "%s", real);
	return 0;
}

static void add_layer(struct choice *choice, const char *what, const char *which)
{
	if (choice->layers.len)
		text_add(&choice->layers, ",");
	text_printf(&choice->layers, "{\"kind\":\"%s\",\"is\":", what);
	if (which)
		text_add_json(&choice->layers, which, strlen(which));
	else
		text_add(&choice->layers, "null");
	text_add(&choice->layers, "}");
}

/* The frozen layers below, and the folder of the host; whatever is changed until the start is seen then. */
static int list_layers(abox_workspace *workspace, const char *top, struct choice *choice, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	_cleanup_(layer_chain_clear) struct layer_chain chain = { 0 };
	bool has_base = false;
	int r;

	r = layer_chain_read(workspace->home_fd, top, record->flavour, &chain, reterr);
	for (size_t i = 0; r >= 0 && i < chain.n; i++) {
		add_layer(choice, chain.records[i].is_base ? "base" : "frozen", chain.records[i].id);
		has_base = has_base || chain.records[i].is_base || chain.records[i].is_full;
	}
	if (r >= 0 && !has_base && record->mode == WORKSPACE_OVERLAY && record->base.kind == BASE_FOLDER)
		add_layer(choice, "folder", record->base.path);
	return r;
}

/* Opening the store would make it; until the start the host is only read. */
static int check_store(struct plan_builder *builder, abox_error **reterr)
{
	char path[PATH_MAX];

	if (place_path(PLACE_STATE, path, sizeof(path)) < 0 || access(path, F_OK) < 0)
		return spec_refuse(builder->spec, reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN,
			"/workspace/source/id", "there are no workspaces yet");
	return 0;
}

static void take_record(struct plan_builder *builder, struct choice *choice, const abox_workspace *workspace)
{
	const struct workspace_record *record = &workspace->record;

	choice->mode = record->mode == WORKSPACE_DIRECT ? SPEC_WORKSPACE_DIRECT
		       : record->mode == WORKSPACE_COPY ? SPEC_WORKSPACE_COPY
							: SPEC_WORKSPACE_OVERLAY;
	choice->is_whole = record->is_full;
	choice->why = "that of the workspace";
	if (record->base.kind == BASE_FOLDER && record->mode != WORKSPACE_COPY)
		choice->base = builder_text(builder, "%s", record->base.path);
}

static int check_usable(struct plan_builder *builder, const struct choice *choice,
	const abox_workspace *workspace, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	static const char *const words[] = { "overlay", "copy", "direct" };

	if (spec_written(builder->spec, "/workspace/mode") &&
		spec_enum(builder->spec, "/workspace/mode") != choice->mode)
		return spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, "/workspace/mode",
			"the workspace has the mode \"%s\"", words[choice->mode]);
	if (record->flavour != layer_flavour_of_process())
		return spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN,
			"/workspace/source/id", "its layers were made %s root and cannot be used %s",
			record->flavour == LAYER_TRUSTED ? "by" : "without",
			record->flavour == LAYER_TRUSTED ? "without" : "by root");
	if (!record->is_full && record->mode != WORKSPACE_DIRECT && !builder->facts->overlay &&
		(record->parent[0] || record->base.kind == BASE_FOLDER))
		return spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN,
			"/workspace/source/id",
			"it is made of layers, and this host allows no overlay mount");
	return 0;
}

/* How much the box may add: what the spec says, else what is left of the workspace's own limit, else the default. */
static int choose_limits(
	struct plan_builder *builder, struct choice *choice, abox_workspace *workspace, abox_error **reterr)
{
	bool can_grow = choice->quota == QUOTA_IMAGE;
	const struct workspace_record *record = workspace ? &workspace->record : NULL;

	choice->limit_bytes = spec_u64(builder->spec, "/limits/disk");
	choice->limit_inodes = spec_u64(builder->spec, "/limits/inodes");
	if (!record || (!record->limit_bytes && !record->limit_inodes))
		return 0;
	if (can_grow && record->limit_bytes && !spec_written(builder->spec, "/limits/disk"))
		choice->limit_bytes = record->limit_bytes;
	if (can_grow && record->limit_inodes && !spec_written(builder->spec, "/limits/inodes"))
		choice->limit_inodes = record->limit_inodes;
	choice->has_limit = true;
	return quota_left(workspace, true, &choice->limit_bytes, &choice->limit_inodes, reterr);
}

static int open_stored(struct plan_builder *builder, struct choice *choice, abox_error **reterr)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	const char *id = spec_string(builder->spec, "/workspace/source/id");
	const struct snapshot_record *snapshot;
	_cleanup_(freep) char *found = NULL;
	int r;

	r = check_store(builder, reterr);
	if (r < 0)
		return r;
	if (choice->kind == SPEC_SOURCE_WORKSPACE) {
		r = abox_workspace_open(id, &workspace, reterr);
		/* what a killed box has left is taken in by whoever comes next (workspace/quota.h) */
		if (r >= 0 && quota_is_left(workspace))
			r = workspace_lock(workspace, WORKSPACE_SHARED, 0, reterr);
		if (r < 0)
			return r;
		choice->id = builder_text(builder, "%s", workspace->record.id);
		take_record(builder, choice, workspace);
		if (choice->mode != SPEC_WORKSPACE_DIRECT)
			add_layer(choice, "live", workspace->record.live);
		r = choice->mode == SPEC_WORKSPACE_DIRECT || choice->is_whole
			    ? 0
			    : list_layers(workspace, workspace->record.parent, choice, reterr);
	} else {
		r = abox_workspace_find_snapshot(id, &workspace, &found, reterr);
		if (r < 0)
			return r;
		choice->id = builder_text(builder, "%s", found);
		snapshot = workspace_record_find(&workspace->record, found);
		take_record(builder, choice, workspace);
		if (choice->mode == SPEC_WORKSPACE_DIRECT) {
			choice->mode = SPEC_WORKSPACE_COPY;
			choice->base = NULL;
		}
		add_layer(choice, "live", NULL);
		r = choice->is_whole || !snapshot ? 0
						  : list_layers(workspace, snapshot->layer, choice, reterr);
	}
	if (r >= 0)
		r = check_usable(builder, choice, workspace, reterr);
	if (r >= 0 && !found)
		r = choose_limits(builder, choice, workspace, reterr);
	if (r >= 0)
		r = workspace_open_stack(workspace, found, &choice->stack, reterr);
	return r < 0 ? r : stack_views_init(&choice->stack, &choice->views);
}

/* -- in the tree of the box -- */

static bool is_limited(const struct plan_builder *builder)
{
	return spec_written(builder->spec, "/limits/disk") || spec_written(builder->spec, "/limits/inodes");
}

static void add_limits(struct plan_builder *builder, const struct enforcement *entry)
{
	static const char *const names[] = { "limits.disk", "limits.inodes" };
	static const char *const keys[] = { "/limits/disk", "/limits/inodes" };

	for (size_t i = 0; i < ELEMENTSOF(names); i++) {
		struct enforcement place = *entry;

		place.name = names[i];
		place.pointer = keys[i];
		place.required = spec_written(builder->spec, "%s", keys[i]);
		enforcement_add_place(builder, &place);
	}
}

static void unlimited(struct plan_builder *builder, const char *detail, const char *remedy)
{
	add_limits(builder, &(struct enforcement){ .by = "nothing for /workspace",
				    .status = ENFORCEMENT_NONE,
				    .detail = detail,
				    .remedy = remedy });
}

/*
 * The layer of the box, where there are layers: by a filesystem on the disk whether a limit was written or not, in memory
 * where one was asked for.
 */
static bool wants_bound(const struct plan_builder *builder, const struct choice *choice)
{
	return choice->mode != SPEC_WORKSPACE_DIRECT && !choice->is_whole && builder->facts->overlay &&
	       (choice->quota == QUOTA_IMAGE || choice->has_limit || is_limited(builder));
}

static void tell_bounded(struct plan_builder *builder, const struct choice *choice)
{
	static const char *const by[] = {
		[QUOTA_GUEST] = "kernel: one tmpfs for every writable place",
		[QUOTA_MEMORY] = "kernel: a tmpfs of its own for /workspace",
		[QUOTA_IMAGE] = "kernel: an ext4 of its own for /workspace, on a loop device",
	};
	bool is_lost = choice->quota != QUOTA_IMAGE;

	add_limits(builder, &(struct enforcement){
		.by = by[choice->quota],
		.detail = builder_text(builder, "what survives of /workspace is copied into the workspace at the end%s%s%s",
			is_lost ? "; it is lost when every process of the box is killed; in memory: " : "",
			is_lost ? choice->why_memory : "",
			choice->has_limit ? "; no more than is left of the workspace's own limit" : "") });
}

static void tell_unbounded(struct plan_builder *builder, const struct choice *choice)
{
	if (choice->mode == SPEC_WORKSPACE_DIRECT)
		unlimited(builder, "/workspace is a folder of the host that is written directly, without a quota", NULL);
	else if (choice->is_whole || !builder->facts->overlay)
		unlimited(builder, "/workspace is a whole copy on a disk of the host, without a quota", NULL);
	else
		unlimited(builder,
			builder_text(builder,
				"the layer of the workspace lies on a disk of the host, without a quota: %s",
				choice->why_memory),
			"write the limit, and the layer is bounded in memory");
}

static void put_overlay(struct plan_builder *builder, int32_t source)
{
	builder_parents(builder, WORKSPACE, true);
	builder_step(builder, &(struct flat_step){ .op = FLAT_OP_OVERLAY,
				      .target = WORKSPACE,
				      .name = "workspace",
				      .source = source,
				      .mode = 0755,
				      .attr = FLAT_ATTR_OWNER_BOX });
}

static int32_t folder_source(struct plan_builder *builder, const struct choice *choice)
{
	return builder_source(builder, &(struct flat_source){ .path = choice->path,
					       .kind = FLAT_DIRECTORY,
					       .idmap = choice->idmap,
					       .owner_uid = choice->owner_uid,
					       .owner_gid = choice->owner_gid });
}

static void put_in_memory(struct plan_builder *builder, struct choice *choice)
{
	if (choice->kind == SPEC_SOURCE_EMPTY) {
		builder_scratch(builder, "workspace", WORKSPACE, 0755, FLAT_ATTR_OWNER_BOX);
		return;
	}
	put_overlay(builder, folder_source(builder, choice));
	add_layer(choice, "live", "in memory");
	add_layer(choice, "folder", choice->path);
}

static void put_direct(struct plan_builder *builder, const struct choice *choice)
{
	builder_bind(builder, folder_source(builder, choice), WORKSPACE, 0);
	tell_unbounded(builder, choice);
}

static int put_stored(struct plan_builder *builder, struct choice *choice, abox_error **reterr)
{
	struct flat_source source = { .kind = FLAT_WORKSPACE };

	/* The ids of layers on the disk are fixed when the workspace is made. */
	if (builder->flat.map == FLAT_MAP_RANGE && builder->flat.inside_uid != SPEC_UID_AGENT)
		return error_remedy(reterr,
			spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, "/user",
				"the files of a workspace that is kept belong to user %d in a box of root",
				SPEC_UID_AGENT),
			"leave \"user\" out, or start the box as the owner of the files");
	source.path = choice->base ? choice->base : WORKSPACE;
	if (choice->is_bounded && choice->quota == QUOTA_GUEST) {
		put_overlay(builder, builder_source(builder, &source));
		builder->flat.limits.disk_bytes = choice->limit_bytes;
		builder->flat.limits.inodes = choice->limit_inodes;
	} else {
		builder_bind(builder, builder_source(builder, &source), WORKSPACE, 0);
	}
	if (choice->is_bounded)
		tell_bounded(builder, choice);
	else
		tell_unbounded(builder, choice);
	return 0;
}

/* -- protection -- */

/* Names of a repository are held whether they are there or not, but what an archive brings is not seen here.
 */
static void tell_unseen(struct plan_builder *builder)
{
	enforcement_add(builder,
		&(struct enforcement){ .name = "workspace.protect",
			.by = "kernel: read-only mounts, their folders pinned",
			.pointer = "/workspace/protect",
			.required = spec_count(builder->spec, "/workspace/protect") > 0,
			.status = ENFORCEMENT_APPROXIMATED,
			.detail =
				"the archive is not looked into: of the names that are only held where they are "
				"there, none is",
			.remedy =
				"make a workspace of it first (agentbox workspace create), and start from that" });
}

static int protect(struct plan_builder *builder, struct choice *choice, abox_error **reterr)
{
	const char *host = choice->base ? choice->base : choice->path;
	_cleanup_(fd_closep) int fd = -EBADF;
	struct view_layer layer = { .flavour = VIEW_PLAIN };
	struct view view = { .layers = &layer, .n_layers = 1 };
	struct protect_place place = { .target = WORKSPACE,
		.host = choice->kind == SPEC_SOURCE_TAR ? NULL : host,
		.direct = choice->mode == SPEC_WORKSPACE_DIRECT || choice->is_whole,
		.workspace = true };

	place.placeholder = choice->mode == SPEC_WORKSPACE_DIRECT &&
			    strcmp(spec_string(builder->spec, "/workspace/protect_absent"), "placeholder") == 0;
	if (choice->kind == SPEC_SOURCE_DIR)
		fd = layer.root_fd = open(choice->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		place.view = &view;
	else if (choice->views.now.n_layers > 0)
		place.view = &choice->views.now;
	if (choice->kind == SPEC_SOURCE_TAR)
		tell_unseen(builder);
	return plan_protect(builder, &place, reterr);
}

/* What is not there comes from a layer below all others, which the recorder makes. */
static void add_mask(const struct plan_builder *builder, struct text *text)
{
	const char *separator = "";

	text_add(text, ",\"mask\":[");
	for (uint32_t i = 0; i < builder->flat.n_steps; i++) {
		const struct flat_step *step = &builder->flat.steps[i];
		const char *name = step->target + strlen(WORKSPACE "/");

		if (step->op != FLAT_OP_PROTECT || !(step->attr & FLAT_ATTR_MAKE) ||
			strncmp(step->target, WORKSPACE "/", strlen(WORKSPACE "/")) != 0)
			continue;
		text_printf(text, "%s{\"folder\":%s,\"path\":", separator,
			step->attr & FLAT_ATTR_FOLDER ? "true" : "false");
		text_add_json(text, name, strlen(name));
		text_add(text, ",\"content\":");
		text_add_json(text, step->content ? step->content : "", step->content_len);
		text_add(text, "}");
		separator = ",";
	}
	text_add(text, "]");
}

/* -- the order -- */

static void add_text(struct text *text, const char *name, const char *value)
{
	text_printf(text, ",\"%s\":", name);
	if (value)
		text_add_json(text, value, strlen(value));
	else
		text_add(text, "null");
}

static void add_patterns(struct plan_builder *builder, struct text *text, const char *name)
{
	size_t n = spec_count(builder->spec, "/workspace/%s", name);

	text_printf(text, ",\"%s\":[", name);
	for (size_t i = 0; i < n; i++) {
		const char *pattern = spec_string(builder->spec, "/workspace/%s/%zu", name, i);

		text_add(text, i ? "," : "");
		text_add_json(text, pattern, strlen(pattern));
	}
	text_add(text, "]");
}

static const char *rename_rule(const struct plan_builder *builder, const struct choice *choice)
{
	if (choice->mode == SPEC_WORKSPACE_DIRECT || choice->is_whole || !choice->layers.len)
		return "every folder can be renamed";
	if (choice->layers.len && builder->flat.map == FLAT_MAP_RANGE && !is_in_memory(choice))
		return "every folder can be renamed";
	return "renaming a folder of a lower layer answers EXDEV: programs such as mv copy it instead";
}

static int make_order(struct plan_builder *builder, struct choice *choice, bool is_stored)
{
	static const char *const kinds[] = { "empty", "dir", "tar", "snapshot", "workspace" };
	static const char *const modes[] = { "overlay", "copy", "direct" };
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	uint64_t ttl =
		spec_has(builder->spec, "/workspace/ttl") ? spec_u64(builder->spec, "/workspace/ttl") : 0;
	char *order;
	int r;

	text_printf(&text, "{\"stored\":%s,\"kind\":\"%s\",\"mode\":\"%s\",\"whole_copy\":%s",
		is_stored ? "true" : "false", kinds[choice->kind], modes[choice->mode],
		choice->is_whole ? "true" : "false");
	add_text(&text, "why", choice->why);
	add_text(&text, "path", choice->path);
	add_text(&text, "id", choice->id);
	text_add(&text, ",\"layers\":[");
	if (choice->layers.len)
		text_add_bytes(&text, choice->layers.data, choice->layers.len);
	text_add(&text, "]");
	add_text(&text, "rename", rename_rule(builder, choice));
	for (size_t i = 0; i < N_ENDS; i++)
		add_text(&text, end_names[i],
			choice->mode == SPEC_WORKSPACE_DIRECT && strcmp(choice->actions[i], "discard") == 0
				? "keep"
				: choice->actions[i]);
	for (size_t i = 0; i < ELEMENTSOF(class_names); i++)
		add_patterns(builder, &text, class_names[i]);
	if (is_stored)
		add_mask(builder, &text);
	if (choice->is_bounded)
		text_printf(&text, ",\"quota\":{\"bytes\":%llu,\"inodes\":%llu,\"written\":%s,\"by\":\"%s\"}",
			(unsigned long long)choice->limit_bytes, (unsigned long long)choice->limit_inodes,
			is_limited(builder) ? "true" : "false", quota_kind_word(choice->quota));
	text_printf(
		&text, ",\"ttl_usec\":%llu,\"secrets\":%zu}", (unsigned long long)ttl, builder->n_secrets);
	if (choice->layers.failed)
		return ABOX_E_MEMORY;
	r = text_take(&text, &order);
	if (r < 0)
		return r;
	builder->workspace = builder_text(builder, "%s", order);
	builder->workspace_is_stored = is_stored;
	builder->workspace_copies =
		is_stored && (choice->mode == SPEC_WORKSPACE_COPY || choice->kind == SPEC_SOURCE_TAR);
	free(order);
	return 0;
}

/* What must be in nothing that survives: the values of variables whose names say "secret". */
static int take_secrets(struct plan_builder *builder)
{
	const char *name, *value;
	size_t n = spec_count(builder->spec, "/env");

	builder->secrets = calloc(n + 1, sizeof(*builder->secrets));
	if (!builder->secrets)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < n; i++) {
		if (!spec_map_string(builder->spec, i, &name, &value, "/env"))
			return ABOX_E_MEMORY;
		if (!secret_name(name, strlen(name)) || !value[0])
			continue;
		if (strlen(value) < SCAN_SECRET_MIN)
			builder_warn(builder,
				"the value of %s is too short to be looked for in what survives", name);
		else
			builder->secrets[builder->n_secrets++] = builder_text(builder, "%s", value);
	}
	return 0;
}

int plan_build_workspace(struct plan_builder *builder, abox_error **reterr)
{
	struct choice choice = { .kind = spec_enum(builder->spec, "/workspace/source/kind"),
		.stack = LAYER_STACK_INIT };
	bool is_stored;
	int r = 0;

	choose_actions(builder, &choice);
	choice.quota = quota_kind_here(&choice.why_memory);
	(void)choose_limits(builder, &choice, NULL, NULL);
	if (choice.kind == SPEC_SOURCE_DIR)
		r = open_folder(builder, &choice, reterr);
	else if (choice.kind == SPEC_SOURCE_TAR)
		r = open_archive(builder, &choice, reterr);
	if (r >= 0 && choice.kind < SPEC_SOURCE_SNAPSHOT)
		choose_mode(builder, &choice);
	else if (r >= 0)
		r = open_stored(builder, &choice, reterr);
	if (r >= 0)
		r = check_classes(builder, &choice, reterr);
	if (r < 0)
		goto end;
	is_stored = !is_in_memory(&choice) && !(choice.mode == SPEC_WORKSPACE_DIRECT &&
						      choice.kind == SPEC_SOURCE_DIR && !choice.survives);
	if (is_stored) {
		choice.is_bounded = wants_bound(builder, &choice);
		r = take_secrets(builder);
		if (r >= 0)
			r = put_stored(builder, &choice, reterr);
		if (!choice.layers.len && choice.mode == SPEC_WORKSPACE_OVERLAY) {
			add_layer(&choice, "live", NULL);
			if (choice.kind == SPEC_SOURCE_DIR)
				add_layer(&choice, "folder", choice.path);
		}
	} else if (choice.mode == SPEC_WORKSPACE_DIRECT) {
		put_direct(builder, &choice);
	} else {
		put_in_memory(builder, &choice);
	}
	if (builder->failed)
		r = ABOX_E_MEMORY;
	if (r >= 0)
		r = protect(builder, &choice, reterr);
	if (r >= 0)
		r = make_order(builder, &choice, is_stored);
end:
	text_clear(&choice.layers);
	stack_views_clear(&choice.views);
	layer_stack_clear(&choice.stack);
	return r;
}
