/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What signing needs of libcrypto, which is loaded when something is signed or checked, and not before. */
#ifndef JOURNAL_CRYPTO_H
#define JOURNAL_CRYPTO_H

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <agentbox/error.h>

#define CRYPTO_FUNCTIONS(X)                                                                                  \
	X(BIO_free) \
	X(BIO_new_mem_buf) \
	X(EVP_DigestSign) \
	X(EVP_DigestSignInit) \
	X(EVP_DigestVerify) \
	X(EVP_DigestVerifyInit) \
	X(EVP_MD_CTX_free) \
	X(EVP_MD_CTX_new) \
	X(EVP_PKEY_free) \
	X(EVP_PKEY_get_base_id) \
	X(EVP_PKEY_get_raw_public_key) \
	X(PEM_read_bio_PUBKEY) \
	X(PEM_read_bio_PrivateKey)

struct crypto {
#define CRYPTO_POINTER(name) __typeof__(name) *name;
	CRYPTO_FUNCTIONS(CRYPTO_POINTER)
#undef CRYPTO_POINTER
};

/* NULL (and an error) where there is no libcrypto of version 3. It stays loaded; any thread may ask. */
const struct crypto *crypto_load(abox_error **reterr);

#endif
