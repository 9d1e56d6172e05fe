/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a layer is made of beside plain files: the marks of overlayfs, and whose ids its files carry.
 *
 * Security: marks are read and written in the flavour of the layer only. A file of the box may carry an
 * attribute of the other flavour; taken for a mark it would hide files of the base.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "workspace/store.h"

const char *layer_attribute_prefix(enum layer_flavour flavour)
{
	return flavour == LAYER_TRUSTED ? "trusted.overlay." : "user.overlay.";
}

static const char *opaque_name(enum layer_flavour flavour)
{
	return flavour == LAYER_TRUSTED ? "trusted.overlay.opaque" : "user.overlay.opaque";
}

bool layer_is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

int layer_is_opaque(int dir_fd, enum layer_flavour flavour)
{
	char self[40], value[4];
	ssize_t n;

	/* By way of /proc: attributes cannot be read from an O_PATH descriptor. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", dir_fd);
	n = getxattr(self, opaque_name(flavour), value, sizeof(value));
	if (n < 0)
		return errno == ENODATA || errno == ENOTSUP || errno == ERANGE ? 0 : -errno;
	return n == 1 && value[0] == 'y'; /* "x" marks a folder with whiteouts of another kind; not ours */
}

int layer_set_opaque(int dir_fd, enum layer_flavour flavour)
{
	char self[40];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", dir_fd);
	return setxattr(self, opaque_name(flavour), "y", 1, 0) < 0 ? -errno : 0;
}

int layer_make_whiteout(int dir_fd, const char *name)
{
	/* Anybody may make this one device (Linux 5.8). */
	return mknodat(dir_fd, name, S_IFCHR, makedev(0, 0)) < 0 ? -errno : 0;
}

/* Root of the machine, not of a container that maps a part of the ids: only then are there ids to give to a
 * box, and does the kernel take trusted attributes. */
bool layer_process_is_root(void)
{
	_cleanup_(freep) char *text = NULL;
	unsigned int inside, outside, count;
	size_t len;

	if (geteuid() != 0 || file_read_text(AT_FDCWD, "/proc/self/uid_map", 4096, &text, &len) < 0)
		return false;
	return sscanf(text, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 && outside == 0 &&
	       count == UINT32_MAX;
}

void layer_ids_of_process(uint32_t owner_uid, uint32_t owner_gid, struct layer_ids *ret)
{
	bool root = layer_process_is_root();

	*ret = (struct layer_ids){
		.kind = root ? LAYER_IDS_RANGE : LAYER_IDS_OWN,
		.base = root ? LAYER_RANGE_BASE : 0,
		.count = root ? LAYER_RANGE_COUNT : 1,
		.inside_uid = LAYER_INSIDE_ID,
		.inside_gid = LAYER_INSIDE_ID,
		.owner_uid = root ? owner_uid : geteuid(),
		.owner_gid = root ? owner_gid : getegid(),
	};
}

enum layer_flavour layer_flavour_of_process(void)
{
	return layer_process_is_root() ? LAYER_TRUSTED : LAYER_USER;
}

static uint32_t id_inside(const struct layer_ids *ids, uint32_t on_disk, uint32_t owner, uint32_t inside)
{
	if (ids->kind == LAYER_IDS_OWN)
		return on_disk == owner ? inside : UINT32_MAX;
	if (on_disk < ids->base || on_disk - ids->base >= ids->count)
		return UINT32_MAX;
	return on_disk - ids->base;
}

static uint32_t id_on_disk(const struct layer_ids *ids, uint32_t id, uint32_t owner, uint32_t inside)
{
	if (ids->kind == LAYER_IDS_OWN)
		return owner;
	return ids->base + (id < ids->count ? id : inside);
}

uint32_t layer_uid_inside(const struct layer_ids *ids, uint32_t uid_on_disk)
{
	return id_inside(ids, uid_on_disk, ids->owner_uid, ids->inside_uid);
}

uint32_t layer_gid_inside(const struct layer_ids *ids, uint32_t gid_on_disk)
{
	return id_inside(ids, gid_on_disk, ids->owner_gid, ids->inside_gid);
}

uint32_t layer_uid_on_disk(const struct layer_ids *ids, uint32_t uid_inside)
{
	return id_on_disk(ids, uid_inside, ids->owner_uid, ids->inside_uid);
}

uint32_t layer_gid_on_disk(const struct layer_ids *ids, uint32_t gid_inside)
{
	return id_on_disk(ids, gid_inside, ids->owner_gid, ids->inside_gid);
}

void layer_stack_clear(struct layer_stack *stack)
{
	fd_close(stack->top_fd);
	fd_close(stack->work_fd);
	for (size_t i = 0; i < stack->n_lowers; i++)
		fd_close(stack->lower_fds[i]);
	freep(&stack->lower_fds);
	*stack = LAYER_STACK_INIT;
}
