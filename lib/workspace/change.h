/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is done with the files of a workspace: see what changed, put changes back, pack and unpack trees,
 * collect artifacts, prove that something is not there. All of it works on layers given as descriptors
 * (view.h), so that the store of workspaces (store.h) and the tests use the same functions. The public
 * functions over a workspace handle are declared in agentbox/change.h and agentbox/file.h.
 *
 * Who holds the lock of the workspace is the caller's business; nothing here changes a layer.
 */
#ifndef WORKSPACE_CHANGE_H
#define WORKSPACE_CHANGE_H

#include <sys/types.h>

#include <agentbox/error.h>

#include "base/digest.h"
#include "base/macro.h"
#include "base/strings.h"
#include "workspace/pattern.h"
#include "workspace/store.h"
#include "workspace/view.h"

/*
 * The trees of a workspace: what it is now, and what it began as (no layers: nothing). They borrow the
 * descriptors of the stack.
 */
struct stack_views {
	struct view_layer *layers;
	struct view now;
	struct view was;
};
int stack_views_init(const struct layer_stack *stack, struct stack_views *ret); /* 0 or ABOX_E_MEMORY */
void stack_views_clear(struct stack_views *views);

/*
 * The gate before anything leaves or is frozen: no path of `never`, and in no file, link target, name or
 * attribute one of the secrets. With n_new > 0 only what the newest n_new layers brought is looked at.
 * ABOX_E_DENIED names the path as the error's place, never the value.
 */
struct scan_secret {
	const void *data; /* shorter than SCAN_SECRET_MIN is refused: it would be found everywhere */
	size_t len;
};
#define SCAN_SECRET_MIN 8
struct scan_rules {
	const char *const *never; /* NULL-ended patterns; may be NULL */
	const struct scan_secret *secrets;
	size_t n_secrets;
};
int scan_view(const struct view *view, size_t n_new, const struct scan_rules *rules, abox_error **reterr);
/* The same for one regular file that is open, under the path it has in the workspace. */
int scan_file(int fd, const char *path, const struct scan_rules *rules, abox_error **reterr);
/* The same for bytes in memory: result texts, output tails. `place` is what the error names. */
int scan_bytes(
	const void *data, size_t len, const struct scan_rules *rules, const char *place, abox_error **reterr);

/*
 * Unpacking an archive (tar, tar.gz) into an empty folder. It is read whole or refused whole: names that lead
 * outside, through links, or twice to one place; devices; hard links to what is not in the archive; more
 * bytes or files than the bounds allow. On failure the caller removes the folder (path_remove_tree()).
 */
struct archive_bounds {
	uint64_t bytes; /* of all files, holes not counted; 0: 64 GiB */
	uint64_t files; /* 0: 10 million */
	struct progress *progress; /* may be NULL */
};
struct archive_lost {     /* what could not be kept, for the user to read; a bounded list */
	struct text list; /* JSON array elements, comma separated */
	uint64_t n_lost;
};
void archive_lost_clear(struct archive_lost *lost);
int archive_extract(int archive_fd, int dir_fd, const struct layer_ids *ids,
	const struct archive_bounds *bounds, struct archive_lost *retlost, abox_error **reterr);

/* A tree as a deterministic tar.gz with a manifest of digests, and back. The digest is that of the manifest.
 */
int archive_export(const struct view *view, const struct layer_ids *ids, const struct scan_rules *rules,
	int archive_fd, struct archive_lost *retlost, char retdigest[DIGEST_TEXT_BYTES], abox_error **reterr);
/* Into an empty folder; believed only when the whole manifest holds. `expected` may be NULL. */
int archive_import(int archive_fd, int dir_fd, const struct layer_ids *ids,
	const struct archive_bounds *bounds, const char *expected, struct archive_lost *retlost,
	char retdigest[DIGEST_TEXT_BYTES], abox_error **reterr);

#endif
