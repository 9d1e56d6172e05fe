/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keys of a spec: one table, from which parser, setters, checks, dumps and the documentation of keys are made.
 * A key exists when it has a row here, and nowhere else is there a name, a range or a default. What a type accepts
 * is said in types.c, what must hold between keys in check.c.
 */
#include "spec/keys.h"

#include <string.h>

#include "base/json.h"

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SEC USEC_PER_SEC
#define MINUTE (60 * SEC)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)

/* Longest that execve(2) takes as one string (MAX_ARG_STRLEN), with its end. */
#define VALUE_MAX (128 * KIB - 1)

/*
 * Rows of one kind of thing that stands in several places: the conditions of a network rule are the same for allow
 * and deny.
 */
#define RULE_ROWS(list)                                                                                      \
	{ .pattern = list "/*", .type = SPEC_OBJECT, .module = SPEC_MODULE_NETWORK,                          \
		.doc = "One rule; needs `host` or `cidr`." },                                                \
	{ .pattern = list "/*/host", .type = SPEC_HOST, .module = SPEC_MODULE_NETWORK,                       \
		.doc = "Name, or `*.` and a name for everything below it (not the name itself)." },          \
	{ .pattern = list "/*/cidr", .type = SPEC_CIDR, .module = SPEC_MODULE_NETWORK,                       \
		.doc = "Addresses, as literals or as what the host resolves to." },                          \
	{ .pattern = list "/*/ports", .type = SPEC_LIST, .module = SPEC_MODULE_NETWORK, .min = 1, .max = 64, \
		.doc = "TCP ports; 80 and 443 when absent." },                                               \
	{ .pattern = list "/*/ports/*", .type = SPEC_INTEGER, .module = SPEC_MODULE_NETWORK, .min = 1,       \
		.max = 65535, .doc = "A port." },                                                            \
	{ .pattern = list "/*/methods", .type = SPEC_LIST, .module = SPEC_MODULE_NETWORK, .min = 1,          \
		.max = 64, .doc = "HTTP methods; any when absent." },                                        \
	{ .pattern = list "/*/methods/*", .type = SPEC_METHOD, .module = SPEC_MODULE_NETWORK,                \
		.doc = "A method in upper case." },                                                          \
	{ .pattern = list "/*/paths", .type = SPEC_LIST, .module = SPEC_MODULE_NETWORK, .min = 1,            \
		.max = 256, .doc = "Paths of requests; any when absent." },                                  \
	{ .pattern = list "/*/paths/*", .type = SPEC_URL_PATH, .module = SPEC_MODULE_NETWORK,                \
		.doc = "A path; `*` within one part, `**` across parts." },                                  \
	{ .pattern = list "/*/query", .type = SPEC_MAP, .module = SPEC_MODULE_NETWORK, .min = 1, .max = 64,  \
		.names = SPEC_TOKEN, .doc = "Query parameters that must be there." },                        \
	{ .pattern = list "/*/query/*", .type = SPEC_TEXT, .module = SPEC_MODULE_NETWORK, .max = 1024,       \
		.doc = "The value; `*` stands for anything." },                                              \
	{ .pattern = list "/*/headers", .type = SPEC_MAP, .module = SPEC_MODULE_NETWORK, .min = 1,           \
		.max = 64, .names = SPEC_TOKEN, .doc = "Headers that must be there." },                      \
	{ .pattern = list "/*/headers/*", .type = SPEC_TEXT, .module = SPEC_MODULE_NETWORK, .max = 1024,     \
		.doc = "The value; `*` stands for anything." },                                              \
	{ .pattern = list "/*/ech", .type = SPEC_ENUM, .module = SPEC_MODULE_NETWORK, .fallback = "outer",   \
		.words = WORDS("refuse", "outer"),                                                           \
		.doc = "Encrypted client hello: refused, or judged by its outer name." }

#define GLOB_ROWS(list, text)                                                                                \
	{ .pattern = list, .type = SPEC_LIST, .module = SPEC_MODULE_WORKSPACE, .max = 1024, .doc = text },   \
	{ .pattern = list "/*", .type = SPEC_GLOB, .module = SPEC_MODULE_WORKSPACE, .min = 1, .max = 1024,   \
		.doc = "Path below the workspace; `*` within one part, `**` across parts." }

#define SETTLE_WORDS WORDS("discard", "diagnostics", "artifacts", "snapshot", "keep")

const struct spec_key spec_keys[] = {
	{ .pattern = "", .type = SPEC_OBJECT, .doc = "The spec." },
	{ .pattern = "/version", .type = SPEC_INTEGER, .min = 1, .max = 1, .fallback = "1",
		.doc = "Version of the format." },
	{ .pattern = "/name", .type = SPEC_NAME, .min = 1, .max = 128,
		.doc = "Name of the sandbox, unique among those of the user that live." },
	{ .pattern = "/task", .type = SPEC_TEXT, .module = SPEC_MODULE_JOURNAL, .min = 1, .max = 256,
		.doc = "Job id of the task that the run belongs to." },
	{ .pattern = "/identity", .type = SPEC_OBJECT, .doc = "For whom the run is made; recorded, never judged." },
	{ .pattern = "/identity/subject", .type = SPEC_TEXT, .min = 1, .max = 256, .doc = "Who started it." },
	{ .pattern = "/identity/on_behalf_of", .type = SPEC_TEXT, .min = 1, .max = 256, .doc = "For whom." },
	{ .pattern = "/identity/labels", .type = SPEC_MAP, .max = 64, .names = SPEC_NAME, .doc = "Free labels." },
	{ .pattern = "/identity/labels/*", .type = SPEC_TEXT, .max = 1024, .doc = "A label." },

	{ .pattern = "/backend", .type = SPEC_ENUM, .fallback = "auto",
		.words = WORDS("auto", "namespaces", "gvisor", "microvm"),
		.doc = "The wall; `auto` takes the fastest usable one that meets the floor." },
	{ .pattern = "/isolation_floor", .type = SPEC_ENUM, .fallback = "namespaces",
		.words = WORDS("namespaces", "gvisor", "microvm"), .doc = "The weakest wall that will do." },
	{ .pattern = "/waive", .type = SPEC_LIST, .max = 64,
		.doc = "Rules that may go unenforced where the host cannot enforce them." },
	{ .pattern = "/waive/*", .type = SPEC_NAME, .min = 1, .max = 64,
		.doc = "Name of a capability, as the probe reports it." },
	{ .pattern = "/strict", .type = SPEC_BOOLEAN, .fallback = "false",
		.doc = "Also refuse where a default cannot be enforced." },

	{ .pattern = "/rootfs", .type = SPEC_OBJECT, .doc = "What the box sees as `/`." },
	{ .pattern = "/rootfs/kind", .type = SPEC_ENUM, .fallback = "host", .words = WORDS("host", "dir"),
		.doc = "A read-only view of the host's system folders, or a folder." },
	{ .pattern = "/rootfs/path", .type = SPEC_HOST_PATH, .doc = "The folder of kind `dir`." },
	{ .pattern = "/mounts", .type = SPEC_LIST, .max = 256, .doc = "What is mounted besides." },
	{ .pattern = "/mounts/*", .type = SPEC_OBJECT, .doc = "A mount; needs `source` unless it is a tmpfs." },
	{ .pattern = "/mounts/*/source", .type = SPEC_HOST_PATH, .doc = "Folder or file on the host." },
	{ .pattern = "/mounts/*/target", .type = SPEC_TARGET, .flags = SPEC_REQUIRED,
		.doc = "Where the box sees it; given once, not `/`, `/proc`, `/dev`, `/sys` or below those." },
	{ .pattern = "/mounts/*/mode", .type = SPEC_ENUM, .fallback = "ro", .words = WORDS("ro", "rw", "tmpfs"),
		.doc = "Read-only, writable, or empty and in memory." },
	{ .pattern = "/mounts/*/size", .type = SPEC_SIZE, .min = 4 * KIB, .max = 1024 * TIB,
		.doc = "Size of a tmpfs; that of `/limits/disk` when absent." },
	{ .pattern = "/user", .type = SPEC_USER, .fallback = "agent",
		.doc = "Who commands run as, inside: `agent` (uid 1000), `root`, or a uid from 0 to 65535." },
	{ .pattern = "/cwd", .type = SPEC_BOX_PATH, .fallback = "/workspace", .doc = "Where commands start." },
	{ .pattern = "/env", .type = SPEC_MAP, .max = 1024, .names = SPEC_VARIABLE,
		.doc = "Variables besides PATH, HOME, USER, LANG, TERM and TMPDIR, or instead of them." },
	{ .pattern = "/env/*", .type = SPEC_VALUE, .max = VALUE_MAX, .doc = "The value." },
	{ .pattern = "/hostname", .type = SPEC_HOSTNAME, .fallback = "agentbox", .doc = "Host name in the box." },

	{ .pattern = "/workspace", .type = SPEC_OBJECT, .doc = "The files worked on; empty and discarded when absent." },
	{ .pattern = "/workspace/source", .type = SPEC_OBJECT, .doc = "What the workspace begins with." },
	{ .pattern = "/workspace/source/kind", .type = SPEC_ENUM, .fallback = "empty",
		.words = WORDS("empty", "dir", "tar", "snapshot"), .doc = "Nothing, a folder, an archive, a snapshot." },
	{ .pattern = "/workspace/source/path", .type = SPEC_HOST_PATH, .doc = "The folder or archive." },
	{ .pattern = "/workspace/source/id", .type = SPEC_NAME, .module = SPEC_MODULE_WORKSPACE, .min = 1,
		.max = 128, .doc = "The snapshot, by id or name." },
	{ .pattern = "/workspace/mode", .type = SPEC_ENUM, .fallback = "overlay",
		.words = WORDS("overlay", "copy", "direct"),
		.doc = "A layer above the source, a copy of it, or the folder itself, writable." },
	GLOB_ROWS("/workspace/keep", "Survives with the workspace."),
	GLOB_ROWS("/workspace/cache", "May be kept to save time, and may be lost."),
	GLOB_ROWS("/workspace/scratch", "Never survives the box."),
	GLOB_ROWS("/workspace/artifact", "Results that are collected."),
	GLOB_ROWS("/workspace/never", "Proven absent from snapshots, exports and artifacts."),
	GLOB_ROWS("/workspace/protect", "Cannot be created, changed or renamed over."),
	{ .pattern = "/workspace/protect_absent", .type = SPEC_ENUM, .module = SPEC_MODULE_WORKSPACE,
		.fallback = "refuse", .words = WORDS("refuse", "placeholder"),
		.doc = "Mode `direct`: a protected path that does not exist refuses the start, or is made." },
	{ .pattern = "/workspace/on_success", .type = SPEC_ENUM, .module = SPEC_MODULE_WORKSPACE,
		.fallback = "discard", .words = SETTLE_WORDS, .doc = "What becomes of it after success." },
	{ .pattern = "/workspace/on_failure", .type = SPEC_ENUM, .module = SPEC_MODULE_WORKSPACE,
		.fallback = "discard", .words = SETTLE_WORDS, .doc = "After failure." },
	{ .pattern = "/workspace/on_cancel", .type = SPEC_ENUM, .module = SPEC_MODULE_WORKSPACE,
		.fallback = "discard", .words = SETTLE_WORDS, .doc = "After cancel." },
	{ .pattern = "/workspace/on_timeout", .type = SPEC_ENUM, .module = SPEC_MODULE_WORKSPACE,
		.fallback = "=/workspace/on_failure", .words = SETTLE_WORDS, .doc = "After a wall or idle timeout." },
	{ .pattern = "/workspace/ttl", .type = SPEC_DURATION, .module = SPEC_MODULE_WORKSPACE, .min = SEC,
		.max = 3650 * DAY, .doc = "How long what was kept stays; until removed when absent." },

	{ .pattern = "/network", .type = SPEC_OBJECT, .doc = "What the box can reach." },
	{ .pattern = "/network/mode", .type = SPEC_ENUM, .module = SPEC_MODULE_NETWORK, .fallback = "none",
		.words = WORDS("none", "allow", "open"), .doc = "Nothing; what `allow` names; any public name." },
	{ .pattern = "/network/denied", .type = SPEC_ENUM, .module = SPEC_MODULE_NETWORK, .fallback = "explain",
		.words = WORDS("explain", "nxdomain"),
		.doc = "A denied request is told which rule denied it, or the name does not exist." },
	{ .pattern = "/network/allow", .type = SPEC_LIST, .module = SPEC_MODULE_NETWORK, .max = 1024,
		.doc = "Tried in order after `deny`; no match is a deny, an empty list denies all." },
	RULE_ROWS("/network/allow"),
	{ .pattern = "/network/allow/*/credential", .type = SPEC_NAME, .module = SPEC_MODULE_CREDENTIAL, .min = 1,
		.max = 128, .doc = "Name of a credential that is added to requests." },
	{ .pattern = "/network/allow/*/require", .type = SPEC_BOOLEAN, .module = SPEC_MODULE_CREDENTIAL,
		.fallback = "false", .doc = "Refuse a request that brings a credential of its own." },
	{ .pattern = "/network/allow/*/effect", .type = SPEC_OBJECT, .module = SPEC_MODULE_EFFECT,
		.flags = SPEC_PRESENCE,
		.doc = "Matching requests are effects: recorded before they are sent, never sent twice." },
	{ .pattern = "/network/allow/*/effect/class", .type = SPEC_ENUM, .module = SPEC_MODULE_EFFECT,
		.flags = SPEC_REQUIRED, .words = WORDS("opaque", "checkable", "idempotent"),
		.doc = "What may be done when the outcome is not known." },
	{ .pattern = "/network/allow/*/effect/key", .type = SPEC_EFFECT_KEY, .module = SPEC_MODULE_EFFECT,
		.fallback = "auto", .doc = "What makes two requests the same effect." },
	{ .pattern = "/network/allow/*/effect/approval", .type = SPEC_ENUM, .module = SPEC_MODULE_EFFECT,
		.fallback = "none", .words = WORDS("required", "none"), .doc = "Somebody must approve it first." },
	{ .pattern = "/network/allow/*/effect/defer", .type = SPEC_BOOLEAN, .module = SPEC_MODULE_EFFECT,
		.fallback = "false", .doc = "Held back until the task commits." },
	{ .pattern = "/network/allow/*/effect/limit", .type = SPEC_INTEGER, .module = SPEC_MODULE_EFFECT, .min = 1,
		.max = 1000000, .doc = "Effects per task." },
	{ .pattern = "/network/deny", .type = SPEC_LIST, .module = SPEC_MODULE_NETWORK, .max = 1024,
		.doc = "Tried first." },
	RULE_ROWS("/network/deny"),
	{ .pattern = "/network/publish", .type = SPEC_LIST, .module = SPEC_MODULE_NETWORK, .max = 64,
		.doc = "Ports of the box that the host can reach." },
	{ .pattern = "/network/publish/*", .type = SPEC_OBJECT, .module = SPEC_MODULE_NETWORK, .doc = "A port." },
	{ .pattern = "/network/publish/*/port", .type = SPEC_INTEGER, .module = SPEC_MODULE_NETWORK,
		.flags = SPEC_REQUIRED, .min = 1, .max = 65535, .doc = "The port in the box." },
	{ .pattern = "/network/publish/*/host_port", .type = SPEC_INTEGER, .module = SPEC_MODULE_NETWORK, .min = 0,
		.max = 65535, .fallback = "0", .doc = "The port on the host; 0 takes any that is free." },
	{ .pattern = "/network/publish/*/address", .type = SPEC_ADDRESS, .module = SPEC_MODULE_NETWORK,
		.fallback = "127.0.0.1", .doc = "Address on the host." },
	{ .pattern = "/network/publish/*/token", .type = SPEC_BOOLEAN, .module = SPEC_MODULE_NETWORK,
		.fallback = "false", .doc = "Only with the bearer token of the box." },

	{ .pattern = "/credentials", .type = SPEC_LIST, .module = SPEC_MODULE_CREDENTIAL, .max = 64,
		.doc = "Rights used for the box, never given to it." },
	{ .pattern = "/credentials/*", .type = SPEC_OBJECT, .module = SPEC_MODULE_CREDENTIAL, .doc = "A credential." },
	{ .pattern = "/credentials/*/name", .type = SPEC_NAME, .module = SPEC_MODULE_CREDENTIAL,
		.flags = SPEC_REQUIRED, .min = 1, .max = 128, .doc = "What rules call it; given once." },
	{ .pattern = "/credentials/*/provider", .type = SPEC_OBJECT, .module = SPEC_MODULE_CREDENTIAL,
		.flags = SPEC_REQUIRED, .doc = "Who mints it." },
	{ .pattern = "/credentials/*/provider/kind", .type = SPEC_ENUM, .module = SPEC_MODULE_CREDENTIAL,
		.flags = SPEC_REQUIRED, .words = WORDS("exec", "file", "env", "callback"),
		.doc = "A program, a file that is read again, a variable of the harness, a callback of the harness." },
	{ .pattern = "/credentials/*/provider/argv", .type = SPEC_LIST, .module = SPEC_MODULE_CREDENTIAL, .min = 1,
		.max = 64, .doc = "The program and its arguments." },
	{ .pattern = "/credentials/*/provider/argv/*", .type = SPEC_VALUE, .module = SPEC_MODULE_CREDENTIAL,
		.max = 4096, .doc = "One argument." },
	{ .pattern = "/credentials/*/provider/path", .type = SPEC_HOST_PATH, .module = SPEC_MODULE_CREDENTIAL,
		.doc = "The file." },
	{ .pattern = "/credentials/*/provider/variable", .type = SPEC_VARIABLE, .module = SPEC_MODULE_CREDENTIAL,
		.doc = "The variable." },
	{ .pattern = "/credentials/*/subject", .type = SPEC_TEXT, .module = SPEC_MODULE_CREDENTIAL, .min = 1,
		.max = 256, .doc = "For whom." },
	{ .pattern = "/credentials/*/resource", .type = SPEC_TEXT, .module = SPEC_MODULE_CREDENTIAL, .min = 1,
		.max = 1024, .doc = "For what." },
	{ .pattern = "/credentials/*/audience", .type = SPEC_TEXT, .module = SPEC_MODULE_CREDENTIAL, .min = 1,
		.max = 1024, .doc = "Who shall accept it." },
	{ .pattern = "/credentials/*/scopes", .type = SPEC_LIST, .module = SPEC_MODULE_CREDENTIAL, .max = 64,
		.doc = "Which actions." },
	{ .pattern = "/credentials/*/scopes/*", .type = SPEC_TEXT, .module = SPEC_MODULE_CREDENTIAL, .min = 1,
		.max = 256, .doc = "An action, in the provider's words." },
	{ .pattern = "/credentials/*/ttl", .type = SPEC_DURATION, .module = SPEC_MODULE_CREDENTIAL, .min = SEC,
		.max = 365 * DAY, .fallback = "10m", .doc = "Until when, at most." },
	{ .pattern = "/credentials/*/inject", .type = SPEC_OBJECT, .module = SPEC_MODULE_CREDENTIAL,
		.flags = SPEC_PRESENCE,
		.doc = "How it gets into a request: one of `header`, `query`, `placeholder`; else `Authorization`." },
	{ .pattern = "/credentials/*/inject/header", .type = SPEC_TOKEN, .module = SPEC_MODULE_CREDENTIAL,
		.doc = "As this header." },
	{ .pattern = "/credentials/*/inject/scheme", .type = SPEC_ENUM, .module = SPEC_MODULE_CREDENTIAL,
		.fallback = "bearer", .words = WORDS("bearer", "basic", "raw"), .doc = "How the header is written." },
	{ .pattern = "/credentials/*/inject/user", .type = SPEC_TEXT, .module = SPEC_MODULE_CREDENTIAL, .min = 1,
		.max = 256, .doc = "User name of scheme `basic`." },
	{ .pattern = "/credentials/*/inject/query", .type = SPEC_TOKEN, .module = SPEC_MODULE_CREDENTIAL,
		.doc = "As this query parameter." },
	{ .pattern = "/credentials/*/inject/placeholder", .type = SPEC_VARIABLE, .module = SPEC_MODULE_CREDENTIAL,
		.doc = "Instead of a worthless value that the box has in this variable." },

	{ .pattern = "/limits", .type = SPEC_OBJECT, .doc = "What the box may spend." },
	{ .pattern = "/limits/wall", .type = SPEC_DURATION_OFF, .min = USEC_PER_MSEC, .max = 365 * DAY,
		.fallback = "5m", .doc = "Life of the box." },
	{ .pattern = "/limits/idle", .type = SPEC_DURATION_OFF, .min = USEC_PER_MSEC, .max = 365 * DAY,
		.fallback = "off", .doc = "Time without a running command." },
	{ .pattern = "/limits/cpus", .type = SPEC_DECIMAL, .min = 10, .max = 4096000,
		.doc = "Processor time per time; all that the host gives when absent." },
	{ .pattern = "/limits/memory", .type = SPEC_SIZE, .min = 4 * MIB, .max = 1024 * TIB, .fallback = "2GiB",
		.doc = "Memory." },
	{ .pattern = "/limits/pids", .type = SPEC_INTEGER, .min = 4, .max = 4194304, .fallback = "512",
		.doc = "Processes and threads." },
	{ .pattern = "/limits/disk", .type = SPEC_SIZE, .min = 64 * KIB, .max = 1024 * TIB, .fallback = "2GiB",
		.doc = "Bytes in every writable place." },
	{ .pattern = "/limits/inodes", .type = SPEC_INTEGER, .min = 16, .max = UINT32_MAX, .fallback = "500000",
		.doc = "Files in every writable place." },
	{ .pattern = "/limits/open_files", .type = SPEC_INTEGER, .min = 16, .max = 1048576, .fallback = "1024",
		.doc = "Open files of one process." },
	{ .pattern = "/limits/output", .type = SPEC_SIZE, .min = 1, .max = TIB, .fallback = "8MiB",
		.doc = "Bytes kept of each stream of a command." },
	{ .pattern = "/grace", .type = SPEC_DURATION, .min = USEC_PER_MSEC, .max = HOUR, .fallback = "5s",
		.doc = "Time between TERM and KILL." },
	{ .pattern = "/on_owner_death", .type = SPEC_ENUM, .fallback = "stop", .words = WORDS("stop", "keep"),
		.doc = "What happens when the process that controls the box is gone." },
	{ .pattern = "/owner_grace", .type = SPEC_DURATION, .min = USEC_PER_MSEC, .max = 365 * DAY,
		.doc = "How long `keep` waits for a new owner; for ever when absent." },
	{ .pattern = "/ttl", .type = SPEC_DURATION_OFF, .min = SEC, .max = 365 * DAY, .fallback = "1d",
		.doc = "How long record and output of a detached box stay after its end." },

	{ .pattern = "/files", .type = SPEC_ENUM, .module = SPEC_MODULE_MICROVM, .fallback = "auto",
		.words = WORDS("auto", "live", "image"), .doc = "How a microVM gets its files." },
	{ .pattern = "/kernel", .type = SPEC_HOST_PATH, .module = SPEC_MODULE_MICROVM, .doc = "Kernel of a microVM." },
	{ .pattern = "/seccomp", .type = SPEC_OBJECT, .doc = "System calls." },
	{ .pattern = "/seccomp/allow", .type = SPEC_LIST, .max = 64, .doc = "Allowed besides, by name." },
	{ .pattern = "/seccomp/allow/*", .type = SPEC_NAME, .min = 1, .max = 64, .doc = "Name of a system call." },
	{ .pattern = "/journal", .type = SPEC_HOST_PATH, .module = SPEC_MODULE_JOURNAL,
		.doc = "Folder of the journal that the run is recorded in." },
};

const size_t spec_n_keys = ELEMENTSOF(spec_keys);

const char *spec_module_name(enum spec_module module)
{
	static const char *const names[SPEC_N_MODULES] = {
		"core", "workspace", "network", "credential", "effect", "journal", "microvm",
	};

	return (size_t)module < ELEMENTSOF(names) ? names[module] : "?";
}

/* One part of a pattern, which ends at `/` or the end, against one escaped name. */
static bool part_matches(const char *pattern, size_t pattern_len, const char *name, size_t name_len)
{
	if (pattern_len == 1 && pattern[0] == '*')
		return true;
	return pattern_len == name_len && memcmp(pattern, name, name_len) == 0;
}

static bool pattern_matches(const char *pattern, const char *pointer)
{
	while (*pattern && *pointer) {
		size_t pattern_len = strcspn(pattern + 1, "/"), len = strcspn(pointer + 1, "/");

		if (!part_matches(pattern + 1, pattern_len, pointer + 1, len))
			return false;
		pattern += pattern_len + 1;
		pointer += len + 1;
	}
	return !*pattern && !*pointer;
}

const struct spec_key *spec_key_find(const char *pointer)
{
	if (!json_pointer_valid(pointer))
		return NULL;
	for (size_t i = 0; i < spec_n_keys; i++)
		if (pattern_matches(spec_keys[i].pattern, pointer))
			return &spec_keys[i];
	return NULL;
}

const char *spec_key_name(const struct spec_key *key)
{
	const char *slash = strrchr(key->pattern, '/');

	return slash ? slash + 1 : "";
}

const struct spec_key *spec_key_next_child(const struct spec_key *key, const struct spec_key *previous)
{
	size_t len = strlen(key->pattern);
	const struct spec_key *row = previous ? previous + 1 : spec_keys;

	for (; row < spec_keys + spec_n_keys; row++)
		if (row != key && strncmp(row->pattern, key->pattern, len) == 0 && row->pattern[len] == '/' &&
			!strchr(row->pattern + len + 1, '/'))
			return row;
	return NULL;
}

const struct spec_key *spec_key_child(const struct spec_key *key, const char *name)
{
	const struct spec_key *child = NULL;

	while ((child = spec_key_next_child(key, child)))
		if (strcmp(spec_key_name(child), "*") == 0 || strcmp(spec_key_name(child), name) == 0)
			return child;
	return NULL;
}

/* Insertions, deletions and replacements that lead from a to b; both are short. */
static size_t distance(const char *a, const char *b)
{
	size_t row[33], n = strlen(b);

	for (size_t k = 0; k <= n; k++)
		row[k] = k;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t k = 0; k < n; k++) {
			size_t above = row[k + 1];
			size_t best = MIN(MIN(above, row[k]) + 1, diagonal + (a[i] != b[k]));

			row[k + 1] = best;
			diagonal = above;
		}
	}
	return row[n];
}

const char *spec_key_suggest(const struct spec_key *parent, const char *name)
{
	const struct spec_key *child = NULL;
	size_t best = 3, d;
	const char *found = NULL;

	if (strlen(name) > 32)
		return NULL;
	while ((child = spec_key_next_child(parent, child))) {
		const char *candidate = spec_key_name(child);

		if (strlen(candidate) > 32)
			continue;
		d = distance(name, candidate);
		if (d < best && d < strlen(candidate)) {
			best = d;
			found = candidate;
		}
	}
	return found;
}
