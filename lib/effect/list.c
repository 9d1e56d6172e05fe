/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Lists of effects and approvals, made from the records: also of tasks that are over. States are those of the
 * records; an effect that is DISPATCHED here may be found UNKNOWN by whoever asks for it next.
 */
#include <string.h>

#include "effect/engine.h"
#include "effect/write.h"

/* A dead or living executor makes no difference to a list. */
static int nobody_asks(void *userdata, const char *executor, uint64_t handle, abox_error **reterr)
{
	return 1;
}

static int list_context(struct decide_context *context, abox_error **reterr)
{
	const char *boot = engine_boot_id(reterr);

	if (!boot)
		return ABOX_E_SYSTEM;
	*context = (struct decide_context){.boot = boot, .alive = nobody_asks};
	engine_clock(context);
	return 0;
}

static int check_list(abox_journal *journal, char **retjson, abox_error **reterr)
{
	if (!retjson)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, NULL, "retjson is required");
	return engine_check_journal(journal, false, reterr);
}

int abox_effect_list(
	abox_journal *journal, const char *task, int open_only, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	struct decide_context context;
	struct view view;
	int r;

	r = check_list(journal, retjson, reterr);
	if (r < 0)
		return r;
	r = list_context(&context, reterr);
	if (r < 0)
		return r;
	r = engine_history(journal, task, &view, reterr);
	if (r < 0)
		return r;
	write_open(&text, NULL, '[');
	for (const struct view_task *t = view.first_task; t; t = t->next)
		for (const struct view_effect *effect = t->effects; effect; effect = effect->next) {
			if (open_only && view_effect_is_final(effect))
				continue;
			write_open(&text, NULL, '{');
			write_effect(&text, effect, &context);
			write_close(&text, '}');
		}
	write_close(&text, ']');
	view_clear(&view);
	return text_take(&text, retjson);
}

int abox_effect_show(abox_journal *journal, const char *id, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	_cleanup_(freep) char *result = NULL, *reason = NULL;
	const struct view_effect *effect;
	struct decide_context context;
	struct view view;
	size_t len = 0;
	int32_t code = 0;
	int r;

	r = check_list(journal, retjson, reterr);
	if (r < 0)
		return r;
	if (!id)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_EFFECT, "id", "is required");
	r = list_context(&context, reterr);
	if (r < 0)
		return r;
	r = engine_history(journal, NULL, &view, reterr);
	if (r < 0)
		return r;
	effect = view_effect_get(&view, id);
	if (!effect) {
		view_clear(&view);
		return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_EFFECT, NULL,
			"no effect '%s' in this journal", id);
	}
	write_open(&text, NULL, '{');
	write_effect(&text, effect, &context);
	if (effect->result_seq)
		r = engine_load(journal, effect->result_seq, false, &result, &len, &code, &reason, reterr);
	view_clear(&view);
	if (r < 0)
		return r;
	if (result)
		write_bytes_member(&text, "result", result, len);
	write_signed(&text, "code", code);
	write_text(&text, "reason", reason);
	write_close(&text, '}');
	return text_take(&text, retjson);
}

int abox_approval_list(
	abox_journal *journal, const char *task, int pending_only, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	struct decide_context context;
	struct view view;
	int r;

	r = check_list(journal, retjson, reterr);
	if (r < 0)
		return r;
	r = list_context(&context, reterr);
	if (r < 0)
		return r;
	r = engine_history(journal, task, &view, reterr);
	if (r < 0)
		return r;
	write_open(&text, NULL, '[');
	for (const struct view_task *t = view.first_task; t; t = t->next)
		for (const struct view_approval *approval = t->approvals; approval;
			approval = approval->next) {
			if (pending_only &&
				decide_approval_state(&view, approval, &context) != ABOX_APPROVAL_PENDING)
				continue;
			write_open(&text, NULL, '{');
			write_approval(&text, &view, approval, &context);
			write_close(&text, '}');
		}
	write_close(&text, ']');
	view_clear(&view);
	return text_take(&text, retjson);
}
