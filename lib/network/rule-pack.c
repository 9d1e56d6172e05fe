/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rules from the spec into bytes. What could not be decided when a connection comes is refused here, by name.
 *
 * Form: u32 version, u32 mode, u32 denied; u32 n credentials: {str name, u32 inject, u32 scheme, str field,
 * str user, str placeholder}; then deny and allow, each u32 n rules: {str host, bytes base of the cidr
 * (empty: none), u8 bits, u32 n ports: {u32}, strings methods, strings paths, pairs query, pairs headers, u8
 * refuse ECH, u32 credential (its index + 1), u8 require, u8 plain, u8 swap bodies, u8 effect; where it is 1: {u32
 * class, str key, u8 approval, u8 defer, u32 limit}}.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/strings.h"
#include "network/rule-inner.h"
#include "network/rule.h"
#include "spec/spec.h"

static void pack_list(
	struct pack_writer *writer, const abox_spec *spec, const char *list, size_t i, const char *key)
{
	size_t n = spec_count(spec, "%s/%zu/%s", list, i, key);

	pack_u32(writer, (uint32_t)n);
	for (size_t k = 0; k < n; k++)
		pack_string(writer, spec_string(spec, "%s/%zu/%s/%zu", list, i, key, k));
}

static void pack_map(
	struct pack_writer *writer, const abox_spec *spec, const char *list, size_t i, const char *key)
{
	size_t n = spec_count(spec, "%s/%zu/%s", list, i, key);
	const char *name, *value;

	pack_u32(writer, (uint32_t)n);
	for (size_t k = 0; k < n; k++) {
		if (!spec_map_string(spec, k, &name, &value, "%s/%zu/%s", list, i, key)) {
			writer->failed = true;
			return;
		}
		pack_string(writer, name);
		pack_string(writer, value);
	}
}

static void pack_cidr(struct pack_writer *writer, const char *text)
{
	struct net_address base = { 0 };
	const char *slash = text ? strchr(text, '/') : NULL;

	if (slash && !address_parse(text, (size_t)(slash - text), &base))
		writer->failed = true; /* the spec's own check has read it */
	pack_bytes(writer, base.bytes, base.len);
	pack_u8(writer, slash ? (uint8_t)strtoul(slash + 1, NULL, 10) : 0);
}

static uint32_t credential_index(const abox_spec *spec, const char *name)
{
	size_t n = name ? spec_count(spec, "/credentials") : 0;

	for (size_t i = 0; i < n; i++)
		if (strcmp(spec_string(spec, "/credentials/%zu/name", i), name) == 0)
			return (uint32_t)i + 1;
	return 0;
}

static int check_rule(const abox_spec *spec, const char *list, size_t i, bool deny, abox_error **reterr)
{
	static const char *const inner[] = { "methods", "paths", "query", "headers" };
	char pointer[128];

	if (!deny || !spec_has(spec, "%s/%zu/cidr", list, i))
		return 0;
	for (size_t k = 0; k < ELEMENTSOF(inner); k++) {
		if (spec_count(spec, "%s/%zu/%s", list, i, inner[k]) == 0)
			continue;
		snprintf(pointer, sizeof(pointer), "%s/%zu/%s", list, i, inner[k]);
		return spec_refuse(spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, pointer,
			"a rule that denies addresses denies them whatever is asked of them");
	}
	return 0;
}

static void pack_effect(
	struct pack_writer *writer, const abox_spec *spec, const char *list, size_t i, bool deny)
{
	bool effect = !deny && spec_written(spec, "%s/%zu/effect", list, i);

	pack_u8(writer, effect);
	if (!effect)
		return;
	pack_u32(writer, (uint32_t)spec_enum(spec, "%s/%zu/effect/class", list, i));
	pack_string(writer, spec_string(spec, "%s/%zu/effect/key", list, i));
	pack_u8(writer, spec_enum(spec, "%s/%zu/effect/approval", list, i) == SPEC_APPROVAL_REQUIRED);
	pack_u8(writer, spec_boolean(spec, "%s/%zu/effect/defer", list, i));
	pack_u32(writer, spec_has(spec, "%s/%zu/effect/limit", list, i)
				 ? (uint32_t)spec_u64(spec, "%s/%zu/effect/limit", list, i)
				 : 0);
}

static void pack_rule(
	struct pack_writer *writer, const abox_spec *spec, const char *list, size_t i, bool deny)
{
	size_t n_ports = spec_count(spec, "%s/%zu/ports", list, i);

	pack_string(writer, spec_string(spec, "%s/%zu/host", list, i));
	pack_cidr(writer, spec_string(spec, "%s/%zu/cidr", list, i));
	pack_u32(writer, (uint32_t)n_ports);
	for (size_t k = 0; k < n_ports; k++)
		pack_u32(writer, (uint32_t)spec_u64(spec, "%s/%zu/ports/%zu", list, i, k));
	pack_list(writer, spec, list, i, "methods");
	pack_list(writer, spec, list, i, "paths");
	pack_map(writer, spec, list, i, "query");
	pack_map(writer, spec, list, i, "headers");
	pack_u8(writer, strcmp(spec_string(spec, "%s/%zu/ech", list, i), "refuse") == 0);
	pack_u32(writer, deny ? 0 : credential_index(spec, spec_string(spec, "%s/%zu/credential", list, i)));
	pack_u8(writer, deny ? 0 : spec_boolean(spec, "%s/%zu/require", list, i));
	pack_u8(writer, deny ? 0 : spec_boolean(spec, "%s/%zu/plain", list, i));
	pack_u8(writer, deny ? 0 : spec_boolean(spec, "%s/%zu/swap_bodies", list, i));
	pack_effect(writer, spec, list, i, deny);
}

int rules_placeholder(const char *credential, char ret[RULES_PLACEHOLDER_BYTES])
{
	char digest[DIGEST_TEXT_BYTES];
	int r;

	r = digest_sha256_text(credential, strlen(credential), digest);
	if (r < 0)
		return r;
	snprintf(ret, RULES_PLACEHOLDER_BYTES, "agentbox_%.32s", digest);
	return 0;
}

static int pack_credential(struct pack_writer *writer, const abox_spec *spec, size_t i)
{
	const char *name = spec_string(spec, "/credentials/%zu/name", i);
	const char *header = spec_string(spec, "/credentials/%zu/inject/header", i);
	const char *query = spec_string(spec, "/credentials/%zu/inject/query", i);
	char placeholder[RULES_PLACEHOLDER_BYTES] = "";
	uint32_t inject = RULES_INJECT_HEADER;
	int r;

	if (spec_has(spec, "/credentials/%zu/inject/placeholder", i)) {
		inject = RULES_INJECT_PLACEHOLDER;
		r = rules_placeholder(name, placeholder);
		if (r < 0)
			return r;
	} else if (query) {
		inject = RULES_INJECT_QUERY;
	} else if (spec_has(spec, "/credentials/%zu/inject/sign", i)) {
		inject = RULES_INJECT_SIGN;
	}
	pack_string(writer, name);
	pack_u32(writer, inject);
	pack_u32(writer, (uint32_t)spec_enum(spec, "/credentials/%zu/inject/scheme", i));
	pack_string(writer, query ? query : header ? header : "Authorization");
	pack_string(writer, spec_string(spec, "/credentials/%zu/inject/user", i));
	pack_string(writer, placeholder);
	pack_list(writer, spec, "/credentials", i, "inject/sign");
	return 0;
}

int rules_pack(const abox_spec *spec, struct pack_writer *writer, abox_error **reterr)
{
	static const char *const lists[] = { "/network/deny", "/network/allow" };
	size_t n = spec_count(spec, "/credentials");
	int r;

	pack_u32(writer, RULES_VERSION);
	pack_u32(writer, (uint32_t)spec_enum(spec, "/network/mode"));
	pack_u32(writer, (uint32_t)spec_enum(spec, "/network/denied"));
	pack_u32(writer, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		r = pack_credential(writer, spec, i);
		if (r < 0)
			return r;
	}
	for (size_t l = 0; l < ELEMENTSOF(lists); l++) {
		n = spec_count(spec, "%s", lists[l]);
		pack_u32(writer, (uint32_t)n);
		for (size_t i = 0; i < n; i++) {
			r = check_rule(spec, lists[l], i, l == 0, reterr);
			if (r < 0)
				return r;
			pack_rule(writer, spec, lists[l], i, l == 0);
		}
	}
	return writer->failed ? ABOX_E_MEMORY : 0;
}

int rules_ports(const abox_spec *spec, uint16_t **retports, size_t *retn, abox_error **reterr)
{
	static const char *const lists[] = { "/network/deny", "/network/allow" };
	_cleanup_(freep) uint8_t *wanted = calloc(1, 65536);
	_cleanup_(freep) uint16_t *ports = NULL;
	size_t n_ports = 0;

	if (!wanted)
		return ABOX_E_MEMORY;
	if (spec_enum(spec, "/network/mode") !=
		SPEC_NETWORK_NONE) /* the usual ones, to tell what is denied */
		wanted[80] = wanted[443] = 1;
	for (size_t l = 0; l < ELEMENTSOF(lists); l++)
		for (size_t i = 0; i < spec_count(spec, "%s", lists[l]); i++)
			for (size_t k = 0; k < spec_count(spec, "%s/%zu/ports", lists[l], i); k++)
				wanted[spec_u64(spec, "%s/%zu/ports/%zu", lists[l], i, k) & 0xffff] = 1;
	for (size_t port = 1; port < 65536; port++)
		n_ports += wanted[port];
	ports = calloc(n_ports ? n_ports : 1, sizeof(*ports));
	if (!ports)
		return ABOX_E_MEMORY;
	n_ports = 0;
	for (size_t port = 1; port < 65536; port++)
		if (wanted[port])
			ports[n_ports++] = (uint16_t)port;
	*retports = steal_ptr(ports);
	*retn = n_ports;
	return 0;
}
