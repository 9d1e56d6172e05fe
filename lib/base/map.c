/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A chained hash table with borrowed keys. It grows and never shrinks; a failed growth only makes it slower.
 */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <agentbox/error.h>

struct map_entry {
	struct map_entry *next;
	const void *key;
	size_t len;
	uint64_t hash;
	void *value;
};

/* FNV-1a with a random start, stirred at the end so that the low bits depend on all of it. */
static uint64_t map_hash(const struct map *map, const void *key, size_t len)
{
	const unsigned char *bytes = key;
	uint64_t hash = 0xcbf29ce484222325ULL ^ map->seed;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
	hash ^= hash >> 32;
	hash *= 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 29);
}

static struct map_entry **map_find(const struct map *map, const void *key, size_t len)
{
	uint64_t hash = map_hash(map, key, len);
	struct map_entry **at = &map->buckets[hash & (map->n_buckets - 1)];

	for (; *at; at = &(*at)->next)
		if ((*at)->hash == hash && (*at)->len == len && memcmp((*at)->key, key, len) == 0)
			break;
	return at;
}

static void map_grow(struct map *map)
{
	size_t n = map->n_buckets ? map->n_buckets * 2 : 16;
	struct map_entry **buckets = calloc(n, sizeof(*buckets)), *entry, *next;

	if (!buckets)
		return;
	if (!map->n_buckets && getrandom(&map->seed, sizeof(map->seed), GRND_NONBLOCK) < 0)
		map->seed = (uint64_t)(uintptr_t)buckets;
	for (size_t i = 0; i < map->n_buckets; i++)
		for (entry = map->buckets[i]; entry; entry = next) {
			next = entry->next;
			entry->next = buckets[entry->hash & (n - 1)];
			buckets[entry->hash & (n - 1)] = entry;
		}
	free(map->buckets);
	map->buckets = buckets;
	map->n_buckets = n;
}

void *map_get(const struct map *map, const void *key, size_t len)
{
	struct map_entry *entry;

	if (!map->n_buckets)
		return NULL;
	entry = *map_find(map, key, len);
	return entry ? entry->value : NULL;
}

void *map_get_string(const struct map *map, const char *key)
{
	return map_get(map, key, strlen(key));
}

int map_put(struct map *map, const void *key, size_t len, void *value)
{
	struct map_entry **at, *entry;

	if (map->count >= map->n_buckets)
		map_grow(map);
	if (!map->n_buckets)
		return ABOX_E_MEMORY;
	at = map_find(map, key, len);
	if (*at)
		return ABOX_E_EXISTS;
	entry = calloc(1, sizeof(*entry));
	if (!entry)
		return ABOX_E_MEMORY;
	*entry = (struct map_entry){.key = key, .len = len, .hash = map_hash(map, key, len), .value = value};
	*at = entry;
	map->count++;
	return 0;
}

int map_put_string(struct map *map, const char *key, void *value)
{
	return map_put(map, key, strlen(key), value);
}

void *map_remove(struct map *map, const void *key, size_t len)
{
	struct map_entry **at, *entry;
	void *value;

	if (!map->n_buckets)
		return NULL;
	at = map_find(map, key, len);
	entry = *at;
	if (!entry)
		return NULL;
	value = entry->value;
	*at = entry->next;
	free(entry);
	map->count--;
	return value;
}

void *map_remove_string(struct map *map, const char *key)
{
	return map_remove(map, key, strlen(key));
}

void map_clear(struct map *map)
{
	for (size_t i = 0; i < map->n_buckets; i++)
		for (struct map_entry *entry = map->buckets[i], *next; entry; entry = next) {
			next = entry->next;
			free(entry);
		}
	free(map->buckets);
	*map = MAP_INIT;
}
