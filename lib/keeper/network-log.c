/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What happened on the network of a box, as egress tells it: for who follows, and for the journal. */
#include "keeper/network.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <agentbox/journal.h>

#include "base/clock.h"
#include "base/fd.h"

#define LOG_MAX (8U << 20) /* of events that are kept for who follows; the journal has all */

static struct {
	int fd;
	uint64_t bytes;
	bool full;
} network_log = { .fd = -EBADF };

void network_log_open(struct keeper *keeper)
{
	network_log.fd = openat(
		keeper->box_fd, STATE_NETWORK_LOG, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
}

void network_log_close(void)
{
	network_log.fd = fd_close(network_log.fd);
}

static void write_log(const char *type, const char *body)
{
	_cleanup_(text_clear) struct text line = TEXT_INIT;

	if (network_log.fd < 0 || network_log.full)
		return;
	network_log.full = network_log.bytes + strlen(body) > LOG_MAX;
	text_printf(&line, "{\"time_usec\":%llu,\"type\":\"%s\",\"event\":%s}\n",
		(unsigned long long)clock_wall_usec(), network_log.full ? "net.log_full" : type,
		network_log.full ? "{}" : body);
	if (line.failed || fd_write_all(network_log.fd, line.data, line.len) < 0)
		return;
	network_log.bytes += line.len;
}

static bool type_is_sound(const char *type)
{
	return (strncmp(type, "net.", 4) == 0 || strncmp(type, "credential.", 11) == 0) &&
	       strspn(type, "abcdefghijklmnopqrstuvwxyz._") == strlen(type) && strlen(type) < 40;
}

void network_tell(struct keeper *keeper, const char *type, const char *body, uint32_t durability)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	write_log(type, body);
	text_add(&text, body);
	record_event(keeper, type, &text, durability);
}

void network_event(struct keeper *keeper, struct pack_reader *reader)
{
	uint32_t durability = unpack_u32(reader);
	const char *type = unpack_string(reader), *body = unpack_string(reader);

	if (unpack_done(reader) && type_is_sound(type) && body[0] == '{' && !strchr(body, '\n'))
		network_tell(keeper, type, body, MIN(durability, (uint32_t)ABOX_DURABILITY_DATA));
}
