/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which wall: the one that is written, or for `auto` the fastest usable one that meets the floor. A wall that cannot be
 * built here is refused with what is in the way, and never replaced by a weaker one.
 */
#include "plan/builder.h"

#include <string.h>

#include "probe/runsc.h"

static int refuse(const char *wall, const char *blocker, const char *remedy, abox_error **reterr)
{
	int r = error_set(reterr, ABOX_E_UNAVAILABLE, ABOX_STAGE_PLAN, wall, "%s", blocker);

	return remedy[0] ? error_remedy(reterr, r, "%s", remedy) : r;
}

static int take_namespaces(struct plan_builder *builder, abox_error **reterr)
{
	builder->wall = PLAN_NAMESPACES;
	builder->flat.backend = "namespaces";
	if (!builder->facts->blocker[0])
		return 0;
	return refuse("namespaces", builder->facts->blocker, builder->facts->remedy, reterr);
}

static int take_gvisor(struct plan_builder *builder, abox_error **reterr)
{
	const struct runsc_facts *runsc = builder->runsc;
	int r;

	builder->wall = PLAN_GVISOR;
	builder->flat.backend = "gvisor";
	r = runsc_facts_read(builder->facts, builder->runsc, reterr);
	if (r < 0)
		return r;
	return runsc->blocker[0] ? refuse("gvisor", runsc->blocker, runsc->remedy, reterr) : 0;
}

static int take_microvm(struct plan_builder *builder, abox_error **reterr)
{
	const struct machine_host *machine = builder->machine;
	int r;

	builder->wall = PLAN_MICROVM;
	builder->flat.backend = "microvm";
	if (builder->facts->blocker[0])
		return refuse("microvm", builder->facts->blocker, builder->facts->remedy, reterr);
	r = machine_host_read(spec_has(builder->spec, "/kernel") ? spec_string(builder->spec, "/kernel") : NULL,
		ABOX_STAGE_PLAN, builder->machine, reterr);
	if (r < 0)
		return r;
	return machine->blocker[0] ? refuse("microvm", machine->blocker, machine->remedy, reterr) : 0;
}

int plan_choose_wall(struct plan_builder *builder, abox_error **reterr)
{
	static const struct {
		const char *name;
		int (*take)(struct plan_builder *builder, abox_error **reterr);
	} walls[] = { { "namespaces", take_namespaces }, { "gvisor", take_gvisor }, { "microvm", take_microvm } };
	const char *backend = spec_string(builder->spec, "/backend"),
		   *floor = spec_string(builder->spec, "/isolation_floor");
	bool any = strcmp(backend, "auto") == 0, reached = false;
	int first = 0, r;

	for (size_t i = 0; i < ELEMENTSOF(walls); i++) {
		reached = reached || strcmp(walls[i].name, floor) == 0;
		if (any ? !reached : strcmp(walls[i].name, backend) != 0)
			continue;
		/* an emulated machine is slow: only who asks for one gets it */
		if (any && walls[i].take == take_microvm && strcmp(floor, walls[i].name) != 0)
			continue;
		/* the first reason is told: what is in the way of the fastest */
		r = walls[i].take(builder, first < 0 ? NULL : reterr);
		if (!any || (r != ABOX_E_UNAVAILABLE && r != ABOX_E_UNSUPPORTED))
			return r;
		first = first < 0 ? first : r;
	}
	return first;
}
