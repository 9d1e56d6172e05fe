/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Providers of kind `callback`: questions go to whoever serves the box, over a socket that came from there. Nobody
 * waits for it but those who need the answer: the minter goes on with other credentials meanwhile. Who has asked is
 * refused when time is up; a value that comes later still belongs to the slot, so that it can be taken back.
 *
 * What comes from the harness is checked: a mistake there must not become a header in a request.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "credential/minter.h"

#define WHY_MAX 256

static uint8_t packet[MINTER_PACKET_MAX];

static const char *nobody(const struct minter *minter)
{
	return minter->harness_was ? "the program that serves it is gone" : "no program serves it";
}

static struct question **find(struct minter *minter, uint32_t serial)
{
	struct question **link = &minter->questions;

	while (*link && (*link)->serial != serial)
		link = &(*link)->next;
	return link;
}

static void forget(struct question **link)
{
	struct question *question = *link;

	*link = question->next;
	while (question->askers) {
		struct asker *asker = question->askers;

		question->askers = asker->next;
		free(asker);
	}
	free(question);
}

static void refuse_all(struct question *question, const char *why)
{
	for (struct asker *asker = question->askers; asker; asker = asker->next)
		minter_refuse(asker->serial, why);
}

static bool add_asker(struct question *question, uint32_t serial)
{
	struct asker *asker = calloc(1, sizeof(*asker));

	if (!asker)
		return false;
	asker->serial = serial;
	asker->deadline_usec = clock_deadline(clock_monotonic_usec(), MINT_SECONDS * USEC_PER_SEC);
	asker->next = question->askers;
	question->askers = asker;
	return true;
}

/* A question on its way, or NULL and the reason. */
static struct question *put(struct minter *minter, uint32_t type, size_t slot, const void *more, size_t more_len,
	const char **retwhy)
{
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));
	struct question *question;
	unsigned int seconds = type == PROVIDER_REVOKE ? REVOKE_SECONDS : MINT_SECONDS;
	int r = -EMSGSIZE;

	*retwhy = nobody(minter);
	if (minter->harness_fd < 0)
		return NULL;
	question = calloc(1, sizeof(*question));
	*retwhy = "no memory";
	if (!question)
		return NULL;
	question->serial = ++minter->serial;
	question->type = type;
	question->slot = slot;
	pack_u32(&writer, type);
	pack_u32(&writer, question->serial);
	pack_u64(&writer, seconds * USEC_PER_SEC);
	slot_pack_questions(&minter->slots[slot], &writer);
	if (!writer.failed && more_len <= sizeof(packet) - writer.len) {
		memcpy(packet + writer.len, more, more_len);
		/* a harness that takes no more is not waited for */
		r = socket_send_until(minter->harness_fd, packet, writer.len + more_len, NULL, 0, 0);
	}
	explicit_bzero(packet, sizeof(packet));
	if (r < 0) {
		free(question);
		*retwhy = r == -ETIMEDOUT ? "the program that serves it has too much to do" : nobody(minter);
		return NULL;
	}
	question->next = minter->questions;
	minter->questions = question;
	return question;
}

void harness_mint(struct minter *minter, size_t slot, uint32_t asker)
{
	struct question *question = minter->questions;
	const char *why = "no memory";

	/* Asked once for all who want it now. */
	while (question && (question->type != PROVIDER_MINT || question->slot != slot))
		question = question->next;
	if (!question)
		question = put(minter, PROVIDER_MINT, slot, "", 0, &why);
	if (!question || !add_asker(question, asker))
		minter_refuse(asker, why);
}

void harness_sign(struct minter *minter, size_t slot, uint32_t asker, const void *request, size_t len)
{
	const char *why;
	struct question *question = put(minter, PROVIDER_SIGN, slot, request, len, &why);

	if (!question)
		minter_refuse(asker, why);
	else if (!add_asker(question, asker))
		minter_refuse(asker, "no memory");
}

static void harness_gone(struct minter *minter, const char *why)
{
	minter->harness_fd = fd_close(minter->harness_fd);
	for (struct question **link = &minter->questions; *link;) {
		refuse_all(*link, why);
		if ((*link)->type == PROVIDER_REVOKE) { /* who waits for it frees it */
			(*link)->outcome = -1;
			(*link)->why = nobody(minter);
			link = &(*link)->next;
		} else {
			forget(link);
		}
	}
}

void harness_serve(struct minter *minter, int fd_taken, bool revokes)
{
	harness_gone(minter, "another program serves it now");
	minter->harness_fd = fd_taken;
	minter->harness_revokes = revokes;
	minter->harness_was = true;
}

/* -- answers -- */

static void take_value(struct minter *minter, struct question *question, struct pack_reader *reader)
{
	uint64_t life = unpack_u64(reader);
	size_t len, slot = question->slot;
	const void *value = unpack_bytes(reader, &len);
	struct minted minted;
	const char *why = "its answer cannot be read";

	if (!unpack_done(reader) || mint_given(&minter->slots[slot], value, len, life, &minted, &why) < 0) {
		refuse_all(question, why);
		return;
	}
	minted.revocable = minter->harness_revokes;
	minted_clear(&minter->minted[slot]);
	minter->minted[slot] = minted;
	/* Barred meanwhile: nobody gets it, and the loop takes it back. */
	if (minter->barred[slot])
		refuse_all(question, "it has been revoked");
	for (struct asker *asker = minter->barred[slot] ? NULL : question->askers; asker; asker = asker->next)
		minter_answer(MINTER_SECRET, asker->serial, minted.value, minted.len);
}

/* The reason is the harness's own; what could be read as something else is left out. */
static void take_refusal(struct question *question, struct pack_reader *reader)
{
	const char *text = unpack_string(reader);
	char why[WHY_MAX];
	size_t n = 0;

	for (; text[n] && n < sizeof(why) - 1; n++)
		why[n] = (unsigned char)text[n] < 0x20 || (unsigned char)text[n] > 0x7e ? ' ' : text[n];
	why[n] = 0;
	refuse_all(question, reader->failed || !n ? "the program that serves it gave none" : why);
}

static void take(struct minter *minter, size_t len)
{
	struct pack_reader reader = PACK_READER(packet, len);
	uint32_t type = unpack_u32(&reader), serial = unpack_u32(&reader);
	struct question **link = find(minter, serial), *question = *link;

	if (!question)
		return; /* nobody has asked, or nobody waits any more */
	if (question->type == PROVIDER_REVOKE) {
		question->outcome = type == PROVIDER_REVOKED ? 1 : -1;
		question->why = "the program that serves it could not";
		return;
	}
	if (type == PROVIDER_VALUE && question->type == PROVIDER_MINT) {
		take_value(minter, question, &reader);
	} else if (type == PROVIDER_FIELDS && question->type == PROVIDER_SIGN) {
		for (struct asker *asker = question->askers; asker; asker = asker->next)
			minter_answer_packed(MINTER_SIGNED, asker->serial, packet + reader.offset, len - reader.offset);
	} else if (type == PROVIDER_REFUSED) {
		take_refusal(question, &reader);
	} else {
		refuse_all(question, "its answer cannot be read");
	}
	forget(link);
}

/* One packet; false when there is none. */
static bool take_one(struct minter *minter)
{
	ssize_t n;

	if (minter->harness_fd < 0)
		return false;
	n = socket_recv_until(minter->harness_fd, packet, sizeof(packet), NULL, NULL, 0);
	if (n == -ETIMEDOUT)
		return false;
	if (n <= 0) {
		harness_gone(minter, "the program that serves it is gone");
		return false;
	}
	take(minter, (size_t)n);
	explicit_bzero(packet, sizeof(packet));
	return true;
}

void harness_ready(struct minter *minter)
{
	while (take_one(minter))
		;
}

/* Waited for, since what comes next may be the end of everything. */
int harness_revoke(struct minter *minter, size_t slot, const struct minted *minted, uint32_t drop, const char **retwhy)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), REVOKE_SECONDS * USEC_PER_SEC);
	struct pack_writer more = PACK_WRITER_INIT;
	struct question *question;
	int outcome;

	pack_u32(&more, drop);
	pack_bytes(&more, minted->value, minted->len);
	*retwhy = "no memory";
	question = more.failed ? NULL : put(minter, PROVIDER_REVOKE, slot, more.data, more.len, retwhy);
	if (more.data)
		explicit_bzero(more.data, more.len);
	pack_writer_clear(&more);
	if (!question)
		return -1;
	while (!question->outcome) {
		struct pollfd entry = { .fd = minter->harness_fd, .events = POLLIN };

		if (clock_monotonic_usec() >= deadline) {
			question->outcome = -1;
			question->why = "the program that serves it did not answer in time";
			break;
		}
		poll(&entry, 1, clock_poll_msec(clock_monotonic_usec(), deadline));
		take_one(minter);
	}
	outcome = question->outcome;
	*retwhy = question->why;
	forget(find(minter, question->serial));
	return outcome;
}

/* -- time -- */

uint64_t harness_next(const struct minter *minter)
{
	uint64_t next = UINT64_MAX;

	for (const struct question *question = minter->questions; question; question = question->next)
		for (const struct asker *asker = question->askers; asker; asker = asker->next)
			next = MIN(next, asker->deadline_usec);
	return next;
}

void harness_late(struct minter *minter)
{
	uint64_t now = clock_monotonic_usec();

	for (struct question **link = &minter->questions; *link;) {
		struct question *question = *link;

		for (struct asker **at = &question->askers; *at;) {
			struct asker *asker = *at;

			if (now < asker->deadline_usec) {
				at = &asker->next;
				continue;
			}
			minter_refuse(asker->serial, "the program that serves it did not answer in time");
			*at = asker->next;
			free(asker);
		}
		if (!question->askers && question->type == PROVIDER_SIGN)
			forget(link);
		else
			link = &question->next;
	}
}
