/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What view.c, transition.c and summary.c share. */
#ifndef EFFECT_VIEW_INNER_H
#define EFFECT_VIEW_INNER_H

#include "effect/view.h"

int view_set_text(char **at, const char *value); /* copies; NULL clears */
void view_set_boot(char (*at)[40], const char *boot);
char *view_bytes_dup(const struct fact_bytes *bytes);
int view_copy_list(char ***at, const char *const *list);
void view_free_list(char **list);
size_t view_list_len(char *const *list);
char *view_scope_key(const void *key, size_t len, bool derived, size_t *retlen);

void view_result_free(struct view_result *result);
void view_effect_free(struct view_effect *effect);
void view_approval_free(struct view_approval *approval);
void view_stage_free(struct view_stage *stage);
void view_resource_free(struct view_resource *resource);
void view_task_free_parts(struct view_task *task);

int view_task_make(struct view *view, const char *id, uint64_t seq, struct view_task **ret);
int view_stage_make(struct view_task *task, const char *name, struct view_stage **ret);
int view_effect_make(
	struct view *view, struct view_task *task, const struct fact *fact, struct view_effect **ret);
int view_approval_make(
	struct view *view, struct view_task *task, const struct fact *fact, struct view_approval **ret);
void view_add_alias(struct view_task *task, struct view_alias *alias);
int view_resource_make(struct view_task *task, const struct fact *fact);
/* Parts of a summary. */
int view_restore(struct view *view, const struct fact *fact);

#endif
