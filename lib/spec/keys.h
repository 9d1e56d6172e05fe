/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SPEC_KEYS_H
#define SPEC_KEYS_H

#include "base/macro.h"

/* What a value may be. Each type has one row in types.c: what it accepts, and how it is said in words. */
enum spec_type {
	SPEC_OBJECT = 0,	/* the members that the table lists, nothing else */
	SPEC_LIST,		/* of what the row of its elements says; min..max of them */
	SPEC_MAP,		/* name -> what the row of its members says; names are of type .names */
	SPEC_BOOLEAN,
	SPEC_INTEGER,
	SPEC_DECIMAL,		/* at most three decimal places; min, max and reading in thousandths */
	SPEC_SIZE,		/* whole number of bytes, or "512KiB", "2GiB" ...; min, max in bytes */
	SPEC_DURATION,		/* "250ms", "5m" ..., or whole number of seconds; min, max in microseconds */
	SPEC_DURATION_OFF,	/* the same, or "off" */
	SPEC_ENUM,		/* one of .words */
	SPEC_TEXT,		/* one line; min..max bytes, no control characters */
	SPEC_VALUE,		/* any text without NUL: environment, argv */
	SPEC_NAME,		/* [A-Za-z0-9._-], first one neither - nor . */
	SPEC_USER,		/* "agent", "root", or 0..65535 */
	SPEC_HOST_PATH,		/* outside: absolute, no `..` */
	SPEC_BOX_PATH,		/* inside: absolute; kept normalized */
	SPEC_TARGET,		/* the same, and a place where a mount may go */
	SPEC_GLOB,		/* below the workspace: relative, no `..` */
	SPEC_VARIABLE,		/* name of an environment variable */
	SPEC_HOSTNAME,		/* RFC 1123 */
	SPEC_HOST,		/* host.example.test or *.example.test; kept in lower case */
	SPEC_CIDR,
	SPEC_ADDRESS,		/* literal IPv4 or IPv6 address */
	SPEC_METHOD,		/* of HTTP */
	SPEC_URL_PATH,		/* glob over the path of a request */
	SPEC_TOKEN,		/* name of a header or a query parameter */
	SPEC_EFFECT_KEY,
	SPEC_N_TYPES,
};

/* Who makes a key true. What is not in this build is refused by the plan, naming the key. */
enum spec_module {
	SPEC_MODULE_CORE = 0,	/* plan, keeper, guest */
	SPEC_MODULE_WORKSPACE,	/* layers, survival */
	SPEC_MODULE_NETWORK,
	SPEC_MODULE_CREDENTIAL,
	SPEC_MODULE_EFFECT,	/* effects at the egress */
	SPEC_MODULE_JOURNAL,	/* journal and tasks */
	SPEC_MODULE_MICROVM,
	SPEC_N_MODULES,
};
const char *spec_module_name(enum spec_module module);

/* Words of enums, in the order of the table: what spec_enum() answers. */
enum { SPEC_BACKEND_AUTO, SPEC_BACKEND_NAMESPACES, SPEC_BACKEND_GVISOR, SPEC_BACKEND_MICROVM };
enum { SPEC_FLOOR_NAMESPACES, SPEC_FLOOR_GVISOR, SPEC_FLOOR_MICROVM };
enum { SPEC_ROOTFS_HOST, SPEC_ROOTFS_DIR };
enum { SPEC_MOUNT_RO, SPEC_MOUNT_RW, SPEC_MOUNT_TMPFS };
enum { SPEC_OWNER_DEATH_STOP, SPEC_OWNER_DEATH_KEEP };
enum { SPEC_FILES_AUTO, SPEC_FILES_LIVE, SPEC_FILES_IMAGE };
enum { SPEC_SOURCE_EMPTY, SPEC_SOURCE_DIR, SPEC_SOURCE_TAR, SPEC_SOURCE_SNAPSHOT, SPEC_SOURCE_WORKSPACE };
enum { SPEC_WORKSPACE_OVERLAY, SPEC_WORKSPACE_COPY, SPEC_WORKSPACE_DIRECT };
enum { SPEC_ABSENT_REFUSE, SPEC_ABSENT_PLACEHOLDER };
enum {
	SPEC_SETTLE_DISCARD,
	SPEC_SETTLE_DIAGNOSTICS,
	SPEC_SETTLE_ARTIFACTS,
	SPEC_SETTLE_SNAPSHOT,
	SPEC_SETTLE_KEEP,
};
enum { SPEC_NETWORK_NONE, SPEC_NETWORK_ALLOW, SPEC_NETWORK_OPEN };
enum { SPEC_DENIED_EXPLAIN, SPEC_DENIED_NXDOMAIN };
enum { SPEC_ECH_REFUSE, SPEC_ECH_OUTER };
enum { SPEC_EFFECT_OPAQUE, SPEC_EFFECT_CHECKABLE, SPEC_EFFECT_IDEMPOTENT };
enum { SPEC_APPROVAL_REQUIRED, SPEC_APPROVAL_NONE };
enum { SPEC_PROVIDER_EXEC, SPEC_PROVIDER_FILE, SPEC_PROVIDER_ENV, SPEC_PROVIDER_CALLBACK };
enum { SPEC_SCHEME_BEARER, SPEC_SCHEME_BASIC, SPEC_SCHEME_RAW };

enum {
	SPEC_REQUIRED = 1 << 0,		/* its object cannot be without it */
	SPEC_PRESENCE = 1 << 1,		/* an object that speaks by being there: absent, it has no defaults */
};

struct spec_key {
	const char *pattern;		/* JSON pointer; `*` stands for any index or member name */
	enum spec_type type;
	enum spec_module module;
	unsigned int flags;
	uint64_t min, max;
	const char *fallback;		/* default as text; "=/pointer": that of another key; NULL: none */
	const char *const *words;	/* of an enum, NULL-ended; the strictest first where there is one */
	enum spec_type names;		/* of a map */
	const char *doc;
};

extern const struct spec_key spec_keys[];
extern const size_t spec_n_keys;

/* The row for a pointer such as "/mounts/3/source"; NULL when no key is like that. "" is the spec itself. */
const struct spec_key *spec_key_find(const char *pointer);
/* The row for a member (or element) of what key describes. */
const struct spec_key *spec_key_child(const struct spec_key *key, const char *name);
/* The next row whose parent is key, after `previous` (NULL: the first). */
const struct spec_key *spec_key_next_child(const struct spec_key *key, const struct spec_key *previous);
/* The member that a row is about: "source" of "/mounts/N/source". */
const char *spec_key_name(const struct spec_key *key);
/* The key of that name nearest to a misspelt one, for remedies; NULL when none is near. */
const char *spec_key_suggest(const struct spec_key *parent, const char *name);

#endif
