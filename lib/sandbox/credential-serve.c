/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A harness as the provider of its boxes' credentials. The library makes a socket, of which the minter gets one end
 * by way of keeper and egress; questions and answers go over it directly, so that no value passes either. One packet
 * is one question: any number of threads may take from it.
 */
#include "sandbox/credential.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <agentbox/credential.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "credential/wire.h"
#include "keeper/wire.h"
#include "sandbox/sandbox.h"

#define LIST_MAX 64
#define FIELDS_MAX 256
#define ANSWER_FIELDS_MAX 16
#define VALUE_MAX 8192
#define WHY_MAX 256

struct abox_credential_server {
	atomic_uint n_refs;
	atomic_bool stopped;
	int fd;
	struct abox_credential_provider provider;
};

struct abox_credential_answer {
	uint32_t type; /* PROVIDER_MINT or PROVIDER_SIGN */
	bool has_value;
	uint64_t life_usec;
	struct pack_writer value; /* packed: the value, or the fields */
	uint32_t n_fields;
	char why[WHY_MAX + 1];
};

/* -- answers -- */

static int refuse(const char *why)
{
	return error_set(NULL, ABOX_E_INVALID, ABOX_STAGE_CREDENTIAL, NULL, "%s", why);
}

static bool is_clean(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return true;
}

int abox_credential_answer_value(abox_credential_answer *answer, const void *value, size_t len, uint64_t life_usec)
{
	if (!answer || !value || answer->type != PROVIDER_MINT || len == 0 || len > VALUE_MAX || !is_clean(value, len))
		return refuse("not a value");
	if (answer->value.data)
		explicit_bzero(answer->value.data, answer->value.len);
	answer->value.len = 0;
	pack_bytes(&answer->value, value, len);
	answer->has_value = !answer->value.failed;
	answer->life_usec = life_usec;
	return answer->value.failed ? ABOX_E_MEMORY : 0;
}

int abox_credential_answer_field(abox_credential_answer *answer, const char *name, const char *value)
{
	if (!answer || !name || !value || answer->type != PROVIDER_SIGN || !name[0] || !value[0] ||
		strlen(value) > VALUE_MAX || !is_clean(value, strlen(value)) ||
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name))
		return refuse("not a header");
	if (answer->n_fields == ANSWER_FIELDS_MAX)
		return ABOX_E_LIMIT;
	pack_string(&answer->value, name);
	pack_string(&answer->value, value);
	answer->n_fields++;
	return answer->value.failed ? ABOX_E_MEMORY : 0;
}

int abox_credential_answer_refuse(abox_credential_answer *answer, const char *why)
{
	if (!answer || !why)
		return refuse("answer and why are required");
	strncpy(answer->why, why, WHY_MAX);
	return 0;
}

/* -- life -- */

abox_credential_server *abox_credential_server_ref(abox_credential_server *server)
{
	if (server)
		atomic_fetch_add(&server->n_refs, 1);
	return server;
}

abox_credential_server *abox_credential_server_unref(abox_credential_server *server)
{
	if (!server || atomic_fetch_sub(&server->n_refs, 1) != 1)
		return NULL;
	fd_close(server->fd);
	if (server->provider.destroy)
		server->provider.destroy(server->provider.userdata);
	free(server);
	return NULL;
}

void abox_credential_server_stop(abox_credential_server *server)
{
	if (!server)
		return;
	atomic_store(&server->stopped, true);
	/* wakes who waits, and the minter knows that nobody is here; the number stays ours until the last reference */
	shutdown(server->fd, SHUT_RDWR);
}

int abox_credential_server_get_fd(const abox_credential_server *server)
{
	return server ? server->fd : -EBADF;
}

int credential_server_new(int fd_taken, const struct abox_credential_provider *provider, abox_credential_server **ret)
{
	abox_credential_server *server = calloc(1, sizeof(*server));

	if (!server) {
		fd_close(fd_taken);
		return ABOX_E_MEMORY;
	}
	atomic_init(&server->n_refs, 1);
	atomic_init(&server->stopped, false);
	server->fd = fd_taken;
	server->provider = *provider;
	*ret = server;
	return 0;
}

int abox_credential_serve(abox_sandbox *box, const struct abox_credential_provider *provider,
	abox_credential_server **ret, abox_error **reterr)
{
	struct abox_credential_provider full = { .size = sizeof(full) };
	_cleanup_(fd_closep) int far_fd = -EBADF;
	struct pack_writer writer;
	struct pack_reader reader;
	int pair[2], r;

	if (provider && provider->size >= sizeof(size_t))
		memcpy(&full, provider, MIN(provider->size, sizeof(full)));
	if (!box || !provider || !ret || provider->size < sizeof(size_t)) {
		r = error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_CREDENTIAL, NULL, "box, provider and ret are required");
	} else {
		r = socket_pair(pair);
		if (r < 0)
			r = error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_CREDENTIAL, "socketpair", -r,
				"cannot serve credentials");
	}
	if (r < 0) {
		if (full.destroy)
			full.destroy(full.userdata);
		return r;
	}
	far_fd = pair[1];
	r = credential_server_new(pair[0], &full, ret);
	if (r < 0) {
		if (full.destroy)
			full.destroy(full.userdata);
		return r;
	}
	client_begin(&box->client, &writer, WIRE_CREDENTIAL_SERVE);
	pack_u64(&writer, box->epoch);
	pack_u8(&writer, full.revoke != NULL);
	r = client_call(&box->client, &writer, &far_fd, 1, UINT64_MAX, &reader, reterr);
	client_end(&box->client, &writer);
	if (r < 0)
		*ret = abox_credential_server_unref(*ret);
	return r;
}

int abox_credential_revoke(abox_sandbox *box, const char *name, uint32_t flags, char **retjson, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	if (!box || (flags & ~(uint32_t)ABOX_CREDENTIAL_FOR_GOOD) || (name && !name[0]))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_CREDENTIAL, NULL,
			"box is required; a name is NULL or that of a credential");
	client_begin(&box->client, &writer, WIRE_CREDENTIAL_REVOKE);
	pack_u64(&writer, box->epoch);
	pack_string(&writer, name);
	pack_u8(&writer, flags & ABOX_CREDENTIAL_FOR_GOOD);
	r = client_call(&box->client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0 && retjson) {
		text_add(&text, "{\"revoked\":");
		text_add(&text, unpack_string(&reader));
		text_add(&text, ",\"failed\":");
		text_add(&text, unpack_string(&reader));
		text_add(&text, "}");
		r = reader.failed ? ABOX_E_PROTOCOL : text_take(&text, retjson);
	}
	client_end(&box->client, &writer);
	return r;
}

/* -- one question -- */

struct asked {
	uint32_t type, serial, drop;
	struct abox_credential_question question;
	struct abox_credential_request request;
	const char *actions[LIST_MAX + 1];
	const char *names[FIELDS_MAX + 1], *values[FIELDS_MAX + 1];
	const void *value;
	size_t value_len;
};

static void read_request(struct pack_reader *reader, struct asked *asked)
{
	struct abox_credential_request *request = &asked->request;
	const void *digest;
	size_t len;
	uint32_t n;

	request->size = sizeof(*request);
	request->method = unpack_string(reader);
	request->host = unpack_string(reader);
	request->port = unpack_u32(reader);
	request->tls = unpack_u8(reader);
	request->path = unpack_string(reader);
	request->query = unpack_string(reader);
	n = unpack_count(reader, 10);
	if (n > FIELDS_MAX)
		reader->failed = true;
	for (uint32_t i = 0; i < n && !reader->failed; i++) {
		asked->names[i] = unpack_string(reader);
		asked->values[i] = unpack_string(reader);
	}
	request->names = asked->names;
	request->values = asked->values;
	request->n_fields = n;
	request->body_bytes = unpack_u64(reader);
	digest = unpack_bytes(reader, &len);
	if (len == sizeof(request->body_sha256))
		memcpy(request->body_sha256, digest, len);
	else
		reader->failed = true;
}

static bool read_question(const void *packet, size_t len, struct asked *asked)
{
	struct abox_credential_question *question = &asked->question;
	struct pack_reader reader = PACK_READER(packet, len);
	uint32_t n;

	asked->type = unpack_u32(&reader);
	asked->serial = unpack_u32(&reader);
	question->size = sizeof(*question);
	question->left_usec = unpack_u64(&reader);
	question->name = unpack_string(&reader);
	question->subject = unpack_string(&reader);
	question->resource = unpack_string(&reader);
	question->audience = unpack_string(&reader);
	n = unpack_count(&reader, 5);
	if (n > LIST_MAX)
		return false;
	for (uint32_t i = 0; i < n; i++)
		asked->actions[i] = unpack_string(&reader);
	question->actions = asked->actions;
	question->n_actions = n;
	question->ttl_usec = unpack_u64(&reader);
	if (asked->type == PROVIDER_SIGN) {
		read_request(&reader, asked);
	} else if (asked->type == PROVIDER_REVOKE) {
		asked->drop = unpack_u32(&reader);
		asked->value = unpack_bytes(&reader, &asked->value_len);
	}
	return unpack_done(&reader);
}

static void send_answer(abox_credential_server *server, uint32_t type, uint32_t serial, const struct abox_credential_answer *answer)
{
	struct pack_writer writer = PACK_WRITER_INIT;
	uint8_t *whole;
	size_t len;

	pack_u32(&writer, type);
	pack_u32(&writer, serial);
	if (type == PROVIDER_VALUE)
		pack_u64(&writer, answer->life_usec);
	else if (type == PROVIDER_FIELDS)
		pack_u32(&writer, answer->n_fields);
	else if (type == PROVIDER_REFUSED)
		pack_string(&writer, answer->why);
	len = writer.len + (type == PROVIDER_VALUE || type == PROVIDER_FIELDS ? answer->value.len : 0);
	whole = writer.failed ? NULL : malloc(len);
	if (whole) {
		memcpy(whole, writer.data, writer.len);
		if (len > writer.len)
			memcpy(whole + writer.len, answer->value.data, answer->value.len);
		/* it may be too late: then nobody is there */
		socket_send(server->fd, whole, len, NULL, 0);
		explicit_bzero(whole, len);
	}
	free(whole);
	pack_writer_clear(&writer);
}

static void answer_question(abox_credential_server *server, const struct asked *asked)
{
	const struct abox_credential_provider *provider = &server->provider;
	struct abox_credential_answer answer = { .type = asked->type };
	uint32_t type = PROVIDER_REFUSED;
	int r = -1;

	if (asked->type == PROVIDER_MINT && provider->mint) {
		r = provider->mint(provider->userdata, &asked->question, &answer);
		if (r == 0 && answer.has_value && !answer.why[0])
			type = PROVIDER_VALUE;
	} else if (asked->type == PROVIDER_SIGN && provider->sign) {
		r = provider->sign(provider->userdata, &asked->question, &asked->request, &answer);
		if (r == 0 && answer.n_fields > 0 && !answer.value.failed && !answer.why[0])
			type = PROVIDER_FIELDS;
	} else if (asked->type == PROVIDER_REVOKE && provider->revoke) {
		r = provider->revoke(
			provider->userdata, &asked->question, asked->value, asked->value_len, asked->drop);
		if (r == 0)
			type = PROVIDER_REVOKED;
	}
	if (type == PROVIDER_REFUSED && !answer.why[0])
		strcpy(answer.why, "the program that serves it gave none");
	/* Security: stopped while the callback ran: whoever stops wants it to be over */
	if (!atomic_load(&server->stopped))
		send_answer(server, type, asked->serial, &answer);
	if (answer.value.data)
		explicit_bzero(answer.value.data, answer.value.len);
	pack_writer_clear(&answer.value);
}

int abox_credential_server_process(abox_credential_server *server, uint64_t timeout_usec, abox_error **reterr)
{
	struct asked *asked;
	uint8_t *packet;
	ssize_t n;
	int r = 1;

	if (!server)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_CREDENTIAL, NULL, "server is required");
	packet = malloc(MINTER_PACKET_MAX);
	asked = calloc(1, sizeof(*asked));
	if (!packet || !asked) {
		free(packet);
		free(asked);
		return ABOX_E_MEMORY;
	}
	n = socket_recv_until(server->fd, packet, MINTER_PACKET_MAX, NULL, NULL,
		timeout_usec == 0 ? 0 : clock_deadline(clock_monotonic_usec(), timeout_usec));
	if (n == -ETIMEDOUT) {
		r = 0;
	} else if (n <= 0 || atomic_load(&server->stopped)) {
		r = error_set(reterr, ABOX_E_GONE, ABOX_STAGE_CREDENTIAL, NULL,
			"the box has ended, or is served by another program");
	} else if (!read_question(packet, (size_t)n, asked)) {
		r = error_set(reterr, ABOX_E_PROTOCOL, ABOX_STAGE_CREDENTIAL, NULL, "a question that cannot be read");
	} else {
		answer_question(server, asked);
	}
	if (n > 0) /* a value that is revoked */
		explicit_bzero(packet, (size_t)n);
	free(packet);
	free(asked);
	return r;
}
