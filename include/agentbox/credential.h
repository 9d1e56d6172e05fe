/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Credentials: rights that are used for a box and never get into it. Which there are, and what their requests look like, is in the
 * spec (/credentials and the rules of /network); here are the providers of kind `callback`, which answer from this program, and
 * taking rights back.
 *
 * A credential answers four questions: for whom (subject), for what (resource), which actions, until when. A provider is asked when
 * a request needs the credential; its answer is used until shortly before it expires (a tenth of its life, 30 seconds at most). What it
 * gives goes to the process that mints for the box and from there to the one that sends the request: never into the box, a journal, a
 * plan, an error, or the process that keeps the box. Each use is recorded by name.
 */
#ifndef AGENTBOX_CREDENTIAL_H
#define AGENTBOX_CREDENTIAL_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct abox_credential_server abox_credential_server;
typedef struct abox_credential_answer abox_credential_answer;

/** What is asked of a provider. Everything is the library's and valid during the callback; texts are "" for none. */
struct abox_credential_question {
	size_t size;
	const char *name;		/* in the spec */
	const char *subject;		/* for whom */
	const char *resource;		/* for what */
	const char *audience;		/* who shall accept it */
	const char *const *actions;	/* which, in the provider's words: the spec's `scopes`; NULL-ended */
	size_t n_actions;
	uint64_t ttl_usec;		/* until when at most, from now on */
	uint64_t left_usec;		/* whoever waits is refused then; a value that comes later is for the next request */
};

/**
 * A request that is to be signed (`inject`: {"sign": [...]}). Security: method, path, query and fields are what a program in the
 * box wrote; the rule that names the credential allows them.
 */
struct abox_credential_request {
	size_t size;
	const char *method;
	const char *host;		/* as its Host field will be: with the port, where it is not the usual one */
	uint32_t port;
	int32_t tls;			/* not 0: it goes over TLS */
	const char *path;		/* as it will be sent */
	const char *query;		/* behind the `?`; "" for none */
	const char *const *names;	/* those fields that the spec wants shown, in the order of the request */
	const char *const *values;
	size_t n_fields;
	uint64_t body_bytes;
	uint8_t body_sha256[32];	/* also of an empty one */
};

/** Why a value is given up. */
enum abox_credential_drop {
	ABOX_CREDENTIAL_ASKED = 0,	/* abox_credential_revoke() */
	ABOX_CREDENTIAL_RENEWED = 1,	/* it expires, another has been minted */
	ABOX_CREDENTIAL_END = 2,	/* the box ends */
};

/**
 * Providers of kind `callback`. Zero everything but size, or use ABOX_CREDENTIAL_PROVIDER_INIT. Each returns 0 when it has answered;
 * anything else, or no answer, refuses the request that needed it.
 *
 * Threads:  all run on a thread that is in abox_credential_server_process(), at the same time where several are
 */
struct abox_credential_provider {
	size_t size;
	/** A value: abox_credential_answer_value(). NULL: the requests are refused. */
	int (*mint)(void *userdata, const struct abox_credential_question *question, abox_credential_answer *answer);
	/** Fields of this one request: abox_credential_answer_field(). NULL: the requests are refused. */
	int (*sign)(void *userdata, const struct abox_credential_question *question,
		const struct abox_credential_request *request, abox_credential_answer *answer);
	/**
	 * Takes back a value that mint() gave, before it is forgotten. @why: enum abox_credential_drop. NULL: they cannot be taken
	 * back. Not 0: it could not be; that is recorded.
	 */
	int (*revoke)(void *userdata, const struct abox_credential_question *question, const void *value, size_t len, uint32_t why);
	void *userdata;
	void (*destroy)(void *userdata);	/* NULL, or called once, when the last reference on the server is gone */
};
#define ABOX_CREDENTIAL_PROVIDER_INIT sizeof(struct abox_credential_provider)

/**
 * abox_credential_serve() - answer for a box's providers of kind `callback`
 * @box:       borrowed; opened for control
 * @provider:  copied; @provider->userdata belongs to the server from here on, on failure too
 * @ret:       one reference, released with abox_credential_server_unref()
 * @reterr:    receives the error on failure; may be NULL
 *
 * Whoever served the box before does not any more. Requests that need such a credential while nobody serves the box, or after this
 * program has died, are refused, with a reason. Serve from a thread of its own: abox_command_run(), abox_sandbox_stop() and the like
 * wait for things that may need an answer, and do not answer themselves.
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_STATE (no credential of the box has a provider of this kind; not a controller),
 *           ABOX_E_FENCED, ABOX_E_GONE, ABOX_E_SYSTEM, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_credential_serve(abox_sandbox *box, const struct abox_credential_provider *provider,
	abox_credential_server **ret, abox_error **reterr);

/** Another reference, for another thread. Since 0.1. */
ABOX_API abox_credential_server *abox_credential_server_ref(abox_credential_server *server);
/** Gives one back; the last one ends the service. Takes NULL, returns NULL. Since 0.1. */
ABOX_API abox_credential_server *abox_credential_server_unref(abox_credential_server *server);

/** A descriptor that is readable when there is something to process; the server's. Since 0.1. */
ABOX_API int abox_credential_server_get_fd(const abox_credential_server *server);

/**
 * abox_credential_server_process() - wait for one question and let the provider answer it
 * @server:        borrowed
 * @timeout_usec:  microseconds to wait for a question; 0 only looks, ABOX_FOREVER waits
 * @reterr:        receives the error on failure; may be NULL
 *
 * Threads:  any number at a time, each with a reference
 * Return:   1 when one was answered, 0 on timeout, ABOX_E_GONE when the box has ended, somebody else serves it, or
 *           abox_credential_server_stop() was called; ABOX_E_INVALID, ABOX_E_PROTOCOL, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_credential_server_process(abox_credential_server *server, uint64_t timeout_usec, abox_error **reterr);

/**
 * abox_credential_server_stop() - serve no more
 *
 * Threads that wait in abox_credential_server_process() return. A callback that is running is not interrupted, and its answer is not
 * used. Stopping twice is fine.
 *
 * Threads:  any
 * Since:    0.1
 */
ABOX_API void abox_credential_server_stop(abox_credential_server *server);

/**
 * abox_credential_answer_value() - the value
 * @answer:     the callback's; only mint() takes a value
 * @value:      copied; up to 8192 bytes, no control characters
 * @life_usec:  how long it holds; 0: as long as was asked for. Longer than that is cut
 *
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_credential_answer_value(abox_credential_answer *answer, const void *value, size_t len, uint64_t life_usec);

/**
 * abox_credential_answer_field() - a header of the request that is signed, instead of those of this name that it has
 * @answer: the callback's; only sign() takes fields
 * @name:   letters, digits and `-`; not one that frames the request, names its host or says how it is to be answered
 * @value:  copied; no control characters. It is taken out of the answers like a credential
 *
 * Up to 16 of them.
 *
 * Return:   0, ABOX_E_INVALID, ABOX_E_LIMIT, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_credential_answer_field(abox_credential_answer *answer, const char *name, const char *value);

/**
 * abox_credential_answer_refuse() - say why there is none
 * @answer: the callback's, of any kind
 * @why:    copied, cut at 256 bytes. Security: the box and the journal are told; no value belongs into it
 *
 * Return:   0, ABOX_E_INVALID
 * Since:    0.1
 */
ABOX_API int abox_credential_answer_refuse(abox_credential_answer *answer, const char *why);

/** No more of it is minted for this box; without it the next request that needs it has it minted anew. */
#define ABOX_CREDENTIAL_FOR_GOOD UINT32_C(1)

/**
 * abox_credential_revoke() - take back what was minted for a box
 * @box:       borrowed; opened for control
 * @name:      in the spec; NULL for all
 * @flags:     0 or ABOX_CREDENTIAL_FOR_GOOD
 * @retjson:   {"revoked": [name...], "failed": [name...]}: those whose provider can revoke, and had given a value that was not yet
 *             taken back; released with abox_free(). May be NULL
 * @reterr:    receives the error on failure; may be NULL
 *
 * Values are forgotten whatever comes of it. Requests that have been sent on are not called back. The same happens to each value
 * when it is renewed, and to all at the end of the box, also when this program is dead by then: what its report says as `revoked`
 * is by program; a callback can be asked only as long as somebody serves the box.
 *
 * Effects:  runs `provider.revoke` of the spec, or the callback; recorded in the journal by name
 * Threads:  any; the callback runs on a thread that serves, and must call nothing on this handle of the box, which waits for it
 * Return:   0, also when some could not be taken back; ABOX_E_INVALID, ABOX_E_NOT_FOUND (no such credential), ABOX_E_STATE, ABOX_E_FENCED,
 *           ABOX_E_GONE, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_credential_revoke(abox_sandbox *box, const char *name, uint32_t flags, char **retjson, abox_error **reterr);

#ifdef __cplusplus
}
#endif
#endif
