/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The table of names and their synthetic addresses. A name's place in the pool is a hash of it, or the next
 * free one behind; both addresses follow from the place. Nothing is ever taken out, so looking forward from
 * the hash finds it.
 */
#include "network/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define V6_NAMES 1U /* third last group of 32 bits: what tells a name's address from the cell's own */

static const uint8_t v6_prefix[8] = NAMES_V6_PREFIX;

struct names {
	size_t n;
	char *texts[NAMES_MAX];
	uint16_t at[NAMES_V4_SLOTS]; /* 0: free, else index + 1 */
};

struct names *names_new(void)
{
	return calloc(1, sizeof(struct names));
}

static void free_texts(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->texts[i]);
}

struct names *names_free(struct names *names)
{
	if (names)
		free_texts(names);
	free(names);
	return NULL;
}

void names_freep(struct names **names)
{
	*names = names_free(*names);
}

static bool is_letter_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool label_is_sound(const char *label, size_t len)
{
	if (len == 0 || len > NAMES_LABEL_MAX || label[0] == '-' || label[len - 1] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_letter_or_digit(label[i]) && label[i] != '-' && label[i] != '_')
			return false;
	return true;
}

/* As resolvers read addresses: what ends in 123 or 0x7f is one. */
static bool label_is_number(const char *label)
{
	if (label[0] == '0' && label[1] == 'x')
		return label[2 + strspn(label + 2, "0123456789abcdef")] == 0;
	return label[strspn(label, "0123456789")] == 0;
}

bool names_is_host(const char *name)
{
	const char *label = name, *dot;
	size_t n_labels = 1;

	if (strlen(name) > NAMES_TEXT_MAX)
		return false;
	while ((dot = strchr(label, '.'))) {
		if (!label_is_sound(label, (size_t)(dot - label)))
			return false;
		label = dot + 1;
		n_labels++;
	}
	return n_labels >= 2 && label_is_sound(label, strlen(label)) && !label_is_number(label) &&
	       strcmp(label, "localhost") != 0;
}

/* FNV-1a. A box that looks for collisions gets names that lie beside each other, no more. */
static uint32_t home_of(const char *name)
{
	uint32_t hash = 2166136261U;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619U;
	return NAMES_V4_RESERVED + hash % (NAMES_V4_SLOTS - NAMES_V4_RESERVED);
}

/* The place of a name, or the free one where it belongs. There are many more places than names. */
static uint32_t place_of(const struct names *names, const char *name)
{
	uint32_t slot = home_of(name);

	while (names->at[slot] && strcmp(names->texts[names->at[slot] - 1], name) != 0)
		slot = slot + 1 < NAMES_V4_SLOTS ? slot + 1 : NAMES_V4_RESERVED;
	return slot;
}

static void write_u32(uint8_t *ret, uint32_t value)
{
	ret[0] = (uint8_t)(value >> 24);
	ret[1] = (uint8_t)(value >> 16);
	ret[2] = (uint8_t)(value >> 8);
	ret[3] = (uint8_t)value;
}

static uint32_t read_u32(const uint8_t *data)
{
	return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

int names_add(struct names *names, const char *name, uint8_t ret4[4], uint8_t ret6[16])
{
	uint32_t slot;
	bool known;

	if (!names_is_host(name))
		return -EINVAL;
	slot = place_of(names, name);
	known = names->at[slot] != 0;
	if (!known) {
		if (names->n == NAMES_MAX)
			return -ENOSPC;
		names->texts[names->n] = strdup(name);
		if (!names->texts[names->n])
			return -ENOMEM;
		names->at[slot] = (uint16_t)++names->n;
	}
	if (ret4)
		write_u32(ret4, NAMES_V4_BASE + slot);
	if (ret6) {
		memcpy(ret6, v6_prefix, sizeof(v6_prefix));
		write_u32(ret6 + 8, V6_NAMES);
		write_u32(ret6 + 12, slot);
	}
	return known ? 0 : 1;
}

/* The place that an address stands for; 0, which is no name's, for one outside of the pools. */
static uint32_t slot_of(int family, const uint8_t *address)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint32_t slot;

	if (family == AF_INET6 && memcmp(address, mapped, sizeof(mapped)) == 0)
		return slot_of(AF_INET, address + 12);
	if (family == AF_INET) {
		slot = read_u32(address) - NAMES_V4_BASE;
	} else {
		if (memcmp(address, v6_prefix, sizeof(v6_prefix)) != 0 || read_u32(address + 8) != V6_NAMES)
			return 0;
		slot = read_u32(address + 12);
	}
	return slot >= NAMES_V4_RESERVED && slot < NAMES_V4_SLOTS ? slot : 0;
}

const char *names_find(const struct names *names, int family, const void *address)
{
	uint32_t slot = slot_of(family, address);

	return slot && names->at[slot] ? names->texts[names->at[slot] - 1] : NULL;
}

bool names_in_pool(int family, const void *address)
{
	return slot_of(family, address) != 0;
}

size_t names_count(const struct names *names)
{
	return names->n;
}

const char *names_get(const struct names *names, size_t i)
{
	return names->texts[i];
}

int names_restore(struct names *names, const void *data, size_t len)
{
	const char *at = data, *end = at + len, *line_end;
	char name[NAMES_TEXT_MAX + 1];
	int r = 1;

	/* each is new (1), or this is no such list */
	for (; r == 1 && at < end; at = line_end + 1) {
		line_end = memchr(at, '\n', (size_t)(end - at));
		if (!line_end || (size_t)(line_end - at) >= sizeof(name) ||
			memchr(at, 0, (size_t)(line_end - at))) {
			r = -EPROTO;
			break;
		}
		memcpy(name, at, (size_t)(line_end - at));
		name[line_end - at] = 0;
		r = names_add(names, name, NULL, NULL);
	}
	if (r == 1)
		return 0;
	free_texts(names);
	memset(names, 0, sizeof(*names));
	return r == -ENOMEM ? r : -EPROTO;
}
