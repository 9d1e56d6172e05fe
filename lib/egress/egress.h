/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Inside egress: one thread, one epoll set, edge-triggered. Each connection has a step: a function that does
 * what can be done now and says whether it got on. An event only means "try again"; what is waited for is
 * known by the step alone.
 */
#ifndef EGRESS_EGRESS_H
#define EGRESS_EGRESS_H

#include <openssl/ssl.h>
#include <sys/epoll.h>

#include "base/fault.h"
#include "base/map.h"
#include "base/pack.h"
#include "base/strings.h"
#include "egress/buffer.h"
#include "egress/hello.h"
#include "egress/http.h"
#include "network/address.h"
#include "network/names.h"
#include "network/rule.h"

#define HOST_MAX 254
#define RELAY_BYTES (256 * 1024)
#define ADDRESSES_MAX 16
#define ATTEMPTS_MAX 4
#define SECRET_MAX 8192
#define SIGN_FIELDS_MAX 16 /* of what a signer adds */
#define HELD_MAX (8U << 20) /* of one body, before it is sent; */
#define HELD_ALL_MAX (64U << 20) /* of all at a time */
#define SWAP_GROWTH_MAX (1U << 20) /* by which values may make one body longer than its placeholders had */

enum {
	HELLO_USEC = 10 * 1000000, /* a client says who it wants within this time */
	SILENT_USEC = 300 * 1000, /* a client that says nothing may wait for the server to speak first */
	HEAD_USEC = 30 * 1000000, /* from the first byte of a head to its last */
	CONNECT_USEC = 30 * 1000000,
	STAGGER_USEC = 250 * 1000, /* before the next address is tried besides */
	LINGER_USEC = 2 * 1000000, /* for a client to take its last answer */
	CREDENTIAL_USEC = 30 * 1000000,
	BODY_USEC = 60 * 1000000, /* for the next bytes of a body that is held */
	PROXY_LOOKUP_USEC = 2 * 1000000,
};
#define IDLE_USEC (600ULL * 1000000) /* kept alive between requests */

struct egress;
struct connection;

struct watch {
	int fd; /* -EBADF: none */
	void (*ready)(struct egress *egress, struct watch *watch, uint32_t events);
};

/* One side of a connection: a socket, bare or under TLS. */
struct end {
	struct watch watch;
	struct connection *connection;
	SSL *ssl;
	struct buffer prefix; /* what was read before TLS began, for its first reads */
	struct buffer in, out;
	bool in_ended; /* the other side has sent its last byte */
	bool out_ended; /* and we ours */
	bool broken;
	uint64_t received, sent;
};

enum kind {
	KIND_UNKNOWN = 0,
	KIND_TLS,
	KIND_HTTP,
	KIND_OPAQUE,
};

struct lookup;
struct upstream;
struct exchange;
struct effect;

struct connection {
	struct connection *next, *previous; /* of all */
	struct connection *next_ready;
	struct connection *next_dead;
	struct egress *egress;
	struct end client, server;
	bool (*step)(struct connection *connection); /* whether it got on */
	uint64_t deadline_usec; /* UINT64_MAX: none */
	void (*late)(struct connection *connection);
	bool dead, is_ready, half_open, proxied;

	struct rules_target target; /* host points to `host` */
	char host[HOST_MAX];
	char literal[ADDRESS_TEXT_MAX]; /* text of target.literal, for events and certificates */
	struct rules *rules; /* those that judged it */
	struct rules_verdict verdict;
	enum kind kind;
	struct hello hello;
	size_t scanned;
	bool gate; /* the server is connected already; the client's first bytes are still to be judged */
	bool told; /* an event has told of it */
	bool tls; /* the client speaks TLS with us */
	uint64_t since_usec;

	struct upstream *upstream; /* while connecting */
	struct net_address pinned; /* the address that the server was reached at; len 0: by a proxy */
	bool by_proxy;
	struct exchange *exchange;
	uint32_t published; /* the id of the port that it came to; 0: it is the box's own */
	uint16_t published_port;
};

/* A question to the resolver or the minter, by serial. */
struct question {
	struct question *next;
	uint32_t serial;
	struct connection *connection; /* NULL: it has ended, nobody waits */
};

struct egress {
	int epoll_fd;
	struct watch keeper, resolver, minter;
	struct rules *rules;
	uint32_t generation;
	struct names *names;
	char box[64];

	struct connection *connections, *ready, *dead;
	struct upstream *dead_upstreams;
	uint32_t n_connections, n_half_open;
	uint32_t max_connections, max_half_open, max_rate;
	uint64_t tokens_milli, tokens_usec; /* of the rate */
	uint64_t next_usec; /* no deadline is earlier */
	uint64_t now_usec;
	uint64_t accepted, denied, capped, sent, received;
	size_t held_bytes; /* of bodies that wait to be sent */

	struct listener *listeners;
	struct question *lookups, *asks, *wants;
	struct effect *effects;
	int executor_fd; /* shared with who writes: as long as it is held, what was let go may be under way */
	struct relayed *relayed; /* the keeper's questions to the minter */
	uint32_t serial;
	char *relay; /* RELAY_BYTES, shared by all */

	struct tls *tls;
	struct proxy *proxy; /* of the host; NULL: none */
	struct denials *denials;
	struct message *messages, **messages_end; /* to the keeper, which is busy */
	size_t n_messages;
	struct publish *publish;
};

/* loop.c */
int watch_add(struct egress *egress, struct watch *watch);
void watch_close(struct watch *watch);
void connection_wake(struct connection *connection);

/* connection.c */
struct connection *connection_new(struct egress *egress, int fd);
void connection_end(struct connection *connection); /* soon, in order */
void connection_reset(struct connection *connection); /* now; the client gets RST */
void connection_deadline(
	struct connection *connection, uint64_t usec, void (*late)(struct connection *connection));
void connection_run(struct connection *connection);
void connections_bury(struct egress *egress);
void connections_late(struct egress *egress);
void connections_judge_again(struct egress *egress);
/* Holds the rules of now: a verdict points into those that made it. */
const struct rules *connection_rules(struct connection *connection);
void connection_known(struct connection *connection); /* no longer half-open */
const char *connection_name(const struct connection *connection);
/* Says goodbye: what is left in client.out is sent, then the connection is ended. */
bool step_goodbye(struct connection *connection);
bool step_relay(struct connection *connection);

/* sniff.c */
void connection_start(struct connection *connection, const struct net_address *wanted, uint16_t port);
void proxy_listen_start(struct connection *connection);
bool sniff_gate(struct connection *connection);
bool authority_agrees(const struct connection *connection, struct http_text authority);

/* end.c */
void end_init(struct end *end, struct connection *connection);
void end_close(struct end *end, bool wipe);
ssize_t end_read(struct end *end, void *data, size_t len); /* 0: the end; -EAGAIN; -EIO */
ssize_t end_write(struct end *end, const void *data, size_t len);
ssize_t end_fill(struct end *end, size_t max); /* as end_read(), into `in` */
int end_flush(struct end *end); /* 1: all sent, 0: not yet, -EIO */
void end_finish(struct end *end); /* no more will be sent */

/* tls.c */
int tls_new(struct egress *egress, const char *trusted, size_t len, struct fault *fault);
int tls_ca(struct egress *egress, bool pem, uint8_t **retdata, size_t *retlen);
int tls_accept(struct end *end, const char *name, const struct net_address *literal);
int tls_connect(struct end *end, const char *name, const struct net_address *literal);
int tls_handshake(struct end *end, const char **retwhy); /* 1: done, 0: not yet, -EIO */

/* upstream.c */
void proxy_set(struct egress *egress, const char *proxy, const char *no_proxy, struct fault *fault);
/* Connects server to the target by verdict; the connection goes on at `then`, or at `failed` with a reason.
 */
void upstream_start(struct connection *connection, bool tls, void (*then)(struct connection *connection),
	void (*failed)(struct connection *connection, const char *reason));
void upstream_free(struct connection *connection);
void upstreams_bury(struct egress *egress);
const char *upstream_proxy_authorization(const struct connection *connection);
void resolver_ready(struct egress *egress, struct watch *watch, uint32_t events);
int resolver_start(uint32_t uid, uint32_t gid, int *retfd, struct fault *fault);

/* exchange.c */
void exchange_start(struct connection *connection);
void exchange_free(struct connection *connection);
bool step_exchange(struct connection *connection);
/* Answers the one request that comes with a denial, then ends. */
void exchange_deny(struct connection *connection);

/* scrub.c: an injected value does not come back */
#define SCRUB_PATTERNS (8 + 2 * SIGN_FIELDS_MAX)
struct scrub {
	struct buffer patterns[SCRUB_PATTERNS];
	size_t n;
	struct buffer held; /* the end of what came, which may be the beginning of one */
};
/* False: not every form of the value can be looked for. */
bool scrub_set(
	struct scrub *scrub, const char *secret, size_t len, const char *injected, size_t injected_len);
bool scrub_also(struct scrub *scrub, const char *data, size_t len);
void scrub_clear(struct scrub *scrub);
/* What may go on of data is added to out; with `end` all of it. False: no memory. */
bool scrub_pass(struct scrub *scrub, const char *data, size_t len, bool end, struct buffer *out);
/* How many bytes at the end of data could be the beginning of a pattern, which is not whole there. */
size_t tail_of(const char *data, size_t len, const char *pattern, size_t n);
bool scrub_once(const struct scrub *scrub, char *data, size_t len);

/* swap.c: placeholders in bodies */
struct swap {
	const char *placeholder; /* NULL: nothing is swapped */
	struct buffer value; /* as this kind of body writes it */
	struct buffer held; /* the end of what came, which may be the beginning of one */
	size_t grown;
};
bool add_percent(struct buffer *out, const char *value, size_t len);
bool swap_set(struct swap *swap, const char *placeholder, struct http_text type, const char *value, size_t len);
void swap_clear(struct swap *swap);
/* As scrub_pass(), but lengths change; false also for a body that would grow beyond SWAP_GROWTH_MAX. */
bool swap_pass(struct swap *swap, const char *data, size_t len, bool end, struct buffer *out);

/* inject.c */
struct injection {
	char *secret; /* NULL: none; wiped when released */
	size_t secret_len;
	char *value; /* what is put into the request */
	size_t value_len;
	struct http_field fields[SIGN_FIELDS_MAX]; /* instead: those that a signer made, in `text` */
	size_t n_fields;
	char *text;
	size_t text_len;
};
bool injection_is_set(const struct injection *injection);

/* minter.c */
void minter_ready(struct egress *egress, struct watch *watch, uint32_t events);
/* A message whose answer (DONE or REFUSED: `refused`) goes to the keeper under its serial; on failure the fault is set. */
void minter_relay(struct egress *egress, uint32_t keeper_serial, struct pack_writer *message, uint32_t serial,
	const int *fds, size_t n_fds, int refused, struct fault *fault);
/* Asks for the credential of the connection's verdict; exchange_credential() is told. False: cannot be asked.
 */
bool injection_ask(struct connection *connection);
void exchange_credential(struct connection *connection, const char *secret, size_t len, const char *why);
void exchange_signed(struct connection *connection, struct pack_reader *reader);
/* Its request as a signer sees it: everything but the name of the credential. False: no memory, or too much. */
bool exchange_pack(struct connection *connection, const struct rules_credential *credential, struct pack_writer *writer);
/* NULL, or why this value cannot be used. */
const char *injection_set(struct injection *injection, const struct rules_credential *credential,
	const char *secret, size_t len);
/* The same for the fields of a MINTER_SIGNED. */
const char *injection_set_fields(struct injection *injection, struct pack_reader *reader);
void injection_clear(struct injection *injection);
/* The parts of a request, as they are to be sent; a new form of the value goes to the scrub as well. False:
 * no memory, or more forms than can be looked for. */
bool injection_path(const struct injection *injection, const struct rules_credential *credential,
	const struct http_head *head, struct buffer *out);
bool injection_field(const struct injection *injection, const struct rules_credential *credential,
	const struct http_field *field, struct scrub *scrub, struct buffer *out, bool *retused);
/* Whether the request brings a credential of its own, where ours would go. */
bool injection_brought(const struct rules_credential *credential, const struct http_head *head);

/* event.c */
void event_allow(struct connection *connection, const char *mode);
void event_deny(struct connection *connection, const char *place, const char *reason);
void event_request(struct connection *connection, const struct http_head *head, unsigned int status);
void event_close(struct connection *connection);
void event_capped(struct egress *egress, const char *reason);
void event_revoke(struct egress *egress, const char *credential, uint32_t drop, const char *wrong);
void event_credential(struct connection *connection, const char *credential, const char *what);
struct denials *denials_new(void);
void events_flush(struct egress *egress, bool all);
void keeper_send(struct egress *egress, const void *data, size_t len, int fd_taken); /* negative: none */
void keeper_flush(struct egress *egress);

/* control.c */
int control_open(struct egress *egress, int library_fd);
void control_ready(struct egress *egress, struct watch *watch, uint32_t events);
int control_tell_ready(struct egress *egress);
void control_reply(struct egress *egress, uint32_t serial, struct fault *fault, struct pack_writer *more);
void control_forget(void); /* what has come so far: for the resolver */

/* effect.c */
void effect_answer(struct egress *egress, uint32_t serial, struct pack_reader *reader, int *fds, size_t n_fds);

/* publish.c: ids are never 0 */
int publish_add(struct egress *egress, uint32_t id, uint16_t port, const char *token, int fd_taken);
bool publish_remove(struct egress *egress, uint32_t id);
void publish_socket(struct egress *egress, uint32_t serial, int fd_taken); /* negative: the box gives none */
void publish_bury(struct egress *egress);

/* listen.c */
int listener_add(struct egress *egress, uint32_t kind, uint16_t port, int fd_taken);
void listeners_again(struct egress *egress);
void listeners_late(struct egress *egress);

/* confine.c */
int egress_become(uint32_t uid, uint32_t gid, struct fault *fault);
int egress_confine(struct fault *fault);

#endif
