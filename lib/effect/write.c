/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the view holds, as JSON for people and programs. Bytes from outside are escaped; a secret never comes
 * here, as records hold none.
 */
#include "effect/write.h"

#include <string.h>

static void begin_member(struct text *text, const char *name)
{
	char last = text->len ? text->data[text->len - 1] : 0;

	if (last && last != '{' && last != '[' && last != ':' && last != ',')
		text_add(text, ",");
	if (name) {
		text_add_json(text, name, strlen(name));
		text_add(text, ":");
	}
}

void write_open(struct text *text, const char *name, char bracket)
{
	begin_member(text, name);
	text_add_bytes(text, &bracket, 1);
}

void write_close(struct text *text, char bracket)
{
	text_add_bytes(text, &bracket, 1);
}

/* Texts for people: bytes that are not UTF-8 are shown as \\xHH, so that every reader takes the JSON. */
static void add_text(struct text *text, const char *value)
{
	_cleanup_(text_clear) struct text shown = TEXT_INIT;
	size_t len = strlen(value), n = 0, step;

	while (n < len && (step = utf8_char_len(value + n, len - n)) > 0)
		n += step;
	if (n == len) {
		text_add_json(text, value, len);
		return;
	}
	text_add_escaped(&shown, value, len);
	text_add_json(text, shown.data ? shown.data : "", shown.len);
	text->failed = text->failed || shown.failed;
}

void write_text(struct text *text, const char *name, const char *value)
{
	if (!value)
		return;
	begin_member(text, name);
	add_text(text, value);
}

void write_element(struct text *text, const char *value)
{
	begin_member(text, NULL);
	add_text(text, value);
}

void write_bytes_member(struct text *text, const char *name, const void *data, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	_cleanup_(text_clear) struct text hex_name = TEXT_INIT;
	const unsigned char *bytes = data;
	size_t n = 0, step;

	while (n < len) {
		step = utf8_char_len((const char *)data + n, len - n);
		if (step == 0 || bytes[n] == 0)
			break;
		n += step;
	}
	if (n == len) {
		begin_member(text, name);
		text_add_json(text, data, len);
		return;
	}
	text_printf(&hex_name, "%s_hex", name);
	begin_member(text, hex_name.failed ? name : hex_name.data);
	text_add(text, "\"");
	for (size_t i = 0; i < len; i++) {
		text_add_bytes(text, &digits[bytes[i] >> 4], 1);
		text_add_bytes(text, &digits[bytes[i] & 15], 1);
	}
	text_add(text, "\"");
}

void write_number(struct text *text, const char *name, uint64_t value)
{
	begin_member(text, name);
	text_printf(text, "%llu", (unsigned long long)value);
}

void write_signed(struct text *text, const char *name, int64_t value)
{
	begin_member(text, name);
	text_printf(text, "%lld", (long long)value);
}

void write_flag(struct text *text, const char *name, bool value)
{
	begin_member(text, name);
	text_add(text, value ? "true" : "false");
}

void write_raw(struct text *text, const char *name, const char *json)
{
	begin_member(text, name);
	text_add(text, json);
}

void write_effect(struct text *text, const struct view_effect *effect, const struct decide_context *context)
{
	uint64_t left = 0;
	bool derived;
	const char *key = view_effect_key(effect, &derived);

	write_text(text, "id", effect->id);
	write_text(text, "task", effect->task->id);
	write_bytes_member(text, "key", key, strlen(key));
	write_flag(text, "derived", derived);
	write_text(text, "class", abox_effect_class_name(effect->effect_class));
	write_bytes_member(text, "target", effect->target, strlen(effect->target));
	write_text(text, "what", effect->what);
	write_text(text, "state", view_effect_state_name(effect));
	write_number(text, "try", effect->try);
	write_number(text, "max_tries", effect->max_tries);
	write_number(text, "attempt", effect->attempt);
	write_text(text, "fingerprint", effect->fingerprint);
	write_text(text, "plan", effect->plan);
	write_text(text, "approval", effect->approval);
	write_flag(text, "deferred", effect->deferred);
	write_flag(text, "final", view_effect_is_final(effect));
	write_flag(text, "may_have_happened", view_effect_may_have_happened(effect));
	if (effect->state == ABOX_EFFECT_FAILED)
		write_flag(text, "retryable", !view_effect_is_final(effect));
	if (effect->state == ABOX_EFFECT_UNKNOWN) {
		write_flag(text, "retry_allowed", effect->overridden);
		decide_is_settled(effect, context, &left);
		write_number(text, "settles_in_usec", left);
	}
	if (effect->late)
		write_number(text, "late_outcomes", effect->late);
	if (effect->misfit)
		write_flag(text, "damaged", true);
	write_number(text, "first_seq", effect->first_seq);
	write_number(text, "state_seq", effect->state_seq);
}

void write_approval(struct text *text, const struct view *view, const struct view_approval *approval,
	const struct decide_context *context)
{
	write_text(text, "id", approval->id);
	write_text(text, "task", approval->task->id);
	write_text(text, "state", abox_approval_state_name(decide_approval_state(view, approval, context)));
	write_text(text, "class", abox_effect_class_name(approval->effect_class));
	write_bytes_member(text, "target", approval->target, strlen(approval->target));
	write_text(text, "what", approval->what);
	write_text(text, "fingerprint", approval->fingerprint);
	write_text(text, "text", approval->text);
	write_text(text, "by", approval->by);
	write_number(text, "uses", approval->uses);
	write_number(text, "used", approval->used);
	write_number(text, "seq", approval->seq);
}
