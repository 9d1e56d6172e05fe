/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A plan in the making: the flat plan with arrays that grow, texts that stay, and the list of what is
 * enforced. Every part of lib/plan adds to it and never takes away.
 */
#ifndef PLAN_BUILDER_H
#define PLAN_BUILDER_H

#include <linux/limits.h>

#include "base/error.h"
#include "machine/machine.h"
#include "base/strings.h"
#include "network/rule.h"
#include "plan/flat.h"
#include "probe/facts.h"
#include "spec/spec.h"

enum enforcement_status {
	ENFORCED = 0,
	ENFORCEMENT_APPROXIMATED,
	ENFORCEMENT_WATCHED,
	ENFORCEMENT_NONE,	/* not enforced: only as a default or waived */
};

struct enforcement {
	const char *name;	/* what `waive` calls it */
	const char *by;		/* "kernel: cgroup1 memory", "keeper" ... */
	const char *pointer;	/* spec key that asks for it; NULL for what is always promised */
	enum enforcement_status status;
	bool required;		/* written by the user, or a promise that no default may weaken */
	bool waived;
	const char *detail;
	const char *remedy;
};

enum plan_wall {
	PLAN_NAMESPACES = 0,
	PLAN_GVISOR,
	PLAN_MICROVM,
};

struct plan_builder {
	const abox_spec *spec;
	const struct host_facts *facts;
	struct verdict *verdict;	/* on the host, which the plan may add to */
	enum plan_wall wall;
	struct runsc_facts *runsc;	/* of PLAN_GVISOR */
	struct flat_plan flat;
	size_t allocated_sources, allocated_steps, allocated_landlock;
	struct enforcement *enforcements;
	size_t n_enforcements, allocated_enforcements;
	char **texts;		/* everything that was allocated along the way */
	size_t n_texts, allocated_texts;
	char **warnings;	/* point into texts */
	size_t n_warnings, allocated_warnings;
	char **directories;	/* made in the root so far, point into texts */
	size_t n_directories, allocated_directories;
	const char *journal;	/* canonical folder; NULL for none */
	const char *workspace;	/* what is done with the workspace, a JSON object; see workspace.c */
	bool workspace_is_stored;	/* the recorder opens it at the start and settles it at the end */
	bool workspace_copies;	/* a start may take as long as a copy of the source */
	const char **secrets;	/* values that must be in nothing that survives; texts of the builder */
	size_t n_secrets;
	/* of a box with a network: what its egress gets, and the plan's dump does not */
	const char *proxy, *no_proxy;
	const char *extra_roots;	/* of them, what the harness has added */
	const void *slots;	/* of credentials (credential/slot.h); NULL: none */
	size_t slots_len;
	const void *roots;	/* certificates (PEM) that upstream servers are verified with */
	size_t roots_len;
	struct machine_host *machine;	/* of PLAN_MICROVM */
	const char *kernel_place;	/* where the kernel of its machine is, or will be at the start */
	bool failed;		/* out of memory somewhere: told once, at the end */
};

struct builder_variable {
	const char *name, *value;
};

void builder_clear(struct plan_builder *builder);

/* Copies that live as long as the builder; NULL (and builder->failed) without memory. */
const char *builder_text(struct plan_builder *builder, const char *format, ...) _printf_(2, 3);
const void *builder_bytes(struct plan_builder *builder, const void *data, size_t len);
void builder_warn(struct plan_builder *builder, const char *format, ...) _printf_(2, 3);

/* Index of a new source; texts are kept by reference. */
int32_t builder_source(struct plan_builder *builder, const struct flat_source *source);
void builder_step(struct plan_builder *builder, const struct flat_step *step);
/* The parents of target and, with self, target itself, as far as no step has made them. */
void builder_parents(struct plan_builder *builder, const char *target, bool self);
void builder_directory(struct plan_builder *builder, const char *target, uint32_t mode, uint32_t attr);
void builder_symlink(struct plan_builder *builder, const char *target, const char *content);
void builder_file(
	struct plan_builder *builder, const char *target, uint32_t mode, const void *content, size_t len);
void builder_bind(struct plan_builder *builder, int32_t source, const char *target, uint32_t attr);
void builder_scratch(
	struct plan_builder *builder, const char *name, const char *target, uint32_t mode, uint32_t attr);
void builder_landlock(struct plan_builder *builder, const char *path, uint32_t access);
/* The step so far whose mount covers target (it lies below, or at, its own target), the deepest; NULL: the
 * root. */
const struct flat_step *builder_covering(const struct plan_builder *builder, const char *target);

/* gvisor.c: what the wall needs inside, before the root turns read-only; its limits; its entries of what is enforced */
int plan_gvisor_inside(struct plan_builder *builder, abox_error **reterr);
int plan_gvisor_limits(struct plan_builder *builder, abox_error **reterr);
void plan_gvisor_walls(struct plan_builder *builder);

/* parts of the plan, in the order in which they are called; each sets an error where it knows the cause */
int plan_build_identity(struct plan_builder *builder, abox_error **reterr); /* identity.c: ids, groups, env */
int plan_build_network(struct plan_builder *builder, abox_error **reterr);	/* network.c: rules, ports, cell */
int plan_build_credentials(struct plan_builder *builder, abox_error **reterr);	/* credential.c */
bool plan_placeholder(const struct plan_builder *builder, size_t i, const char **retname,
	char retvalue[RULES_PLACEHOLDER_BYTES]);
int plan_build_rootfs(struct plan_builder *builder, abox_error **reterr);	/* rootfs.c */
int plan_build_etc(struct plan_builder *builder, abox_error **reterr);		/* etc.c */
int plan_build_trust(struct plan_builder *builder, abox_error **reterr);	/* network.c: certificates in the box */
int plan_build_mounts(struct plan_builder *builder, abox_error **reterr); /* mounts.c: workspace and mounts */
int plan_build_workspace(struct plan_builder *builder, abox_error **reterr); /* workspace.c, for mounts.c */
/* The canonical folder or file behind what the user wrote, as a source whose owner appears as the box's user;
 * mounts.c. */
int plan_open_source(struct plan_builder *builder, const char *pointer, const char *path, bool writable,
	struct flat_source *ret, bool *retdirectory, abox_error **reterr);
int plan_build_journal(
	struct plan_builder *builder, abox_error **reterr); /* journal.c: what the box must not see */
int plan_build_limits(struct plan_builder *builder, abox_error **reterr);	/* limits.c */
int plan_build_gvisor(struct plan_builder *builder, abox_error **reterr);	/* gvisor.c: what stands around the box; nothing for other walls */
int plan_choose_wall(struct plan_builder *builder, abox_error **reterr);	/* choose.c */
int plan_build_walls(struct plan_builder *builder, abox_error **reterr); /* walls.c: filter, landlock, kill */

/* network.c */
bool plan_has_network(const struct plan_builder *builder);
const struct builder_variable *plan_network_variables(const struct plan_builder *builder, size_t *retn);
void plan_microvm_walls(struct plan_builder *builder);	/* its entries of what is enforced */
int plan_build_microvm(struct plan_builder *builder, abox_error **reterr); /* microvm.c: the machine and what is around it */

/* The canonical path, also of what is not there yet: then that of its folder and the last name. 0 or -errno. journal.c */
int plan_canonical(const char *path, char ret[PATH_MAX]);

/* enforcement.c */
void enforcement_add(struct plan_builder *builder, const struct enforcement *entry);
/* One more place for which a promise of this name must hold: what is weakest counts, and what holds each is told. */
void enforcement_add_place(struct plan_builder *builder, const struct enforcement *entry);
/* After everything was added: waivers are matched, what is required and not enforced is refused. */
int enforcement_settle(struct plan_builder *builder, abox_error **reterr);
const char *enforcement_status_name(const struct enforcement *entry);

/* dump.c */
int plan_dump_build(
	const struct plan_builder *builder, const char *digest, char **retjson, abox_error **reterr);

#endif
