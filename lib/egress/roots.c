/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the host trusts, for servers that are looked into. A host has some 140 roots, and OpenSSL takes half a
 * millisecond to read one; most boxes need none, the others two or three. So only their names are read at the
 * start, and a certificate when a chain leads to its name.
 */
#include <errno.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <stdlib.h>
#include <string.h>

#include "egress/roots.h"

#define ROOTS_MAX 4096

struct root {
	X509_NAME *subject;
	uint8_t *der;
	long len;
	bool added;
};

struct roots {
	X509_STORE *store;
	struct root all[ROOTS_MAX];
	size_t n;
};

static bool add(struct roots *roots, struct root *root)
{
	const uint8_t *at = root->der;
	X509 *certificate = d2i_X509_AUX(NULL, &at, root->len);
	bool good = certificate && X509_STORE_add_cert(roots->store, certificate) == 1;

	X509_free(certificate);
	root->added = true;
	ERR_clear_error();
	return good;
}

/* The next element, entered or skipped. */
static bool step(const uint8_t **at, const uint8_t *end, bool enter, int *rettag)
{
	int class;
	long len;

	/* also false where its length is not given */
	if (*at >= end || (ASN1_get_object(at, &len, rettag, &class, end - *at) & ~V_ASN1_CONSTRUCTED))
		return false;
	*rettag = class == V_ASN1_UNIVERSAL ? *rettag : -1;
	*at += enter ? 0 : len;
	return true;
}

/* Certificate { to be signed { [version], serial, algorithm, issuer, validity, subject, ... */
static X509_NAME *read_subject(const uint8_t *der, long len)
{
	static const int tags[] = { V_ASN1_INTEGER, V_ASN1_SEQUENCE, V_ASN1_SEQUENCE, V_ASN1_SEQUENCE };
	const uint8_t *at = der, *end = der + len, *version;
	int tag;

	if (!step(&at, end, true, &tag) || !step(&at, end, true, &tag))
		return NULL;
	version = at;
	if (!step(&version, end, false, &tag))
		return NULL;
	if (tag == -1)
		at = version;
	for (size_t i = 0; i < ELEMENTSOF(tags); i++)
		if (!step(&at, end, false, &tag) || tag != tags[i])
			return NULL;
	return d2i_X509_NAME(NULL, &at, end - at);
}

/* All of that name: OpenSSL looks for others in the store itself. */
static int get_by_subject(
	X509_LOOKUP *lookup, X509_LOOKUP_TYPE type, const X509_NAME *name, X509_OBJECT *ret)
{
	struct roots *roots = X509_LOOKUP_get_method_data(lookup);
	X509_OBJECT *found = NULL;
	STACK_OF(X509_OBJECT) *objects;

	for (size_t i = 0; type == X509_LU_X509 && i < roots->n; i++) {
		struct root *root = &roots->all[i];

		if (!root->added && X509_NAME_cmp(root->subject, name) == 0 && add(roots, root))
			found = ret;
	}
	if (!found)
		return 0;
	objects = X509_STORE_get0_objects(roots->store);
	found = X509_OBJECT_retrieve_by_subject(objects, X509_LU_X509, name);
	/* the reference that this takes is never given back, as the store's own are not */
	return found && X509_OBJECT_set1_X509(ret, X509_OBJECT_get0_X509(found)) == 1;
}

static void take(struct roots *roots, uint8_t *der, long len)
{
	struct root *root = &roots->all[roots->n];

	*root = (struct root){ .subject = read_subject(der, len), .der = der, .len = len };
	if (root->subject) {
		roots->n++;
		return;
	}
	add(roots, root);
	OPENSSL_free(der);
}

int roots_trust(X509_STORE *store, const char *pem, size_t len)
{
	X509_LOOKUP_METHOD *method = X509_LOOKUP_meth_new("roots");
	struct roots *roots = calloc(1, sizeof(*roots));
	BIO *bio = BIO_new_mem_buf(pem, (int)len);
	X509_LOOKUP *lookup = NULL;
	char *kind, *header;
	uint8_t *der;
	long der_len;

	if (method && X509_LOOKUP_meth_set_get_by_subject(method, get_by_subject))
		lookup = X509_STORE_add_lookup(store, method);
	if (!roots || !bio || !lookup || !X509_LOOKUP_set_method_data(lookup, roots)) {
		free(roots);
		BIO_free(bio);
		return -ENOMEM;
	}
	roots->store = store;
	while (roots->n < ROOTS_MAX && PEM_read_bio(bio, &kind, &header, &der, &der_len)) {
		bool is_certificate = strcmp(kind, PEM_STRING_X509) == 0 ||
				      strcmp(kind, PEM_STRING_X509_OLD) == 0 ||
				      strcmp(kind, PEM_STRING_X509_TRUSTED) == 0;

		OPENSSL_free(kind);
		OPENSSL_free(header);
		if (is_certificate)
			take(roots, der, der_len);
		else
			OPENSSL_free(der);
	}
	BIO_free(bio);
	ERR_clear_error();
	return 0;
}
