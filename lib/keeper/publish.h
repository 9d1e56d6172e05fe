/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef KEEPER_PUBLISH_H
#define KEEPER_PUBLISH_H

#include "base/fault.h"
#include "keeper/network.h"

/* Listens at an address of the host; port 0: any that is free, *retport tells. */
int publish_bind(const char *address, uint32_t port, int *retfd, uint32_t *retport, struct fault *fault);
int publish_token(char ret[TOKEN_BYTES + 1]); /* 0 or -errno */

#endif
