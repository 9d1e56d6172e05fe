/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is enforced, by what, and what is not: the honest half of a plan. Everything that a spec asks for or
 * the wall promises has one entry. Required and not enforced is refused, unless its name is waived; a default
 * that cannot be enforced is listed, and refused under `strict`.
 */
#include "plan/builder.h"

#include <stdlib.h>
#include <string.h>

void enforcement_add(struct plan_builder *builder, const struct enforcement *entry)
{
	struct enforcement *grown;
	size_t wanted;

	if (builder->n_enforcements == builder->allocated_enforcements) {
		wanted = builder->allocated_enforcements ? builder->allocated_enforcements * 2 : 32;
		grown = reallocarray(builder->enforcements, wanted, sizeof(*grown));
		if (!grown) {
			builder->failed = true;
			return;
		}
		builder->enforcements = grown;
		builder->allocated_enforcements = wanted;
	}
	builder->enforcements[builder->n_enforcements++] = *entry;
}

const char *enforcement_status_name(const struct enforcement *entry)
{
	if (entry->status != ENFORCED && entry->waived)
		return "waived";
	switch (entry->status) {
	case ENFORCED:
		return "enforced";
	case ENFORCEMENT_APPROXIMATED:
		return entry->required ? "approximated" : "approximated (default)";
	case ENFORCEMENT_WATCHED:
		return entry->required ? "watched" : "watched (default)";
	case ENFORCEMENT_NONE:
		break;
	}
	return entry->required ? "not enforced" : "not enforced (default)";
}

static struct enforcement *find(struct plan_builder *builder, const char *name)
{
	for (size_t i = 0; i < builder->n_enforcements; i++)
		if (strcmp(builder->enforcements[i].name, name) == 0)
			return &builder->enforcements[i];
	return NULL;
}

static const char *joined(struct plan_builder *builder, const char *first, const char *second)
{
	if (!first || !second || strcmp(first, second) == 0)
		return first ? first : second;
	return builder_text(builder, "%s; %s", first, second);
}

void enforcement_add_place(struct plan_builder *builder, const struct enforcement *entry)
{
	struct enforcement *there = find(builder, entry->name);

	if (!there) {
		enforcement_add(builder, entry);
		return;
	}
	there->by = joined(builder, there->by, entry->by);
	there->detail = joined(builder, there->detail, entry->detail);
	there->remedy = joined(builder, there->remedy, entry->remedy);
	there->status = MAX(there->status, entry->status);
	there->required = there->required || entry->required;
}

static int apply_waivers(struct plan_builder *builder, abox_error **reterr)
{
	size_t n = spec_count(builder->spec, "/waive");

	for (size_t i = 0; i < n; i++) {
		const char *name = spec_string(builder->spec, "/waive/%zu", i);
		struct enforcement *entry = find(builder, name);

		if (!entry) {
			_cleanup_(text_clear) struct text known = TEXT_INIT;
			int r;

			r = spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN,
				builder_text(builder, "/waive/%zu", i), "nothing is called '%s' here", name);
			for (size_t k = 0; k < builder->n_enforcements; k++)
				text_printf(&known, "%s%s", k ? ", " : "", builder->enforcements[k].name);
			return error_remedy(reterr, r, "one of: %s", known.failed ? "" : known.data);
		}
		for (size_t k = 0; k < builder->n_enforcements; k++)
			if (strcmp(builder->enforcements[k].name, name) == 0)
				builder->enforcements[k].waived = true;
	}
	return 0;
}

static int refuse(struct plan_builder *builder, const struct enforcement *entry, abox_error **reterr)
{
	const char *why = entry->detail ? entry->detail : "this host has no means for it";
	int r;

	r = spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN,
		entry->pointer ? entry->pointer : "/strict", "'%s' cannot be enforced here: %s", entry->name,
		why);
	if (entry->remedy)
		return error_remedy(reterr, r, "%s; or add \"%s\" to waive", entry->remedy, entry->name);
	return error_remedy(reterr, r, "add \"%s\" to waive to run without it", entry->name);
}

int enforcement_settle(struct plan_builder *builder, abox_error **reterr)
{
	bool strict = spec_boolean(builder->spec, "/strict");
	int r;

	if (builder->failed)
		return ABOX_E_MEMORY;
	r = apply_waivers(builder, reterr);
	if (r < 0)
		return r;
	for (size_t i = 0; i < builder->n_enforcements; i++) {
		const struct enforcement *entry = &builder->enforcements[i];

		if (entry->status == ENFORCED || entry->waived)
			continue;
		if (strict || entry->required)
			return refuse(builder, entry, reterr);
	}
	return 0;
}
