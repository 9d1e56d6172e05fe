/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Limits: what the spec asks for, by which means of this host, and how far that holds.
 */
#include "plan/builder.h"

#define CGROUP_REMEDY                                                                                        \
	"start as root, or in a delegated control group (systemd-run --user --scope -p Delegate=yes)"

#define WALL_INSIDE "the wall itself is in the group, and ends with the box where the limit bites"

static uint64_t limit(const struct plan_builder *builder, const char *pointer)
{
	uint64_t value = spec_has(builder->spec, "%s", pointer) ? spec_u64(builder->spec, "%s", pointer) : 0;

	return value == UINT64_MAX ? 0 : value;	/* "off" */
}

static void add(struct plan_builder *builder, const char *name, const char *pointer, const char *by)
{
	enforcement_add(builder, &(struct enforcement){ .name = name, .by = by, .pointer = pointer,
		.required = spec_written(builder->spec, "%s", pointer) });
}

/* Other walls are in the group of their box. */
static const char *detail_of(const struct plan_builder *builder, enum cgroup_controller controller)
{
	if (builder->wall == PLAN_NAMESPACES)
		return NULL;
	return controller == CGROUP_CPU ? "the wall's own work counts; what a command is said to have used does not tell it"
					: WALL_INSIDE;
}

/* A limit that only a control group can keep. True when one does. */
static bool by_cgroup(struct plan_builder *builder, const char *name, const char *pointer,
	enum cgroup_controller controller)
{
	const struct cgroup_layout *layout = &builder->facts->cgroup;
	bool there = layout->limits_version && (layout->controllers & CGROUP_BIT(controller));

	if (!spec_has(builder->spec, "%s", pointer))
		return false;
	enforcement_add(builder,
		&(struct enforcement){ .name = name,
			.pointer = pointer,
			.by = there ? builder_text(builder, "kernel: cgroup v%u", layout->limits_version)
				    : "nothing",
			.status = there ? ENFORCED : ENFORCEMENT_NONE,
			.required = spec_written(builder->spec, "%s", pointer),
			.detail = there               ? detail_of(builder, controller)
				  : layout->reason[0] ? layout->reason
						      : "the host has no such controller for this user",
			.remedy = layout->remedy[0] ? layout->remedy : CGROUP_REMEDY });
	return there;
}

/*
 * Without a pids controller RLIMIT_NPROC does it: it counts per user namespace, and each box has its own. It
 * does not bind the host's uid 0, which a box is only where root may not map other ids.
 */
static void build_pids(struct plan_builder *builder)
{
	const struct cgroup_layout *layout = &builder->facts->cgroup;
	struct flat_plan *flat = &builder->flat;
	bool outside_root = flat->map == FLAT_MAP_SINGLE && flat->outside_uid == 0;

	flat->limits.pids = limit(builder, "/limits/pids");
	if (builder->wall == PLAN_GVISOR) {
		flat->cgroup_limits.pids = flat->limits.pids;
		add(builder, "limits.pids", "/limits/pids", "gVisor: RLIMIT_NPROC");
		return;
	}
	if (layout->limits_version && (layout->controllers & CGROUP_BIT(CGROUP_PIDS))) {
		by_cgroup(builder, "limits.pids", "/limits/pids", CGROUP_PIDS);
		flat->cgroup_limits.pids = flat->limits.pids;
		return;
	}
	if (outside_root) {
		by_cgroup(builder, "limits.pids", "/limits/pids", CGROUP_PIDS);
		flat->limits.pids = 0;
		return;
	}
	flat->limits.pids_by_rlimit = 1;
	add(builder, "limits.pids", "/limits/pids", "kernel: RLIMIT_NPROC in the box's user namespace");
}

/* The machine has no more than this, and its own kernel keeps the box within the rest. Of the host's group only a part of a
 * processor is asked: what else it bounds would end the machine. */
static int build_machine(struct plan_builder *builder)
{
	struct flat_plan *flat = &builder->flat;
	uint64_t cpu_millis = limit(builder, "/limits/cpus");

	flat->limits.memory_bytes = limit(builder, "/limits/memory");
	flat->limits.pids = limit(builder, "/limits/pids");
	flat->limits.own_by_rlimit = 1;
	if (flat->limits.memory_bytes)
		add(builder, "limits.memory", "/limits/memory", "machine: its size, and a group of its own kernel");
	if (flat->limits.pids)
		add(builder, "limits.pids", "/limits/pids", "machine: a group of its own kernel");
	if (cpu_millis && cpu_millis % 1000 == 0)
		add(builder, "limits.cpus", "/limits/cpus", "machine: its processors");
	else
		by_cgroup(builder, "limits.cpus", "/limits/cpus", CGROUP_CPU);
	flat->cgroup_limits.cpu_millis = cpu_millis;
	return 0;
}

/* Beside what the places that lie elsewhere have (mounts.c, workspace.c). */
static void add_scratch(struct plan_builder *builder, const char *name, const char *pointer)
{
	enforcement_add_place(builder,
		&(struct enforcement){ .name = name,
			.pointer = pointer,
			.by = "kernel: one tmpfs for every writable place",
			.required = spec_written(builder->spec, "%s", pointer) });
}

int plan_build_limits(struct plan_builder *builder, abox_error **reterr)
{
	struct flat_limits *limits = &builder->flat.limits;
	struct flat_plan *flat = &builder->flat;
	bool unlimited_wall = flat->detach && !spec_written(builder->spec, "/limits/wall");

	limits->wall_usec = unlimited_wall ? 0 : limit(builder, "/limits/wall");
	limits->idle_usec = limit(builder, "/limits/idle");
	limits->grace_usec = limit(builder, "/grace");
	limits->output_bytes = limit(builder, "/limits/output");
	limits->output_written = spec_written(builder->spec, "/limits/output");
	if (!limits->disk_bytes) /* else a workspace has less left */
		limits->disk_bytes = limit(builder, "/limits/disk");
	if (!limits->inodes)
		limits->inodes = limit(builder, "/limits/inodes");
	limits->open_files = (uint32_t)limit(builder, "/limits/open_files");
	if (limits->wall_usec)
		add(builder, "limits.wall", "/limits/wall", "keeper");
	if (limits->idle_usec)
		add(builder, "limits.idle", "/limits/idle", "keeper");
	add(builder, "limits.output", "/limits/output",
		"library and keeper: captured, copied and spooled streams");
	add_scratch(builder, "limits.disk", "/limits/disk");
	add_scratch(builder, "limits.inodes", "/limits/inodes");
	add(builder, "limits.open_files", "/limits/open_files", "kernel: RLIMIT_NOFILE of each process");
	if (builder->wall == PLAN_MICROVM)
		return build_machine(builder);
	if (by_cgroup(builder, "limits.memory", "/limits/memory", CGROUP_MEMORY))
		flat->cgroup_limits.memory_bytes = limits->memory_bytes = limit(builder, "/limits/memory");
	if (by_cgroup(builder, "limits.cpus", "/limits/cpus", CGROUP_CPU))
		flat->cgroup_limits.cpu_millis = limit(builder, "/limits/cpus");
	build_pids(builder);
	return builder->wall == PLAN_GVISOR ? plan_gvisor_limits(builder, reterr) : 0;
}
