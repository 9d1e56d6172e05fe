/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What must hold between keys. A combination that would leave a written key without effect is refused, so
 * that no wish is silently dropped. What depends on the host is the plan's.
 */
#include "spec/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

/* "/mounts/3/source" from its parts; what does not fit is cut, and then merely shown less exactly. */
struct where {
	char text[256];
};

static struct where at(const char *format, ...) _printf_(1, 2);
static struct where at(const char *format, ...)
{
	struct where where;
	va_list args;

	va_start(args, format);
	vsnprintf(where.text, sizeof(where.text), format, args);
	va_end(args);
	return where;
}

static int refuse(const abox_spec *spec, abox_error **reterr, struct where where, const char *message,
	const char *remedy)
{
	spec_refuse(spec, reterr, ABOX_E_INVALID, ABOX_STAGE_SPEC, where.text, "%s", message);
	return error_remedy(reterr, ABOX_E_INVALID, "%s", remedy);
}

/* `kind` decides which companions must be there and which must not. */
struct companion {
	int kind;
	const char *name;
};

static int check_companions(const abox_spec *spec, const char *object, const struct spec_key *kind_key,
	int kind, const struct companion *companions, size_t n, abox_error **reterr)
{
	char message[128];

	for (size_t i = 0; i < n; i++) {
		struct where where = at("%s/%s", object, companions[i].name);
		bool wanted = false, there = spec_written(spec, "%s", where.text);

		for (size_t k = 0; k < n; k++)
			wanted = wanted || (strcmp(companions[k].name, companions[i].name) == 0 &&
						   companions[k].kind == kind);
		if (wanted == there)
			continue;
		snprintf(message, sizeof(message),
			there ? "kind \"%s\" has no \"%s\"" : "kind \"%s\" needs \"%s\"",
			kind_key->words[kind], companions[i].name);
		return refuse(spec, reterr, there ? where : at("%s", object), message,
			there ? "leave it out, or write another kind" : "add it");
	}
	return 0;
}

static int check_rootfs(const abox_spec *spec, abox_error **reterr)
{
	static const struct companion companions[] = { { SPEC_ROOTFS_DIR, "path" } };

	return check_companions(spec, "/rootfs", spec_key_find("/rootfs/kind"),
		spec_enum(spec, "/rootfs/kind"), companions, ELEMENTSOF(companions), reterr);
}

static int check_wall(const abox_spec *spec, abox_error **reterr)
{
	int backend = spec_enum(spec, "/backend"), floor = spec_enum(spec, "/isolation_floor");

	/* Words of backend are those of the floor behind "auto". */
	if (backend != SPEC_BACKEND_AUTO && backend - 1 < floor)
		return refuse(spec, reterr, at("/backend"), "weaker than \"isolation_floor\"",
			"write a stronger backend, \"auto\", or a lower floor");
	if (backend == SPEC_BACKEND_AUTO || backend == SPEC_BACKEND_MICROVM)
		return 0;
	if (spec_has(spec, "/kernel"))
		return refuse(spec, reterr, at("/kernel"), "this backend runs no kernel of its own",
			"leave it out, or write backend \"microvm\"");
	if (spec_enum(spec, "/files") != SPEC_FILES_AUTO)
		return refuse(spec, reterr, at("/files"), "means nothing to this backend",
			"leave it out, or write backend \"microvm\"");
	return 0;
}

static int check_mount(const abox_spec *spec, size_t i, abox_error **reterr)
{
	bool is_tmpfs = spec_enum(spec, "/mounts/%zu/mode", i) == SPEC_MOUNT_TMPFS;
	bool has_source = spec_has(spec, "/mounts/%zu/source", i);

	if (is_tmpfs && has_source)
		return refuse(
			spec, reterr, at("/mounts/%zu/source", i), "a tmpfs has no source", "leave it out");
	if (!is_tmpfs && !has_source)
		return refuse(spec, reterr, at("/mounts/%zu", i), "\"source\" is missing",
			"add the path on the host, or write mode \"tmpfs\"");
	if (!is_tmpfs && spec_has(spec, "/mounts/%zu/size", i))
		return refuse(
			spec, reterr, at("/mounts/%zu/size", i), "only a tmpfs has a size", "leave it out");
	if (strcmp(spec_string(spec, "/mounts/%zu/target", i), "/workspace") == 0)
		return refuse(spec, reterr, at("/mounts/%zu/target", i), "the workspace is there",
			"write a folder as \"workspace\", or mount below /workspace");
	return 0;
}

static int check_mounts(const abox_spec *spec, abox_error **reterr)
{
	size_t n = spec_count(spec, "/mounts");
	const char *target;
	int r;

	for (size_t i = 0; i < n; i++) {
		r = check_mount(spec, i, reterr);
		if (r < 0)
			return r;
		target = spec_string(spec, "/mounts/%zu/target", i);
		for (size_t k = 0; k < i; k++)
			if (strcmp(target, spec_string(spec, "/mounts/%zu/target", k)) == 0)
				return refuse(spec, reterr, at("/mounts/%zu/target", i),
					"this target is given twice", "keep one of the two mounts");
	}
	return 0;
}

static int check_workspace(const abox_spec *spec, abox_error **reterr)
{
	static const struct companion companions[] = {
		{ SPEC_SOURCE_DIR, "path" },
		{ SPEC_SOURCE_TAR, "path" },
		{ SPEC_SOURCE_SNAPSHOT, "id" },
		{ SPEC_SOURCE_WORKSPACE, "id" },
	};
	int kind = spec_enum(spec, "/workspace/source/kind");
	int r;

	r = check_companions(spec, "/workspace/source", spec_key_find("/workspace/source/kind"), kind,
		companions, ELEMENTSOF(companions), reterr);
	if (r < 0)
		return r;
	if (spec_enum(spec, "/workspace/mode") == SPEC_WORKSPACE_DIRECT && kind != SPEC_SOURCE_DIR)
		return refuse(spec, reterr, at("/workspace/mode"), "only a folder can be given directly",
			"write a source of kind \"dir\", or another mode");
	return 0;
}

static bool has_credential(const abox_spec *spec, const char *name, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(spec_string(spec, "/credentials/%zu/name", i), name) == 0)
			return true;
	return false;
}

static int check_rule_target(const abox_spec *spec, const char *list, size_t i, abox_error **reterr)
{
	if (spec_has(spec, "%s/%zu/host", list, i) || spec_has(spec, "%s/%zu/cidr", list, i))
		return 0;
	return refuse(spec, reterr, at("%s/%zu", list, i), "a rule without \"host\" and \"cidr\"",
		"name what it is about; mode \"open\" allows any public name");
}

static bool has_one_target(const abox_spec *spec, size_t i)
{
	const char *host = spec_string(spec, "/network/allow/%zu/host", i);

	return host && !strchr(host, '*') && spec_count(spec, "/network/allow/%zu/methods", i) == 1 &&
	       spec_count(spec, "/network/allow/%zu/paths", i) == 1;
}

static int check_effect(const abox_spec *spec, size_t i, abox_error **reterr)
{
	struct where where = at("/network/allow/%zu/effect", i);

	if (!spec_written(spec, "%s", where.text))
		return 0;
	if (!spec_has(spec, "/journal"))
		return refuse(spec, reterr, where, "effects need a journal", "add \"journal\"");
	/* It is counted by target, and the rule has to have one. */
	if (spec_has(spec, "%s/limit", where.text) && !has_one_target(spec, i))
		return refuse(spec, reterr, at("%s/limit", where.text),
			"a limit counts one method and one path of one host, and the rule has none or several",
			"name one of each; \"*\" in the path is fine");
	if (spec_has(spec, "/task"))
		return 0;
	if (spec_boolean(spec, "%s/defer", where.text))
		return refuse(spec, reterr, at("%s/defer", where.text),
			"there is no task that could commit it", "add \"task\"");
	if (spec_has(spec, "%s/limit", where.text))
		return refuse(spec, reterr, at("%s/limit", where.text),
			"a limit per task, and there is no task", "add \"task\"");
	return 0;
}

/* Whether the credential of this name is swapped for a placeholder. */
static bool is_swapped(const abox_spec *spec, const char *name)
{
	size_t n = spec_count(spec, "/credentials");

	for (size_t i = 0; i < n; i++)
		if (strcmp(spec_string(spec, "/credentials/%zu/name", i), name) == 0)
			return spec_has(spec, "/credentials/%zu/inject/placeholder", i);
	return false;
}

static int check_allow_rule(const abox_spec *spec, size_t i, abox_error **reterr)
{
	const char *credential = spec_string(spec, "/network/allow/%zu/credential", i);

	if (credential && !has_credential(spec, credential, spec_count(spec, "/credentials")))
		return refuse(spec, reterr, at("/network/allow/%zu/credential", i),
			"no credential has this name", "declare it in \"credentials\"");
	if (!credential && spec_boolean(spec, "/network/allow/%zu/require", i))
		return refuse(spec, reterr, at("/network/allow/%zu/require", i),
			"there is no credential to require", "add \"credential\"");
	if (!credential && spec_boolean(spec, "/network/allow/%zu/plain", i))
		return refuse(spec, reterr, at("/network/allow/%zu/plain", i),
			"there is no credential that could go without TLS", "add \"credential\"");
	if (spec_boolean(spec, "/network/allow/%zu/swap_bodies", i) && (!credential || !is_swapped(spec, credential)))
		return refuse(spec, reterr, at("/network/allow/%zu/swap_bodies", i),
			"there is no placeholder to swap", "name a credential with \"inject\": {\"placeholder\": ...}");
	return check_effect(spec, i, reterr);
}

static int check_network(const abox_spec *spec, abox_error **reterr)
{
	static const char *const lists[] = { "/network/allow", "/network/deny" };
	bool is_none = spec_enum(spec, "/network/mode") == SPEC_NETWORK_NONE;
	int r;

	for (size_t l = 0; l < ELEMENTSOF(lists); l++) {
		size_t n = spec_count(spec, "%s", lists[l]);

		if (n > 0 && is_none)
			return refuse(spec, reterr, at("%s", lists[l]),
				"rules, but the network mode is \"none\"", "write \"mode\": \"allow\"");
		for (size_t i = 0; i < n; i++) {
			r = check_rule_target(spec, lists[l], i, reterr);
			if (r >= 0 && l == 0)
				r = check_allow_rule(spec, i, reterr);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int check_inject(const abox_spec *spec, size_t i, abox_error **reterr)
{
	struct where where = at("/credentials/%zu/inject", i);
	bool header = spec_has(spec, "%s/header", where.text), query = spec_has(spec, "%s/query", where.text);
	bool placeholder = spec_has(spec, "%s/placeholder", where.text), sign = spec_has(spec, "%s/sign", where.text);
	int scheme = spec_enum(spec, "%s/scheme", where.text);

	if (header + query + placeholder + sign > 1)
		return refuse(spec, reterr, where, "more than one way into a request",
			"keep one of \"header\", \"query\", \"placeholder\", \"sign\"");
	if (sign && spec_enum(spec, "/credentials/%zu/provider/kind", i) != SPEC_PROVIDER_CALLBACK)
		return refuse(spec, reterr, at("%s/sign", where.text), "only a callback can sign requests",
			"write a provider of kind \"callback\"");
	if (scheme != SPEC_SCHEME_BEARER && (query || placeholder || sign))
		return refuse(spec, reterr, at("%s/scheme", where.text), "only a header has a scheme",
			"leave it out");
	if (scheme != SPEC_SCHEME_BASIC && spec_has(spec, "%s/user", where.text))
		return refuse(spec, reterr, at("%s/user", where.text), "only scheme \"basic\" has a user",
			"leave it out, or write that scheme");
	if (scheme == SPEC_SCHEME_BASIC && !spec_has(spec, "%s/user", where.text))
		return refuse(spec, reterr, where, "scheme \"basic\" needs a user", "add \"user\"");
	return 0;
}

static int check_credentials(const abox_spec *spec, abox_error **reterr)
{
	static const struct companion companions[] = {
		{ SPEC_PROVIDER_EXEC, "argv" },
		{ SPEC_PROVIDER_FILE, "path" },
		{ SPEC_PROVIDER_ENV, "variable" },
	};
	const struct spec_key *kind_key = spec_key_find("/credentials/0/provider/kind");
	size_t n = spec_count(spec, "/credentials");
	int r;

	for (size_t i = 0; i < n; i++) {
		struct where provider = at("/credentials/%zu/provider", i);

		if (has_credential(spec, spec_string(spec, "/credentials/%zu/name", i), i))
			return refuse(spec, reterr, at("/credentials/%zu/name", i),
				"this name is given twice", "every credential has a name of its own");
		r = check_companions(spec, provider.text, kind_key, spec_enum(spec, "%s/kind", provider.text),
			companions, ELEMENTSOF(companions), reterr);
		if (r >= 0 && spec_has(spec, "%s/revoke", provider.text) &&
			spec_enum(spec, "%s/kind", provider.text) != SPEC_PROVIDER_EXEC)
			r = refuse(spec, reterr, at("/credentials/%zu/provider/revoke", i),
				"only a program can be asked to take a value back", "write a provider of kind \"exec\"");
		if (r >= 0)
			r = check_inject(spec, i, reterr);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check_owner(const abox_spec *spec, abox_error **reterr)
{
	if (spec_enum(spec, "/on_owner_death") == SPEC_OWNER_DEATH_STOP && spec_has(spec, "/owner_grace"))
		return refuse(spec, reterr, at("/owner_grace"), "a box that is stopped waits for nobody",
			"write \"on_owner_death\": \"keep\", or leave it out");
	return 0;
}

int check_across(const abox_spec *spec, abox_error **reterr)
{
	static int (*const checks[])(const abox_spec *, abox_error **) = {
		check_wall,
		check_rootfs,
		check_mounts,
		check_workspace,
		check_network,
		check_credentials,
		check_owner,
	};

	for (size_t i = 0; i < ELEMENTSOF(checks); i++) {
		int r = checks[i](spec, reterr);

		if (r < 0)
			return r;
	}
	return 0;
}
