/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Checkpoints: signed statements of how far a journal has come. The chain alone cannot show that its end was
 * cut off; a statement that is kept elsewhere can. Ed25519 over five lines of text, so that any program can
 * check one: "abox-checkpoint 1", journal id, seq, hash, time, each ended by a newline.
 */
#include "journal/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "journal/crypto.h"
#include "journal/handle.h"

#define KEY_BYTES 32
#define SIGNATURE_BYTES 64

static size_t statement(const struct checkpoint *checkpoint, char ret[256])
{
	return (size_t)snprintf(ret, 256, "abox-checkpoint 1\n%s\n%" PRIu64 "\n%s\n%" PRIu64 "\n",
		checkpoint->journal, checkpoint->seq, checkpoint->hash, checkpoint->time_usec);
}

static void pkey_freep(EVP_PKEY **key)
{
	const struct crypto *crypto = *key ? crypto_load(NULL) : NULL;

	if (!crypto)
		return;
	crypto->EVP_PKEY_free(*key);
}

static void context_freep(EVP_MD_CTX **context)
{
	const struct crypto *crypto = *context ? crypto_load(NULL) : NULL;

	if (!crypto)
		return;
	crypto->EVP_MD_CTX_free(*context);
}

/* An encrypted key is refused, not asked for at a terminal. */
static int no_password(char *buffer, int size, int rwflag, void *userdata)
{
	return -1;
}

static int read_key(
	const struct crypto *crypto, const char *pem, bool private, EVP_PKEY **ret, abox_error **reterr)
{
	BIO *bio = crypto->BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key = NULL;

	if (!bio)
		return ABOX_E_MEMORY;
	key = private ? crypto->PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL)
		      : crypto->PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
	crypto->BIO_free(bio);
	if (!key || crypto->EVP_PKEY_get_base_id(key) != EVP_PKEY_ED25519) {
		crypto->EVP_PKEY_free(key);
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL,
			"not an Ed25519 %s key in PEM", private ? "private" : "public");
	}
	*ret = key;
	return 0;
}

int checkpoint_sign(struct checkpoint *checkpoint, const char *private_key, abox_error **reterr)
{
	const struct crypto *crypto = crypto_load(reterr);
	_cleanup_(context_freep) EVP_MD_CTX *context = crypto ? crypto->EVP_MD_CTX_new() : NULL;
	_cleanup_(pkey_freep) EVP_PKEY *key = NULL;
	uint8_t raw[KEY_BYTES], signature[SIGNATURE_BYTES];
	size_t raw_len = sizeof(raw), len = sizeof(signature), n;
	char text[256];
	int r;

	if (!crypto)
		return ABOX_E_UNAVAILABLE;
	if (!context)
		return ABOX_E_MEMORY;
	r = read_key(crypto, private_key, true, &key, reterr);
	if (r < 0)
		return r;
	n = statement(checkpoint, text);
	if (crypto->EVP_PKEY_get_raw_public_key(key, raw, &raw_len) != 1 || raw_len != sizeof(raw) ||
		crypto->EVP_DigestSignInit(context, NULL, NULL, NULL, key) != 1 ||
		crypto->EVP_DigestSign(context, signature, &len, (const unsigned char *)text, n) != 1 ||
		len != sizeof(signature))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "the key cannot sign");
	hex_encode(raw, sizeof(raw), checkpoint->key);
	hex_encode(signature, sizeof(signature), checkpoint->signature);
	return 0;
}

int checkpoint_check(const struct checkpoint *checkpoint, const char *public_key, abox_error **reterr)
{
	const struct crypto *crypto = crypto_load(reterr);
	_cleanup_(context_freep) EVP_MD_CTX *context = crypto ? crypto->EVP_MD_CTX_new() : NULL;
	_cleanup_(pkey_freep) EVP_PKEY *key = NULL;
	uint8_t signature[SIGNATURE_BYTES];
	char text[256];
	size_t n;
	int r;

	if (!crypto)
		return ABOX_E_UNAVAILABLE;
	if (!context)
		return ABOX_E_MEMORY;
	r = read_key(crypto, public_key, false, &key, reterr);
	if (r < 0)
		return r;
	if (hex_decode(checkpoint->signature, signature, sizeof(signature)) < 0)
		return 0;
	n = statement(checkpoint, text);
	if (crypto->EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) != 1)
		return ABOX_E_MEMORY;
	return crypto->EVP_DigestVerify(context, signature, sizeof(signature), (const unsigned char *)text, n) == 1;
}

static bool take_hex(const struct json *json, const char *name, char *ret, size_t digits)
{
	const char *text = json_text(json_member(json, name));

	if (!text || strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
		return false;
	memcpy(ret, text, digits + 1);
	return true;
}

int checkpoint_parse(const char *json_text, size_t len, struct checkpoint *ret, abox_error **reterr)
{
	const struct json_bounds bounds = { .max_bytes = 4096, .max_depth = 4, .stage = ABOX_STAGE_JOURNAL };
	_cleanup_(json_unrefp) struct json *json = NULL;
	int r;

	r = json_parse(json_text, len, &bounds, &json, reterr);
	if (r < 0)
		return error_prefix(reterr, r, "checkpoint");
	if (!take_hex(json, "journal", ret->journal, 32) || !take_hex(json, "hash", ret->hash, 64) ||
		!take_hex(json, "key", ret->key, 64) || !take_hex(json, "signature", ret->signature, 128) ||
		json_number(json_member(json, "seq")) <= 0 || json_number(json_member(json, "time")) < 0)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL, "this is not a checkpoint");
	ret->seq = (uint64_t)json_number(json_member(json, "seq"));
	ret->time_usec = (uint64_t)json_number(json_member(json, "time"));
	return 0;
}

int checkpoint_print(const struct checkpoint *checkpoint, char **retjson)
{
	struct text text = TEXT_INIT;

	text_printf(&text,
		"{\"journal\":\"%s\",\"seq\":%" PRIu64 ",\"hash\":\"%s\",\"time\":%" PRIu64
		",\"key\":\"%s\",\"signature\":\"%s\"}",
		checkpoint->journal, checkpoint->seq, checkpoint->hash, checkpoint->time_usec,
		checkpoint->key, checkpoint->signature);
	return text_take(&text, retjson);
}

int abox_journal_checkpoint(
	abox_journal *journal, const char *private_key, char **retcheckpoint, abox_error **reterr)
{
	struct journal_entry entry = { .type = "journal.checkpoint" };
	struct checkpoint checkpoint = { .time_usec = 0 };
	_cleanup_(freep) char *json = NULL;
	uint64_t seq = 0;
	int r;

	r = journal_check(journal, true, reterr);
	if (r < 0)
		return r;
	if (!private_key || !retcheckpoint)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_JOURNAL, NULL,
			"a key and retcheckpoint are required");
	r = journal_look(journal, NULL, NULL, &seq, reterr);
	if (r == 0)
		r = journal_sync(journal, seq, ABOX_DURABILITY_DATA, reterr);
	if (r == 0)
		r = abox_journal_get_position(journal, &checkpoint.seq, checkpoint.hash, reterr);
	if (r < 0)
		return r;
	memcpy(checkpoint.journal, journal->identity.id, sizeof(checkpoint.journal));
	checkpoint.time_usec = clock_wall_usec();
	r = checkpoint_sign(&checkpoint, private_key, reterr);
	if (r == 0)
		r = checkpoint_print(&checkpoint, &json);
	if (r < 0)
		return r;
	entry.body = json;
	r = journal_append_durable(journal, &entry, NULL, reterr);
	if (r < 0)
		return r;
	*retcheckpoint = steal_ptr(json);
	return 0;
}
