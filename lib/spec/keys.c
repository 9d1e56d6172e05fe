/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keys of a spec: one table, from which parser, setters, checks, dumps and the documentation of keys are
 * made. A key exists when it has a row here, and nowhere else is there a name, a range or a default. What a
 * type accepts is said in types.c, what must hold between keys in check.c.
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

#define KEY(pattern_, type_, module_, doc_, ...)                                                             \
	{                                                                                                    \
		.pattern = pattern_, .type = SPEC_##type_, .module = SPEC_MODULE_##module_, .doc = doc_,     \
		##__VA_ARGS__                                                                                \
	}

/* clang-format off: a table is read by columns */

/*
 * Rows of one kind of thing that stands in several places: the conditions of a network rule are the same for
 * allow and deny.
 */
#define RULE_ROWS(list)                                                                                      \
	KEY(list "/*", OBJECT, NETWORK, "One rule; needs `host` or `cidr`."),                                \
	KEY(list "/*/host", HOST, NETWORK,                                                                   \
		"Name, or `*.` and a name for everything below it (not the name itself)."),                  \
	KEY(list "/*/cidr", CIDR, NETWORK, "Addresses, as literals or as what the host resolves to."),       \
	KEY(list "/*/ports", LIST, NETWORK, "TCP ports; 80 and 443 when absent.", .min = 1, .max = 64),      \
	KEY(list "/*/ports/*", INTEGER, NETWORK, "A port.", .min = 1, .max = 65535),                         \
	KEY(list "/*/methods", LIST, NETWORK, "HTTP methods; any when absent.", .min = 1, .max = 64),        \
	KEY(list "/*/methods/*", METHOD, NETWORK, "A method in upper case."),                                \
	KEY(list "/*/paths", LIST, NETWORK, "Paths of requests; any when absent.", .min = 1, .max = 256),    \
	KEY(list "/*/paths/*", URL_PATH, NETWORK, "A path; `*` within one part, `**` across parts."),        \
	KEY(list "/*/query", MAP, NETWORK, "Query parameters that must be there.", .min = 1, .max = 64,      \
		.names = SPEC_TOKEN),                                                                        \
	KEY(list "/*/query/*", TEXT, NETWORK, "The value; `*` stands for anything.", .max = 1024),           \
	KEY(list "/*/headers", MAP, NETWORK, "Headers that must be there.", .min = 1, .max = 64,             \
		.names = SPEC_TOKEN),                                                                        \
	KEY(list "/*/headers/*", TEXT, NETWORK, "The value; `*` stands for anything.", .max = 1024),         \
	KEY(list "/*/ech", ENUM, NETWORK, "Encrypted client hello: refused, or judged by its outer name.",   \
		.fallback = "outer", .words = WORDS("refuse", "outer"))

#define GLOB_ROWS(list, module, text)                                                                        \
	KEY(list, LIST, module, text, .max = 1024),                                                          \
	KEY(list "/*", GLOB, module,                                                                         \
		"Path below the workspace; `*` within one part, `**` across parts.", .min = 1,               \
		.max = 1024)

#define SETTLE_WORDS WORDS("discard", "diagnostics", "artifacts", "snapshot", "keep")

const struct spec_key spec_keys[] = {
	KEY("", OBJECT, CORE, "The spec."),
	KEY("/version", INTEGER, CORE, "Version of the format.", .min = 1, .max = 1, .fallback = "1"),
	KEY("/name", NAME, CORE, "Name of the sandbox, unique among those of the user that live.", .min = 1,
		.max = 128),
	KEY("/task", TEXT, JOURNAL, "Job id of the task that the run belongs to.", .min = 1, .max = 256),
	KEY("/identity", OBJECT, CORE, "For whom the run is made; recorded, never judged."),
	KEY("/identity/subject", TEXT, CORE, "Who started it.", .min = 1, .max = 256),
	KEY("/identity/on_behalf_of", TEXT, CORE, "For whom.", .min = 1, .max = 256),
	KEY("/identity/labels", MAP, CORE, "Free labels.", .max = 64, .names = SPEC_NAME),
	KEY("/identity/labels/*", TEXT, CORE, "A label.", .max = 1024),

	KEY("/backend", ENUM, CORE, "The wall; `auto` takes the fastest usable one that meets the floor.",
		.fallback = "auto", .words = WORDS("auto", "namespaces", "gvisor", "microvm")),
	KEY("/isolation_floor", ENUM, CORE, "The weakest wall that will do.", .fallback = "namespaces",
		.words = WORDS("namespaces", "gvisor", "microvm")),
	KEY("/waive", LIST, CORE, "Rules that may go unenforced where the host cannot enforce them.",
		.max = 64),
	KEY("/waive/*", NAME, CORE, "Name of a capability, as the probe reports it.", .min = 1, .max = 64),
	KEY("/strict", BOOLEAN, CORE, "Also refuse where a default cannot be enforced.", .fallback = "false"),

	KEY("/rootfs", OBJECT, CORE, "What the box sees as `/`."),
	KEY("/rootfs/kind", ENUM, CORE, "A read-only view of the host's system folders, or a folder.",
		.fallback = "host", .words = WORDS("host", "dir")),
	KEY("/rootfs/path", HOST_PATH, CORE, "The folder of kind `dir`."),
	KEY("/mounts", LIST, CORE, "What is mounted besides.", .max = 256),
	KEY("/mounts/*", OBJECT, CORE, "A mount; needs `source` unless it is a tmpfs."),
	KEY("/mounts/*/source", HOST_PATH, CORE, "Folder or file on the host."),
	KEY("/mounts/*/target", TARGET, CORE,
		"Where the box sees it; given once, not `/`, `/proc`, `/dev`, `/sys` or below those.",
		.flags = SPEC_REQUIRED),
	KEY("/mounts/*/mode", ENUM, CORE, "Read-only, writable, or empty and in memory.", .fallback = "ro",
		.words = WORDS("ro", "rw", "tmpfs")),
	KEY("/mounts/*/size", SIZE, CORE, "Size of a tmpfs; that of `/limits/disk` when absent.",
		.min = 4 * KIB, .max = 1024 * TIB),
	KEY("/user", USER, CORE,
		"Who commands run as, inside: `agent` (uid 1000), `root`, or a uid from 0 to 65535.",
		.fallback = "agent"),
	KEY("/cwd", BOX_PATH, CORE, "Where commands start.", .fallback = "/workspace"),
	KEY("/env", MAP, CORE,
		"Variables besides PATH, HOME, USER, LANG, TERM and TMPDIR, or instead of them.",
		.max = 1024, .names = SPEC_VARIABLE),
	KEY("/env/*", VALUE, CORE, "The value.", .max = VALUE_MAX),
	KEY("/hostname", HOSTNAME, CORE, "Host name in the box.", .fallback = "agentbox"),

	KEY("/workspace", OBJECT, CORE, "The files worked on; empty and discarded when absent."),
	KEY("/workspace/source", OBJECT, CORE, "What the workspace begins with."),
	KEY("/workspace/source/kind", ENUM, CORE,
		"Nothing, a folder, an archive, a snapshot, or a workspace that is there, gone on with.",
		.fallback = "empty", .words = WORDS("empty", "dir", "tar", "snapshot", "workspace")),
	KEY("/workspace/source/path", HOST_PATH, CORE, "The folder or archive."),
	KEY("/workspace/source/id", NAME, WORKSPACE, "The snapshot or workspace, by id or name.", .min = 1, .max = 128),
	KEY("/workspace/mode", ENUM, CORE,
		"A layer above the source, a copy of it, or the folder itself, writable.",
		.fallback = "overlay", .words = WORDS("overlay", "copy", "direct")),
	GLOB_ROWS("/workspace/keep", WORKSPACE, "Survives with the workspace."),
	GLOB_ROWS("/workspace/cache", WORKSPACE, "May be kept to save time, and may be lost."),
	GLOB_ROWS("/workspace/scratch", WORKSPACE, "Never survives the box."),
	GLOB_ROWS("/workspace/artifact", WORKSPACE, "Results that are collected."),
	GLOB_ROWS("/workspace/never", WORKSPACE, "Proven absent from snapshots, exports and artifacts."),
	GLOB_ROWS("/workspace/protect", CORE,
		"Cannot be created, changed, replaced or removed, besides what is by default (PROTECT.md in "
		"lib/plan); `!` and a pattern takes a default away."),
	KEY("/workspace/protect_absent", ENUM, CORE,
		"Mode `direct`: a protected path that does not exist refuses the start, or is made.",
		.fallback = "refuse", .words = WORDS("refuse", "placeholder")),
	KEY("/workspace/on_success", ENUM, WORKSPACE,
		"What becomes of the changes after success; `discard` when absent, of an existing workspace `keep`.",
		.words = SETTLE_WORDS),
	KEY("/workspace/on_failure", ENUM, WORKSPACE, "After failure; when absent the same.",
		.words = SETTLE_WORDS),
	KEY("/workspace/on_cancel", ENUM, WORKSPACE, "After cancel; when absent the same.",
		.words = SETTLE_WORDS),
	KEY("/workspace/on_timeout", ENUM, WORKSPACE,
		"After a wall or idle timeout.", .fallback = "=/workspace/on_failure", .words = SETTLE_WORDS),
	KEY("/workspace/ttl", DURATION, WORKSPACE,
		"How long what was kept stays; until removed when absent.", .min = SEC, .max = 3650 * DAY),

	KEY("/network", OBJECT, CORE, "What the box can reach."),
	KEY("/network/mode", ENUM, NETWORK, "Nothing; what `allow` names; any public name.",
		.fallback = "none", .words = WORDS("none", "allow", "open")),
	KEY("/network/denied", ENUM, NETWORK,
		"A denied request is told which rule denied it, or the name does not exist.",
		.fallback = "explain", .words = WORDS("explain", "nxdomain")),
	KEY("/network/allow", LIST, NETWORK,
		"Tried in order after `deny`; no match is a deny, an empty list denies all.", .max = 1024),
	RULE_ROWS("/network/allow"),
	KEY("/network/allow/*/credential", NAME, CREDENTIAL,
		"Name of a credential that is added to requests.", .min = 1, .max = 128),
	KEY("/network/allow/*/require", BOOLEAN, CREDENTIAL,
		"Refuse a request that brings a credential of its own.", .fallback = "false"),
	KEY("/network/allow/*/plain", BOOLEAN, CREDENTIAL,
		"Add the credential to requests without TLS too; whoever is on the way reads it.", .fallback = "false"),
	KEY("/network/allow/*/swap_bodies", BOOLEAN, CREDENTIAL,
		"Swap the credential's placeholder in bodies of requests too.", .fallback = "false"),
	KEY("/network/allow/*/effect", OBJECT, EFFECT,
		"Matching requests are effects: recorded before they are sent, never sent twice by themselves.",
		.flags = SPEC_PRESENCE),
	KEY("/network/allow/*/effect/class", ENUM, EFFECT, "What may be done when the outcome is not known.",
		.flags = SPEC_REQUIRED, .words = WORDS("opaque", "checkable", "idempotent")),
	KEY("/network/allow/*/effect/key", EFFECT_KEY, EFFECT, "What makes two requests the same effect.",
		.fallback = "auto"),
	KEY("/network/allow/*/effect/approval", ENUM, EFFECT, "Somebody must approve it first.",
		.fallback = "none", .words = WORDS("required", "none")),
	KEY("/network/allow/*/effect/defer", BOOLEAN, EFFECT, "Held back until the task commits (abox_task_commit), which carries it out.",
		.fallback = "false"),
	KEY("/network/allow/*/effect/limit", INTEGER, EFFECT, "Effects per task; the rule has one host, one method and one path.", .min = 1, .max = 1000000),
	KEY("/network/deny", LIST, NETWORK, "Tried first.", .max = 1024),
	RULE_ROWS("/network/deny"),
	KEY("/network/on_egress_loss", ENUM, NETWORK,
		"When the process that serves connections is lost: they are refused from then on, or the box ends.",
		.fallback = "refuse", .words = WORDS("refuse", "stop")),
	KEY("/network/max_connections", INTEGER, NETWORK,
		"Connections of the box that are open at once; what is more is reset. Like the two next, as it was at the start.", .min = 1, .max = 1900,
		.fallback = "512"),
	KEY("/network/max_half_open", INTEGER, NETWORK,
		"Of these, such that have not said yet what they want.", .min = 1, .max = 1900, .fallback = "128"),
	KEY("/network/max_rate", INTEGER, NETWORK,
		"New connections in a second, and twice as many at once; what comes faster waits.", .min = 1,
		.max = 100000, .fallback = "500"),
	KEY("/network/publish", LIST, NETWORK, "Ports of the box that the host can reach.", .max = 64),
	KEY("/network/publish/*", OBJECT, NETWORK, "A port."),
	KEY("/network/publish/*/port", INTEGER, NETWORK, "The port in the box.", .flags = SPEC_REQUIRED,
		.min = 1, .max = 65535),
	KEY("/network/publish/*/host_port", INTEGER, NETWORK,
		"The port on the host; 0 takes any that is free.", .min = 0, .max = 65535, .fallback = "0"),
	KEY("/network/publish/*/address", ADDRESS, NETWORK, "Address on the host.", .fallback = "127.0.0.1"),
	KEY("/network/publish/*/token", BOOLEAN, NETWORK, "Only with the bearer token of the box.",
		.fallback = "false"),

	KEY("/credentials", LIST, CREDENTIAL, "Rights used for the box, never given to it.", .max = 64),
	KEY("/credentials/*", OBJECT, CREDENTIAL, "A credential."),
	KEY("/credentials/*/name", NAME, CREDENTIAL, "What rules call it; given once.",
		.flags = SPEC_REQUIRED, .min = 1, .max = 128),
	KEY("/credentials/*/provider", OBJECT, CREDENTIAL, "Who mints it.", .flags = SPEC_REQUIRED),
	KEY("/credentials/*/provider/kind", ENUM, CREDENTIAL,
		"A program, a file that is read again, a variable of the harness, or what the harness serves (`credential.h`).",
		.flags = SPEC_REQUIRED, .words = WORDS("exec", "file", "env", "callback")),
	KEY("/credentials/*/provider/argv", LIST, CREDENTIAL, "The program and its arguments.", .min = 1,
		.max = 64),
	KEY("/credentials/*/provider/argv/*", VALUE, CREDENTIAL, "One argument.", .max = 4096),
	KEY("/credentials/*/provider/revoke", LIST, CREDENTIAL,
		"Kind `exec`: the program that takes a value back, and its arguments.", .min = 1, .max = 64),
	KEY("/credentials/*/provider/revoke/*", VALUE, CREDENTIAL, "One argument.", .max = 4096),
	KEY("/credentials/*/provider/path", HOST_PATH, CREDENTIAL, "The file."),
	KEY("/credentials/*/provider/variable", VARIABLE, CREDENTIAL, "The variable."),
	KEY("/credentials/*/subject", TEXT, CREDENTIAL, "For whom.", .min = 1, .max = 256),
	KEY("/credentials/*/resource", TEXT, CREDENTIAL, "For what.", .min = 1, .max = 1024),
	KEY("/credentials/*/audience", TEXT, CREDENTIAL, "Who shall accept it.", .min = 1, .max = 1024),
	KEY("/credentials/*/scopes", LIST, CREDENTIAL, "Which actions.", .max = 64),
	KEY("/credentials/*/scopes/*", TEXT, CREDENTIAL, "An action, in the provider's words.", .min = 1,
		.max = 256),
	KEY("/credentials/*/ttl", DURATION, CREDENTIAL, "Until when, at most.", .min = SEC, .max = 365 * DAY,
		.fallback = "10m"),
	KEY("/credentials/*/inject", OBJECT, CREDENTIAL,
		"How it gets into a request: one of `header`, `query`, `placeholder`, `sign`; else `Authorization`.",
		.flags = SPEC_PRESENCE),
	KEY("/credentials/*/inject/header", TOKEN, CREDENTIAL, "As this header."),
	KEY("/credentials/*/inject/scheme", ENUM, CREDENTIAL, "How the header is written.",
		.fallback = "bearer", .words = WORDS("bearer", "basic", "raw")),
	KEY("/credentials/*/inject/user", TEXT, CREDENTIAL, "User name of scheme `basic`.", .min = 1,
		.max = 256),
	KEY("/credentials/*/inject/query", TOKEN, CREDENTIAL, "As this query parameter."),
	KEY("/credentials/*/inject/placeholder", VARIABLE, CREDENTIAL,
		"Instead of a worthless value that the box has in this variable."),
	KEY("/credentials/*/inject/sign", LIST, CREDENTIAL,
		"The callback signs each request; it is shown these headers, a digest of the body and where it goes.",
		.max = 32),
	KEY("/credentials/*/inject/sign/*", TOKEN, CREDENTIAL, "A header."),

	KEY("/limits", OBJECT, CORE, "What the box may spend."),
	KEY("/limits/wall", DURATION_OFF, CORE, "Life of the box.", .min = USEC_PER_MSEC, .max = 365 * DAY,
		.fallback = "5m"),
	KEY("/limits/idle", DURATION_OFF, CORE, "Time without a running command.", .min = USEC_PER_MSEC,
		.max = 365 * DAY, .fallback = "off"),
	KEY("/limits/cpus", DECIMAL, CORE, "Processor time per time; all that the host gives when absent.",
		.min = 10, .max = 4096000),
	KEY("/limits/memory", SIZE, CORE, "Memory.", .min = 4 * MIB, .max = 1024 * TIB, .fallback = "2GiB"),
	KEY("/limits/pids", INTEGER, CORE, "Processes and threads.", .min = 4, .max = 4194304,
		.fallback = "512"),
	KEY("/limits/disk", SIZE, CORE, "Bytes in every writable place.", .min = 64 * KIB, .max = 1024 * TIB,
		.fallback = "2GiB"),
	KEY("/limits/inodes", INTEGER, CORE, "Files in every writable place.", .min = 16, .max = UINT32_MAX,
		.fallback = "500000"),
	KEY("/limits/open_files", INTEGER, CORE, "Open files of one process.", .min = 16, .max = 1048576,
		.fallback = "1024"),
	KEY("/limits/output", SIZE, CORE, "Bytes kept of each stream of a command.", .min = 1, .max = TIB,
		.fallback = "8MiB"),
	KEY("/grace", DURATION, CORE, "Time between TERM and KILL.", .min = USEC_PER_MSEC, .max = HOUR,
		.fallback = "5s"),
	KEY("/on_owner_death", ENUM, CORE, "What happens when the process that controls the box is gone.",
		.fallback = "stop", .words = WORDS("stop", "keep")),
	KEY("/owner_grace", DURATION, CORE, "How long `keep` waits for a new owner; for ever when absent.",
		.min = USEC_PER_MSEC, .max = 365 * DAY),
	KEY("/ttl", DURATION_OFF, CORE, "How long record and output of a detached box stay after its end.",
		.min = SEC, .max = 365 * DAY, .fallback = "1d"),

	KEY("/files", ENUM, MICROVM, "How a microVM gets its files: `live` by a device, without a template to start from; `auto` through a port.", .fallback = "auto",
		.words = WORDS("auto", "live", "image")),
	KEY("/kernel", HOST_PATH, MICROVM, "Kernel of a microVM."),
	KEY("/seccomp", OBJECT, CORE, "System calls."),
	KEY("/seccomp/allow", LIST, CORE, "Allowed besides, by name.", .max = 64),
	KEY("/seccomp/allow/*", NAME, CORE, "Name of a system call.", .min = 1, .max = 64),
	KEY("/journal", HOST_PATH, JOURNAL, "Folder of the journal that the run is recorded in."),
};

/* clang-format on */

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
	if (!*pointer)
		return spec_keys;
	/* No pattern begins with `*`: the first letter leaves few rows to look at. */
	for (size_t i = 1; i < spec_n_keys; i++)
		if (spec_keys[i].pattern[1] == pointer[1] && pattern_matches(spec_keys[i].pattern, pointer))
			return &spec_keys[i];
	return NULL;
}

const char *spec_key_name(const struct spec_key *key)
{
	const char *slash = strrchr(key->pattern, '/');

	return slash ? slash + 1 : "";
}

/* What is below a row follows it in the table without a gap. */
const struct spec_key *spec_key_next_child(const struct spec_key *key, const struct spec_key *previous)
{
	const struct spec_key *row = previous ? previous + 1 : key + 1;
	size_t len = strlen(key->pattern);

	for (; row < spec_keys + spec_n_keys; row++) {
		if (strncmp(row->pattern, key->pattern, len) != 0 || row->pattern[len] != '/')
			return NULL;
		if (!strchr(row->pattern + len + 1, '/'))
			return row;
	}
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
