/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A plan: the spec checked and resolved for one backend on this host, packed for the keeper, frozen.
 * Compiling reads the host and changes nothing. What is decided here is carried out elsewhere (keeper, guest)
 * to the letter.
 */
#include "plan/plan.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fd.h"
#include "base/helper.h"
#include "base/memfd.h"
#include "keeper/wire.h"
#include "plan/absent.h"
#include "plan/builder.h"
#include "probe/runsc.h"

struct abox_plan {
	atomic_uint n_refs;
	struct verdict verdict;
	atomic_bool told;	/* it has been kept */
	struct plan_view view;
	char digest[DIGEST_TEXT_BYTES];
	const char *backend;
	char *name;
	char *json;
	char *journal;
	char *task;
	char *proxy, *no_proxy;
	struct machine_kernel kernel;
	struct runsc_facts *runsc;	/* of the gVisor wall */
	char *kernel_place;
	void *slots;
	struct pack_writer blob;
};

const struct plan_view *plan_view(const abox_plan *plan)
{
	return &plan->view;
}

abox_plan *abox_plan_ref(abox_plan *plan)
{
	if (plan)
		atomic_fetch_add_explicit(&plan->n_refs, 1, memory_order_relaxed);
	return plan;
}

abox_plan *abox_plan_unref(abox_plan *plan)
{
	if (!plan || atomic_fetch_sub_explicit(&plan->n_refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	fd_close(plan->view.blob_fd);
	fd_close(plan->view.keeper_fd);
	fd_close(plan->view.egress_fd);
	fd_close(plan->view.rules_fd);
	fd_close(plan->view.roots_fd);
	fd_close(plan->view.minter_fd);
	free(plan->slots);
	free(plan->proxy);
	free(plan->no_proxy);
	fd_close(plan->view.workspace_fd);
	pack_writer_clear(&plan->blob);
	free(plan->name);
	free(plan->json);
	free(plan->journal);
	free(plan->task);
	free(plan->kernel_place);
	free(plan->runsc);
	free(plan);
	return NULL;
}

/* Only what runsc itself did tells about its platform. */
static void tell_runsc(const struct runsc_facts *runsc, bool stands, const abox_error *error)
{
	const char *place = error ? abox_error_get_place(error) : NULL;
	int code = error ? abox_error_get_code(error) : 0;

	if (stands)
		runsc_facts_tell(runsc, NULL);
	else if (place && strcmp(place, "runsc") == 0 && (code == ABOX_E_UNAVAILABLE || code == ABOX_E_TIMEOUT))
		runsc_facts_tell(runsc, abox_error_get_message(error));
}

void plan_tell_host(abox_plan *plan, bool stands, const abox_error *error)
{
	if (plan->runsc)
		tell_runsc(plan->runsc, stands, error);
	if (!stands)
		verdict_forget(&plan->verdict);
	else if (plan->verdict.changed && !atomic_exchange(&plan->told, true))
		verdict_keep(&plan->verdict);
}

void plan_unrefp(abox_plan **plan)
{
	*plan = abox_plan_unref(*plan);
}

static abox_plan *plan_new(void)
{
	abox_plan *plan = calloc(1, sizeof(*plan));

	if (!plan)
		return NULL;
	atomic_init(&plan->n_refs, 1);
	plan->view.blob_fd = -EBADF;
	plan->view.keeper_fd = -EBADF;
	plan->view.egress_fd = plan->view.rules_fd = plan->view.roots_fd = -EBADF;
	plan->view.minter_fd = -EBADF;
	plan->view.workspace_fd = -EBADF;
	return plan;
}

/* Order matters: later parts see what earlier ones have put into the tree. */
static int build(struct plan_builder *builder, abox_error **reterr)
{
	static int (*const parts[])(struct plan_builder *, abox_error **) = {
		plan_check_absent,
		plan_choose_wall,
		plan_build_identity,
		plan_build_network,
		plan_build_credentials,
		plan_build_rootfs,
		plan_build_etc,
		plan_build_trust,
		plan_build_mounts,
		plan_build_journal,
		plan_build_limits,
		plan_build_gvisor,
		plan_build_microvm,
		plan_build_walls,
		enforcement_settle,
	};
	int r;

	for (size_t i = 0; i < ELEMENTSOF(parts); i++) {
		r = parts[i](builder, reterr);
		if (r < 0)
			return r;
		if (builder->failed)
			return ABOX_E_MEMORY;
	}
	return 0;
}

/* The digest covers what is enforced, not what the box is called. */
static int digest_of(const struct plan_builder *builder, char ret[DIGEST_TEXT_BYTES])
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct flat_plan nameless = builder->flat;

	nameless.name = "";
	nameless.digest = "";
	if (!flat_pack(&nameless, &writer))
		return ABOX_E_MEMORY;
	pack_string(&writer, builder->workspace);
	if (writer.failed)
		return ABOX_E_MEMORY;
	return digest_sha256_text(writer.data, writer.len, ret);
}

static int pack_blob(abox_plan *plan, const struct flat_plan *flat, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	if (!flat_pack(flat, &writer))
		return ABOX_E_MEMORY;
	pack_bytes(&plan->blob, plan->json, strlen(plan->json));
	pack_bytes(&plan->blob, writer.data, writer.len);
	if (plan->blob.failed)
		return ABOX_E_MEMORY;
	plan->view.blob = plan->blob.data;
	plan->view.blob_len = plan->blob.len;
	if (plan->blob.len <= WIRE_INLINE_MAX)
		return 0;
	r = memfd_new_sealed("agentbox-plan", plan->blob.data, plan->blob.len, 0400, &plan->view.blob_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_PLAN, "memfd", -r, "cannot keep the plan");
	return 0;
}

/* Security: secrets travel in this and in the environment only, never in what is printed. */
static int pack_workspace(abox_plan *plan, const struct plan_builder *builder, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	if (!builder->workspace_is_stored)
		return 0;
	pack_string(&writer, builder->workspace);
	pack_strings(&writer, builder->secrets);
	if (writer.failed)
		return ABOX_E_MEMORY;
	r = memfd_new_sealed("agentbox-workspace", writer.data, writer.len, 0400, &plan->view.workspace_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_PLAN, "memfd", -r, "cannot keep the plan");
	plan->view.workspace_copies = builder->workspace_copies;
	return 0;
}

static int freeze_credentials(abox_plan *plan, const struct plan_builder *builder, abox_error **reterr)
{
	if (!builder->slots)
		return 0;
	plan->slots = malloc(builder->slots_len);
	if (!plan->slots)
		return ABOX_E_MEMORY;
	memcpy(plan->slots, builder->slots, builder->slots_len);
	plan->view.slots = plan->slots;
	plan->view.slots_len = builder->slots_len;
	return helper_open("minter", &plan->view.minter_fd, reterr);
}

/* What the egress of the box is started with. Root's becomes an id that no box has: the one behind those of the
 * boxes. */
static int freeze_network(abox_plan *plan, const struct plan_builder *builder, abox_error **reterr)
{
	const struct flat_plan *flat = &builder->flat;
	struct plan_view *view = &plan->view;
	int r;

	if (flat->network.mode == FLAT_NETWORK_NONE)
		return 0;
	view->proxy = plan->proxy = strdup(builder->proxy);
	view->no_proxy = plan->no_proxy = strdup(builder->no_proxy);
	if (!view->proxy || !view->no_proxy)
		return ABOX_E_MEMORY;
	view->max_connections = (uint32_t)spec_u64(builder->spec, "/network/max_connections");
	view->max_half_open = (uint32_t)spec_u64(builder->spec, "/network/max_half_open");
	view->max_rate = (uint32_t)spec_u64(builder->spec, "/network/max_rate");
	view->egress_uid = flat->map == FLAT_MAP_RANGE ? flat->base_uid + flat->map_count : UINT32_MAX;
	view->egress_gid = flat->map == FLAT_MAP_RANGE ? flat->base_gid + flat->map_count : UINT32_MAX;
	r = memfd_new_sealed("agentbox-rules", flat->network.rules, flat->network.rules_len, 0400, &view->rules_fd);
	if (r == 0)
		r = memfd_new_sealed("agentbox-roots", builder->roots, builder->roots_len, 0400, &view->roots_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_PLAN, "memfd", -r, "cannot keep the rules");
	r = freeze_credentials(plan, builder, reterr);
	if (r < 0)
		return r;
	return helper_open("egress", &view->egress_fd, reterr);
}

static bool has_effects(const abox_spec *spec)
{
	size_t n = spec_count(spec, "/network/allow");

	for (size_t i = 0; i < n; i++)
		if (spec_written(spec, "/network/allow/%zu/effect", i))
			return true;
	return false;
}

static int freeze(abox_plan *plan, struct plan_builder *builder, abox_error **reterr)
{
	struct flat_plan *flat = &builder->flat;
	int r;

	r = digest_of(builder, plan->digest);
	if (r < 0)
		return r;
	flat->digest = plan->digest;
	r = plan_dump_build(builder, plan->digest, &plan->json, reterr);
	if (r < 0)
		return r;
	if (!string_empty(flat->name) && !(plan->name = strdup(flat->name)))
		return ABOX_E_MEMORY;
	if (builder->journal && !(plan->journal = strdup(builder->journal)))
		return ABOX_E_MEMORY;
	if (spec_has(builder->spec, "/task") && !(plan->task = strdup(spec_string(builder->spec, "/task"))))
		return ABOX_E_MEMORY;
	plan->backend = flat->backend;
	plan->view.journal = plan->journal;
	plan->view.task = plan->task;
	plan->view.effects = has_effects(builder->spec);
	plan->view.name = plan->name;
	plan->view.json = plan->json;
	if (builder->kernel_place) {
		plan->kernel = builder->machine->kernel;
		plan->kernel_place = strdup(builder->kernel_place);
		if (!plan->kernel_place)
			return ABOX_E_MEMORY;
		plan->view.kernel = &plan->kernel;
		plan->view.kernel_place = plan->kernel_place;
	}
	plan->view.output_bytes = flat->limits.output_bytes;
	plan->view.output_written = flat->limits.output_written;
	plan->view.ttl_usec = flat->ttl_usec;
	plan->view.keep = flat->detach;
	r = pack_blob(plan, flat, reterr);
	if (r >= 0)
		r = pack_workspace(plan, builder, reterr);
	if (r >= 0)
		r = freeze_network(plan, builder, reterr);
	if (r < 0)
		return r;
	return helper_open("keeper", &plan->view.keeper_fd, reterr);
}

int abox_plan_compile(const abox_spec *spec, abox_plan **retplan, abox_error **reterr)
{
	_cleanup_(plan_unrefp) abox_plan *plan = NULL;
	_cleanup_(builder_clear) struct plan_builder builder = { 0 };
	struct host_facts facts = { 0 };
	struct runsc_facts runsc;
	struct machine_host machine;
	int r;

	if (!spec || !retplan)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, NULL, "spec and retplan are required");
	r = abox_spec_check(spec, reterr);
	if (r < 0)
		return r;
	plan = plan_new();
	if (!plan)
		return ABOX_E_MEMORY;
	r = host_facts_recall(&facts, &plan->verdict, reterr);
	if (r < 0)
		return r;
	builder.spec = spec;
	builder.facts = &facts;
	builder.verdict = &plan->verdict;
	builder.runsc = &runsc;
	builder.machine = &machine;
	r = build(&builder, reterr);
	if (r < 0)
		return r;
	r = freeze(plan, &builder, reterr);
	if (r < 0)
		return r;
	if (builder.wall == PLAN_GVISOR) {
		plan->runsc = malloc(sizeof(runsc));
		if (!plan->runsc)
			return ABOX_E_MEMORY;
		*plan->runsc = runsc;
	}
	*retplan = steal_ptr(plan);
	return 0;
}

int abox_plan_dump(const abox_plan *plan, char **retjson, abox_error **reterr)
{
	char *copy;

	if (!plan || !retjson)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, NULL, "plan and retjson are required");
	copy = strdup(plan->json);
	if (!copy)
		return ABOX_E_MEMORY;
	*retjson = copy;
	return 0;
}

const char *abox_plan_get_digest(const abox_plan *plan)
{
	return plan ? plan->digest : NULL;
}

const char *abox_plan_get_backend(const abox_plan *plan)
{
	return plan ? plan->backend : NULL;
}
