/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Credentials, as far as they are the keeper's: it hands on what the minter is to be told, by way of egress, and has
 * taken back at the end what was minted, while that can still be told. No value comes here. When egress is gone the
 * minter does that by itself.
 */
#include <string.h>

#include <agentbox/credential.h>
#include <agentbox/error.h>

#include "base/clock.h"
#include "egress/wire.h"
#include "keeper/network.h"

#define REVOKE_USEC (15 * USEC_PER_SEC)

int credential_request(struct keeper *keeper, struct request *request, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer body = PACK_WRITER_INIT;
	bool serves = request->type == WIRE_CREDENTIAL_SERVE;
	const char *name = serves ? "" : unpack_string(&request->body);
	uint8_t flag = unpack_u8(&request->body);

	if (!unpack_done(&request->body) || request->n_fds != (serves ? 1 : 0))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "request", "not about credentials");
	if (!serves)
		pack_string(&body, name);
	pack_u8(&body, flag);
	if (!serves)
		pack_u32(&body, ABOX_CREDENTIAL_ASKED);
	return network_forward(keeper, request, serves ? EGRESS_SERVE : EGRESS_REVOKE, &body, fault);
}

void credentials_end(struct keeper *keeper)
{
	_cleanup_(pack_writer_clearp) struct pack_writer body = PACK_WRITER_INIT;

	pack_string(&body, "");
	pack_u8(&body, 1);
	pack_u32(&body, ABOX_CREDENTIAL_END);
	if (!network_await(keeper, EGRESS_REVOKE, &body, clock_deadline(clock_monotonic_usec(), REVOKE_USEC)))
		report_add(keeper, REPORT_LEFT, "credentials", "whether they were revoked is not known");
}

void credentials_ended(struct keeper *keeper, struct pack_reader *reader)
{
	const char *revoked = unpack_string(reader), *failed = unpack_string(reader);
	_cleanup_(text_clear) struct text why = TEXT_INIT;

	if (reader->failed)
		return;
	text_add(&keeper->revoked, revoked);
	if (strcmp(failed, "[]") == 0)
		return;
	text_printf(&why, "could not be revoked: %s", failed);
	report_add(keeper, REPORT_LEFT, "credentials", why.failed ? "could not be revoked" : why.data);
}
