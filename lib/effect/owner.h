/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The owner's side of a task, as effects need it: whose epoch and executor lock they carry, and which of them are
 * alive in this process. What else a task is stands in lib/task.
 */
#ifndef EFFECT_OWNER_H
#define EFFECT_OWNER_H

#include <pthread.h>

#include "effect/engine.h"

struct abox_task {
	unsigned int refs;		/* atomic */
	abox_journal *journal;
	char *id;
	uint64_t epoch;			/* under which this handle works; 0: none */
	bool controls;			/* opened for control, and got it */
	uint64_t lease_usec;
	uint64_t heartbeat_usec;	/* of the last one, boot clock */
	pthread_mutex_t mutex;		/* below; never held while the journal is called */
	int executor_fd;		/* -EBADF until the first control or effect */
	char executor[17];
	uint64_t next_handle;
	struct abox_effect *handles;	/* alive in this process */
};

int owner_new(abox_journal *journal, const char *id, abox_task **ret, abox_error **reterr);
/* Takes the executor lock unless it is held already. */
int owner_take_executor(abox_task *owner, abox_error **reterr);
bool owner_has_executor(abox_task *owner, const char *executor);
bool owner_handle_lives(abox_task *owner, uint64_t handle);
void owner_add_handle(abox_task *owner, struct abox_effect *effect);
void owner_drop_handle(abox_task *owner, struct abox_effect *effect);
/* Argument and life check of every function that takes a task. */
int owner_check(const abox_task *owner, abox_error **reterr);
void owner_unrefp(abox_task **owner);

struct abox_effect {
	unsigned int refs;		/* atomic */
	abox_task *task;
	struct abox_effect *next;	/* in task->handles */
	uint64_t handle;		/* 0: not one that executes */
	char *id;
	char *key;
	char *target;
	char *reason;
	char *approval;
	char *result;
	size_t result_len;
	char *payload;
	size_t payload_len;
	char body_digest[65];
	uint64_t epoch;
	uint64_t state_seq;
	uint64_t result_seq;
	uint64_t payload_seq;
	int64_t room;
	int effect_class;
	int state;
	uint32_t try;
	int32_t code;
	bool result_known;	/* taken from the view: no need to read the record */
	bool result_lost;	/* there was no memory to keep it: nothing may be told without it */
	bool has_result;
	bool replayed;
	bool retryable;
	bool dispatched;		/* by this handle, and not finished */
	bool intended;			/* by this handle, and not dispatched */
};

int effect_new(abox_task *task, abox_effect **ret);
/* Takes the fields over from the view; called under the journal's mutex. */
int effect_fill(abox_effect *effect, const struct view_effect *from);
void effect_unrefp(abox_effect **effect);

#endif
