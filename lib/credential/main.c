/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The minter of a box: mints its credentials when egress asks, keeps them until shortly before they expire, and ends
 * with egress; then every value that can be taken back is, and all are overwritten. It runs as who started the box,
 * whose programs and files it uses; nothing of the box reaches it but the name of a slot, and where requests are
 * signed these, by way of egress. Programs run one after the other; a harness is asked without waiting (harness.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <agentbox/credential.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/socket.h"
#include "credential/minter.h"

#define LIBRARY_FD 3
#define EGRESS_FD 4
#define SET_UP_MAX (4U << 20)

static uint8_t packet[MINTER_PACKET_MAX];

static void answer_library(uint32_t serial, struct fault *fault)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, fault->code < 0 ? MINTER_FAULT : MINTER_OK);
	pack_u32(&writer, serial);
	if (fault->code < 0)
		fault_pack(fault, &writer);
	if (!writer.failed)
		socket_send(LIBRARY_FD, writer.data, writer.len, NULL, 0);
}

static int take(struct minter *minter, int fd, struct fault *fault)
{
	struct pack_reader reader;
	const void *data;
	uint32_t n;
	size_t len;

	/* Mapped until the end: slots and environment point into it. */
	if (memfd_map_sealed(fd, SET_UP_MAX, &data, &len) < 0)
		return fault_set(
			fault, ABOX_E_PROTOCOL, 0, "minter", "library and minter do not fit together");
	reader = PACK_READER(data, len);
	minter->slots = slots_unpack(&reader, &minter->n_slots);
	n = minter->slots ? unpack_count(&reader, 5) : 0;
	minter->environment = calloc((size_t)n + 1, sizeof(*minter->environment));
	if (!minter->slots || !minter->environment)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "minter", "the slots cannot be read");
	for (uint32_t i = 0; i < n; i++)
		minter->environment[i] = unpack_string(&reader);
	if (!unpack_done(&reader))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "minter", "the slots cannot be read");
	return 0;
}

static int open_slots(struct minter *minter)
{
	int fds[SOCKET_MAX_FDS];
	struct pack_reader reader;
	uint32_t type, serial, version;
	struct fault fault;
	size_t n_fds = 0;
	ssize_t n;

	n = socket_recv(LIBRARY_FD, packet, sizeof(packet), fds, &n_fds);
	if (n <= 0)
		return -EPIPE;
	reader = PACK_READER(packet, (size_t)n);
	type = unpack_u32(&reader);
	serial = unpack_u32(&reader);
	version = unpack_u32(&reader);
	fault_init(&fault, ABOX_STAGE_CREDENTIAL);
	if (type != MINTER_OPEN || version != MINTER_VERSION || !unpack_done(&reader) || n_fds != 1)
		fault_set(&fault, ABOX_E_PROTOCOL, 0, "minter", "library and minter do not fit together");
	else
		take(minter, fds[0], &fault);
	for (size_t i = 0; i < n_fds; i++)
		fd_close(fds[i]);
	answer_library(serial, &fault);
	fd_close(LIBRARY_FD);
	return fault.code;
}

/* -- to egress -- */

static void answer_egress(const struct pack_writer *writer, const void *more, size_t len)
{
	if (!writer->failed && len <= sizeof(packet) - writer->len) {
		memcpy(packet + writer->len, more, len);
		socket_send(EGRESS_FD, packet, writer->len + len, NULL, 0);
	}
	explicit_bzero(packet, sizeof(packet));
}

void minter_answer(uint32_t type, uint32_t serial, const void *data, size_t len)
{
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));

	pack_u32(&writer, type);
	pack_u32(&writer, serial);
	pack_bytes(&writer, data, len);
	answer_egress(&writer, "", 0);
}

void minter_answer_packed(uint32_t type, uint32_t serial, const void *packed, size_t len)
{
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));

	pack_u32(&writer, type);
	pack_u32(&writer, serial);
	answer_egress(&writer, packed, len);
}

void minter_refuse(uint32_t serial, const char *why)
{
	minter_answer(MINTER_REFUSED, serial, why, strlen(why));
}

static void tell_dropped(const struct minter *minter, size_t slot, uint32_t drop, const char *wrong)
{
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));

	pack_u32(&writer, MINTER_DROPPED);
	pack_u32(&writer, 0);
	pack_string(&writer, minter->slots[slot].name);
	pack_u32(&writer, drop);
	pack_string(&writer, wrong);
	answer_egress(&writer, "", 0);
}

/* -- values -- */

/*
 * Takes a value back where somebody can, tells of it, and overwrites it. 1 taken back, 0 nothing to do, -1 it could not
 * be. The value is the slot's no longer: while a harness is asked it may give the next one.
 */
static int drop_value(struct minter *minter, size_t slot, struct minted *minted, uint32_t drop)
{
	static const char *const words[] = { [ABOX_CREDENTIAL_ASKED] = "asked",
		[ABOX_CREDENTIAL_RENEWED] = "renewed",
		[ABOX_CREDENTIAL_END] = "end" };
	const char *why = "";
	int r = 0;

	if (minted->value && minted->revocable && drop < ELEMENTSOF(words)) {
		if (minter->slots[slot].kind == SLOT_CALLBACK)
			r = harness_revoke(minter, slot, minted, drop, &why);
		else
			r = mint_revoke(&minter->slots[slot], minter->environment, minted, words[drop], &why);
		r = r < 0 ? -1 : 1;
		tell_dropped(minter, slot, drop, r < 0 ? why : "");
	}
	minted_clear(minted);
	return r;
}

static int drop_slot(struct minter *minter, size_t slot, uint32_t drop)
{
	struct minted minted = minter->minted[slot];

	minter->minted[slot] = (struct minted){ 0 };
	return drop_value(minter, slot, &minted, drop);
}

static bool find_slot(const struct minter *minter, const char *name, size_t *ret)
{
	for (size_t i = 0; i < minter->n_slots; i++) {
		if (strcmp(minter->slots[i].name, name) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

static void ask(struct minter *minter, uint32_t serial, size_t slot)
{
	struct minted *minted = &minter->minted[slot], old = { 0 };
	const char *why = "no memory";

	if (minted->value && clock_monotonic_usec() >= minted->until_usec) {
		/* Taken back when the next one is there: whoever waits does not wait for that. */
		old = *minted;
		*minted = (struct minted){ 0 };
	}
	if (minted->value) {
		minter_answer(MINTER_SECRET, serial, minted->value, minted->len);
	} else if (minter->slots[slot].kind == SLOT_CALLBACK) {
		harness_mint(minter, slot, serial);
	} else if (mint(&minter->slots[slot], minter->environment, minted, &why) == 0) {
		minter_answer(MINTER_SECRET, serial, minted->value, minted->len);
	} else {
		minter_refuse(serial, why);
	}
	drop_value(minter, slot, &old, ABOX_CREDENTIAL_RENEWED);
}

static void tell_done(uint32_t serial, const char *const *done, const char *const *failed)
{
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));

	pack_u32(&writer, MINTER_DONE);
	pack_u32(&writer, serial);
	pack_strings(&writer, done);
	pack_strings(&writer, failed);
	answer_egress(&writer, "", 0);
}

static void revoke_named(struct minter *minter, uint32_t serial, const char *name, bool for_good, uint32_t drop)
{
	const char *done[SLOTS_MAX + 1], *failed[SLOTS_MAX + 1];
	size_t n_done = 0, n_failed = 0;
	bool found = !name[0];

	for (size_t i = 0; i < minter->n_slots; i++) {
		int r;

		if (name[0] && strcmp(minter->slots[i].name, name) != 0)
			continue;
		found = true;
		minter->barred[i] = minter->barred[i] || for_good;
		r = drop_slot(minter, i, drop);
		if (r > 0)
			done[n_done++] = minter->slots[i].name;
		else if (r < 0)
			failed[n_failed++] = minter->slots[i].name;
	}
	if (!found) {
		minter_refuse(serial, "there is no such credential");
		return;
	}
	done[n_done] = failed[n_failed] = NULL;
	tell_done(serial, done, failed);
}

/* -- the loop -- */

static bool is_callback(const struct minter *minter)
{
	for (size_t i = 0; i < minter->n_slots; i++)
		if (minter->slots[i].kind == SLOT_CALLBACK)
			return true;
	return false;
}

static bool serve(struct minter *minter, size_t len, int *fds, size_t n_fds)
{
	struct pack_reader reader = PACK_READER(packet, len);
	uint32_t type = unpack_u32(&reader), serial = unpack_u32(&reader), drop;
	char name[256], *request;
	uint8_t flag;
	size_t slot;

	if (type == MINTER_SERVE) {
		flag = unpack_u8(&reader);
		if (!unpack_done(&reader) || n_fds != 1)
			return false;
		if (!is_callback(minter)) {
			minter_refuse(serial, "no credential of the box has a provider of kind \"callback\"");
			return true;
		}
		harness_serve(minter, steal_fd(fds[0]), flag);
		tell_done(serial, (const char *const[]){ NULL }, (const char *const[]){ NULL });
		return true;
	}
	snprintf(name, sizeof(name), "%s", unpack_string(&reader));
	if (type == MINTER_REVOKE) {
		flag = unpack_u8(&reader);
		drop = unpack_u32(&reader);
		if (!unpack_done(&reader))
			return false;
		revoke_named(minter, serial, name, flag, drop);
		return true;
	}
	if ((type != MINTER_ASK && type != MINTER_SIGN) || reader.failed || (type == MINTER_ASK && !unpack_done(&reader)))
		return false;
	if (!find_slot(minter, name, &slot)) {
		minter_refuse(serial, "there is no such credential");
	} else if (minter->barred[slot]) {
		minter_refuse(serial, "it has been revoked");
	} else if (type == MINTER_ASK) {
		ask(minter, serial, slot);
	} else if (minter->slots[slot].kind != SLOT_CALLBACK) {
		minter_refuse(serial, "its provider cannot sign");
	} else {
		len -= reader.offset;
		request = malloc(len + 1);
		if (request)
			memcpy(request, packet + reader.offset, len);
		if (request)
			harness_sign(minter, slot, serial, request, len);
		else
			minter_refuse(serial, "no memory");
		free(request);
	}
	return true;
}

static void loop(struct minter *minter)
{
	for (;;) {
		struct pollfd entries[2] = { { .fd = EGRESS_FD, .events = POLLIN },
			{ .fd = minter->harness_fd, .events = POLLIN } };
		int fds[SOCKET_MAX_FDS];
		size_t n_fds = 0;
		bool good;
		ssize_t n;

		if (poll(entries, 2, clock_poll_msec(clock_monotonic_usec(), harness_next(minter))) < 0 && errno != EINTR)
			return;
		harness_ready(minter);
		harness_late(minter);
		for (size_t i = 0; i < minter->n_slots; i++)
			if (minter->barred[i])
				drop_slot(minter, i, ABOX_CREDENTIAL_ASKED);
		if (!entries[0].revents)
			continue;
		n = socket_recv_until(EGRESS_FD, packet, sizeof(packet), fds, &n_fds, 0);
		if (n == -ETIMEDOUT)
			continue;
		if (n <= 0)
			return;
		good = serve(minter, (size_t)n, fds, n_fds);
		for (size_t i = 0; i < n_fds; i++)
			fd_close(fds[i]);
		if (!good)
			return;
	}
}

int main(void)
{
	static struct minter minter = { .harness_fd = -EBADF };
	struct rlimit none = { 0, 0 };

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_NAME, "agentbox-mint");
	setrlimit(RLIMIT_CORE, &none);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	fcntl(EGRESS_FD, F_SETFD, FD_CLOEXEC); /* what providers leave behind must not keep it open */
	if (open_slots(&minter) < 0)
		return 1;
	loop(&minter);
	for (size_t i = 0; i < minter.n_slots; i++)
		drop_slot(&minter, i, ABOX_CREDENTIAL_END);
	slots_free(minter.slots, minter.n_slots);
	return 0;
}
