/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rules as egress holds them: read from bytes, never changed, asked for each connection, request and address.
 * A change of rules is a new object; a bad one is refused whole by rules_unpack().
 */
#include "network/rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <agentbox/effect.h>

#include "network/rule-inner.h"
#include "network/rule-match.h"

struct pair {
	const char *name, *value;
};

struct rule {
	const char *host; /* "" for none */
	bool has_range;
	struct net_range range;
	uint16_t *ports;
	uint32_t n_ports; /* 0: 80 and 443 */
	const char **methods; /* NULL-ended, empty for any */
	const char **paths;
	struct pair *query, *headers;
	uint32_t n_query, n_headers;
	bool refuse_ech, require, plain, swap_bodies;
	uint32_t credential; /* index + 1 */
	bool is_effect;
	struct rules_effect effect;
};

struct rules {
	unsigned int refs;
	uint8_t *data; /* texts point into it */
	enum rules_mode mode;
	enum rules_denied denied;
	struct rules_credential *credentials;
	uint32_t n_credentials;
	struct rule *lists[2]; /* deny, allow */
	uint32_t n[2];
};
enum { DENY = 0, ALLOW = 1 };

static const char *const list_names[] = { "/network/deny", "/network/allow" };

/* Arrays with one element more, so that lists are NULL-ended and nothing is ever NULL. */
static void *array_new(struct pack_reader *reader, uint32_t n, size_t size)
{
	void *array = calloc((size_t)n + 1, size);

	if (!array)
		reader->failed = true;
	return array;
}

static const char **read_list(struct pack_reader *reader)
{
	uint32_t n = unpack_count(reader, 5);
	const char **list = array_new(reader, n, sizeof(*list));

	for (uint32_t i = 0; list && i < n; i++)
		list[i] = unpack_string(reader);
	return list;
}

static struct pair *read_map(struct pack_reader *reader, uint32_t *retn)
{
	uint32_t n = unpack_count(reader, 10);
	struct pair *map = array_new(reader, n, sizeof(*map));

	for (uint32_t i = 0; map && i < n; i++) {
		map[i].name = unpack_string(reader);
		map[i].value = unpack_string(reader);
	}
	*retn = map ? n : 0;
	return map;
}

static void read_range(struct pack_reader *reader, struct rule *rule)
{
	size_t len;
	const void *base = unpack_bytes(reader, &len);

	rule->range.bits = unpack_u8(reader);
	if (len == 0)
		return;
	if ((len != 4 && len != 16) || rule->range.bits > len * 8) {
		reader->failed = true;
		return;
	}
	rule->has_range = true;
	rule->range.base.len = (uint8_t)len;
	memcpy(rule->range.base.bytes, base, len);
}

static void read_effect(struct pack_reader *reader, struct rules_effect *effect)
{
	effect->effect_class = unpack_u32(reader);
	effect->key = unpack_string(reader);
	effect->approval = unpack_u8(reader);
	effect->defer = unpack_u8(reader);
	effect->limit = unpack_u32(reader);
	if (effect->effect_class > ABOX_EFFECT_IDEMPOTENT || !effect->key[0])
		reader->failed = true;
}

static void read_rule(struct pack_reader *reader, uint32_t n_credentials, struct rule *rule)
{
	uint32_t n;

	rule->host = unpack_string(reader);
	read_range(reader, rule);
	n = unpack_count(reader, 4);
	rule->ports = array_new(reader, n, sizeof(*rule->ports));
	for (uint32_t i = 0; rule->ports && i < n; i++) {
		uint32_t port = unpack_u32(reader);

		if (port == 0 || port > 65535)
			reader->failed = true;
		rule->ports[i] = (uint16_t)port;
	}
	rule->n_ports = rule->ports ? n : 0;
	rule->methods = read_list(reader);
	rule->paths = read_list(reader);
	rule->query = read_map(reader, &rule->n_query);
	rule->headers = read_map(reader, &rule->n_headers);
	rule->refuse_ech = unpack_u8(reader);
	rule->credential = unpack_u32(reader);
	rule->require = unpack_u8(reader);
	rule->plain = unpack_u8(reader);
	rule->swap_bodies = unpack_u8(reader);
	rule->is_effect = unpack_u8(reader);
	if (rule->is_effect)
		read_effect(reader, &rule->effect);
	/* Security: a rule that names nothing would match everything. */
	if ((!rule->host[0] && !rule->has_range) || rule->credential > n_credentials)
		reader->failed = true;
}

static void read_credentials(struct pack_reader *reader, struct rules *rules)
{
	uint32_t n = unpack_count(reader, 4);

	rules->credentials = array_new(reader, n, sizeof(*rules->credentials));
	rules->n_credentials = rules->credentials ? n : 0;
	for (uint32_t i = 0; i < rules->n_credentials; i++) {
		struct rules_credential *credential = &rules->credentials[i];

		credential->name = unpack_string(reader);
		credential->inject = unpack_u32(reader);
		credential->scheme = unpack_u32(reader);
		credential->field = unpack_string(reader);
		credential->user = unpack_string(reader);
		credential->placeholder = unpack_string(reader);
		credential->sign = read_list(reader);
		if (credential->inject > RULES_INJECT_SIGN || credential->scheme > RULES_RAW ||
			(credential->inject == RULES_INJECT_PLACEHOLDER && !credential->placeholder[0]))
			reader->failed = true;
	}
}

int rules_unpack(const void *data, size_t len, struct rules **ret, struct fault *fault)
{
	_cleanup_(rules_unrefp) struct rules *rules = calloc(1, sizeof(*rules));
	struct pack_reader reader;
	uint32_t version, mode, denied;

	if (!rules)
		return ABOX_E_MEMORY;
	rules->data = malloc(len ? len : 1);
	if (!rules->data)
		return ABOX_E_MEMORY;
	memcpy(rules->data, data, len);
	reader = PACK_READER(rules->data, len);
	version = unpack_u32(&reader);
	mode = unpack_u32(&reader);
	denied = unpack_u32(&reader);
	if (reader.failed || version != RULES_VERSION || mode > RULES_OPEN || denied > RULES_NXDOMAIN)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "rules", "these are not rules of this version");
	rules->refs = 1;
	rules->mode = mode;
	rules->denied = denied;
	read_credentials(&reader, rules);
	for (int l = DENY; l <= ALLOW; l++) {
		uint32_t n = unpack_count(&reader, 40);

		if (n > RULES_MAX)
			reader.failed = true;
		rules->lists[l] = array_new(&reader, reader.failed ? 0 : n, sizeof(*rules->lists[l]));
		for (uint32_t i = 0; rules->lists[l] && i < n && !reader.failed; i++) {
			rules->n[l] = i + 1;
			read_rule(&reader, rules->n_credentials, &rules->lists[l][i]);
		}
	}
	if (!unpack_done(&reader))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "rules", "the rules cannot be read");
	*ret = steal_ptr(rules);
	return 0;
}

struct rules *rules_ref(struct rules *rules)
{
	rules->refs++;
	return rules;
}

struct rules *rules_unref(struct rules *rules)
{
	if (!rules || (rules->refs > 1 && rules->refs--))
		return NULL;
	for (int l = DENY; l <= ALLOW; l++) {
		for (uint32_t i = 0; i < rules->n[l]; i++) {
			struct rule *rule = &rules->lists[l][i];

			free(rule->ports);
			free(rule->methods);
			free(rule->paths);
			free(rule->query);
			free(rule->headers);
		}
		free(rules->lists[l]);
	}
	for (uint32_t i = 0; i < rules->n_credentials; i++)
		free(rules->credentials[i].sign);
	free(rules->credentials);
	free(rules->data);
	free(rules);
	return NULL;
}

void rules_unrefp(struct rules **rules)
{
	*rules = rules_unref(*rules);
}

enum rules_denied rules_denied(const struct rules *rules)
{
	return rules->denied;
}

/* -- a rule and a target -- */

static bool port_matches(const struct rule *rule, uint16_t port)
{
	if (rule->n_ports == 0)
		return port == 80 || port == 443;
	for (uint32_t i = 0; i < rule->n_ports; i++)
		if (rule->ports[i] == port)
			return true;
	return false;
}

/* Security: 0.0.0.0/0 does not name 127.0.0.1; 127.0.0.0/8 does. */
static bool range_names(const struct rule *rule, const struct net_address *address)
{
	struct net_range special;

	if (!address_in(address, &rule->range))
		return false;
	return !address_special(address, &special) || rule->range.bits >= special.bits;
}

/* A host with a cidr is matched by its name here, and by address when that is known. */
static bool allow_matches(const struct rule *rule, const struct rules_target *target)
{
	if (!port_matches(rule, target->port))
		return false;
	if (target->host)
		return rule->host[0] && match_host(rule->host, target->host);
	return !rule->host[0] && range_names(rule, &target->literal);
}

static bool deny_matches(const struct rule *rule, const struct rules_target *target)
{
	if (!port_matches(rule, target->port))
		return false;
	if (target->host)
		return !rule->has_range && match_host(rule->host, target->host);
	return !rule->host[0] && address_in(&target->literal, &rule->range);
}

static bool has_conditions(const struct rule *rule)
{
	return rule->methods[0] || rule->paths[0] || rule->n_query || rule->n_headers;
}

/* -- a rule and a request -- */

static enum match worse(enum match a, enum match b)
{
	if (a == MATCH_NO || b == MATCH_NO)
		return MATCH_NO;
	return a == MATCH_UNSURE || b == MATCH_UNSURE ? MATCH_UNSURE : MATCH_YES;
}

/* Without regard to case, and to `_` in place of `-`: some servers make one name of both. */
static bool same_field(const char *a, const char *b, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char x = a[i] == '_' ? '-' : a[i], y = b[i] == '_' ? '-' : b[i];

		if (strncasecmp(&x, &y, 1) != 0)
			return false;
	}
	return true;
}

/* Fields by which frameworks take another method than that of the request. */
static bool has_other_method(const struct rules_request *request)
{
	static const char *const names[] = { "x-http-method-override", "x-http-method", "x-method-override" };

	for (size_t i = 0; i < request->n_fields; i++)
		for (size_t k = 0; k < ELEMENTSOF(names); k++)
			if (request->fields[i].name_len == strlen(names[k]) &&
				same_field(request->fields[i].name, names[k], strlen(names[k])))
				return true;
	return false;
}

/* Some servers take `delete` for DELETE. */
static enum match method_matches(const struct rule *rule, const struct rules_request *request)
{
	enum match match = MATCH_NO;

	if (!rule->methods[0])
		return MATCH_YES;
	if (has_other_method(request))
		return MATCH_UNSURE;
	for (size_t i = 0; rule->methods[i]; i++) {
		if (strcmp(rule->methods[i], request->method) == 0)
			return MATCH_YES;
		if (strcasecmp(rule->methods[i], request->method) == 0)
			match = MATCH_UNSURE;
	}
	return match;
}

static enum match header_matches(const struct pair *wanted, const struct rules_request *request)
{
	size_t len = strlen(wanted->name), found = 0, good = 0;
	bool unsure = false;

	for (size_t i = 0; i < request->n_fields; i++) {
		const struct rules_field *field = &request->fields[i];

		if (field->name_len != len || !same_field(field->name, wanted->name, len))
			continue;
		found++;
		unsure = unsure || strncasecmp(field->name, wanted->name, len) != 0;
		good += match_value(wanted->value, field->value, field->value_len);
	}
	if (good == 0)
		return MATCH_NO;
	return unsure || found > 1 ? MATCH_UNSURE : MATCH_YES;
}

static enum match conditions_match(const struct rule *rule, const struct rules_request *request)
{
	enum match match = method_matches(rule, request);

	if (rule->paths[0])
		match = worse(match, match_path(rule->paths, request->path, request->path_len));
	for (uint32_t i = 0; i < rule->n_query; i++)
		match = worse(match, match_query(rule->query[i].name, rule->query[i].value,
					     request->query ? request->query : "", request->query_len));
	for (uint32_t i = 0; i < rule->n_headers; i++)
		match = worse(match, header_matches(&rule->headers[i], request));
	return match;
}

static bool allows_upgrade(const struct rule *rule)
{
	if (!has_conditions(rule))
		return true;
	for (uint32_t i = 0; i < rule->n_headers; i++)
		if (strcasecmp(rule->headers[i].name, "upgrade") == 0)
			return true;
	return false;
}

/* -- verdicts -- */

static void verdict_set(
	struct rules_verdict *ret, enum rules_action action, const char *place, const char *reason)
{
	memset(ret, 0, sizeof(*ret));
	ret->action = action;
	ret->rule = -1;
	ret->reason = reason;
	snprintf(ret->place, sizeof(ret->place), "%s", place);
}

static void verdict_of_rule(const struct rules *rules, int list, uint32_t i, enum rules_action action,
	struct rules_verdict *ret)
{
	const struct rule *rule = &rules->lists[list][i];
	char place[RULES_PLACE_MAX];

	snprintf(place, sizeof(place), "%s/%u", list_names[list], i);
	verdict_set(ret, action, place, list == DENY ? "denied by a rule" : "allowed by a rule");
	if (list == DENY)
		return;
	ret->rule = (int32_t)i;
	ret->refuse_ech = rule->refuse_ech;
	ret->upgrade = allows_upgrade(rule);
	ret->plain = rule->plain;
	ret->require = rule->require;
	ret->swap_bodies = rule->swap_bodies;
	if (rule->credential)
		ret->credential = &rules->credentials[rule->credential - 1];
	if (rule->is_effect)
		ret->effect = &rule->effect;
}

/*
 * Security: a name that is denied could be reached at its address, with no name said. So where names are denied
 * at a port, nothing goes there to an address that no rule names. The first such rule, or -1.
 */
static int64_t denies_names(const struct rules *rules, uint16_t port)
{
	for (uint32_t i = 0; i < rules->n[DENY]; i++)
		if (rules->lists[DENY][i].host[0] && port_matches(&rules->lists[DENY][i], port))
			return i;
	return -1;
}

/* No rule has decided. */
static void verdict_of_mode(const struct rules *rules, const struct rules_target *target,
	enum rules_action open, struct rules_verdict *ret)
{
	bool public = target->host || !address_special(&target->literal, NULL);
	int64_t deny = target->host ? -1 : denies_names(rules, target->port);

	if (rules->mode == RULES_OPEN && public && deny >= 0) {
		verdict_of_rule(rules, DENY, (uint32_t)deny, RULES_DENY, ret);
		ret->reason = "names are denied at this port, and an address does not say whose it is";
	} else if (rules->mode == RULES_OPEN && public) {
		verdict_set(ret, open, "/network/mode", "open to public names");
		ret->upgrade = true;
	} else if (rules->mode == RULES_OPEN) {
		verdict_set(ret, RULES_DENY, "/network/mode", "not a public address");
	} else {
		verdict_set(ret, RULES_DENY, "/network/allow",
			target->host ? "host not in allow list" : "address not in allow list");
	}
}

void rules_judge_target(
	const struct rules *rules, const struct rules_target *target, struct rules_verdict *ret)
{
	bool look = false;

	if (rules->mode == RULES_NONE) {
		verdict_set(ret, RULES_DENY, "/network/mode", "no network");
		return;
	}
	for (uint32_t i = 0; i < rules->n[DENY]; i++) {
		const struct rule *rule = &rules->lists[DENY][i];

		if (!deny_matches(rule, target))
			continue;
		if (!has_conditions(rule)) {
			verdict_of_rule(rules, DENY, i, RULES_DENY, ret);
			return;
		}
		look = true;
	}
	for (uint32_t i = 0; i < rules->n[ALLOW]; i++) {
		const struct rule *rule = &rules->lists[ALLOW][i];

		if (!allow_matches(rule, target))
			continue;
		look = look || has_conditions(rule) || rule->credential || rule->is_effect;
		verdict_of_rule(rules, ALLOW, i, look ? RULES_INSPECT : RULES_PASS, ret);
		return;
	}
	verdict_of_mode(rules, target, look ? RULES_INSPECT : RULES_PASS, ret);
}

void rules_judge_request(const struct rules *rules, const struct rules_target *target,
	const struct rules_request *request, struct rules_verdict *ret)
{
	bool host_known = false;
	enum match match;

	if (rules->mode == RULES_NONE) {
		verdict_set(ret, RULES_DENY, "/network/mode", "no network");
		return;
	}
	for (uint32_t i = 0; i < rules->n[DENY]; i++) {
		const struct rule *rule = &rules->lists[DENY][i];

		if (deny_matches(rule, target) && conditions_match(rule, request) != MATCH_NO) {
			verdict_of_rule(rules, DENY, i, RULES_DENY, ret);
			return;
		}
	}
	for (uint32_t i = 0; i < rules->n[ALLOW]; i++) {
		const struct rule *rule = &rules->lists[ALLOW][i];

		if (!allow_matches(rule, target))
			continue;
		host_known = true;
		match = conditions_match(rule, request);
		/* Security: a rule behind it would send it as no effect at all. */
		if (match == MATCH_UNSURE && rule->is_effect) {
			verdict_of_rule(rules, ALLOW, i, RULES_DENY, ret);
			ret->reason = "it could be read as an effect of this rule, and as none";
			return;
		}
		if (match == MATCH_YES) {
			verdict_of_rule(rules, ALLOW, i, RULES_PASS, ret);
			return;
		}
	}
	verdict_of_mode(rules, target, RULES_PASS, ret);
	if (ret->action == RULES_DENY && host_known)
		ret->reason = "request matches no rule of this host";
}

static const struct rule *rule_of(const struct rules *rules, const struct rules_verdict *verdict)
{
	return verdict->rule >= 0 && (uint32_t)verdict->rule < rules->n[ALLOW] ? &rules->lists[ALLOW][verdict->rule]
									     : NULL;
}

const char *rules_header(const struct rules *rules, const struct rules_verdict *verdict, size_t i)
{
	const struct rule *rule = rule_of(rules, verdict);

	return rule && i < rule->n_headers ? rule->headers[i].name : NULL;
}

const char *rules_pattern(const struct rules *rules, const struct rules_verdict *verdict,
	const struct rules_request *request)
{
	const struct rule *rule = rule_of(rules, verdict);

	for (size_t i = 0; rule && rule->paths[i]; i++) {
		const char *one[] = { rule->paths[i], NULL };

		if (match_path(one, request->path, request->path_len) == MATCH_YES)
			return rule->paths[i];
	}
	return NULL;
}

bool rules_judge_address(const struct rules *rules, const struct rules_target *target,
	const struct net_address *address, struct rules_verdict *verdict)
{
	const struct rule *rule = rule_of(rules, verdict);
	char place[RULES_PLACE_MAX];

	if (verdict->action == RULES_DENY)
		return false;
	for (uint32_t i = 0; i < rules->n[DENY]; i++) {
		const struct rule *deny = &rules->lists[DENY][i];

		if (!deny->has_range || !port_matches(deny, target->port) ||
			!address_in(address, &deny->range))
			continue;
		if (deny->host[0] && (!target->host || !match_host(deny->host, target->host)))
			continue;
		verdict_of_rule(rules, DENY, i, RULES_DENY, verdict);
		verdict->reason = "resolved to a denied address";
		return false;
	}
	snprintf(place, sizeof(place), "%s", verdict->place);
	if (rule && rule->has_range) {
		if (range_names(rule, address))
			return true;
		verdict_set(verdict, RULES_DENY, place,
			address_in(address, &rule->range)
				? "resolved to non-public address"
				: "resolved to an address outside of the rule's cidr");
		return false;
	}
	if (!address_special(address, NULL))
		return true;
	if (rule && target->host && strcmp(rule->host, RULES_HOST_SERVICE) == 0 &&
		strcmp(address_special(address, NULL), "loopback") == 0)
		return true;
	verdict_set(verdict, RULES_DENY, place, "resolved to non-public address");
	return false;
}

bool rules_name_exists(const struct rules *rules, const char *host)
{
	if (rules->mode == RULES_NONE)
		return false;
	for (uint32_t i = 0; i < rules->n[DENY]; i++) {
		const struct rule *rule = &rules->lists[DENY][i];

		if (rule->host[0] && !rule->has_range && !has_conditions(rule) && rule->n_ports == 0 &&
			match_host(rule->host, host))
			return false;
	}
	if (rules->mode == RULES_OPEN)
		return true;
	for (uint32_t i = 0; i < rules->n[ALLOW]; i++)
		if (rules->lists[ALLOW][i].host[0] && match_host(rules->lists[ALLOW][i].host, host))
			return true;
	return false;
}
