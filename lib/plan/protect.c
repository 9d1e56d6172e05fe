/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protected paths in the plan: one step for each name, and what holds it. A name that is there is bound onto
 * itself read-only, and so that no folder above it can be renamed away, each of those up to the place becomes
 * a mount point as well; that is done by the guest. A name that is not there is made in a layer of the box: in
 * the lowest one of an overlay, where no change shows it. A folder of the host that is written directly has no
 * such layer; there it is said by name that the name can be made.
 */
#include "plan/protect.h"

#include <string.h>

#define LISTED_MAX 12

struct tally {
	struct text held, made, open, shared;
	size_t n_held, n_made, n_open, n_shared;
	bool open_written, shared_written;
};

static void tally_clear(struct tally *tally)
{
	text_clear(&tally->held);
	text_clear(&tally->made);
	text_clear(&tally->open);
	text_clear(&tally->shared);
}

static void note(struct text *text, size_t *n, const char *path)
{
	if (*n < LISTED_MAX) {
		text_add(text, *n ? ", " : "");
		text_add_escaped(text, path, strlen(path));
	} else if (*n == LISTED_MAX)
		text_add(text, " ...");
	++*n;
}

static void emit(struct plan_builder *builder, const struct protect_place *place,
	const struct protect_item *item, struct tally *tally)
{
	struct flat_step step = {
		.op = FLAT_OP_PROTECT,
		.source = -1,
		.size_bytes = strlen(place->target),
		.target = builder_text(builder, "%s/%s", place->target, item->path),
	};

	if (place->direct)
		step.attr |= FLAT_ATTR_HOLD;
	if (item->absent && place->direct && !place->placeholder) {
		note(&tally->open, &tally->n_open, item->path);
		tally->open_written |= item->written;
		return;
	}
	if (item->shared && place->direct) {
		note(&tally->shared, &tally->n_shared, item->path);
		tally->shared_written |= item->written;
	}
	if (item->absent) {
		step.attr |= place->placeholder ? FLAT_ATTR_PLACEHOLDER : FLAT_ATTR_MAKE;
		step.attr |= item->folder ? FLAT_ATTR_FOLDER : 0;
		step.content = item->content;
		step.content_len = item->content ? strlen(item->content) : 0;
		note(&tally->made, &tally->n_made, item->path);
	} else
		note(&tally->held, &tally->n_held, item->path);
	builder_step(builder, &step);
}

/* ABOX_E_MEMORY is told at the end of the compilation, by builder->failed. */
static const char *kept(struct plan_builder *builder, const struct text *text)
{
	if (text->failed)
		builder->failed = true;
	return text->data && !text->failed ? text->data : "";
}

static void tell_held(struct plan_builder *builder, const struct protect_find *find, const struct tally *tally)
{
	bool written = find->place->workspace && spec_count(builder->spec, "/workspace/protect") > 0;
	const char *detail;

	if (!tally->n_held && !tally->n_made && !find->incomplete)
		return;
	detail = builder_text(builder, "%s: %s%s%s%s%s", find->place->target,
		tally->n_held ? "read-only " : "", kept(builder, &tally->held),
		tally->n_held && tally->n_made ? "; " : "", !tally->n_made ? "" : find->place->placeholder ? "by a placeholder " : "held absent ",
		kept(builder, &tally->made));
	if (find->incomplete)
		detail = builder_text(builder, "%s; not every folder could be looked into for more", detail);
	enforcement_add(builder, &(struct enforcement){
		.name = "workspace.protect",
		.by = "kernel: read-only mounts, their folders pinned",
		.pointer = written ? "/workspace/protect" : NULL,
		.required = written && find->whole,
		.status = find->incomplete ? ENFORCEMENT_APPROXIMATED : ENFORCED,
		.detail = detail });
}

static void tell_open(struct plan_builder *builder, const struct protect_find *find, const struct tally *tally)
{
	if (tally->n_open)
		enforcement_add(builder, &(struct enforcement){
			.name = "workspace.protect_absent",
			.by = "nothing",
			.pointer = tally->open_written ? "/workspace/protect" : NULL,
			.required = tally->open_written ||
				    spec_written(builder->spec, "/workspace/protect_absent"),
			.status = ENFORCEMENT_NONE,
			.detail = builder_text(builder,
				"%s is a folder of the host that is written directly; what is not there yet can be made: %s",
				find->place->target, kept(builder, &tally->open)),
			.remedy = "write \"protect_absent\": \"placeholder\", or use an overlay workspace" });
	if (tally->n_shared)
		enforcement_add(builder, &(struct enforcement){
			.name = "workspace.protect_links",
			.by = "nothing",
			.pointer = tally->shared_written ? "/workspace/protect" : NULL,
			.required = tally->shared_written,
			.status = ENFORCEMENT_NONE,
			.detail = builder_text(builder, "%s: these have another name by which they may be written: %s",
				find->place->target, kept(builder, &tally->shared)),
			.remedy = "copy them onto themselves, or use an overlay workspace" });
	if (find->open_pattern)
		enforcement_add(builder, &(struct enforcement){
			.name = "workspace.protect_new",
			.by = "nothing",
			.pointer = "/workspace/protect",
			.required = true,
			.status = ENFORCEMENT_NONE,
			.detail = builder_text(builder,
				"'%s' holds what it names at the start; a new name that it matches can be made",
				find->open_pattern),
			.remedy = "name a folder and all that is in it, as in \"conf/**\"" });
}

int plan_protect(struct plan_builder *builder, const struct protect_place *place, abox_error **reterr)
{
	_cleanup_(protect_find_clear) struct protect_find find = { .builder = builder, .place = place };
	_cleanup_(tally_clear) struct tally tally = { 0 };
	int r;

	r = protect_find(&find);
	if (r == ABOX_E_LIMIT)
		return error_remedy(reterr,
			spec_refuse(builder->spec, reterr, r, ABOX_STAGE_PLAN, "/workspace/protect",
				"more than 1024 names in %s would have to be protected", place->target),
			"protect whole folders (\"conf/**\"), or take defaults away (\"!vendor/**\")");
	if (r < 0)
		return r;
	for (size_t i = 0; i < find.n_items; i++)
		emit(builder, place, &find.items[i], &tally);
	tell_held(builder, &find, &tally);
	tell_open(builder, &find, &tally);
	return 0;
}
