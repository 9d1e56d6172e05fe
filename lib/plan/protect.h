/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protected paths: names in a writable place that the box can neither make, change, replace nor remove,
 * because the host would obey what stands there: hooks and config of git, start files of shells, orders for
 * editors and agents; and what `workspace.protect` adds. PROTECT.md lists the names.
 */
#ifndef PLAN_PROTECT_H
#define PLAN_PROTECT_H

#include "plan/builder.h"
#include "workspace/view.h"

/* A writable place of the box. */
struct protect_place {
	const char *target; /* where the box sees it */
	const struct view *view; /* what it shows at the start; NULL: nothing */
	const char *host; /* canonical path of the folder of the host that it shows; NULL: none */
	bool direct; /* it is that folder, so that nothing can be made in it to hold a name */
	bool placeholder; /* there a name is held by one that is removed at the end */
	bool workspace; /* `workspace.protect` means this one */
};

/* Steps and entries for one place; called after the step that mounts it, and before what is mounted below. */
int plan_protect(struct plan_builder *builder, const struct protect_place *place, abox_error **reterr);

/* protect-find.c: which names. */
struct protect_item {
	const char *path; /* from the place, without a link on the way; belongs to the builder */
	const char *content; /* of a file that is made to hold the name */
	bool absent; /* nothing is called so now */
	bool folder; /* when absent: it would be one */
	bool written; /* by the user */
	bool shared; /* a regular file that has more than this name */
};
struct protect_find {
	struct plan_builder *builder;
	const struct protect_place *place;
	struct protect_item *items;
	size_t n_items, allocated_items;
	const char **queue; /* folders to be looked into */
	size_t n_queue, allocated_queue;
	const char **repositories; /* that were looked at */
	size_t n_repositories, allocated_repositories;
	const char *open_pattern; /* written: more names may come to match it */
	bool whole; /* look at every folder: a written pattern needs it */
	bool incomplete; /* some folder was not looked into */
};
/* 0, ABOX_E_MEMORY, ABOX_E_LIMIT. Sorted by path; none lies in another. */
int protect_find(struct protect_find *find);
void protect_find_clear(struct protect_find *find);

#endif
