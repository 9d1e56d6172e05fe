/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The keeper's side of a box's network: it stands between egress, which carries connections, the guest, which
 * has the sockets of the cell, and clients, who look and change. Everything here is nothing when the box has
 * no network.
 */
#ifndef KEEPER_NETWORK_H
#define KEEPER_NETWORK_H

#include "guest/message.h"
#include "keeper/keeper.h"

#define PUBLISHED_MAX 64
#define TOKEN_BYTES 32 /* hexadecimal digits of a published port's token */

struct published {
	uint32_t id; /* 0: free */
	uint32_t port, host_port;
	char address[64];
	char token[TOKEN_BYTES + 1]; /* "" for none */
};

/* stages.c */
int network_egress_run(
	struct keeper *keeper, struct fault *fault); /* its CA, before the tree of the box is made */
int network_egress_undo(struct keeper *keeper, struct fault *fault);
int network_run(struct keeper *keeper, struct fault *fault); /* served; ports published */
int network_undo(struct keeper *keeper, struct fault *fault);

/* clocks.c */
uint64_t network_next(void); /* UINT64_MAX: nothing is waited for */
void network_late(struct keeper *keeper, uint64_t now);

/* effect.c */
int network_send(struct keeper *keeper, const struct pack_writer *writer, const int *fds, size_t n_fds);
void network_take_egress(struct keeper *keeper); /* what egress says, if there is something */

/* link.c: what the guest says about sockets. 0; negative ends the start of the box */
int network_take(struct keeper *keeper, struct guest_message *message, struct fault *fault);

/* request.c */
int network_rules(struct keeper *keeper, struct request *request, struct fault *fault);
int network_publish(struct keeper *keeper, struct request *request, struct fault *fault);
int network_unpublish(struct keeper *keeper, struct request *request, struct fault *fault);
int network_info(struct keeper *keeper, struct request *request, struct fault *fault);

/* network-log.c */
void network_log_open(struct keeper *keeper);
void network_log_close(void);
void network_tell(struct keeper *keeper, const char *type, const char *body, uint32_t durability);
void network_event(struct keeper *keeper, struct pack_reader *reader); /* an EGRESS_EVENT */

/* credential.c */
int credential_request(struct keeper *keeper, struct request *request, struct fault *fault);
void credentials_end(struct keeper *keeper); /* all are taken back */
void credentials_ended(struct keeper *keeper, struct pack_reader *reader); /* the answer to that */
/* For it: a message to egress (the body is what follows type and serial), whose answer is the request's; or whose
 * answer, an OK, is waited for. */
int network_forward(struct keeper *keeper, struct request *request, uint32_t type, const struct pack_writer *body,
	struct fault *fault);
bool network_await(struct keeper *keeper, uint32_t type, const struct pack_writer *body, uint64_t deadline_usec);

#endif
