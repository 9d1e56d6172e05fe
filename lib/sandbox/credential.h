/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef SANDBOX_CREDENTIAL_H
#define SANDBOX_CREDENTIAL_H

#include <agentbox/credential.h>

#include "plan/plan.h"

/*
 * Starts the minter of a box whose plan has credentials: *retfd is the socket that its egress asks. The
 * minter ends when all copies of that are closed. Without credentials *retfd stays as it is.
 */
int credential_start(const struct plan_view *view, uint64_t deadline_usec, int *retfd, abox_error **reterr);

/* A server of questions that come over this socket (credential/wire.h). The provider is copied; on failure its
 * userdata is not destroyed. */
int credential_server_new(int fd_taken, const struct abox_credential_provider *provider, abox_credential_server **ret);

#endif
