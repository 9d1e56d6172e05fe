/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The plan as JSON: what a person or a program reads before the box is started, and what the box keeps as its
 * record.
 */
#include "plan/builder.h"

#include <string.h>

#include "base/secret.h"

static void add_string(struct text *text, const char *name, const char *value, const char *after)
{
	text_printf(text, "\"%s\":", name);
	if (value)
		text_add_json(text, value, strlen(value));
	else
		text_add(text, "null");
	text_add(text, after);
}

static void add_enforcement(struct text *text, const struct enforcement *entry)
{
	text_add(text, "{");
	add_string(text, "name", entry->name, ",");
	add_string(text, "status", enforcement_status_name(entry), ",");
	add_string(text, "by", entry->by, ",");
	text_printf(text, "\"written\":%s,", entry->required && entry->pointer ? "true" : "false");
	add_string(text, "key", entry->pointer, ",");
	add_string(text, "detail", entry->detail, "}");
}

static const char *step_source(const struct plan_builder *builder, const struct flat_step *step)
{
	return step->source >= 0 ? builder->flat.sources[step->source].path : NULL;
}

static void add_mounts(struct text *text, const struct plan_builder *builder)
{
	static const char *const kinds[] = { [FLAT_OP_BIND] = "bind",
		[FLAT_OP_SCRATCH] = "scratch",
		[FLAT_OP_TMPFS] = "tmpfs",
		[FLAT_OP_PROC] = "proc",
		[FLAT_OP_DEVPTS] = "devpts",
		[FLAT_OP_MQUEUE] = "mqueue",
		[FLAT_OP_OVERLAY] = "overlay",
		[FLAT_OP_MASK] = "mask",
		[FLAT_OP_READONLY] = "readonly",
		[FLAT_OP_PROTECT] = "protect",
		[FLAT_OP_OVER] = "over" };
	const char *separator = "";

	text_add(text, "\"mounts\":[");
	for (uint32_t i = 0; i < builder->flat.n_steps; i++) {
		const struct flat_step *step = &builder->flat.steps[i];

		if (step->op >= ELEMENTSOF(kinds) || !kinds[step->op] || (step->attr & FLAT_ATTR_OUTER))
			continue;
		text_add(text, separator);
		separator = ",";
		text_add(text, "{");
		add_string(text, "target", step->target, ",");
		add_string(text, "kind",
			step->source >= 0 && builder->flat.sources[step->source].kind == FLAT_WORKSPACE
				? "workspace"
				: kinds[step->op],
			",");
		add_string(text, "source", step_source(builder, step), ",");
		text_printf(text, "\"readonly\":%s}",
			(step->attr & FLAT_ATTR_RDONLY) || step->op == FLAT_OP_MASK ||
					step->op == FLAT_OP_READONLY || step->op == FLAT_OP_PROTECT ||
					step->op == FLAT_OP_OVER
				? "true"
				: "false");
	}
	text_add(text, "],");
}

static void add_network(struct text *text, const struct plan_builder *builder)
{
	static const char *const modes[] = { "none", "allow", "open" };
	const struct flat_network *network = &builder->flat.network;

	text_printf(text, "\"network\":{\"mode\":\"%s\"", modes[network->mode]);
	if (network->mode != FLAT_NETWORK_NONE) {
		text_add(text, ",\"ports\":[");
		for (uint32_t i = 0; i < network->n_ports; i++)
			text_printf(text, "%s%u", i ? "," : "", network->ports[i]);
		text_printf(text, "],\"link\":\"%s\",\"ipv6\":%s,\"proxy\":%s", cell_link_name(network->cell.link),
			network->cell.v6 ? "true" : "false", string_empty(builder->proxy) ? "false" : "true");
	}
	text_add(text, "},");
}

static void add_limits(struct text *text, const struct plan_builder *builder)
{
	const struct flat_limits *limits = &builder->flat.limits;

	text_printf(text,
		"\"limits\":{\"wall_usec\":%llu,\"idle_usec\":%llu,\"grace_usec\":%llu,\"output_bytes\":%llu,"
		"\"disk_bytes\":%llu,\"inodes\":%llu,\"memory_bytes\":%llu,\"pids\":%llu,\"open_files\":%u,\"cpus_milli\":%llu},",
		(unsigned long long)limits->wall_usec, (unsigned long long)limits->idle_usec,
		(unsigned long long)limits->grace_usec, (unsigned long long)limits->output_bytes,
		(unsigned long long)limits->disk_bytes, (unsigned long long)limits->inodes,
		(unsigned long long)limits->memory_bytes, (unsigned long long)limits->pids,
		limits->open_files, (unsigned long long)builder->flat.cgroup_limits.cpu_millis);
}

/* A plan is safe to print: what stands in the environment under a name that says "secret" does not stand
 * here. */
static int redact_env(struct json *spec)
{
	struct json *env = json_member(spec, "env");
	_cleanup_(freep) const char **names = NULL;
	int r;

	if (!env)
		return 0;
	r = json_member_names(env, &names);
	for (size_t i = 0; r == 0 && names[i]; i++)
		if (secret_name(names[i], strlen(names[i])))
			r = json_put_member(env, names[i], json_new_string("[redacted]"));
	return r;
}

static int add_spec(struct text *text, const struct plan_builder *builder)
{
	_cleanup_(json_unrefp) struct json *tree = NULL;
	int r;

	r = spec_resolve(builder->spec, &tree);
	if (r == 0)
		r = redact_env(tree);
	if (r < 0)
		return r;
	text_add(text, "\"spec\":");
	json_print(text, tree);
	text_add(text, ",");
	return 0;
}

int plan_dump_build(
	const struct plan_builder *builder, const char *digest, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const char *separator = "";
	int r;

	text_add(&text, "{");
	add_string(&text, "digest", digest, ",");
	add_string(&text, "backend", builder->flat.backend, ",");
	r = add_spec(&text, builder);
	if (r < 0)
		return r;
	text_add(&text, "\"enforcement\":[");
	for (size_t i = 0; i < builder->n_enforcements; i++) {
		text_add(&text, i ? "," : "");
		add_enforcement(&text, &builder->enforcements[i]);
	}
	text_add(&text, "],\"waived\":[");
	for (size_t i = 0; i < builder->n_enforcements; i++) {
		const struct enforcement *entry = &builder->enforcements[i];

		if (!entry->waived || entry->status == ENFORCED)
			continue;
		text_add(&text, separator);
		separator = ",";
		text_add_json(&text, entry->name, strlen(entry->name));
	}
	text_add(&text, "],");
	add_string(&text, "rootfs",
		builder->flat.root_source >= 0 ? builder->flat.sources[builder->flat.root_source].path
					       : "host",
		",");
	add_mounts(&text, builder);
	add_network(&text, builder);
	text_printf(&text, "\"workspace\":%s,", builder->workspace);
	add_limits(&text, builder);
	text_add(&text, "\"warnings\":[");
	for (size_t i = 0; i < builder->n_warnings; i++) {
		text_add(&text, i ? "," : "");
		text_add_json(&text, builder->warnings[i], strlen(builder->warnings[i]));
	}
	text_add(&text, "]}");
	return text_take(&text, retjson);
}
