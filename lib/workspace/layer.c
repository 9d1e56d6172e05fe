/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Layers on the disk: a folder with the files, the work folder that overlayfs wants beside it, and the
 * record. What is promised: a layer that is called frozen was read to the last byte and is on the disk. That
 * it is not written afterwards is kept by its users: a frozen layer is only ever mounted below another.
 */
#include "workspace/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "workspace/home.h"
#include "workspace/tree.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define MAX_CHAIN 100000U /* a bound against a circle, not a limit */

static void layer_path(const char *id, char ret[sizeof(HOME_LAYERS) + 1 + STORE_ID_BYTES])
{
	snprintf(ret, sizeof(HOME_LAYERS) + 1 + STORE_ID_BYTES, HOME_LAYERS "/%s", id);
}

int layer_open(int home_fd, const char *id, abox_error **reterr)
{
	char path[sizeof(HOME_LAYERS) + 1 + STORE_ID_BYTES];
	int fd;

	layer_path(id, path);
	fd = openat(home_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return error_set(reterr, ABOX_E_DAMAGED, STAGE, path, "the layer is gone");
	if (fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, path, errno, "cannot open the layer");
	return fd;
}

int layer_open_data(int layer_fd, const char *id, int open_flags, abox_error **reterr)
{
	int fd = openat(layer_fd, "data", open_flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return error_set_errno(reterr, errno == ENOENT ? ABOX_E_DAMAGED : ABOX_E_SYSTEM, STAGE, id,
			errno, "cannot open the files of the layer");
	return fd;
}

/* The root of a layer is what the box sees as its workspace. */
static int dress_root(int data_fd, const struct layer_ids *ids, int model_fd)
{
	struct stat st = {.st_mode = 0755};

	if (model_fd >= 0 && fstat(model_fd, &st) < 0)
		return -errno;
	if (ids->kind == LAYER_IDS_RANGE && fchown(data_fd, layer_uid_on_disk(ids, ids->inside_uid),
						    layer_gid_on_disk(ids, ids->inside_gid)) < 0)
		return -errno;
	return fchmod(data_fd, (st.st_mode & 01777) | 0700) < 0 ? -errno : 0;
}

static int make_layer(int home_fd, char retid[STORE_ID_BYTES], abox_error **reterr)
{
	char path[sizeof(HOME_LAYERS) + 1 + STORE_ID_BYTES];
	int r;

	r = home_new_id(retid, reterr);
	if (r < 0)
		return r;
	layer_path(retid, path);
	return home_make_folder(home_fd, path, false, reterr);
}

static int sync_layers(int home_fd, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = home_make_folder(home_fd, HOME_LAYERS, true, reterr);

	return fd < 0 ? fd : home_sync_folder(fd, HOME_LAYERS, reterr);
}

int layer_new_live(int home_fd, enum layer_flavour flavour, const struct layer_ids *ids, int model_fd,
	char retid[STORE_ID_BYTES], abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = -EBADF, data_fd = -EBADF, work_fd = -EBADF;
	struct layer_record record = {.flavour = flavour, .ids = *ids};
	int r;

	layer_fd = make_layer(home_fd, record.id, reterr);
	if (layer_fd < 0)
		return layer_fd;
	data_fd = home_make_folder(layer_fd, "data", false, reterr);
	if (data_fd < 0)
		return data_fd;
	work_fd = home_make_folder(layer_fd, "work", false, reterr);
	if (work_fd < 0)
		return work_fd;
	r = dress_root(data_fd, ids, model_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, STAGE, record.id, -r, "cannot give the layer to the box");
	if (fsync(data_fd) < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, record.id, errno, "cannot sync the layer");
	r = layer_record_write(layer_fd, &record, reterr);
	if (r < 0)
		return r;
	r = sync_layers(home_fd, reterr);
	if (r < 0)
		return r;
	memcpy(retid, record.id, STORE_ID_BYTES);
	return 0;
}

int layer_reset_work(int layer_fd, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	r = path_remove_tree(layer_fd, "work");
	if (r < 0 && r != -ENOENT)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, STAGE, "work", -r, "cannot clear the work folder");
	fd = home_make_folder(layer_fd, "work", true, reterr);
	return fd < 0 ? fd : 0;
}

void layer_chain_clear(struct layer_chain *chain)
{
	free(chain->records);
	*chain = (struct layer_chain){0};
}

static int read_one(int home_fd, const char *id, enum layer_flavour flavour, struct layer_record *ret,
	abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = layer_open(home_fd, id, reterr);
	int r;

	if (fd < 0)
		return fd;
	r = layer_record_read(fd, ret, reterr);
	if (r == ABOX_E_NOT_FOUND)
		return error_set(reterr, ABOX_E_DAMAGED, STAGE, id, "the layer has no record");
	if (r < 0)
		return error_prefix(reterr, r, "layer %s", id);
	/* Security: in the other flavour an attribute that the box wrote would count as a mark. */
	if (strcmp(ret->id, id) != 0 || !ret->frozen || ret->flavour != flavour)
		return error_set(reterr, ABOX_E_DAMAGED, STAGE, id, "the record of the layer is another's");
	return 0;
}

int layer_chain_read(
	int home_fd, const char *id, enum layer_flavour flavour, struct layer_chain *ret, abox_error **reterr)
{
	_cleanup_(layer_chain_clear) struct layer_chain chain = {0};
	char next[STORE_ID_BYTES];
	size_t allocated = 0;

	memcpy(next, id, STORE_ID_BYTES);
	while (next[0]) {
		struct layer_record *records;
		int r;

		if (chain.n == MAX_CHAIN)
			return error_set(reterr, ABOX_E_DAMAGED, STAGE, id, "the layers go in a circle");
		if (chain.n == allocated) {
			allocated = allocated ? allocated * 2 : 32;
			records = reallocarray(chain.records, allocated, sizeof(*records));
			if (!records)
				return ABOX_E_MEMORY;
			chain.records = records;
		}
		r = read_one(home_fd, next, flavour, &chain.records[chain.n], reterr);
		if (r < 0)
			return r;
		memcpy(next, chain.records[chain.n++].parent, STORE_ID_BYTES);
	}
	*ret = chain;
	chain = (struct layer_chain){0};
	return 0;
}

int layer_seal(int layer_fd, struct layer_record *record, abox_error **reterr)
{
	_cleanup_(fd_closep) int data_fd = -EBADF;
	struct tree_seal seal;
	int r;

	data_fd = layer_open_data(layer_fd, record->id, O_RDONLY, reterr);
	if (data_fd < 0)
		return data_fd;
	r = tree_seal(data_fd, "layer", true, &seal, reterr);
	if (r < 0)
		return r;
	record->frozen = true;
	record->n_entries = seal.n_entries - 1; /* the root is no change */
	record->n_bytes = seal.n_bytes;
	memcpy(record->digest, seal.digest, sizeof(record->digest));
	return 0;
}

int layer_check(int home_fd, const char *id, abox_error **reterr)
{
	_cleanup_(fd_closep) int layer_fd = layer_open(home_fd, id, reterr), data_fd = -EBADF;
	struct layer_record record;
	struct tree_seal seal;
	int r;

	if (layer_fd < 0)
		return layer_fd;
	r = layer_record_read(layer_fd, &record, reterr);
	if (r < 0)
		return r;
	data_fd = layer_open_data(layer_fd, id, O_RDONLY, reterr);
	if (data_fd < 0)
		return data_fd;
	r = tree_seal(data_fd, "layer", false, &seal, reterr);
	if (r < 0)
		return r;
	if (!record.frozen || strcmp(seal.digest, record.digest) != 0)
		return error_set(
			reterr, ABOX_E_DAMAGED, STAGE, id, "the files of the layer are not what they were");
	return 0;
}

int layer_build_begin(struct layer_build *ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int store_lock_fd = -EBADF;
	struct layer_build build = LAYER_BUILD_INIT;
	int r;

	build.flavour = layer_flavour_of_process();
	layer_ids_of_process(geteuid(), getegid(), &build.ids);
	build.store_fd = home_open(reterr);
	if (build.store_fd < 0)
		return build.store_fd;
	/* So that gc finds it locked from the first moment on. */
	r = home_lock_store(build.store_fd, &store_lock_fd, reterr);
	if (r >= 0)
		r = build.dir_fd = make_layer(build.store_fd, build.id, reterr);
	if (r >= 0)
		r = home_lock(build.dir_fd, "lock", true, 0, &build.lock_fd, reterr);
	if (r >= 0)
		r = build.data_fd = home_make_folder(build.dir_fd, "data", false, reterr);
	if (r >= 0 && mkdirat(build.dir_fd, "work", 0700) < 0)
		r = error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, "work", errno, "cannot make the folder");
	if (r >= 0) {
		r = dress_root(build.data_fd, &build.ids, -EBADF);
		if (r < 0)
			r = error_set_errno(reterr, ABOX_E_SYSTEM, STAGE, build.id, -r,
				"cannot give the layer to the box");
	}
	if (r < 0)
		layer_build_clear(&build);
	else
		*ret = build;
	return r < 0 ? r : 0;
}

void layer_discard(int home_fd, const char *id)
{
	char path[sizeof(HOME_LAYERS) + 1 + STORE_ID_BYTES];

	layer_path(id, path);
	if (home_discard(home_fd, home_fd, path, NULL) >= 0)
		home_empty_trash(home_fd, NULL, NULL);
}

void layer_build_clear(struct layer_build *build)
{
	if (build->dir_fd >= 0)
		layer_discard(build->store_fd, build->id);
	fd_close(build->data_fd);
	fd_close(build->dir_fd);
	fd_close(build->lock_fd);
	fd_close(build->store_fd);
	*build = LAYER_BUILD_INIT;
}

void layer_build_taken(struct layer_build *build)
{
	build->dir_fd = fd_close(build->dir_fd);
}

int layer_build_freeze(struct layer_build *build, struct layer_record *record, abox_error **reterr)
{
	int r;

	memcpy(record->id, build->id, STORE_ID_BYTES);
	record->flavour = build->flavour;
	record->ids = build->ids;
	r = layer_seal(build->dir_fd, record, reterr);
	if (r < 0)
		return r;
	r = layer_record_write(build->dir_fd, record, reterr);
	if (r < 0)
		return r;
	return sync_layers(build->store_fd, reterr);
}
