/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/macro.h"

/*
 * A hash table from byte strings to pointers. Keys are borrowed: they must live as long as the entry (usually the
 * value holds its key). Not for keys that an attacker picks in great number and with knowledge of the seed; the
 * seed is random for each table.
 */
struct map_entry;
struct map {
	struct map_entry **buckets;
	size_t n_buckets;
	size_t count;
	uint64_t seed;
};
#define MAP_INIT ((struct map){ 0 })

void *map_get(const struct map *map, const void *key, size_t len);
void *map_get_string(const struct map *map, const char *key);
int map_put(struct map *map, const void *key, size_t len, void *value);	/* 0, ABOX_E_EXISTS, ABOX_E_MEMORY */
int map_put_string(struct map *map, const char *key, void *value);
void *map_remove(struct map *map, const void *key, size_t len);		/* the value that was there, or NULL */
void *map_remove_string(struct map *map, const char *key);
void map_clear(struct map *map);					/* the values are the caller's */

#endif
