/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The report as JSON. Only the public getters and the facts; no judgement of its own.
 */
#include "base/json.h"
#include "probe/probe.h"

/* A member with a text; one that is NULL or empty is left out. */
static int put_text(struct json *object, const char *name, const char *text)
{
	return text && text[0] ? json_put_member(object, name, json_new_string(text)) : 0;
}

static int put_number(struct json *object, const char *name, int64_t number)
{
	return json_put_member(object, name, json_new_integer(number));
}

static int put_truth(struct json *object, const char *name, bool value)
{
	return json_put_member(object, name, json_new_boolean(value));
}

static struct json *dump_groups(const struct cgroup_layout *layout)
{
	static const char *const names[CGROUP_N_CONTROLLERS] = { "memory", "pids", "cpu", "cpuacct" };
	_cleanup_(json_unrefp) struct json *object = json_new_object(), *controllers = json_new_array();
	int r = object && controllers ? 0 : ABOX_E_MEMORY;

	for (int i = 0; i < CGROUP_N_CONTROLLERS && r == 0; i++)
		if (layout->controllers & CGROUP_BIT(i))
			r = json_append_element(controllers, json_new_string(names[i]));
	if (r == 0)
		r = put_number(object, "limits", layout->limits_version);
	if (r == 0)
		r = json_put_member(object, "controllers", steal_ptr(controllers));
	if (r == 0)
		r = put_text(object, "tree", layout->tree_dir);
	if (r == 0)
		r = put_text(object, "reason", layout->reason);
	if (r == 0)
		r = put_text(object, "remedy", layout->remedy);
	return r == 0 ? steal_ptr(object) : NULL;
}

static int put_flags(struct json *object, const struct host_facts *facts)
{
	const struct {
		const char *name;
		bool value;
	} flags[] = {
		{ "root", facts->is_root },
		{ "nested", facts->in_userns },
		{ "proc_mount", facts->proc_mount },
		{ "openat2", facts->openat2 },
		{ "overlay", facts->overlay },
		{ "overlay_by_descriptor", facts->overlay_fd },
		{ "idmapped_mounts", facts->idmap },
		{ "mount_beneath", facts->mount_beneath },
		{ "seccomp", facts->seccomp },
		{ "filtered_already", facts->outer_seccomp },
	};
	int r = 0;

	for (size_t i = 0; i < ELEMENTSOF(flags) && r == 0; i++)
		r = put_truth(object, flags[i].name, flags[i].value);
	return r;
}

static struct json *dump_facts(const struct host_facts *facts)
{
	static const char *const modes[] = { "none", "single", "subordinate", "root" };
	static const char *const kills[] = { "pidns", "scope", "cgroup2" };
	_cleanup_(json_unrefp) struct json *object = json_new_object();
	int r = object ? put_text(object, "kernel", facts->release) : ABOX_E_MEMORY;

	if (r == 0)
		r = put_text(object, "arch", facts->arch);
	if (r == 0)
		r = put_number(object, "uid", facts->uid);
	if (r == 0)
		r = put_text(object, "user_namespaces", modes[facts->userns]);
	if (r == 0)
		r = put_text(object, "tree_kill", kills[facts->kill]);
	if (r == 0)
		r = put_number(object, "landlock_abi", facts->landlock_abi);
	if (r == 0)
		r = put_flags(object, facts);
	if (r == 0)
		r = json_put_member(object, "control_groups", dump_groups(&facts->cgroup));
	return r == 0 ? steal_ptr(object) : NULL;
}

static struct json *dump_backend(const abox_host *host, uint32_t i)
{
	_cleanup_(json_unrefp) struct json *object = json_new_object();
	int r = object ? put_text(object, "name", abox_host_backend_name(host, i)) : ABOX_E_MEMORY;

	if (r == 0)
		r = put_truth(object, "usable", abox_host_backend_usable(host, i));
	if (r == 0)
		r = put_number(object, "isolation", abox_host_backend_isolation(host, i));
	if (r == 0)
		r = put_text(object, "version", abox_host_backend_version(host, i));
	if (r == 0)
		r = put_text(object, "blocker", abox_host_backend_blocker(host, i));
	if (r == 0)
		r = put_text(object, "remedy", abox_host_backend_remedy(host, i));
	return r == 0 ? steal_ptr(object) : NULL;
}

static struct json *dump_capability(const abox_host *host, uint32_t i)
{
	_cleanup_(json_unrefp) struct json *object = json_new_object();
	int r = object ? put_text(object, "name", abox_host_capability_name(host, i)) : ABOX_E_MEMORY;

	if (r == 0)
		r = put_text(object, "backend", "namespaces");
	if (r == 0)
		r = put_text(object, "status", abox_enforcement_name(abox_host_capability_status(host, i)));
	if (r == 0)
		r = put_text(object, "by", abox_host_capability_by(host, i));
	if (r == 0)
		r = put_text(object, "detail", abox_host_capability_detail(host, i));
	if (r == 0)
		r = put_text(object, "remedy", abox_host_capability_remedy(host, i));
	return r == 0 ? steal_ptr(object) : NULL;
}

int abox_host_dump(const abox_host *host, char **retjson)
{
	_cleanup_(json_unrefp) struct json *root = NULL, *backends = NULL, *capabilities = NULL;
	int r = 0;

	if (!host || !retjson)
		return ABOX_E_INVALID;
	root = json_new_object();
	backends = json_new_array();
	capabilities = json_new_array();
	if (!root || !backends || !capabilities)
		return ABOX_E_MEMORY;
	for (uint32_t i = 0; r == 0 && abox_host_backend_name(host, i); i++)
		r = json_append_element(backends, dump_backend(host, i));
	for (uint32_t i = 0; r == 0 && abox_host_capability_name(host, i); i++)
		r = json_append_element(capabilities, dump_capability(host, i));
	if (r == 0)
		r = json_put_member(root, "host", dump_facts(host_get_facts(host)));
	if (r == 0)
		r = json_put_member(root, "backends", steal_ptr(backends));
	if (r == 0)
		r = json_put_member(root, "capabilities", steal_ptr(capabilities));
	return r < 0 ? r : json_print_new(root, retjson);
}
