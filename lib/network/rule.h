/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Network rules: from the spec into packed bytes (library), and from these to verdicts (egress).
 *
 * Precedence: rules of `deny` first, then those of `allow` in order, the first that matches decides; none:
 * denied, or in mode `open` allowed to public addresses. A rule without ports means 80 and 443. Whatever
 * could be read in two ways (a path with dot segments, a query parameter given twice) never matches a rule
 * that allows, and always one that denies.
 *
 * An address that is not public is refused even where a rule allows the name, unless the rule has a `cidr`
 * that names it: one that lies within the special range, so 0.0.0.0/0 names none of them. Literal addresses
 * are matched by `cidr` alone, never by a host. So in mode `open` a literal address that no rule names is denied
 * at every port at which a name is.
 */
#ifndef NETWORK_RULE_H
#define NETWORK_RULE_H

#include <agentbox/error.h>
#include <agentbox/spec.h>

#include "base/fault.h"
#include "base/pack.h"
#include "network/address.h"

#define RULES_PLACE_MAX 64

enum rules_mode {
	RULES_NONE = 0,
	RULES_ALLOW = 1,
	RULES_OPEN = 2,
};
enum rules_denied {
	RULES_EXPLAIN = 0, /* names exist, and a request is told which rule denies it */
	RULES_NXDOMAIN = 1,
};

/* How a credential gets into a request. */
enum rules_inject {
	RULES_INJECT_HEADER = 0,
	RULES_INJECT_QUERY = 1,
	RULES_INJECT_PLACEHOLDER = 2,
	RULES_INJECT_SIGN = 3, /* fields that the harness makes for each request */
};
enum rules_scheme {
	RULES_BEARER = 0,
	RULES_BASIC = 1,
	RULES_RAW = 2,
};
struct rules_credential {
	const char *name;
	uint32_t inject; /* enum rules_inject */
	uint32_t scheme; /* enum rules_scheme */
	const char *field; /* header or query parameter */
	const char *user; /* of scheme basic, else "" */
	const char *placeholder; /* the worthless value that the box has, else "" */
	const char **sign; /* fields of the request that its signer is shown; NULL-ended */
};

/* What a rule says of requests that are effects (effect/RULES.md, 13). */
struct rules_effect {
	uint32_t effect_class; /* enum abox_effect_class */
	const char *key; /* as the spec has it: "auto", "header:NAME", ... */
	bool approval, defer;
	uint32_t limit; /* 0: none */
};

struct rules;

/* -- library -- */
/* The rules of a spec that has been checked, packed. The writer is the caller's. */
int rules_pack(const abox_spec *spec, struct pack_writer *writer, abox_error **reterr);
/* The ports for which a box's connections must reach egress, ascending, without doubles: 80 and 443 in mode
 * open, and those of every rule that allows (and of those that deny, so that they are told). An array for
 * free(). */
int rules_ports(const abox_spec *spec, uint16_t **retports, size_t *retn, abox_error **reterr);
/* The worthless value that stands for a credential in the box: the same for the same name. */
#define RULES_PLACEHOLDER_BYTES 48
int rules_placeholder(const char *credential, char ret[RULES_PLACEHOLDER_BYTES]);

/* -- egress -- */
/* 0, ABOX_E_PROTOCOL, ABOX_E_MEMORY. The bytes are copied. */
int rules_unpack(const void *data, size_t len, struct rules **ret, struct fault *fault);
struct rules *rules_ref(struct rules *rules);
struct rules *rules_unref(struct rules *rules); /* takes NULL, returns NULL */
void rules_unrefp(struct rules **rules);
enum rules_denied rules_denied(const struct rules *rules);

enum rules_action {
	RULES_DENY = 0,
	RULES_PASS, /* allowed, whatever is said over it */
	RULES_INSPECT, /* each request is to be judged by rules_judge_request() */
};
struct rules_verdict {
	enum rules_action action;
	char place[RULES_PLACE_MAX]; /* the rule that decided: "/network/allow/3"; "/network/mode" for none */
	const char *reason; /* static text */
	const struct rules_credential *credential; /* of an allowed request, or NULL; belongs to the rules */
	const struct rules_effect *effect; /* as above */
	bool plain; /* its credential goes there without TLS too */
	bool swap_bodies; /* its placeholder is swapped in bodies too */
	bool require; /* a request with a credential of its own is refused */
	bool upgrade; /* the connection may become another protocol (WebSocket) */
	bool refuse_ech; /* a TLS hello with ECH is refused */
	int32_t rule; /* for rules_judge_address(): index, -1 none */
};

/* Whom a connection is for. Either a canonical name (lower case, no dot at the end), or a literal address. */
struct rules_target {
	const char *host; /* NULL: literal */
	struct net_address literal;
	uint16_t port;
};
/* Whether a connection may be made at all, and whether it must be looked into. */
void rules_judge_target(
	const struct rules *rules, const struct rules_target *target, struct rules_verdict *ret);

struct rules_field {
	const char *name, *value;
	size_t name_len, value_len;
};
struct rules_request {
	const char *method;
	const char *path; /* as sent, without query */
	size_t path_len;
	const char *query; /* behind `?`; NULL for none */
	size_t query_len;
	const struct rules_field *fields;
	size_t n_fields;
};
void rules_judge_request(const struct rules *rules, const struct rules_target *target,
	const struct rules_request *request, struct rules_verdict *ret);

/* Of the rule by which a request was allowed: the i-th header that it names, NULL behind the last; and which of
 * its paths matched, NULL when it names none. */
const char *rules_header(const struct rules *rules, const struct rules_verdict *verdict, size_t i);
const char *rules_pattern(const struct rules *rules, const struct rules_verdict *verdict,
	const struct rules_request *request);

/*
 * Whether a connection that was allowed by `verdict` may go to this address, to which its name has been
 * resolved (or which it named itself). The verdict becomes a denial where not, with the reason.
 */
bool rules_judge_address(const struct rules *rules, const struct rules_target *target,
	const struct net_address *address, struct rules_verdict *verdict);

/* Whether a name may exist for the box: some rule could allow it on some port. For `denied: nxdomain`. */
bool rules_name_exists(const struct rules *rules, const char *host);

#endif
