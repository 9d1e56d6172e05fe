/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Owners and their living handles. The executor lock is taken through an open file description of its own and
 * falls when the last holder of that description is gone, however it ended (effects 0.8); within this
 * process, a handle that was let go is dead though the lock is held.
 */
#include "effect/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/fd.h"

#define HANDLE_COUNTER_BITS 24

int owner_new(abox_journal *journal, const char *id, abox_task **ret, abox_error **reterr)
{
	abox_task *owner = calloc(1, sizeof(*owner));
	uint64_t random = 0;

	if (!owner)
		return ABOX_E_MEMORY;
	owner->refs = 1;
	owner->executor_fd = -EBADF;
	owner->id = strdup(id);
	if (!owner->id) {
		free(owner);
		return ABOX_E_MEMORY;
	}
	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		free(owner->id);
		free(owner);
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_TASK, NULL, errno, "cannot get random bytes");
	}
	/* Numbers of handles are never those of another process that shares the lock; below 2^62, as JSON
	 * holds them. */
	owner->next_handle = (random >> (64 - (62 - HANDLE_COUNTER_BITS))) << HANDLE_COUNTER_BITS | 1;
	pthread_mutex_init(&owner->mutex, NULL);
	owner->journal = abox_journal_ref(journal);
	*ret = owner;
	return 0;
}

abox_task *abox_task_ref(abox_task *task)
{
	if (task)
		__atomic_add_fetch(&task->refs, 1, __ATOMIC_RELAXED);
	return task;
}

abox_task *abox_task_unref(abox_task *task)
{
	if (!task || __atomic_sub_fetch(&task->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	fd_close(task->executor_fd);
	pthread_mutex_destroy(&task->mutex);
	abox_journal_unref(task->journal);
	free(task->id);
	free(task);
	return NULL;
}

void owner_unrefp(abox_task **owner)
{
	*owner = abox_task_unref(*owner);
}

int owner_check(const abox_task *owner, abox_error **reterr)
{
	if (!owner)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_TASK, NULL, "a task is required");
	return engine_check_journal(owner->journal, true, reterr);
}

int owner_take_executor(abox_task *owner, abox_error **reterr)
{
	uint64_t number = 0;
	int fd = -EBADF, r;

	pthread_mutex_lock(&owner->mutex);
	r = owner->executor_fd >= 0;
	pthread_mutex_unlock(&owner->mutex);
	if (r)
		return 0;
	r = journal_executor_open(owner->journal, &number, &fd, reterr);
	if (r < 0)
		return r;
	pthread_mutex_lock(&owner->mutex);
	if (owner->executor_fd < 0) {
		engine_executor_text(number, owner->executor);
		owner->executor_fd = steal_fd(fd);
	}
	pthread_mutex_unlock(&owner->mutex);
	fd_close(fd); /* another thread was faster */
	return 0;
}

bool owner_has_executor(abox_task *owner, const char *executor)
{
	bool same;

	pthread_mutex_lock(&owner->mutex);
	same = owner->executor_fd >= 0 && strcmp(owner->executor, executor) == 0;
	pthread_mutex_unlock(&owner->mutex);
	return same;
}

bool owner_handle_lives(abox_task *owner, uint64_t handle)
{
	bool lives = false;

	pthread_mutex_lock(&owner->mutex);
	/* Security: a handle of another process that shares our lock is not ours to call dead. */
	if (handle >> HANDLE_COUNTER_BITS != owner->next_handle >> HANDLE_COUNTER_BITS)
		lives = true;
	for (const struct abox_effect *effect = owner->handles; effect && !lives; effect = effect->next)
		lives = effect->handle == handle;
	pthread_mutex_unlock(&owner->mutex);
	return lives;
}

void owner_add_handle(abox_task *owner, struct abox_effect *effect)
{
	pthread_mutex_lock(&owner->mutex);
	effect->handle = owner->next_handle++;
	effect->next = owner->handles;
	owner->handles = effect;
	pthread_mutex_unlock(&owner->mutex);
}

void owner_drop_handle(abox_task *owner, struct abox_effect *effect)
{
	struct abox_effect **at;

	pthread_mutex_lock(&owner->mutex);
	for (at = &owner->handles; *at && *at != effect; at = &(*at)->next)
		;
	if (*at)
		*at = effect->next;
	effect->next = NULL;
	pthread_mutex_unlock(&owner->mutex);
}

int abox_task_dup_executor(abox_task *task, abox_error **reterr)
{
	int fd, r;

	r = owner_check(task, reterr);
	if (r < 0)
		return r;
	pthread_mutex_lock(&task->mutex);
	fd = task->executor_fd;
	if (fd >= 0) {
		fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		r = errno;
	}
	pthread_mutex_unlock(&task->mutex);
	if (fd == -EBADF)
		return error_set(reterr, ABOX_E_STATE, ABOX_STAGE_TASK, NULL, "this handle executes nothing");
	if (fd < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_TASK, NULL, r, "cannot duplicate a descriptor");
	return fd;
}

const char *abox_task_get_id(const abox_task *task)
{
	return task ? task->id : NULL;
}

uint64_t abox_task_get_epoch(const abox_task *task)
{
	return task ? task->epoch : 0;
}

uint64_t abox_task_get_attempt(const abox_task *task)
{
	return task ? task->epoch : 0; /* an attempt is numbered by its epoch */
}
