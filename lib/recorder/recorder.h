/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The workspace of a box, in the recorder: opened at the start, settled at the end, whoever is still alive
 * then.
 */
#ifndef RECORDER_RECORDER_H
#define RECORDER_RECORDER_H

#include <agentbox/change.h>
#include <agentbox/effect.h>
#include <agentbox/journal.h>
#include <agentbox/task.h>

#include "base/json.h"
#include "base/pack.h"
#include "recorder/wire.h"
#include "workspace/quota.h"
#include "workspace/settle.h"

/* What the plan has ordered, and what has become of it. */
struct keeping {
	struct json *order; /* NULL: the box has no workspace in the store */
	char **secrets; /* NULL-ended */
	size_t n_secrets;
	bool secrets_unknown; /* there were some, and whoever knew them is dead */
	char *box, *task, *plan; /* provenance */

	struct quota quota; /* where the box writes, when its layer is bounded */
	abox_workspace *workspace; /* open and locked from begin to the end of this process */
	bool is_brief; /* made for this box */
	bool settled;
};
void keeping_clear(struct keeping *keeping);

/* The order as it came along. */
int keeping_read_order(struct keeping *keeping, int order_fd, abox_error **reterr);

/* Makes or opens the workspace, and marks it as used by this box. */
struct opened {
	struct layer_stack stack;
	size_t n_masks; /* the lowest layers are such: names that are protected and not there */
	bool base_is_shown; /* the folder of the host is a mount with the box's ids, attached nowhere */
	int mount_fd; /* -EBADF: whoever attaches it makes the mount from the paths */
};
#define OPENED_INIT ((struct opened){ .stack = LAYER_STACK_INIT, .mount_fd = -EBADF })
void opened_clear(struct opened *opened);
/* layers.c: the same for a workspace that is open. */
int keeping_open_layers(struct keeping *keeping, struct opened *opened, abox_error **reterr);
/* What bounds the layer of the box, as the order says; NULL when nothing does, and then the others are 0. */
const struct json *keeping_quota(const struct keeping *keeping);
uint64_t keeping_quota_number(const struct keeping *keeping, const char *name);
enum quota_kind keeping_quota_kind(const struct keeping *keeping);
int keeping_begin(struct keeping *keeping, struct opened *ret, abox_error **reterr);
/* The file of names of its boxes, made if there is none. */
int keeping_open_names(struct keeping *keeping, int *retfd, abox_error **reterr);

int keeping_snapshot(struct keeping *keeping, const struct abox_snapshot_options *options,
	char retid[STORE_ID_BYTES], abox_error **reterr);

/*
 * Does what the order says about this end. What could not be done leaves the live layer for somebody to look
 * at; it is told in the result, a JSON object, and in *retleft (NULL when everything was done). Negative for
 * lack of memory only.
 */
int keeping_settle(
	struct keeping *keeping, enum recorder_end end, const char *evidence, char **retjson, char **retleft);

/* For a box of which nothing lives: opens its workspace, if it is still marked as the box's, and settles it. `known` is
 * how the box has ended, as its keeper has left word; RECORDER_N_ENDS when it was killed too, which is a failure. */
int keeping_recover(struct keeping *keeping, const char *workspace_id, enum recorder_end known, char **retjson, char **retleft,
	abox_error **reterr);

/* effect.c: requests of the box that are effects, and who asked for them */
struct request;
struct effects {
	abox_journal *journal; /* borrowed; NULL: none */
	abox_task *task; /* NULL until there is an attempt */
	char task_id[256];
	bool wanted; /* the box was started with such rules */
	int keeper_fd;
	struct request *requests;
	uint64_t deferred; /* bytes of those that are held back */
	uint64_t look_usec; /* not before */
};
void effects_init(struct effects *effects, abox_journal *journal, const char *task, const char *box, bool wanted);
int effects_open(struct effects *effects, abox_error **reterr);
/* The messages of recorder/wire.h behind their heads. Negative: no memory to answer with. */
int effects_ask(
	struct effects *effects, uint32_t serial, struct pack_reader *reader, int body_fd_taken, const char *plan);
void effects_done(struct effects *effects, uint32_t serial, struct pack_reader *reader, int fd);
void effects_leave(struct effects *effects, uint32_t serial, struct pack_reader *reader);
void effects_lost(struct effects *effects);
void effects_look(struct effects *effects);
int effects_poll_msec(const struct effects *effects);
void effects_clear(struct effects *effects);

/* results.c: what is kept of a box besides its workspace, in STATE/results/BOX. */
int results_collect(
	struct keeping *keeping, const char *command, char **retjson, char **retfolder, abox_error **reterr);
int results_diagnose(struct keeping *keeping, const char *evidence, const abox_changes *changes,
	char **retfolder, abox_error **reterr);
char **order_texts(
	const struct json *order, const char *name); /* NULL-ended array for free(); texts are the order's */

#endif
