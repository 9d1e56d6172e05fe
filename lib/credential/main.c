/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The minter of a box: mints its credentials when egress asks, one after the other, keeps them until shortly
 * before they expire, and ends with egress; then every value is overwritten. It runs as who started the box,
 * whose programs and files it uses; nothing of the box reaches it but the name of a slot, by way of egress.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "base/socket.h"
#include "credential/mint.h"
#include "credential/wire.h"

#define LIBRARY_FD 3
#define EGRESS_FD 4
#define SET_UP_MAX (4U << 20)

struct minter {
	struct slot *slots;
	size_t n_slots;
	struct minted minted[SLOTS_MAX];
	const char **environment;
};

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

static void answer(uint32_t type, uint32_t serial, const char *data, size_t len)
{
	struct pack_writer writer = PACK_WRITER_FIXED(packet, sizeof(packet));

	pack_u32(&writer, type);
	pack_u32(&writer, serial);
	pack_bytes(&writer, data, len);
	if (!writer.failed)
		socket_send(EGRESS_FD, writer.data, writer.len, NULL, 0);
	explicit_bzero(packet, writer.len);
}

static void serve(struct minter *minter, uint32_t serial, const char *name)
{
	const char *why = "there is no such credential";
	struct minted *minted = NULL;
	size_t i = 0;

	while (i < minter->n_slots && strcmp(minter->slots[i].name, name) != 0)
		i++;
	if (i < minter->n_slots) {
		minted = &minter->minted[i];
		if (!minted->value || clock_monotonic_usec() >= minted->until_usec) {
			minted_clear(minted);
			mint(&minter->slots[i], minter->environment, minted, &why);
		}
	}
	if (minted && minted->value)
		answer(MINTER_SECRET, serial, minted->value, minted->len);
	else
		answer(MINTER_REFUSED, serial, why, strlen(why));
}

static void loop(struct minter *minter)
{
	for (;;) {
		ssize_t n = socket_recv(EGRESS_FD, packet, sizeof(packet), NULL, NULL);
		struct pack_reader reader;
		uint32_t type, serial;
		char name[256];

		if (n <= 0)
			return;
		reader = PACK_READER(packet, (size_t)n);
		type = unpack_u32(&reader);
		serial = unpack_u32(&reader);
		snprintf(name, sizeof(name), "%s", unpack_string(&reader));
		if (type != MINTER_ASK || !unpack_done(&reader))
			return;
		serve(minter, serial, name);
	}
}

int main(void)
{
	static struct minter minter;
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
		minted_clear(&minter.minted[i]);
	slots_free(minter.slots, minter.n_slots);
	return 0;
}
