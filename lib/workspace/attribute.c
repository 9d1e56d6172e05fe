/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended attributes. Read and written by way of /proc/self/fd, since the calls that take a descriptor
 * refuse O_PATH and those that take a name would follow or race.
 */
#include "workspace/attribute.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/strings.h"

#define MAX_BYTES 65536 /* the kernel's bound for names and for a value */

static void self_path(int fd, char ret[40])
{
	snprintf(ret, 40, "/proc/self/fd/%d", fd);
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int attribute_list_read(int fd, struct attribute_list *ret)
{
	struct attribute_list list = {0};
	char self[40], *block;
	ssize_t len;

	*ret = (struct attribute_list){0};
	self_path(fd, self);
	len = listxattr(self, NULL, 0);
	if (len == 0 || (len < 0 && errno == ENOTSUP))
		return 0; /* the common case costs one call */
	list.block = malloc(MAX_BYTES + 1);
	if (!list.block)
		return -ENOMEM;
	len = len < 0 ? len : listxattr(self, list.block, MAX_BYTES);
	if (len < 0) {
		int r = -errno;

		attribute_list_clear(&list);
		return r;
	}
	list.block[len] = 0;
	for (block = list.block; block < list.block + len; block += strlen(block) + 1)
		list.n++;
	list.names = calloc(list.n + 1, sizeof(*list.names));
	if (!list.names) {
		attribute_list_clear(&list);
		return -ENOMEM;
	}
	block = list.block;
	for (size_t i = 0; i < list.n; i++, block += strlen(block) + 1)
		list.names[i] = block;
	qsort(list.names, list.n, sizeof(*list.names), compare);
	*ret = list;
	return 0;
}

void attribute_list_clear(struct attribute_list *list)
{
	free(list->block);
	free(list->names);
	*list = (struct attribute_list){0};
}

int attribute_read(int fd, const char *name, void **retvalue, size_t *retlen)
{
	_cleanup_(freep) char *value = NULL;
	char self[40];
	ssize_t len;

	self_path(fd, self);
	len = getxattr(self, name, NULL, 0);
	if (len < 0)
		return -errno;
	value = malloc((size_t)len + 1);
	if (!value)
		return -ENOMEM;
	len = getxattr(self, name, value, (size_t)len + 1);
	if (len < 0)
		return -errno;
	*retvalue = steal_ptr(value);
	*retlen = (size_t)len;
	return 0;
}

int attribute_write(int fd, const char *name, const void *value, size_t len)
{
	char self[40];

	self_path(fd, self);
	return setxattr(self, name, value, len, 0) < 0 ? -errno : 0;
}

bool attribute_is_portable(const char *name)
{
	/* Security: a raw mark in a layer hides files; a capability gives rights to whoever runs the file. */
	return string_starts_with(name, "user.") && !string_starts_with(name, "user.overlay.");
}
