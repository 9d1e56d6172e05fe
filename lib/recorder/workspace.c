/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The workspace of a box from its start to its end. What is promised: it is locked as long as anything of the
 * box lives, so that no two boxes ever share a layer that is written; at the end happens what the plan says
 * for the way in which the box has ended, and what the gate has not let through stays where it is for
 * somebody to decide.
 *
 * Which box uses a workspace is written down beside its record (the file "box"). It is how a box of which
 * everything was killed is settled by a later gc, once, and never in the place of another box that has used
 * it since.
 */
#include "recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/change.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/pack.h"
#include "base/path.h"
#include "kernel/mount.h"
#include "kernel/userns.h"
#include "workspace/apply.h"
#include "workspace/changes.h"
#include "workspace/home.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define ORDER_MAX (32U << 20)
#define LOCK_USEC (2 * USEC_PER_SEC)
#define LISTED_MAX 64 /* artifacts that the result names; artifacts.json has them all */
#define USER_FILE "box"
#define NAMES_FILE "names"

static const char *const end_names[] = { "success", "failure", "cancel", "timeout", "unborn" };

/*
 * A workspace that was made for a box of which everything was killed, and that no gc has settled in a week,
 * goes as one that has expired. What is kept gets the time that the plan says.
 */
#define BRIEF_TTL_USEC (7 * 24 * 3600 * USEC_PER_SEC)

void opened_clear(struct opened *opened)
{
	layer_stack_clear(&opened->stack);
	opened->mount_fd = fd_close(opened->mount_fd);
}

void keeping_clear(struct keeping *keeping)
{
	keeping->workspace = abox_workspace_unref(keeping->workspace);
	json_unref(keeping->order);
	for (size_t i = 0; i < keeping->n_secrets; i++) {
		explicit_bzero(keeping->secrets[i], strlen(keeping->secrets[i]));
		free(keeping->secrets[i]);
	}
	free(keeping->secrets);
	free(keeping->box);
	free(keeping->task);
	free(keeping->plan);
	quota_clear(&keeping->quota);
	*keeping = (struct keeping){ .quota = QUOTA_INIT };
}

static int parse_order(struct keeping *keeping, const char *text, abox_error **reterr)
{
	struct json_bounds bounds = { .max_bytes = ORDER_MAX, .max_depth = 8, .stage = STAGE };

	return json_parse(text, strlen(text), &bounds, &keeping->order, reterr);
}

static int take_secrets(struct keeping *keeping, struct pack_reader *reader)
{
	uint32_t n = unpack_count(reader, 4);

	keeping->secrets = calloc((size_t)n + 1, sizeof(*keeping->secrets));
	if (!keeping->secrets)
		return ABOX_E_MEMORY;
	for (uint32_t i = 0; i < n && !reader->failed; i++) {
		keeping->secrets[i] = strdup(unpack_string(reader));
		if (!keeping->secrets[i])
			return ABOX_E_MEMORY;
		keeping->n_secrets++;
	}
	return 0;
}

int keeping_read_order(struct keeping *keeping, int order_fd, abox_error **reterr)
{
	struct pack_reader reader;
	const void *data;
	size_t len;
	int r;

	r = memfd_map_sealed(order_fd, ORDER_MAX, &data, &len);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_PROTOCOL, STAGE, "order", -r, "cannot be read");
	reader = PACK_READER(data, len);
	r = parse_order(keeping, unpack_string(&reader), reterr);
	if (r == 0)
		r = take_secrets(keeping, &reader);
	if (r == 0 && !unpack_done(&reader))
		r = error_set(reterr, ABOX_E_PROTOCOL, STAGE, "order", "is not what it must be");
	memfd_unmap(data, len);
	return r;
}

static const char *order_text(const struct keeping *keeping, const char *name)
{
	return json_text(json_member(keeping->order, name));
}

char **order_texts(const struct json *order, const char *name)
{
	const struct json *list = json_member(order, name);
	size_t n = json_count(list);
	char **texts = calloc(n + 1, sizeof(*texts));

	for (size_t i = 0; texts && i < n; i++)
		texts[i] = (char *)json_text(json_element(list, i));
	return texts;
}

static const char *action_of(const struct keeping *keeping, enum recorder_end end)
{
	static const char *const names[RECORDER_N_ENDS] = { "on_success", "on_failure", "on_cancel",
		"on_timeout" };
	const char *action;

	if (end == RECORDER_UNBORN)
		return keeping->is_brief ? "discard" : "keep";
	action = order_text(keeping, names[end]);

	return action ? action : "discard";
}

/* -- which box uses it -- */

/* With the end that it is about to be settled for, so that whoever takes that up does the same. */
static int set_user(const struct keeping *keeping, const char *end, abox_error **reterr)
{
	char line[64];

	snprintf(line, sizeof(line), "%s %s\n", keeping->box, end);
	return home_replace_file(keeping->workspace->dir_fd, USER_FILE, line, strlen(line), reterr);
}

/* Whether the box is the one that used it last; *retend is RECORDER_N_ENDS before its end was known. */
static bool is_user(const struct keeping *keeping, enum recorder_end *retend)
{
	_cleanup_(freep) char *line = NULL;
	char *space;

	if (file_read_text(keeping->workspace->dir_fd, USER_FILE, 64, &line, NULL) < 0 ||
		!(space = strchr(line, ' ')))
		return false;
	*space++ = 0;
	space[strcspn(space, "\n")] = 0;
	for (*retend = 0; *retend < RECORDER_N_ENDS; (*retend)++)
		if (strcmp(end_names[*retend], space) == 0)
			break;
	return strcmp(line, keeping->box) == 0;
}

/* -- begin -- */

static int make(struct keeping *keeping, abox_error **reterr)
{
	static const struct {
		const char *word;
		uint32_t kind;
	} kinds[] = {
		{ "empty", ABOX_SOURCE_EMPTY },
		{ "dir", ABOX_SOURCE_DIR },
		{ "tar", ABOX_SOURCE_TAR },
		{ "snapshot", ABOX_SOURCE_SNAPSHOT },
	};
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	const char *kind = order_text(keeping, "kind"), *mode = order_text(keeping, "mode");

	for (size_t i = 0; kind && i < ELEMENTSOF(kinds); i++)
		if (strcmp(kind, kinds[i].word) == 0)
			options.source_kind = kinds[i].kind;
	options.source = options.source_kind == ABOX_SOURCE_SNAPSHOT ? order_text(keeping, "id")
								     : order_text(keeping, "path");
	options.task = keeping->task[0] ? keeping->task : NULL;
	options.ttl_usec = BRIEF_TTL_USEC;
	/* What comes in counts as what is written, where somebody has said how much that may be. */
	if (json_truth(json_member(keeping_quota(keeping), "written"))) {
		options.max_bytes = options.limit_bytes = keeping_quota_number(keeping, "bytes");
		options.max_files = options.limit_files = keeping_quota_number(keeping, "inodes");
	}
	keeping->is_brief = true;
	if (options.source_kind == ABOX_SOURCE_SNAPSHOT) /* as what it comes from */
		return abox_workspace_create(&options, &keeping->workspace, reterr);
	if (mode && strcmp(mode, "direct") == 0)
		options.mode = ABOX_WORKSPACE_DIRECT;
	else if (mode && strcmp(mode, "copy") == 0)
		options.mode = ABOX_WORKSPACE_COPY;
	if (json_truth(json_member(keeping->order, "whole_copy")))
		options.flags = ABOX_WORKSPACE_NO_OVERLAY;
	return abox_workspace_create(&options, &keeping->workspace, reterr);
}

/* What is thrown away in some case must be what this box has done, and nothing that was kept before. */
static int set_apart(struct keeping *keeping, abox_error **reterr)
{
	const struct workspace_record *record = &keeping->workspace->record;
	bool may_discard = keeping_quota(keeping) != NULL;

	for (enum recorder_end end = 0; end < RECORDER_N_ENDS; end++) {
		const char *action = action_of(keeping, end);

		may_discard = may_discard || (strcmp(action, "keep") != 0 && strcmp(action, "snapshot") != 0);
	}
	if (!may_discard || record->mode == WORKSPACE_DIRECT)
		return 0;
	if (record->is_full)
		return abox_workspace_snapshot(keeping->workspace, NULL, NULL, reterr);
	return workspace_push(keeping->workspace, reterr);
}

static int take(struct keeping *keeping, abox_error **reterr)
{
	const char *kind = order_text(keeping, "kind");
	bool is_there = kind && strcmp(kind, "workspace") == 0;
	int r;

	r = is_there ? abox_workspace_open(order_text(keeping, "id"), &keeping->workspace, reterr)
		     : make(keeping, reterr);
	if (r >= 0)
		r = workspace_lock(keeping->workspace, WORKSPACE_EXCLUSIVE, LOCK_USEC, reterr);
	if (r >= 0)
		r = workspace_recover(keeping->workspace, reterr);
	if (r >= 0 && is_there)
		r = set_apart(keeping, reterr);
	return r < 0 ? r : 0;
}

int keeping_begin(struct keeping *keeping, struct opened *ret, abox_error **reterr)
{
	_cleanup_(opened_clear) struct opened opened = OPENED_INIT;
	int r;

	r = take(keeping, reterr);
	if (r >= 0)
		r = set_user(keeping, "running", reterr);
	if (r >= 0)
		r = workspace_begin_use(keeping->workspace, reterr);
	if (r >= 0)
		r = keeping_open_layers(keeping, &opened, reterr);
	if (r < 0)
		return r;
	*ret = opened;
	opened = OPENED_INIT;
	return 0;
}

/* -- snapshot while the box stands still -- */

static int fill_gate(const struct keeping *keeping, char ***retnever, struct scan_secret **retsecrets,
	struct scan_rules *ret)
{
	*retnever = order_texts(keeping->order, "never");
	*retsecrets = calloc(keeping->n_secrets + 1, sizeof(**retsecrets));
	if (!*retnever || !*retsecrets)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < keeping->n_secrets; i++)
		(*retsecrets)[i] = (struct scan_secret){ keeping->secrets[i], strlen(keeping->secrets[i]) };
	*ret = (struct scan_rules){ (const char *const *)*retnever, *retsecrets, keeping->n_secrets };
	return 0;
}

int keeping_snapshot(struct keeping *keeping, const struct abox_snapshot_options *options,
	char retid[STORE_ID_BYTES], abox_error **reterr)
{
	_cleanup_(layer_stack_clear) struct layer_stack stack = LAYER_STACK_INIT;
	_cleanup_(stack_views_clear) struct stack_views views = { 0 };
	_cleanup_(freep) struct scan_secret *secrets = NULL;
	_cleanup_(freep) char **never = NULL;
	struct scan_rules rules;
	int r;

	r = fill_gate(keeping, &never, &secrets, &rules);
	if (r >= 0)
		r = workspace_open_stack(keeping->workspace, NULL, &stack, reterr);
	if (r >= 0 && keeping->quota.upper_fd >= 0) {
		fd_close(stack.top_fd);
		stack.top_fd = fcntl(keeping->quota.upper_fd, F_DUPFD_CLOEXEC, 3);
		if (stack.top_fd < 0)
			return error_set_errno(
				reterr, ABOX_E_SYSTEM, STAGE, "bounded layer", errno, "cannot be opened");
	}
	if (r >= 0)
		r = stack_views_init(&stack, &views);
	if (r >= 0)
		r = scan_view(&views.now, 1, &rules, reterr);
	return r < 0 ? r
		     : workspace_snapshot_in_use(
			       keeping->workspace, keeping->quota.upper_fd, options, retid, reterr);
}

/* -- settle -- */

struct settling {
	struct keeping *keeping;
	const char *action;
	const char *evidence;
	const char *outcome;
	struct settle_result result;
	char *artifacts; /* artifacts.json */
	char *folder; /* where artifacts or diagnostics are */
	bool is_unborn, has_changes;
	char changes[DIGEST_TEXT_BYTES];
	size_t n_changes;
};

static bool is_direct(const struct settling *settling)
{
	return workspace_mode(settling->keeping->workspace) == WORKSPACE_DIRECT;
}

static int look_at_changes(struct settling *settling, abox_changes **ret, abox_error **reterr)
{
	const char *digest;
	int r;

	if (is_direct(settling))
		return 0;
	r = abox_workspace_diff(settling->keeping->workspace, NULL, ret, reterr);
	if (r < 0)
		return r;
	digest = abox_changes_get_digest(*ret);
	settling->has_changes = digest != NULL;
	snprintf(settling->changes, sizeof(settling->changes), "%s", digest ? digest : "");
	settling->n_changes = abox_changes_get_count(*ret);
	return 0;
}

static int throw_away(struct settling *settling, abox_error **reterr)
{
	struct settle_policy policy = { .action = SETTLE_DISCARD, .is_brief = settling->keeping->is_brief };

	if (is_direct(settling) && !policy.is_brief)
		return 0;
	return workspace_settle(settling->keeping->workspace, &policy, &settling->result, reterr);
}

static int collect(struct settling *settling, abox_error **reterr)
{
	_cleanup_(freep) char **patterns = order_texts(settling->keeping->order, "artifact");
	const struct json *evidence_command;
	_cleanup_(json_unrefp) struct json *evidence = NULL;
	struct json_bounds bounds = { .max_bytes = RECORDER_PACKET_MAX, .max_depth = 16, .stage = STAGE };
	char command[64] = "";

	if (!patterns)
		return ABOX_E_MEMORY;
	if (!patterns[0] || settling->is_unborn)
		return 0;
	if (json_parse(settling->evidence, strlen(settling->evidence), &bounds, &evidence, NULL) == 0) {
		evidence_command = json_element(json_member(evidence, "commands"), 0);
		if (evidence_command)
			snprintf(command, sizeof(command), "%s:%lld", settling->keeping->box,
				(long long)json_number(json_member(evidence_command, "command")));
	}
	return results_collect(settling->keeping, command[0] ? command : NULL, &settling->artifacts,
		&settling->folder, reterr);
}

static int keep(struct settling *settling, enum settle_action action, abox_error **reterr)
{
	struct abox_snapshot_options snapshot = ABOX_SNAPSHOT_OPTIONS_INIT;
	const struct json *order = settling->keeping->order;
	_cleanup_(freep) char **scratch = order_texts(order, "scratch"), **kept = order_texts(order, "keep"),
			      **cache = order_texts(order, "cache"), **never = NULL;
	_cleanup_(changes_unrefp) abox_changes *changes = NULL;
	_cleanup_(freep) struct scan_secret *secrets = NULL;
	struct settle_policy policy = { .action = action, .snapshot = &snapshot };
	int r;

	r = fill_gate(settling->keeping, &never, &secrets, &policy.gate);
	if (r < 0 || !scratch || !kept || !cache)
		return ABOX_E_MEMORY;
	policy.scratch = (const char *const *)scratch;
	policy.keep = (const char *const *)kept;
	policy.cache = (const char *const *)cache;
	snapshot.ttl_usec = (uint64_t)json_number(json_member(order, "ttl_usec"));
	if (settling->keeping->is_brief)
		snapshot.ttl_usec = 0; /* it goes with the workspace, which has the time */
	r = collect(settling, reterr);
	if (r >= 0)
		r = workspace_settle(settling->keeping->workspace, &policy, &settling->result, reterr);
	if (r < 0)
		return r;
	settling->outcome = action == SETTLE_KEEP ? "kept" : "snapshot";
	return look_at_changes(settling, &changes, reterr);
}

/* The results are on the disk before the change that they were taken from goes. */
static int results_only(struct settling *settling, bool diagnostics, abox_error **reterr)
{
	_cleanup_(changes_unrefp) abox_changes *changes = NULL;
	int r;

	r = look_at_changes(settling, &changes, reterr);
	if (r >= 0)
		r = diagnostics ? results_diagnose(settling->keeping, settling->evidence, changes,
					  &settling->folder, reterr)
				: collect(settling, reterr);
	if (r >= 0)
		r = throw_away(settling, reterr);
	if (r >= 0)
		settling->outcome = diagnostics ? "diagnostics" : "artifacts";
	return r;
}

static int carry_out(struct settling *settling, abox_error **reterr)
{
	const char *action = settling->action;
	int r;

	if (settling->keeping->secrets_unknown && strcmp(action, "discard") != 0)
		return error_set(reterr, ABOX_E_DENIED, STAGE, settling->keeping->box,
			"whoever knew what must not survive is dead: nobody can tell whether it is in there");
	if (strcmp(action, "keep") == 0)
		return keep(settling, SETTLE_KEEP, reterr);
	if (strcmp(action, "snapshot") == 0)
		return keep(settling, SETTLE_SNAPSHOT, reterr);
	if (strcmp(action, "artifacts") == 0)
		return results_only(settling, false, reterr);
	if (strcmp(action, "diagnostics") == 0)
		return results_only(settling, true, reterr);
	r = throw_away(settling, reterr);
	if (r >= 0)
		settling->outcome = "discarded";
	return r;
}

/* What stays, stays for as long as the plan says. */
static int set_ttl(struct keeping *keeping, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record next = { 0 };
	int r;

	if (!keeping->is_brief)
		return 0;
	r = workspace_record_copy(&keeping->workspace->record, &next);
	if (r < 0)
		return r;
	next.ttl_usec = (uint64_t)json_number(json_member(keeping->order, "ttl_usec"));
	if (next.ttl_usec) /* counted from now */
		next.ttl_usec += clock_wall_usec() - MIN(next.created_usec, clock_wall_usec());
	return workspace_commit(keeping->workspace, &next, reterr);
}

static void add_artifacts(struct text *text, const char *artifacts)
{
	struct json_bounds bounds = { .max_bytes = 256U << 20, .max_depth = 16, .stage = STAGE };
	_cleanup_(json_unrefp) struct json *json = NULL;
	const struct json *list;

	if (json_parse(artifacts, strlen(artifacts), &bounds, &json, NULL) < 0)
		return;
	list = json_member(json, "artifacts");
	text_printf(text, ",\"n_artifacts\":%zu,\"left_out\":%zu,\"artifacts\":[", json_count(list),
		json_count(json_member(json, "left_out")));
	for (size_t i = 0; i < MIN(json_count(list), (size_t)LISTED_MAX) && text->len < RECORDER_BODY_MAX / 2;
		i++) {
		text_add(text, i ? "," : "");
		json_print(text, json_element(list, i));
	}
	text_add(text, "]");
}

static void add_member(struct text *text, const char *name, const char *value)
{
	if (!value || !value[0])
		return;
	text_printf(text, ",\"%s\":", name);
	text_add_json(text, value, strlen(value));
}

static int make_result(
	const struct settling *settling, enum recorder_end end, const abox_error *error, char **ret)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	text_printf(&text, "{\"id\":\"%s\",\"end\":\"%s\",\"action\":\"%s\",\"outcome\":\"%s\"",
		workspace_id(settling->keeping->workspace), end_names[end], settling->action,
		settling->outcome);
	add_member(&text, "snapshot", settling->result.snapshot);
	if (settling->has_changes)
		text_printf(&text, ",\"changes\":\"%s\",\"n_changes\":%zu", settling->changes,
			settling->n_changes);
	text_printf(&text, ",\"pruned\":%llu", (unsigned long long)settling->result.n_pruned);
	add_member(&text, "results", settling->folder);
	if (settling->artifacts)
		add_artifacts(&text, settling->artifacts);
	if (error) {
		text_printf(&text, ",\"error\":{\"code\":\"%s\"", abox_code_name(abox_error_get_code(error)));
		add_member(&text, "place", abox_error_get_place(error));
		add_member(&text, "message", abox_error_get_message(error));
		text_add(&text, "}");
	}
	text_add(&text, "}");
	return text_take(&text, ret);
}

static int tell_left(const struct keeping *keeping, const abox_error *error, int code, char **ret)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const char *place = abox_error_get_place(error);

	text_printf(&text, "workspace %s stays as the box has left it: %s%s%s",
		workspace_id(keeping->workspace), place ? place : "", place ? ": " : "",
		error && abox_error_get_message(error) ? abox_error_get_message(error)
						       : abox_code_name(code));
	return text_take(&text, ret);
}

/* What the box has written into a layer elsewhere comes into the store, unless nobody wants it. */
static int take_bounded(struct settling *settling, abox_error **reterr)
{
	struct keeping *keeping = settling->keeping;
	int r;

	if (!keeping_quota(keeping) || strcmp(settling->action, "discard") == 0)
		return 0;
	if (settling->is_unborn)
		return quota_is_there(keeping->workspace) ? quota_drop(keeping->workspace, reterr) : 0;
	/* What a killed box left in an image is in the live layer since the workspace was locked. */
	if (keeping->quota.upper_fd < 0 && keeping_quota_kind(keeping) == QUOTA_IMAGE)
		return workspace_check_trusted(keeping->workspace, reterr);
	if (keeping->quota.upper_fd < 0)
		return error_set(reterr, ABOX_E_DAMAGED, STAGE, keeping->box,
			"what it wrote lay in a bounded layer, and has gone with the processes that held it");
	r = workspace_replace_live(keeping->workspace, keeping->quota.upper_fd, false, reterr);
	quota_clear(&keeping->quota);
	return r;
}

int keeping_settle(
	struct keeping *keeping, enum recorder_end end, const char *evidence, char **retjson, char **retleft)
{
	struct settling settling = { .keeping = keeping,
		.action = action_of(keeping, end),
		.evidence = evidence,
		.outcome = "failed",
		.is_unborn = end == RECORDER_UNBORN };
	_cleanup_(error_freep) abox_error *error = NULL;
	int r, k;

	*retjson = *retleft = NULL;
	r = set_user(keeping, end_names[end], &error);
	if (r >= 0)
		r = take_bounded(&settling, &error);
	if (r >= 0)
		r = carry_out(&settling, &error);
	if (r == ABOX_E_DENIED)
		settling.outcome = "refused";
	/* After a discard of a workspace that was made for the box there is none any more. */
	if (r < 0 || !keeping->is_brief || strcmp(settling.outcome, "kept") == 0 ||
		strcmp(settling.outcome, "snapshot") == 0) {
		if (r < 0 && !quota_is_there(keeping->workspace))
			(void)workspace_end_use(keeping->workspace, NULL);
		(void)set_ttl(keeping, NULL);
		(void)unlinkat(keeping->workspace->dir_fd, USER_FILE, 0);
	}
	keeping->settled = true;
	k = make_result(&settling, end, r < 0 ? error : NULL, retjson);
	if (k == 0 && r < 0)
		k = tell_left(keeping, error, r, retleft);
	free(settling.artifacts);
	free(settling.folder);
	return k;
}

int keeping_open_names(struct keeping *keeping, int *retfd, abox_error **reterr)
{
	int fd = openat(keeping->workspace->dir_fd, NAMES_FILE,
		O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, NAMES_FILE, errno, "cannot be opened");
	*retfd = fd;
	return 0;
}

/* It was settled before, or had not begun; what remains is to say for how long it stays. */
static int finish_settled(struct keeping *keeping, enum recorder_end end, char **retjson, abox_error **reterr)
{
	const char *action = end < RECORDER_N_ENDS ? action_of(keeping, end) : "discard";
	bool stays = !keeping->is_brief || strcmp(action, "keep") == 0 || strcmp(action, "snapshot") == 0;
	struct settle_policy policy = { .action = SETTLE_DISCARD, .is_brief = true };
	struct settle_result result;
	int r;

	if (stays) {
		r = set_ttl(keeping, reterr);
		(void)unlinkat(keeping->workspace->dir_fd, USER_FILE, 0);
	} else {
		r = workspace_settle(keeping->workspace, &policy, &result, reterr);
	}
	if (r < 0)
		return r;
	*retjson = strdup("null");
	return *retjson ? 0 : ABOX_E_MEMORY;
}

int keeping_recover(struct keeping *keeping, const char *workspace_id, enum recorder_end known, char **retjson,
	char **retleft, abox_error **reterr)
{
	const char *kind = order_text(keeping, "kind");
	enum recorder_end end = RECORDER_N_ENDS;
	int r;

	*retjson = *retleft = NULL;
	r = abox_workspace_open(workspace_id, &keeping->workspace, reterr);
	if (r >= 0)
		r = workspace_lock(keeping->workspace, WORKSPACE_EXCLUSIVE, LOCK_USEC / 10, reterr);
	if (r == ABOX_E_NOT_FOUND ||
		(r >= 0 && !is_user(keeping, &end))) { /* settled, and used by others since */
		if (r < 0 && reterr)
			*reterr = abox_error_free(*reterr);
		*retjson = strdup("null");
		return *retjson ? 0 : ABOX_E_MEMORY;
	}
	if (r < 0)
		return r;
	if (end == RECORDER_N_ENDS) /* it was not being settled yet */
		end = known;
	keeping->is_brief = !kind || strcmp(kind, "workspace") != 0;
	if (workspace_mode(keeping->workspace) != WORKSPACE_DIRECT && !keeping->workspace->record.boot[0])
		return finish_settled(keeping, end, retjson, reterr);
	keeping->secrets_unknown = json_number(json_member(keeping->order, "secrets")) > 0;
	return keeping_settle(keeping, end < RECORDER_N_ENDS ? end : RECORDER_FAILURE,
		known < RECORDER_N_ENDS
			? "{\"evidence\":\"the recorder of the box was killed\",\"commands\":[]}"
			: "{\"evidence\":\"every process of the box was killed\",\"commands\":[]}",
		retjson, retleft);
}
