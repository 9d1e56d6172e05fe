/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Members of JSON objects for lists, plans and reports. A comma is put in where one is needed. */
#ifndef EFFECT_WRITE_H
#define EFFECT_WRITE_H

#include "effect/decide.h"

void write_open(struct text *text, const char *name, char bracket); /* name NULL: an element */
void write_close(struct text *text, char bracket);
void write_text(struct text *text, const char *name, const char *value); /* NULL is left out */
void write_element(struct text *text, const char *value);
void write_bytes_member(
	struct text *text, const char *name, const void *data, size_t len); /* "name" or "name_hex" */
void write_number(struct text *text, const char *name, uint64_t value);
void write_signed(struct text *text, const char *name, int64_t value);
void write_flag(struct text *text, const char *name, bool value);
void write_raw(struct text *text, const char *name, const char *json);

/* Objects, without and with braces. */
void write_effect(struct text *text, const struct view_effect *effect, const struct decide_context *context);
void write_approval(struct text *text, const struct view *view, const struct view_approval *approval,
	const struct decide_context *context);

#endif
