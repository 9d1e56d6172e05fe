/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network of a running box: what it did, what it may do from now on, and which of its ports the host can reach. What it
 * may do from the start is in the spec (/network).
 */
#ifndef AGENTBOX_NETWORK_H
#define AGENTBOX_NETWORK_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * abox_network_info() - the state of a box's network as JSON
 * @retjson:  {"mode","egress":"none|running|lost","egress_pid","published":[{"id","port","address","host_port","token"}...]}; tokens are
 *            hidden from handles that were opened to read; released with abox_free()
 *
 * Return:   0, ABOX_E_GONE, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_network_info(abox_sandbox *box, char **retjson, abox_error **reterr);

/**
 * abox_network_events() - what has happened on a box's network
 * @cursor:   0 for the beginning, then what the last call gave as @retnext
 * @retlines: JSON objects, one a line: {"time_usec","type","event"}; released with abox_free()
 * @retnext:  where the next call goes on
 *
 * Each decision is an event, with the rule that made it. Of a detached box they can be read until it is removed. The box keeps
 * the first 8 MiB; where there is a journal it has them all.
 *
 * Return:   1 when there were some, 0 when there are none yet (@retlines is empty), ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_network_events(abox_sandbox *box, uint64_t cursor, char **retlines, uint64_t *retnext,
	abox_error **reterr);

/**
 * abox_network_get_rules() - the rules that are in force
 * @retjson:  {"network": ...} and the credentials, journal and task that the box was started with, as its plan shows them:
 *            a spec that abox_spec_from_json() takes; released with abox_free()
 *
 * Return:   0, ABOX_E_GONE, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_network_get_rules(abox_sandbox *box, char **retjson, abox_error **reterr);

/** Connections that the new rules do not allow are ended; without it they may go on until they close. */
#define ABOX_NETWORK_CUT UINT32_C(1)

/**
 * abox_network_set_rules() - replace the rules of a running box
 * @spec:     its /network is what counts; credentials, journal and task are those that the box was started with
 * @flags:    0 or ABOX_NETWORK_CUT
 *
 * Narrower or wider: the caller decides, a program in the box has no way to ask. All or nothing: on failure the old rules are in
 * force. A port that no rule named before is refused where a program of the box listens at it already; so is a rule with a
 * credential that the box was started without, or with an effect where no rule had one then.
 *
 * Return:   0, ABOX_E_INVALID, ABOX_E_EXISTS (such a port), ABOX_E_STATE (a box without network, such a credential or effects;
 *           not a controller), ABOX_E_FENCED, ABOX_E_BUSY, ABOX_E_GONE, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_network_set_rules(abox_sandbox *box, const abox_spec *spec, uint32_t flags, abox_error **reterr);

/** A port to be published. Zero everything but size, or use ABOX_PUBLISH_INIT. */
struct abox_publish {
	size_t size;
	const char *address;	/* on the host; NULL: 127.0.0.1 */
	uint32_t port;		/* in the box, where a program listens at 127.0.0.1 or at every address */
	uint32_t host_port;	/* 0: any that is free */
	int32_t token;		/* not 0: only requests with a bearer token are let in */
};
#define ABOX_PUBLISH_INIT sizeof(struct abox_publish)

/** What became of it; size is set by the caller. */
struct abox_published {
	size_t size;
	uint32_t id;
	uint32_t host_port;
	char token[64];		/* "" for none; secret */
};
#define ABOX_PUBLISHED_INIT sizeof(struct abox_published)

/**
 * abox_network_publish() - let the host reach a port of a running box
 * @wish:     borrowed
 * @ret:      its number and the port on the host
 *
 * Effects:  a listening socket on the host until abox_network_unpublish() or the end of the box
 * Return:   0, ABOX_E_INVALID, ABOX_E_EXISTS (the host's port is taken), ABOX_E_PERMISSION, ABOX_E_LIMIT, ABOX_E_STATE,
 *           ABOX_E_FENCED, ABOX_E_GONE
 * Since:    0.1
 */
ABOX_API int abox_network_publish(abox_sandbox *box, const struct abox_publish *wish, struct abox_published *ret,
	abox_error **reterr);

/** abox_network_unpublish() - close it again, with its connections. 0, ABOX_E_NOT_FOUND, or as above. Since 0.1. */
ABOX_API int abox_network_unpublish(abox_sandbox *box, uint32_t id, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
