/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The objects of the view: made, found, released. How they change is in transition.c, how they are carried
 * over to the next segment in summary.c.
 */
#include "effect/view-inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- small things ---- */

int view_set_text(char **at, const char *value)
{
	char *copy = NULL;

	if (value) {
		copy = strdup(value);
		if (!copy)
			return ABOX_E_MEMORY;
	}
	free(*at);
	*at = copy;
	return 0;
}

void view_set_boot(char (*at)[40], const char *boot)
{
	memset(*at, 0, sizeof(*at));
	if (boot)
		strncpy(*at, boot, sizeof(*at) - 1);
}

char *view_bytes_dup(const struct fact_bytes *bytes)
{
	return bytes->data ? strndup(bytes->data, bytes->len) : strdup("");
}

void view_free_list(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free((void *)list);
}

int view_copy_list(char ***at, const char *const *list)
{
	size_t n = 0;
	char **copy;

	while (list && list[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	if (!copy)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < n; i++) {
		copy[i] = strdup(list[i]);
		if (!copy[i]) {
			view_free_list(copy);
			return ABOX_E_MEMORY;
		}
	}
	view_free_list(*at);
	*at = copy;
	return 0;
}

size_t view_list_len(char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

char *view_scope_key(const void *key, size_t len, bool derived, size_t *retlen)
{
	char *scope = malloc(len + 2);

	if (!scope)
		return NULL;
	scope[0] = derived ? 'd' : 'k';
	if (len)
		memcpy(scope + 1, key, len);
	scope[len + 1] = 0;
	*retlen = len + 1;
	return scope;
}

/* ---- release ---- */

void view_result_free(struct view_result *result)
{
	if (result)
		free(result->reason);
	free(result);
}

void view_effect_free(struct view_effect *effect)
{
	view_result_free(effect->result);
	free(effect->id);
	free(effect->scope_key);
	free(effect->target);
	free(effect->fingerprint);
	free(effect->what);
	free(effect->plan);
	free(effect->executor);
	free(effect->approval);
	free(effect->payload_blob);
	free(effect);
}

void view_approval_free(struct view_approval *approval)
{
	free(approval->id);
	free(approval->target);
	free(approval->fingerprint);
	free(approval->text);
	free(approval->what);
	free(approval->by);
	free(approval);
}

void view_stage_free(struct view_stage *stage)
{
	free(stage->name);
	free(stage);
}

void view_resource_free(struct view_resource *resource)
{
	free(resource->kind);
	free(resource->id);
	free(resource->cleanup);
	free(resource);
}

void view_task_free_parts(struct view_task *task)
{
	for (struct view_effect *effect = task->effects, *next; effect; effect = next) {
		next = effect->next;
		view_effect_free(effect);
	}
	for (struct view_alias *alias = task->aliases, *next; alias; alias = next) {
		next = alias->next;
		free(alias->scope_key);
		free(alias);
	}
	for (struct view_approval *approval = task->approvals, *next; approval; approval = next) {
		next = approval->next;
		view_approval_free(approval);
	}
	for (struct view_stage *stage = task->stages, *next; stage; stage = next) {
		next = stage->next;
		view_stage_free(stage);
	}
	for (struct view_resource *resource = task->resources, *next; resource; resource = next) {
		next = resource->next;
		view_resource_free(resource);
	}
	map_clear(&task->keys);
}

static void task_free(struct view_task *task)
{
	view_task_free_parts(task);
	free(task->id);
	free(task->identity);
	free(task->description);
	free(task->executor);
	free(task->host);
	free(task->ended_by);
	free(task->canceled_by);
	free(task->change_set);
	view_free_list(task->artifacts);
	view_free_list(task->bound_effects);
	free(task);
}

void view_init(struct view *view)
{
	*view = (struct view){0};
	view->last_task = &view->first_task;
}

void view_clear(struct view *view)
{
	for (struct view_task *task = view->first_task, *next; task; task = next) {
		next = task->next;
		task_free(task);
	}
	map_clear(&view->tasks);
	map_clear(&view->effects);
	map_clear(&view->approvals);
	view_init(view);
}

/* ---- looking up ---- */

struct view_task *view_task_get(const struct view *view, const char *id)
{
	return id ? map_get_string(&view->tasks, id) : NULL;
}

struct view_effect *view_effect_get(const struct view *view, const char *id)
{
	return id ? map_get_string(&view->effects, id) : NULL;
}

struct view_approval *view_approval_get(const struct view *view, const char *id)
{
	return id ? map_get_string(&view->approvals, id) : NULL;
}

struct view_stage *view_stage_get(const struct view_task *task, const char *name)
{
	for (struct view_stage *stage = task->stages; stage; stage = stage->next)
		if (strcmp(stage->name, name) == 0)
			return stage;
	return NULL;
}

struct view_resource *view_resource_get(const struct view_task *task, const char *kind, const char *id)
{
	for (struct view_resource *resource = task->resources; resource; resource = resource->next)
		if (strcmp(resource->kind, kind) == 0 && strcmp(resource->id, id) == 0)
			return resource;
	return NULL;
}

struct view_effect *view_effect_by_key(const struct view_task *task, const char *key, bool derived)
{
	char *scope;
	size_t len;
	void *found;

	scope = view_scope_key(key, strlen(key), derived, &len);
	if (!scope)
		return NULL;
	found = map_get(&task->keys, scope, len);
	free(scope);
	return found;
}

const char *view_effect_key(const struct view_effect *effect, bool *retderived)
{
	if (retderived)
		*retderived = effect->scope_key[0] == 'd';
	return effect->scope_key + 1;
}

bool view_effect_may_have_happened(const struct view_effect *effect)
{
	switch (effect->state) {
	case ABOX_EFFECT_DISPATCHED:
	case ABOX_EFFECT_COMMITTED:
	case ABOX_EFFECT_UNKNOWN:
	case ABOX_EFFECT_ABANDONED:
		return true;
	default:
		return effect->maybe;
	}
}

const char *view_effect_state_name(const struct view_effect *effect)
{
	if (effect->state == ABOX_EFFECT_NONE)
		return effect->bound_away ? "CLAIMED" : "AMBIGUOUS";
	return abox_effect_state_name(effect->state);
}

bool view_effect_is_final(const struct view_effect *effect)
{
	switch (effect->state) {
	case ABOX_EFFECT_NONE:
		return effect->bound_away;
	case ABOX_EFFECT_COMMITTED:
	case ABOX_EFFECT_CANCELED:
	case ABOX_EFFECT_ABANDONED:
		return true;
	case ABOX_EFFECT_FAILED:
		return !effect->retryable || effect->try >= effect->max_tries;
	default:
		return false;
	}
}

uint64_t view_task_plain_steps(const struct view_task *task)
{
	return (task->change_set ? 1 : 0) + view_list_len(task->artifacts);
}

bool view_task_is_published(const struct view *view, const struct view_task *task)
{
	if (!task->boundary_seq || task->done_steps < view_task_plain_steps(task))
		return false;
	for (size_t i = 0; task->bound_effects && task->bound_effects[i]; i++) {
		const struct view_effect *effect = view_effect_get(view, task->bound_effects[i]);

		if (!effect || effect->state != ABOX_EFFECT_COMMITTED)
			return false;
	}
	return true;
}

/* ---- making ---- */

int view_task_make(struct view *view, const char *id, uint64_t seq, struct view_task **ret)
{
	struct view_task *task = view_task_get(view, id);

	if (!task) {
		task = calloc(1, sizeof(*task));
		if (!task)
			return ABOX_E_MEMORY;
		task->id = strdup(id);
		if (!task->id || map_put_string(&view->tasks, task->id, task) < 0) {
			free(task->id);
			free(task);
			return ABOX_E_MEMORY;
		}
		task->first_seq = seq;
		task->last_effect = &task->effects;
		task->last_approval = &task->approvals;
		task->last_stage = &task->stages;
		*view->last_task = task;
		view->last_task = &task->next;
	}
	*ret = task;
	return 0;
}

int view_stage_make(struct view_task *task, const char *name, struct view_stage **ret)
{
	struct view_stage *stage = view_stage_get(task, name);

	if (!stage) {
		stage = calloc(1, sizeof(*stage));
		if (!stage)
			return ABOX_E_MEMORY;
		stage->name = strdup(name);
		if (!stage->name) {
			free(stage);
			return ABOX_E_MEMORY;
		}
		*task->last_stage = stage;
		task->last_stage = &stage->next;
	}
	*ret = stage;
	return 0;
}

int view_effect_make(
	struct view *view, struct view_task *task, const struct fact *fact, struct view_effect **ret)
{
	struct view_effect *effect = calloc(1, sizeof(*effect));

	if (!effect)
		return ABOX_E_MEMORY;
	effect->task = task;
	effect->effect_class = (int)fact->effect_class;
	effect->wish = fact->wish;
	effect->settle_usec = fact->settle_usec;
	effect->max_tries = (uint32_t)fact->max_tries;
	effect->deferred = fact->deferred != 0;
	effect->needs_approval = fact->needs_approval != 0;
	effect->attempt = fact->attempt ? fact->attempt : fact->epoch;
	effect->first_seq = fact->first_seq ? fact->first_seq : fact->seq;
	effect->scope_key =
		view_scope_key(fact->key.data, fact->key.len, fact->derived != 0, &effect->scope_key_len);
	effect->target = view_bytes_dup(&fact->target);
	if (!effect->scope_key || !effect->target || view_set_text(&effect->id, fact->effect) < 0 ||
		view_set_text(&effect->fingerprint, fact->fingerprint ? fact->fingerprint : "") < 0 ||
		view_set_text(&effect->what, fact->what) < 0 ||
		view_set_text(&effect->plan, fact->plan) < 0 ||
		view_set_text(&effect->payload_blob, fact->payload_blob) < 0 ||
		map_put(&task->keys, effect->scope_key, effect->scope_key_len, effect) < 0)
		goto fail;
	if (map_put_string(&view->effects, effect->id, effect) < 0) {
		map_remove(&task->keys, effect->scope_key, effect->scope_key_len);
		goto fail;
	}
	*task->last_effect = effect;
	task->last_effect = &effect->next;
	*ret = effect;
	return 0;
fail:
	view_effect_free(effect);
	return ABOX_E_MEMORY;
}

void view_add_alias(struct view_task *task, struct view_alias *alias)
{
	struct view_alias **at = &task->aliases;

	while (*at)
		at = &(*at)->next;
	*at = alias;
}

int view_resource_make(struct view_task *task, const struct fact *fact)
{
	struct view_resource *resource = calloc(1, sizeof(*resource));

	if (!resource)
		return ABOX_E_MEMORY;
	resource->id = view_bytes_dup(&fact->target);
	resource->duty = fact->duty != 0;
	resource->seq = fact->first_seq ? fact->first_seq : fact->seq;
	if (!resource->id || view_set_text(&resource->kind, fact->name) < 0 ||
		view_set_text(&resource->cleanup, fact->cleanup) < 0) {
		view_resource_free(resource);
		return ABOX_E_MEMORY;
	}
	resource->next = task->resources;
	task->resources = resource;
	return 0;
}

int view_approval_make(
	struct view *view, struct view_task *task, const struct fact *fact, struct view_approval **ret)
{
	struct view_approval *approval;

	approval = calloc(1, sizeof(*approval));
	if (!approval)
		return ABOX_E_MEMORY;
	approval->task = task;
	approval->effect_class = (int)fact->effect_class;
	approval->uses = (uint32_t)fact->uses;
	approval->wall = fact->wall != 0;
	approval->seq = fact->first_seq ? fact->first_seq : fact->seq;
	view_set_boot(&approval->boot, fact->boot);
	if (__builtin_add_overflow(approval->wall ? fact->time_usec : fact->boot_usec, fact->ttl_usec,
		    &approval->until_usec))
		approval->until_usec = UINT64_MAX;
	approval->target = view_bytes_dup(&fact->target);
	if (!approval->target || view_set_text(&approval->id, fact->approval) < 0 ||
		view_set_text(&approval->fingerprint, fact->fingerprint ? fact->fingerprint : "") < 0 ||
		view_set_text(&approval->text, fact->reason) < 0 ||
		view_set_text(&approval->what, fact->what) < 0 ||
		map_put_string(&view->approvals, approval->id, approval) < 0) {
		view_approval_free(approval);
		return ABOX_E_MEMORY;
	}
	*task->last_approval = approval;
	task->last_approval = &approval->next;
	*ret = approval;
	return 0;
}
