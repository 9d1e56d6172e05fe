/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who the box is: names, the ids inside and where they lead outside, supplementary groups, environment.
 */
#include "plan/builder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Root's boxes use one fixed range of ids per installation, above what useradd, systemd (dynamic users,
 * containers) and subordinate ids take by default, and below 2^31, where some programs see negative numbers.
 */
#define BOX_BASE_ID 1900000000U
#define BOX_ID_COUNT 65536U

#define BOX_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* Groups besides our own, or -1 for lack of memory. */
static int n_foreign_groups(gid_t own)
{
	_cleanup_(freep) gid_t *groups = NULL;
	int n, foreign = 0;

	n = getgroups(0, NULL);
	if (n <= 0)
		return 0;
	groups = calloc((size_t)n, sizeof(*groups));
	if (!groups)
		return -1;
	n = getgroups(n, groups);
	for (int i = 0; i < n; i++)
		if (groups[i] != own)
			foreign++;
	return foreign;
}

static void map_single(struct flat_plan *flat)
{
	flat->map = FLAT_MAP_SINGLE;
	flat->base_uid = flat->outside_uid;
	flat->base_gid = flat->outside_gid;
	flat->map_count = 1;
}

static void map_range(struct flat_plan *flat)
{
	flat->map = FLAT_MAP_RANGE;
	flat->base_uid = flat->base_gid = BOX_BASE_ID;
	flat->map_count = BOX_ID_COUNT;
	flat->clear_groups = 1;
}

static void map_helpers(struct flat_plan *flat, const struct host_facts *facts)
{
	flat->map = FLAT_MAP_HELPERS;
	flat->base_uid = facts->subuid.outside;
	flat->base_gid = facts->subgid.outside;
	flat->map_count = MIN(facts->subuid.count, facts->subgid.count);
	if (flat->map_count > BOX_ID_COUNT)
		flat->map_count = BOX_ID_COUNT;
	flat->clear_groups = 1;
}

/* runsc runs as uid 0 of its namespace alone: where one id is mapped, that is it. */
static int limit_ids(struct plan_builder *builder, abox_error **reterr)
{
	struct flat_plan *flat = &builder->flat;

	if (builder->wall != PLAN_GVISOR || flat->map != FLAT_MAP_SINGLE || !flat->inside_uid)
		return 0;
	if (spec_written(builder->spec, "/user"))
		return error_remedy(reterr,
			spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, "/user",
				"behind gVisor a box with one id has root alone, without capabilities"),
			"install uidmap and give the user ranges in /etc/subuid and /etc/subgid, or write \"root\"");
	flat->inside_uid = flat->inside_gid = 0;
	return 0;
}

/*
 * A plain user's box has one id, unless more is needed (uid 0 inside, or groups to get rid of) and newuidmap
 * can give it: those two programs cost more than the rest of the start.
 */
static int build_ids(struct plan_builder *builder, abox_error **reterr)
{
	const struct host_facts *facts = builder->facts;
	struct flat_plan *flat = &builder->flat;
	int n_groups = n_foreign_groups(facts->gid), r;

	if (n_groups < 0)
		return ABOX_E_MEMORY;
	flat->host_is_root = facts->userns == USERNS_ROOT;
	flat->outside_uid = facts->uid;
	flat->outside_gid = facts->gid;
	flat->inside_uid = flat->inside_gid = spec_user(builder->spec);
	if (facts->userns == USERNS_ROOT)
		map_range(flat);
	else if (facts->userns == USERNS_TOOLS && (flat->inside_uid == 0 || n_groups > 0))
		map_helpers(flat, facts);
	else
		map_single(flat);
	r = limit_ids(builder, reterr);
	if (r < 0)
		return r;
	flat->userxattr = flat->map != FLAT_MAP_RANGE;
	if (flat->map != FLAT_MAP_SINGLE && flat->inside_uid >= flat->map_count)
		return spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, "/user",
			"user %u is outside the %u ids that a box has here", flat->inside_uid,
			flat->map_count);
	enforcement_add(builder,
		&(struct enforcement){ .name = "groups",
			.by = "kernel: setgroups",
			.required = true,
			.status = n_groups > 0 && !flat->clear_groups ? ENFORCEMENT_NONE : ENFORCED,
			.detail = builder_text(builder, "%d supplementary groups of the caller", n_groups),
			.remedy =
				"install uidmap and give the user ranges in /etc/subuid and /etc/subgid, or start without "
				"supplementary groups (setpriv --clear-groups)" });
	enforcement_add(builder,
		&(struct enforcement){ .name = "ids",
			.by = "kernel: user namespace",
			.required = true,
			.detail = flat->map == FLAT_MAP_RANGE     ? "a high range of its own"
				  : flat->map == FLAT_MAP_HELPERS ? "subordinate ids of the caller"
								  : builder->wall == PLAN_GVISOR   ? "the caller's own id as the only one, which is root inside"
								  : "the caller's own id as the only one" });
	return 0;
}

static bool has_variable(const struct builder_variable *list, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i].name, name) == 0)
			return true;
	return false;
}

static int build_env(struct plan_builder *builder)
{
	struct flat_plan *flat = &builder->flat;
	const char *user = flat->inside_uid == 0 ? "root" : "agent";
	const struct builder_variable base[] = {
		{ "PATH", BOX_PATH },
		{ "HOME", flat->home },
		{ "USER", user },
		{ "LOGNAME", user },
		{ "LANG", "C.UTF-8" },
		{ "TERM", "dumb" },
		{ "TMPDIR", "/tmp" },
		{ "TMPPREFIX", "/tmp/zsh" },
	};
	size_t n_spec = spec_count(builder->spec, "/env"), n = 0;
	_cleanup_(freep) struct builder_variable *own = calloc(n_spec + 1, sizeof(*own));
	size_t n_trust, n_credentials = spec_count(builder->spec, "/credentials");
	char placeholder[RULES_PLACEHOLDER_BYTES];
	const struct builder_variable *trust;
	const char *name;
	const char **env;

	if (!own)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < n_spec; i++) /* fails for lack of memory only: none is left out */
		if (!spec_map_string(builder->spec, i, &own[i].name, &own[i].value, "/env"))
			return ABOX_E_MEMORY;

	trust = plan_network_variables(builder, &n_trust);
	env = calloc(ELEMENTSOF(base) + n_trust + n_credentials + n_spec + 1, sizeof(*env));
	if (!env)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < ELEMENTSOF(base); i++)
		if (!has_variable(own, n_spec, base[i].name))
			env[n++] = builder_text(builder, "%s=%s", base[i].name, base[i].value);
	for (size_t i = 0; i < n_trust; i++)
		if (!has_variable(own, n_spec, trust[i].name))
			env[n++] = builder_text(builder, "%s=%s", trust[i].name, trust[i].value);
	for (size_t i = 0; i < n_credentials; i++)
		if (plan_placeholder(builder, i, &name, placeholder) && !has_variable(own, n_spec, name))
			env[n++] = builder_text(builder, "%s=%s", name, placeholder);
	for (size_t i = 0; i < n_spec; i++)
		env[n++] = builder_text(builder, "%s=%s", own[i].name, own[i].value);
	flat->env = env;
	return 0;
}

int plan_build_identity(struct plan_builder *builder, abox_error **reterr)
{
	struct flat_plan *flat = &builder->flat;
	int r;

	flat->version = FLAT_VERSION;
	flat->name = spec_string(builder->spec, "/name");
	flat->hostname = spec_string(builder->spec, "/hostname");
	flat->cwd = spec_string(builder->spec, "/cwd");
	flat->lo_up = 1;
	flat->detach = strcmp(spec_string(builder->spec, "/on_owner_death"), "keep") == 0;
	flat->ttl_usec = spec_u64(builder->spec, "/ttl");
	flat->owner_grace_usec = UINT64_MAX;
	if (spec_has(builder->spec, "/owner_grace"))
		flat->owner_grace_usec = spec_u64(builder->spec, "/owner_grace");
	r = build_ids(builder, reterr);
	if (r < 0)
		return r;
	flat->home = flat->inside_uid == 0 ? "/root" : "/home/agent";
	return build_env(builder);
}
