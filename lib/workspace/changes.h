/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A change set: what a newer tree has that an older one has not, and the other way round. Frozen once made.
 */
#ifndef WORKSPACE_CHANGES_H
#define WORKSPACE_CHANGES_H

#include <agentbox/change.h>

#include "base/digest.h"
#include "workspace/change.h"

#define RISK_MAX 4 /* classes of one entry */

/* One side of an entry. type 0: there is nothing on this side. */
struct change_side {
	int type;      /* enum abox_file_type */
	uint32_t mode; /* permission bits */
	uint64_t size_bytes;
	char digest[DIGEST_TEXT_BYTES]; /* of a regular file; else empty */
	char *target;                   /* of a link */
	uint64_t inode;                 /* serves the check for drift; not part of the digest of the set */
};

struct change {
	char *path;
	char *other;         /* where an added file came from, or a deleted one went to */
	uint32_t other_mode; /* of the deleted file that an added one was */
	int kind;            /* enum abox_change_kind */
	struct change_side now;
	struct change_side was;
	const char *risks[RISK_MAX + 1]; /* static texts, NULL-ended */
	char *detail;                    /* keys of a git config that run programs; may be NULL */
};

struct abox_changes {
	_Atomic unsigned int n_refs;
	struct change *items; /* in the order of the walk: a folder before what is in it */
	size_t n_items;
	size_t n_allocated;
	char digest[DIGEST_TEXT_BYTES];
};

/* Compares. When the layers of `was` are the lower ones of `now`, the cost is that of the changes. */
int changes_between(const struct view *now, const struct view *was, abox_changes **ret, abox_error **reterr);
void changes_unrefp(abox_changes **changes);
/* A set of those that a pattern names, with the folders that added ones need; its own digest. */
int changes_select(
	const abox_changes *changes, const char *const *patterns, abox_changes **ret, abox_error **reterr);
int changes_seal(abox_changes *changes); /* computes the digest; once, when complete */
const char *file_type_name(int type);
int file_type_of(uint32_t mode);

/* What would run on the host once the change is there. Adds to change->risks and detail. */
int risk_classify(
	const struct view *now, const struct view_step *step, struct change *change, abox_error **reterr);

/* A patch as `git apply` takes it, contents read from the two trees and checked against the set. */
int patch_write(const abox_changes *changes, const struct view *now, const struct view *was, int fd,
	abox_error **reterr);

#endif
