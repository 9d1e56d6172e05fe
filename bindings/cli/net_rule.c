/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Short ways to write rules and published ports. They become keys of the spec, which the library judges.
 */
#include "net_rule.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "spec_options.h"

/* An address gets the length of its own prefix; 0 for a name. */
static int address_bits(const char *host)
{
	uint8_t address[16];

	return inet_pton(AF_INET, host, address) == 1 ? 32 : inet_pton(AF_INET6, host, address) == 1 ? 128 : 0;
}

void net_rule_set_target(json_t *rule, const char *host)
{
	int bits = address_bits(host);

	if (bits)
		json_object_set_new(rule, "cidr", json_sprintf("%s/%d", host, bits));
	else
		json_object_set_new(rule, strchr(host, '/') ? "cidr" : "host", json_string(host));
}

/* Cuts ":PORT" off; an address of IPv6 with a port stands in brackets. false for what is no port. */
static bool cut_port(char *host, uint64_t *retport)
{
	char *colon = strrchr(host, ':'), *close = strrchr(host, ']');

	*retport = 0;
	if (host[0] == '[' && close) {
		if (close[1] && (close[1] != ':' || !parse_u64(close + 2, retport)))
			return false;
		*close = 0;
		memmove(host, host + 1, strlen(host));
		return !colon || colon < close || *retport;
	}
	if (!colon || strchr(host, ':') != colon)
		return true;	/* none, or an address of IPv6 without a port */
	if (!parse_u64(colon + 1, retport) || !*retport)
		return false;
	*colon = 0;
	return true;
}

int net_rule_add(abox_spec *spec, const char *list, const char *text, abox_error **reterr)
{
	char *host = strdup(text), *json = NULL, pointer[64];
	json_t *rule = json_object();
	uint64_t port;
	int r = ABOX_E_MEMORY;

	if (host && rule && !cut_port(host, &port)) {
		say("%s: write it as HOST[:PORT]", text);
		r = ABOX_E_INVALID;
	} else if (host && rule) {
		net_rule_set_target(rule, host);
		if (port)
			json_object_set_new(rule, "ports", json_pack("[I]", (json_int_t)port));
		json = json_dumps(rule, JSON_COMPACT);
	}
	if (json) {
		snprintf(pointer, sizeof(pointer), "%s/-", list);
		r = abox_spec_set_json(spec, pointer, json, reterr);
	}
	free(json);
	free(host);
	json_decref(rule);
	return r;
}

int spec_option_net(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	char *copy, *save = NULL;
	int r;

	if (!strcmp(value, "none") || !strcmp(value, "open"))
		return abox_spec_set_string(settings->spec, "/network/mode", value, reterr);
	r = abox_spec_set_string(settings->spec, "/network/mode", "allow", reterr);
	copy = strdup(value);
	if (!copy)
		return ABOX_E_MEMORY;
	for (char *word = strtok_r(copy, ",", &save); r >= 0 && word; word = strtok_r(NULL, ",", &save))
		r = net_rule_add(settings->spec, "/network/allow", word, reterr);
	free(copy);
	return r;
}

int net_publish_parse(const char *text, char **retaddress, uint32_t *rethost_port, uint32_t *retport)
{
	char *copy = strdup(text), *box = copy ? strrchr(copy, ':') : NULL, *host = NULL;
	uint64_t port = 0, host_port = 0;
	bool good = false;

	*retaddress = NULL;
	if (box) {
		*box++ = 0;
		host = strrchr(copy, ':');
		good = parse_u64(box, &port) && parse_u64(host ? host + 1 : copy, &host_port) && port > 0 &&
		       port < 65536 && host_port < 65536;
	}
	if (good && host) {
		size_t len = strlen(copy);

		*host = 0;
		len = strlen(copy);
		/* an address of IPv6 stands in brackets */
		if (len > 2 && copy[0] == '[' && copy[len - 1] == ']') {
			copy[len - 1] = 0;
			*retaddress = strdup(copy + 1);
		} else {
			*retaddress = strdup(copy);
		}
		good = *retaddress && address_bits(*retaddress);
	}
	free(copy);
	if (!good) {
		free(*retaddress);
		*retaddress = NULL;
		say("%s: write it as [ADDR:]PORT:BOXPORT", text);
		return ABOX_E_INVALID;
	}
	*rethost_port = (uint32_t)host_port;
	*retport = (uint32_t)port;
	return 0;
}

/* A box that publishes has a network, if one from which nothing can be reached. */
int spec_option_publish(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	_cleanup_(text_freep) char *address = NULL, *mode = NULL, *json = NULL;
	uint32_t host_port, port;
	json_t *entry;
	int r;

	r = net_publish_parse(value, &address, &host_port, &port);
	if (r < 0)
		return r;
	if (abox_spec_get(settings->spec, "/network/mode", &mode, NULL) < 0 || strcmp(mode, "\"none\"") == 0)
		r = abox_spec_set_string(settings->spec, "/network/mode", "allow", reterr);
	entry = json_pack("{s:i,s:i}", "port", (int)port, "host_port", (int)host_port);
	if (address)
		json_object_set_new(entry, "address", json_string(address));
	json = json_dumps(entry, JSON_COMPACT);
	json_decref(entry);
	if (!json)
		return ABOX_E_MEMORY;
	return r < 0 ? r : abox_spec_set_json(settings->spec, "/network/publish/-", json, reterr);
}
