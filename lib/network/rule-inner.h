/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The packed form of rules, which rule-pack.c writes and rule.c reads. */
#ifndef NETWORK_RULE_INNER_H
#define NETWORK_RULE_INNER_H

#define RULES_VERSION 2
#define RULES_MAX 2048
#define RULES_HOST_SERVICE "host.agentbox" /* the host's own loopback, where a rule names it */

#endif
