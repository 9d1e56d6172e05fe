/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef CLI_NET_RULE_H
#define CLI_NET_RULE_H

#include <agentbox/spec.h>
#include <jansson.h>

/* "host" or, for an address or range of addresses, "cidr". */
void net_rule_set_target(json_t *rule, const char *host);
/* Adds "HOST[:PORT]" to a list of rules. */
int net_rule_add(abox_spec *spec, const char *list, const char *text, abox_error **reterr);
/* "[ADDR:]PORT:BOXPORT"; says what is wrong. *retaddress is NULL when there is none; for abox_free(). */
int net_publish_parse(const char *text, char **retaddress, uint32_t *rethost_port, uint32_t *retport);

#endif
