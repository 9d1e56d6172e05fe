/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What becomes of the live layer when a box has ended.
 */
#ifndef WORKSPACE_SETTLE_H
#define WORKSPACE_SETTLE_H

#include "workspace/change.h"
#include "workspace/store.h"

enum settle_action {
	SETTLE_DISCARD = 0,	/* the change is thrown away */
	SETTLE_SNAPSHOT = 1,	/* what survives becomes a snapshot */
	SETTLE_KEEP = 2,	/* what survives stays in the live layer */
};
struct settle_policy {
	enum settle_action action;
	bool is_brief;			/* the workspace was made for this box: to discard is to remove it */
	/* NULL-ended patterns, or NULL. Changes in `scratch` never survive, unless `keep` or `cache` says otherwise.
	 * Artifacts are collected by the caller before. */
	const char *const *scratch;
	const char *const *keep;
	const char *const *cache;
	struct scan_rules gate;		/* what must not be in anything that survives */
	const struct abox_snapshot_options *snapshot;	/* may be NULL */
};
struct settle_result {
	char snapshot[STORE_ID_BYTES];	/* "" when none was taken */
	uint64_t n_pruned;		/* entries of scratch that were removed */
};

/* Locked exclusively, and nobody writes. On failure the live layer stays for somebody to look at: ABOX_E_DENIED names
 * the path at which the gate refused. Doing it again after a crash or a failure is fine. */
int workspace_settle(abox_workspace *workspace, const struct settle_policy *policy, struct settle_result *ret,
	abox_error **reterr);

#endif
