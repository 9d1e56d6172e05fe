/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Inside of a handle. For the files of the store only.
 */
#ifndef WORKSPACE_WORKSPACE_H
#define WORKSPACE_WORKSPACE_H

#include "workspace/record.h"

struct abox_workspace {
	unsigned int refs;	/* atomic */
	int home_fd;
	int dir_fd;		/* workspaces/ID */
	int lock_fd;		/* -EBADF while not locked */
	enum workspace_lock lock;
	unsigned int lock_depth;
	struct workspace_record record;	/* as last read */
	char image_of[STORE_ID_BYTES];	/* live layer whose image this handle has opened (quota.h); "" for none */
};

/* A handle for workspaces/ID. */
int workspace_open_id(int home_fd, const char *id, abox_workspace **ret, abox_error **reterr);
/* Id of a workspace by id or name. */
int workspace_resolve(int home_fd, const char *ref, char retid[STORE_ID_BYTES], abox_error **reterr);
/* Makes the folder, the name and the record of a new workspace. The lock of the store is held. */
int workspace_put_new(int home_fd, struct workspace_record *record, abox_error **reterr);
/* Replaces the record by *next, which is taken on success. The workspace is locked exclusively. */
int workspace_commit(abox_workspace *workspace, struct workspace_record *next, abox_error **reterr);
int workspace_record_copy(const struct workspace_record *record, struct workspace_record *ret);
/* Checks options that new workspaces share: name, task (text), ttl. */
int workspace_check_new(const char *name, const char *task, uint64_t ttl_usec, abox_error **reterr);
/* A new workspace of an empty live layer above layer `parent`, in place and open. `record` has everything else; it is
 * taken on success. The lock of the store is held. */
int workspace_begin_new(int home_fd, struct workspace_record *record, int model_fd, abox_workspace **ret,
	abox_error **reterr);
/* The folder of the host at which base.path leads, when it is still the same. O_PATH. */
int workspace_open_host_base(const struct workspace_base *base, abox_error **reterr);
/* ABOX_E_DAMAGED when the live layer was in use without sync when the machine went down. */
int workspace_check_boot(const abox_workspace *workspace, abox_error **reterr);
/* The same, and when it is not whole, because what a killed box has written could not be taken in (quota.h). */
int workspace_check_trusted(const abox_workspace *workspace, abox_error **reterr);
/* Reads the record again: ABOX_E_NOT_FOUND when the workspace was removed. */
int workspace_refresh(abox_workspace *workspace, abox_error **reterr);
/* Calls fn for each workspace of the store; one that cannot be read is counted in *retn_unreadable (may be NULL). A
 * negative answer of fn ends it and goes up. */
int workspace_each(int home_fd, int (*fn)(void *userdata, abox_workspace *workspace, abox_error **reterr), void *userdata,
	uint64_t *retn_unreadable, abox_error **reterr);
/* The layers from `top` down with the base; "" gives the base alone, if it is a folder of the host. */
int workspace_open_chain(abox_workspace *workspace, const char *top, struct layer_stack *retstack, abox_error **reterr);
/* A workspace of whole trees goes back to its newest snapshot, or to its base. Locked exclusively. */
int workspace_reset_whole(abox_workspace *workspace, abox_error **reterr);
/* Merges the newest layers of a chain that has become long. Locked exclusively. 0 also when there is nothing to do. */
int workspace_merge(abox_workspace *workspace, abox_error **reterr);
/* The n newest layers below the live one become one, as above. */
int workspace_merge_newest(abox_workspace *workspace, size_t n, abox_error **reterr);
/* Removes what nothing leads to any more. The lock of the store is not held. */
void workspace_tidy(int home_fd);
/* Moves the workspace to the trash. Locked exclusively, and so is the store. */
int workspace_discard(abox_workspace *workspace, abox_error **reterr);
/* What files' times are made from. Returns when later changes are sure to bear a later time. */
void workspace_now(int64_t *retsec, uint32_t *retnsec);

#endif
