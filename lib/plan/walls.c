/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The walls around commands: system call filter, Landlock, the way a tree is killed, control groups.
 */
#include "plan/builder.h"

#include <stdlib.h>
#include <string.h>

#include "kernel/seccomp.h"

static int build_filter(struct plan_builder *builder, abox_error **reterr)
{
	size_t n_allow = spec_count(builder->spec, "/seccomp/allow"), n_insns;
	_cleanup_(freep) const char **allow = calloc(n_allow + 1, sizeof(*allow));
	_cleanup_(freep) struct filter_insn *program = NULL;
	int r;

	if (!allow)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < n_allow; i++)
		allow[i] = spec_string(builder->spec, "/seccomp/allow/%zu", i);
	if (!builder->facts->seccomp)
		return error_set(reterr, ABOX_E_UNAVAILABLE, ABOX_STAGE_PLAN, "seccomp",
			"this kernel has no system call filters (CONFIG_SECCOMP_FILTER)");
	r = filter_compile(&(struct filter_policy){ .allow = allow }, &program, &n_insns, reterr);
	if (r < 0)
		return r;
	builder->flat.filter_len = n_insns * sizeof(*program);
	builder->flat.filter = builder_bytes(builder, program, builder->flat.filter_len);
	enforcement_add(builder, &(struct enforcement){ .name = "seccomp",
					 .by = "kernel: seccomp filter",
					 .required = true,
					 .detail = builder_text(builder,
						 "%zu instructions; unknown calls answer ENOSYS%s", n_insns,
						 builder->wall == PLAN_GVISOR
							 ? "; int 0x80 is the 64-bit call of that number, and judged so"
							 : "") });
	return 0;
}

static void build_landlock(struct plan_builder *builder)
{
	struct flat_plan *flat = &builder->flat;
	int abi = builder->facts->landlock_abi;

	flat->landlock_abi =
		abi >= 2 ? (uint32_t)abi : 0; /* ABI 1 would forbid every rename between folders */
	flat->landlock_scope = abi >= 6;
	enforcement_add(builder,
		&(struct enforcement){ .name = "landlock",
			.by = abi >= 2 ? "kernel: landlock" : "nothing",
			.status = abi >= 2 ? ENFORCED : ENFORCEMENT_NONE,
			.detail =
				abi >= 2
					? builder_text(builder, "ABI %d, second layer%s", abi,
						  abi >= 6 ? ", scopes" : "")
					: "no Landlock of ABI 2 or later; the first layer (mounts) stands alone",
			.remedy = "boot with lsm=landlock,... on Linux 5.19 or later" });
}

static void build_kill(struct plan_builder *builder)
{
	static const struct {
		enum flat_kill kill;
		const char *by;
	} ways[] = {
		[KILL_PIDNS] = { FLAT_KILL_PIDNS,
			"kernel: a pid namespace per command (commands do not see each other)" },
		[KILL_SCOPE] = { FLAT_KILL_SCOPE, "kernel: landlock signal scope per command" },
		[KILL_CGROUP2] = { FLAT_KILL_CGROUP2, "kernel: cgroup.kill per command" },
	};

	builder->flat.kill = ways[builder->facts->kill].kill;
	enforcement_add(builder, &(struct enforcement){ .name = "command.tree",
					 .required = true,
					 .by = ways[builder->facts->kill].by,
					 .detail = "a command is killed with everything it has started" });
}

static void build_cgroup(struct plan_builder *builder)
{
	struct flat_plan *flat = &builder->flat;
	const struct cgroup_layout *layout = &builder->facts->cgroup;
	bool freezer = layout->tree_dir[0] != 0;

	flat->cgroup = *layout;
	flat->use_cgroup = layout->limits_version || freezer;
	enforcement_add(builder, &(struct enforcement){ .name = "pause",
		.by = freezer ? "kernel: cgroup.freeze" : "guest: SIGSTOP to every process",
		.status = freezer ? ENFORCED : ENFORCEMENT_APPROXIMATED,
		.detail = freezer ? NULL : "processes can notice it" });
}

int plan_build_walls(struct plan_builder *builder, abox_error **reterr)
{
	if (builder->wall == PLAN_GVISOR) {
		plan_gvisor_walls(builder);
		build_cgroup(builder);
		return build_filter(builder, reterr);
	}
	if (builder->wall == PLAN_MICROVM) {
		plan_microvm_walls(builder);
		build_cgroup(builder);
		return build_filter(builder, reterr);
	}
	enforcement_add(builder, &(struct enforcement){ .name = "filesystem", .required = true,
		.by = "kernel: mount namespace, private read-only root" });
	enforcement_add(builder, &(struct enforcement){ .name = "processes", .required = true,
		.by = "kernel: pid, ipc, uts and cgroup namespaces" });
	enforcement_add(builder, &(struct enforcement){ .name = "capabilities", .required = true,
		.by = "kernel: none, no_new_privs" });
	build_landlock(builder);
	build_kill(builder);
	build_cgroup(builder);
	return build_filter(builder, reterr);
}
