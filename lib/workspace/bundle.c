/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Export and import over the handle of a workspace. An import is unpacked into a layer that nothing leads to;
 * only when all of it was read and holds, it becomes the base of a new workspace.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <agentbox/change.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/change.h"
#include "workspace/home.h"
#include "workspace/store.h"

#define STAGE ABOX_STAGE_WORKSPACE

void abox_export_options_init(struct abox_export_options *options)
{
	*options = (struct abox_export_options)ABOX_EXPORT_OPTIONS_INIT;
}

void abox_import_options_init(struct abox_import_options *options)
{
	*options = (struct abox_import_options)ABOX_IMPORT_OPTIONS_INIT;
}

static int make_report(const char *digest, const struct archive_lost *lost, char **retreport)
{
	struct text json = TEXT_INIT;

	if (!retreport)
		return 0;
	text_add(&json, "{");
	if (digest[0])
		text_printf(&json, "\"digest\":\"%s\",", digest);
	text_printf(&json, "\"n_lost\":%llu,\"lost\":[%s]}", (unsigned long long)lost->n_lost,
		lost->list.data ? lost->list.data : "");
	json.failed |= lost->list.failed;
	return text_take(&json, retreport);
}

static int export_locked(abox_workspace *workspace, const struct abox_export_options *options,
	const struct scan_rules *rules, int fd, struct archive_lost *lost, char digest[DIGEST_TEXT_BYTES],
	abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	_cleanup_(stack_views_clear) struct stack_views views = {0};
	struct progress progress = {0};
	int r;

	r = workspace_open_stack(workspace, options ? options->snapshot : NULL, &stack, reterr);
	if (r >= 0)
		r = stack_views_init(&stack, &views);
	if (r < 0)
		return r;
	if (workspace_mode(workspace) == WORKSPACE_DIRECT && !(options && options->snapshot))
		views.layers[0].host_ids = true;
	if (options)
		progress = (struct progress){options->progress, options->progress_userdata};
	views.now.progress = &progress;
	return archive_export(&views.now, &stack.ids, rules, fd, lost, digest, reterr);
}

int abox_workspace_export(abox_workspace *workspace, const struct abox_export_options *options, int fd,
	char **retreport, abox_error **reterr)
{
	_cleanup_(archive_lost_clear) struct archive_lost lost = {0};
	char digest[DIGEST_TEXT_BYTES] = "";
	struct scan_rules rules = {0};
	int r;

	if (!workspace || fd < 0)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "workspace and fd are required");
	if (options && options->size < sizeof(*options))
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "options are of no known size");
	if (options) {
		_Static_assert(
			sizeof(struct abox_secret) == sizeof(struct scan_secret), "the same two members");
		rules = (struct scan_rules){
			options->never, (const struct scan_secret *)options->secrets, options->n_secrets};
	}
	r = workspace_lock(workspace, WORKSPACE_SHARED, HOME_LOCK_TIMEOUT_USEC, reterr);
	if (r < 0)
		return r;
	r = export_locked(workspace, options, rules.never || rules.n_secrets > 0 ? &rules : NULL, fd, &lost,
		digest, reterr);
	workspace_unlock(workspace);
	return r < 0 ? r : make_report(digest, &lost, retreport);
}

static int unpack(int fd, const struct abox_import_options *options, struct layer_build *build,
	struct archive_lost *lost, char digest[DIGEST_TEXT_BYTES], abox_error **reterr)
{
	struct progress progress = {options->progress, options->progress_userdata};
	struct archive_bounds bounds = {options->max_bytes, options->max_files, &progress};

	if (options->flags & ABOX_IMPORT_ANY)
		return archive_extract(fd, build->data_fd, &build->ids, &bounds, lost, reterr);
	return archive_import(
		fd, build->data_fd, &build->ids, &bounds, options->digest, lost, digest, reterr);
}

int abox_workspace_import(int fd, const struct abox_import_options *given, abox_workspace **ret,
	char **retreport, abox_error **reterr)
{
	_cleanup_(layer_build_clear) struct layer_build build = LAYER_BUILD_INIT;
	_cleanup_(archive_lost_clear) struct archive_lost lost = {0};
	_cleanup_(freep) char *report = NULL;
	struct abox_import_options options = ABOX_IMPORT_OPTIONS_INIT;
	struct workspace_new new = {0};
	char digest[DIGEST_TEXT_BYTES] = "";
	int r;

	if (fd < 0 || !ret)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "fd and ret are required");
	if (given && given->size < sizeof(options))
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "options are of no known size");
	if (given)
		options = *given;
	if ((options.flags & ~(uint32_t)ABOX_IMPORT_ANY) ||
		(options.digest && (options.flags & ABOX_IMPORT_ANY)))
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL,
			"unknown flags, or a digest for an archive that has none");
	r = layer_build_begin(&build, reterr);
	if (r >= 0)
		r = unpack(fd, &options, &build, &lost, digest, reterr);
	if (r >= 0)
		r = make_report(digest, &lost, retreport ? &report : NULL);
	if (r < 0)
		return r;
	new = (struct workspace_new){
		.name = options.name,
		.task = options.task,
		.ttl_usec = options.ttl_usec,
		.base = {.kind = BASE_ARCHIVE, .digest = digest[0] ? digest : NULL},
	};
	r = workspace_new_from_layer(&new, &build, ret, reterr);
	if (r >= 0 && retreport)
		*retreport = steal_ptr(report);
	return r;
}
