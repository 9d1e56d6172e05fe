/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A change set put into a folder: all of it or nothing, whatever happens on the way.
 *
 *	stage	new content is written into a folder of a random name inside the target (rename needs one
 *filesystem) journal	the list of steps, with the identity of what each replaces, is made durable in a
 *private folder steps	renames and exchanges; what goes lands in the stage, nothing is removed yet commit
 *one more durable file; from here on the new state stands, and the stage is removed
 *
 * Whoever finds a journal without a commit walks the steps backwards (apply_recover()); with one it only
 *cleans up. Security: the journal lies where nobody else writes. A folder inside the target could have been
 *planted.
 */
#ifndef WORKSPACE_APPLY_H
#define WORKSPACE_APPLY_H

#include "workspace/changes.h"

enum apply_step_kind {
	APPLY_REMOVE = 1,    /* a file goes to the stage */
	APPLY_REMOVE_FOLDER, /* the same for a folder, which stays when something is in it */
	APPLY_ADD,           /* from the stage to where nothing is */
	APPLY_ADD_FOLDER,
	APPLY_EXCHANGE, /* from the stage, and what was there into it */
	APPLY_MODE,
};

struct apply_step {
	int kind;
	char *path;
	uint64_t inode;     /* of what comes; APPLY_MODE: of what is there */
	uint64_t old_inode; /* of what goes */
	uint32_t mode;
	uint32_t old_mode;
	bool was_folder; /* APPLY_EXCHANGE: it must be empty when it goes */
	bool kept;       /* APPLY_REMOVE_FOLDER: it was not empty */
};

struct apply_steps {
	struct apply_step *items;
	size_t n;
	size_t allocated;
};
void apply_steps_clear(struct apply_steps *steps);

struct apply_target {
	const char *path; /* absolute; how recovery finds it again */
	int fd;           /* readable directory */
	uint64_t device;
	uint64_t inode;
	char stage[48]; /* name of the stage in it */
	int stage_fd;
};

int apply_stage_name(struct apply_target *target, abox_error **reterr); /* a random one */
int apply_stage_open(struct apply_target *target, abox_error **reterr); /* makes it */
/* The folder a path is in, by descriptor, through no link and no mount: O_PATH, or -errno. */
int apply_open_parent(const struct apply_target *target, const char *path, const char **retname);

int apply_journal_write(int journal_fd, const struct apply_target *target, const struct apply_steps *steps,
	abox_error **reterr);
int apply_journal_commit(int journal_fd, abox_error **reterr);

/* All steps; on failure those that were done are undone again. */
int apply_run(const struct apply_target *target, struct apply_steps *steps, abox_error **reterr);

/*
 * What earlier applies have put into the target themselves: such a file was touched since the workspace was
 * made, and has not drifted. Identity is inode and time of change.
 */
struct apply_record {
	struct apply_stamp {
		uint64_t inode;
		uint64_t ctime_nsec;
	} * items; /* in order */
	size_t n;
};
int apply_record_load(int journal_fd, struct apply_record *ret, abox_error **reterr);
bool apply_record_has(const struct apply_record *record, const struct stat *st);
void apply_record_clear(struct apply_record *record);

/* Ends what a process that died has begun. 0 nothing was there, 1 rolled back, 2 had been committed; or a
 * code. */
int apply_recover(int journal_fd, abox_error **reterr);

enum {
	APPLY_DRY_RUN = 1 << 0,
	APPLY_ACCEPT_DRIFT = 1 << 1,
	APPLY_ACCEPT_RISKY = 1 << 2,
};
struct apply_options {
	uint32_t flags;
	bool has_since; /* a file of the target that was touched later has drifted */
	int64_t since_sec;
	uint32_t since_nsec;
	uint32_t owner_uid; /* of what is added; UINT32_MAX leaves it to the system */
	uint32_t owner_gid;
};
/* The whole of it. The report is a JSON object: what was done, skipped, kept, and what has drifted. */
int apply_changes(const abox_changes *changes, const struct view *now, const char *target_path, int target_fd,
	int journal_fd, const struct apply_options *options, char **retreport, abox_error **reterr);

/* Ends an apply that was cut off, if there is one; for whoever is about to use the source folder. Takes the
 * lock. 0 and above as apply_recover(). */
int workspace_recover(abox_workspace *workspace, abox_error **reterr);

#endif
