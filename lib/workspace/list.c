/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What there is: all workspaces, their snapshots, and who descends from whom. What is promised: reading only;
 * a record that cannot be read is shown as such and keeps nobody from seeing the others.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/workspace.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "workspace/home.h"
#include "workspace/workspace.h"

#define STAGE ABOX_STAGE_WORKSPACE

static int compare_ids(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_workspace(const struct dirent *entry)
{
	return home_is_id(entry->d_name);
}

static int each_one(int home_fd, const char *id,
	int (*fn)(void *userdata, abox_workspace *workspace, abox_error **reterr), void *userdata,
	uint64_t *n_unreadable, abox_error **reterr)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	int r;

	r = workspace_open_id(home_fd, id, &workspace, NULL);
	if (r == ABOX_E_NOT_FOUND)
		return 0; /* being made, or removed meanwhile */
	if (r == ABOX_E_MEMORY)
		return r;
	if (r < 0) {
		(*n_unreadable)++;
		return 0;
	}
	return fn(userdata, workspace, reterr);
}

int workspace_each(int home_fd, int (*fn)(void *userdata, abox_workspace *workspace, abox_error **reterr),
	void *userdata, uint64_t *retn_unreadable, abox_error **reterr)
{
	struct dirent **entries = NULL;
	uint64_t n_unreadable = 0;
	int n, r = 0;

	n = scandirat(home_fd, HOME_WORKSPACES, &entries, is_workspace, compare_ids);
	if (n < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, STAGE, HOME_WORKSPACES, errno, "cannot list the workspaces");
	for (int i = 0; i < n; i++) {
		if (r >= 0)
			r = each_one(home_fd, entries[i]->d_name, fn, userdata, &n_unreadable, reterr);
		free(entries[i]);
	}
	free(entries);
	if (r >= 0 && retn_unreadable)
		*retn_unreadable = n_unreadable;
	return r < 0 ? r : 0;
}

static int add_to_list(void *userdata, abox_workspace *workspace, abox_error **reterr)
{
	struct json *json = NULL;
	int r;

	r = workspace_record_to_json(&workspace->record, &json);
	return r < 0 ? r : json_append_element(userdata, json);
}

int abox_workspace_list(char **retjson, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *list = json_new_array();
	_cleanup_(fd_closep) int home_fd = -EBADF;
	int r;

	if (!retjson)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "retjson is required");
	if (!list)
		return ABOX_E_MEMORY;
	home_fd = home_open(reterr);
	if (home_fd < 0)
		return home_fd;
	r = workspace_each(home_fd, add_to_list, list, NULL, reterr);
	return r < 0 ? r : json_print_new(list, retjson);
}

/* A snapshot by id, WORKSPACE:SNAPSHOT, or a name that only one has. */
struct search {
	const char *wanted;
	char workspace[STORE_ID_BYTES];
	char snapshot[STORE_ID_BYTES];
	size_t n;
};

static int look_in(void *userdata, abox_workspace *workspace, abox_error **reterr)
{
	struct search *search = userdata;
	const struct snapshot_record *found = workspace_record_find(&workspace->record, search->wanted);

	if (found) {
		memcpy(search->workspace, workspace->record.id, STORE_ID_BYTES);
		memcpy(search->snapshot, found->id, STORE_ID_BYTES);
		search->n++;
	}
	return 0;
}

static int find_within(
	int home_fd, const char *ref, const char *colon, struct search *search, abox_error **reterr)
{
	_cleanup_(workspace_unrefp) abox_workspace *workspace = NULL;
	_cleanup_(freep) char *name = strndup(ref, (size_t)(colon - ref));
	char id[STORE_ID_BYTES];
	int r;

	if (!name)
		return ABOX_E_MEMORY;
	r = workspace_resolve(home_fd, name, id, reterr);
	if (r >= 0)
		r = workspace_open_id(home_fd, id, &workspace, reterr);
	search->wanted = colon + 1;
	return r < 0 ? r : look_in(search, workspace, reterr);
}

int abox_workspace_find_snapshot(
	const char *ref, abox_workspace **ret, char **retsnapshot, abox_error **reterr)
{
	_cleanup_(fd_closep) int home_fd = -EBADF;
	struct search search = {.wanted = ref};
	const char *colon;
	char *id;
	int r;

	if (!ref || !ret || !retsnapshot)
		return error_set(
			reterr, ABOX_E_INVALID, STAGE, NULL, "ref, ret and retsnapshot are required");
	home_fd = home_open(reterr);
	if (home_fd < 0)
		return home_fd;
	colon = strchr(ref, ':');
	r = colon ? find_within(home_fd, ref, colon, &search, reterr)
		  : workspace_each(home_fd, look_in, &search, NULL, reterr);
	if (r < 0)
		return r;
	if (search.n == 0)
		return error_set(reterr, ABOX_E_NOT_FOUND, STAGE, ref, "there is no such snapshot");
	if (search.n > 1)
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_CONFLICT, STAGE, ref,
				"%zu workspaces have a snapshot of this name", search.n),
			"write WORKSPACE:SNAPSHOT, or the id of the snapshot");
	id = strdup(search.snapshot);
	if (!id)
		return ABOX_E_MEMORY;
	r = workspace_open_id(home_fd, search.workspace, ret, reterr);
	if (r < 0)
		free(id);
	else
		*retsnapshot = id;
	return r;
}

/* The tree is a flat list in which each names its parent: snapshots, and workspaces with the snapshot they
 * lie above. */
static int put_text(struct json *object, const char *name, const char *text)
{
	return string_empty(text) ? 0 : json_put_member(object, name, json_new_string(text));
}

static int add_snapshot_node(
	struct json *nodes, const struct workspace_record *record, const struct snapshot_record *snapshot)
{
	struct json *node = NULL;
	int r;

	r = snapshot_record_to_json(snapshot, &node);
	if (r < 0)
		return r;
	if (json_put_member(node, "kind", json_new_string("snapshot")) < 0 ||
		put_text(node, "workspace", record->id) < 0) {
		json_unref(node);
		return ABOX_E_MEMORY;
	}
	return json_append_element(nodes, node);
}

static int add_workspace_nodes(void *userdata, abox_workspace *workspace, abox_error **reterr)
{
	const struct workspace_record *record = &workspace->record;
	struct json *node;

	for (size_t i = 0; i < record->n_snapshots; i++) {
		int r = add_snapshot_node(userdata, record, &record->snapshots[i]);

		if (r < 0)
			return r;
	}
	node = json_new_object();
	if (!node || json_put_member(node, "kind", json_new_string("workspace")) < 0 ||
		put_text(node, "id", record->id) < 0 || put_text(node, "name", record->name) < 0 ||
		put_text(node, "parent", record->head) < 0 ||
		put_text(node, "origin", record->base.workspace) < 0 ||
		json_put_member(node, "created_usec", json_new_integer((int64_t)record->created_usec)) < 0) {
		json_unref(node);
		return ABOX_E_MEMORY;
	}
	return json_append_element(userdata, node);
}

int abox_workspace_tree(char **retjson, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *nodes = json_new_array();
	_cleanup_(fd_closep) int home_fd = -EBADF;
	int r;

	if (!retjson)
		return error_set(reterr, ABOX_E_INVALID, STAGE, NULL, "retjson is required");
	if (!nodes)
		return ABOX_E_MEMORY;
	home_fd = home_open(reterr);
	if (home_fd < 0)
		return home_fd;
	r = workspace_each(home_fd, add_workspace_nodes, nodes, NULL, reterr);
	return r < 0 ? r : json_print_new(nodes, retjson);
}
