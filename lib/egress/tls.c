/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * TLS: the box's own certificate authority, whose key is made here and never leaves this memory; a
 * certificate for each name that is looked into; and the side towards the servers, which are verified with
 * the host's trust. OpenSSL is spoken to here, in end.c and in roots.c.
 */
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "egress/egress.h"
#include "egress/roots.h"

#define LEAVES_MAX 512
#define LIFE_SECONDS (397L * 86400)

/* What is kept of a name: its certificate, and a session of its server. */
struct leaf {
	SSL_CTX *context;
	SSL_SESSION *session;
	char name[HOST_MAX];
};

struct tls {
	EVP_PKEY *ca_key, *leaf_key;
	X509 *ca;
	SSL_CTX *client; /* towards servers */
	BIO_METHOD *method;
	struct map leaves; /* by name */
	struct leaf *all[LEAVES_MAX];
	size_t n_leaves;
};

/* -- a socket, with what was read from it before -- */

static int socket_read(BIO *bio, char *data, int len)
{
	struct end *end = BIO_get_data(bio);
	size_t before = buffer_len(&end->prefix);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (before > 0) {
		n = (ssize_t)MIN(before, (size_t)len);
		memcpy(data, buffer_at(&end->prefix), (size_t)n);
		buffer_take(&end->prefix, (size_t)n);
		if (buffer_len(&end->prefix) == 0)
			buffer_clear(&end->prefix, false);
		return (int)n;
	}
	do
		n = recv(end->watch.fd, data, (size_t)len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		BIO_set_retry_read(bio);
	return (int)n;
}

static int socket_write(BIO *bio, const char *data, int len)
{
	struct end *end = BIO_get_data(bio);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	do
		n = send(end->watch.fd, data, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		BIO_set_retry_write(bio);
	return (int)n;
}

static long socket_ctrl(BIO *bio, int command, long number, void *data)
{
	return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP;
}

static int socket_create(BIO *bio)
{
	BIO_set_init(bio, 1);
	return 1;
}

static BIO_METHOD *socket_method(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "egress");

	if (method && BIO_meth_set_read(method, socket_read) && BIO_meth_set_write(method, socket_write) &&
		BIO_meth_set_ctrl(method, socket_ctrl) && BIO_meth_set_create(method, socket_create))
		return method;
	BIO_meth_free(method);
	return NULL;
}

/* -- certificates -- */

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;
	bool good;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	good = extension && X509_add_ext(certificate, extension, -1);
	X509_EXTENSION_free(extension);
	return good;
}

static X509 *certificate_new(EVP_PKEY *key, const char *name, X509 *issuer)
{
	X509 *certificate = X509_new();
	uint8_t serial[16];
	X509_NAME *subject;
	BIGNUM *number = NULL;

	if (!certificate || RAND_bytes(serial, sizeof(serial)) != 1)
		goto fail;
	serial[0] &= 0x7f;
	number = BN_bin2bn(serial, sizeof(serial), NULL);
	subject = X509_get_subject_name(certificate);
	if (!number || !BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) ||
		!X509_set_version(certificate, X509_VERSION_3) || !X509_set_pubkey(certificate, key) ||
		!X509_gmtime_adj(X509_getm_notBefore(certificate), -86400) ||
		!X509_gmtime_adj(X509_getm_notAfter(certificate), LIFE_SECONDS) ||
		!X509_NAME_add_entry_by_txt(
			subject, "O", MBSTRING_ASC, (const uint8_t *)"agentbox", -1, -1, 0) ||
		!X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const uint8_t *)name, -1, -1, 0) ||
		!X509_set_issuer_name(certificate, issuer ? X509_get_subject_name(issuer) : subject))
		goto fail;
	BN_free(number);
	return certificate;
fail:
	BN_free(number);
	X509_free(certificate);
	return NULL;
}

static X509 *ca_new(EVP_PKEY *key, const char *box)
{
	char name[64];
	X509 *ca;

	snprintf(name, sizeof(name), "agentbox %.40s", box);
	ca = certificate_new(key, name, NULL);
	if (ca && add_extension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
		add_extension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign") &&
		add_extension(ca, ca, NID_subject_key_identifier, "hash") && X509_sign(ca, key, EVP_sha256()))
		return ca;
	X509_free(ca);
	return NULL;
}

static X509 *leaf_certificate(struct tls *tls, const char *name, bool literal)
{
	char names[HOST_MAX + 16];
	X509 *leaf;

	snprintf(names, sizeof(names), "critical,%s:%s", literal ? "IP" : "DNS", name);
	leaf = certificate_new(tls->leaf_key, "agentbox", tls->ca);
	if (leaf && add_extension(leaf, tls->ca, NID_subject_alt_name, names) &&
		add_extension(leaf, tls->ca, NID_ext_key_usage, "serverAuth") &&
		add_extension(leaf, tls->ca, NID_key_usage, "critical,digitalSignature") &&
		add_extension(leaf, tls->ca, NID_basic_constraints, "critical,CA:FALSE") &&
		add_extension(leaf, tls->ca, NID_authority_key_identifier, "keyid") &&
		X509_sign(leaf, tls->ca_key, EVP_sha256()))
		return leaf;
	X509_free(leaf);
	return NULL;
}

/* Security: http/1.1 or nothing. A client that only knows HTTP/2 would speak it whatever we answered. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *outlen,
	const unsigned char *in, unsigned int inlen, void *argument)
{
	for (unsigned int i = 0; i < inlen; i += 1U + in[i]) {
		if (in[i] != 8 || inlen - i < 9 || memcmp(in + i + 1, "http/1.1", 8) != 0)
			continue;
		*out = in + i + 1;
		*outlen = 8;
		return SSL_TLSEXT_ERR_OK;
	}
	return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *context_new(const SSL_METHOD *method)
{
	SSL_CTX *context = SSL_CTX_new(method);

	if (!context)
		return NULL;
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
	return context;
}

static SSL_CTX *leaf_context(struct tls *tls, const char *name, bool literal)
{
	X509 *certificate = leaf_certificate(tls, name, literal);
	SSL_CTX *context = certificate ? context_new(TLS_server_method()) : NULL;

	if (context && SSL_CTX_use_certificate(context, certificate) == 1 &&
		SSL_CTX_use_PrivateKey(context, tls->leaf_key) == 1) {
		SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
		SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
		SSL_CTX_set_max_early_data(context, 0);
		X509_free(certificate);
		return context;
	}
	SSL_CTX_free(context);
	X509_free(certificate);
	return NULL;
}

static void leaves_clear(struct tls *tls)
{
	map_clear(&tls->leaves);
	for (size_t i = 0; i < tls->n_leaves; i++) {
		SSL_CTX_free(tls->all[i]->context);
		SSL_SESSION_free(tls->all[i]->session);
		free(tls->all[i]);
	}
	tls->n_leaves = 0;
}

static struct leaf *leaf_get(struct tls *tls, const char *name)
{
	struct leaf *leaf = map_get_string(&tls->leaves, name);

	if (leaf)
		return leaf;
	if (tls->n_leaves == LEAVES_MAX)
		leaves_clear(tls); /* connections hold their own references */
	leaf = calloc(1, sizeof(*leaf));
	if (!leaf)
		return NULL;
	snprintf(leaf->name, sizeof(leaf->name), "%s", name);
	if (map_put_string(&tls->leaves, leaf->name, leaf) < 0) {
		free(leaf);
		return NULL;
	}
	tls->all[tls->n_leaves++] = leaf;
	return leaf;
}

/* -- set-up -- */

/* Sessions are kept by name: the next handshake with the server is shorter. The verdict about its certificate
 * stays. */
static int keep_session(SSL *ssl, SSL_SESSION *session)
{
	struct end *end = SSL_get_app_data(ssl);
	struct leaf *leaf = leaf_get(end->connection->egress->tls, connection_name(end->connection));

	if (!leaf)
		return 0;
	SSL_SESSION_free(leaf->session);
	leaf->session = session;
	return 1;
}

int tls_new(struct egress *egress, const char *trusted, size_t len, struct fault *fault)
{
	struct tls *tls = calloc(1, sizeof(*tls));

	OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS, NULL);
	if (!tls || len > (16U << 20))
		return fault_set(fault, ABOX_E_MEMORY, 0, "tls", "no memory for TLS");
	egress->tls = tls;
	tls->ca_key = EVP_EC_gen("P-256");
	tls->leaf_key = EVP_EC_gen("P-256");
	tls->method = socket_method();
	tls->client = context_new(TLS_client_method());
	if (!tls->ca_key || !tls->leaf_key || !tls->method || !tls->client)
		return fault_set(fault, ABOX_E_SYSTEM, 0, "tls", "OpenSSL does not start");
	tls->ca = ca_new(tls->ca_key, egress->box);
	if (!tls->ca)
		return fault_set(fault, ABOX_E_SYSTEM, 0, "tls", "the certificate of the box cannot be made");
	SSL_CTX_set_verify(tls->client, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_session_cache_mode(tls->client, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(tls->client, keep_session);
	if (roots_trust(SSL_CTX_get_cert_store(tls->client), trusted, len) < 0)
		return fault_set(fault, ABOX_E_MEMORY, 0, "tls", "no memory for certificates");
	return 0;
}

int tls_ca(struct egress *egress, bool pem, uint8_t **retdata, size_t *retlen)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data;
	long len;
	int r = -ENOMEM;

	if (bio &&
		(pem ? PEM_write_bio_X509(bio, egress->tls->ca) : i2d_X509_bio(bio, egress->tls->ca)) == 1) {
		len = BIO_get_mem_data(bio, &data);
		*retdata = malloc((size_t)len + 1);
		if (*retdata) {
			memcpy(*retdata, data, (size_t)len);
			*retlen = (size_t)len;
			r = 0;
		}
	}
	BIO_free(bio);
	return r;
}

/* -- connections -- */

static int attach(struct end *end, SSL_CTX *context)
{
	BIO *bio = BIO_new(end->connection->egress->tls->method);

	end->ssl = bio ? SSL_new(context) : NULL;
	if (!end->ssl) {
		BIO_free(bio);
		return -ENOMEM;
	}
	BIO_set_data(bio, end);
	SSL_set_bio(end->ssl, bio, bio);
	SSL_set_app_data(end->ssl, end);
	/* What was read so far is TLS's. */
	end->prefix = end->in;
	end->in = (struct buffer){ 0 };
	return 0;
}

int tls_accept(struct end *end, const char *name, const struct net_address *literal)
{
	struct tls *tls = end->connection->egress->tls;
	struct leaf *leaf = leaf_get(tls, name);

	if (!leaf)
		return -ENOMEM;
	if (!leaf->context)
		leaf->context = leaf_context(tls, name, literal != NULL);
	if (!leaf->context || attach(end, leaf->context) < 0)
		return -ENOMEM;
	SSL_set_accept_state(end->ssl);
	return 0;
}

int tls_connect(struct end *end, const char *name, const struct net_address *literal)
{
	static const uint8_t protocols[] = "\x08http/1.1";
	struct tls *tls = end->connection->egress->tls;
	struct leaf *leaf = leaf_get(tls, name);

	if (!leaf || attach(end, tls->client) < 0)
		return -ENOMEM;
	if (literal ? !X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(end->ssl), name)
		    : !SSL_set1_host(end->ssl, name) || !SSL_set_tlsext_host_name(end->ssl, name))
		return -ENOMEM;
	SSL_set_hostflags(end->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	SSL_set_alpn_protos(end->ssl, protocols, sizeof(protocols) - 1);
	if (leaf->session)
		SSL_set_session(end->ssl, leaf->session);
	SSL_set_connect_state(end->ssl);
	return 0;
}

int tls_handshake(struct end *end, const char **retwhy)
{
	long verdict;
	int r;

	ERR_clear_error();
	r = SSL_do_handshake(end->ssl);
	if (r == 1)
		return 1;
	switch (SSL_get_error(end->ssl, r)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return 0;
	default:
		break;
	}
	verdict = SSL_get_verify_result(end->ssl);
	*retwhy = verdict != X509_V_OK ? X509_verify_cert_error_string(verdict)
				       : ERR_reason_error_string(ERR_peek_error());
	if (!*retwhy)
		*retwhy = "the connection ended";
	end->broken = true;
	return -EIO;
}
