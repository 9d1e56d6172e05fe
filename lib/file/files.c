/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names: what is there, made, renamed, removed. What is in files is content.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/files.h"
#include "workspace/changes.h"

struct abox_file_list {
	abox_files *files;
	uint32_t place;
	bool begun, end;
	uint64_t n_read;
	uint32_t n_left;	/* in the answer at hand */
	uint8_t *answer;	/* a copy: other calls come between */
	struct pack_reader reader;
};

static int require(bool fine, abox_error **reterr, const char *what)
{
	return fine ? 0 : error_set(reterr, ABOX_E_INVALID, FILE_STAGE, NULL, "%s", what);
}

static int check(
	const abox_files *files, const char *path, uint32_t flags, uint32_t known, const void *ret, abox_error **reterr)
{
	return require(files && path && ret && !(flags & ~known), reterr,
		"files, a path, flags that are known, and a place for the answer are required");
}

static void give_entry(const struct file_entry *from, const char *name, struct abox_file_entry *ret)
{
	const struct abox_file_entry entry = {
		.size = ret->size,
		.name = name,
		.target = from->target[0] ? from->target : NULL,
		.type = file_type_of(from->mode),
		.mode = from->mode & 07777,
		.size_bytes = from->size,
		.allocated_bytes = from->allocated,
		.modified_sec = from->seconds,
		.modified_nsec = from->nanoseconds,
		.uid = from->uid,
		.gid = from->gid,
		.n_links = from->n_links,
	};

	memcpy(ret, &entry, MIN(ret->size, sizeof(entry)));
}

int files_stat(abox_files *files, uint32_t place, const char *path, bool follow, struct file_entry *ret,
	abox_error **reterr)
{
	struct pack_writer writer;

	files_begin(files, &writer, FILE_STAT);
	pack_u32(&writer, place);
	pack_string(&writer, path);
	pack_u8(&writer, follow);
	return files_call_entry(files, &writer, NULL, ret, reterr);
}

int files_open_place(abox_files *files, uint32_t place, const char *path, uint32_t *retnumber, struct file_entry *ret,
	abox_error **reterr)
{
	struct pack_writer writer;
	int r;

	files_begin(files, &writer, FILE_OPEN);
	pack_u32(&writer, place);
	pack_string(&writer, path);
	r = files_call_entry(files, &writer, retnumber, ret, reterr);
	return r == 0 && !S_ISDIR(ret->mode) ? files_protocol(files, reterr) : r;
}

int files_list(abox_files *files, uint32_t place, bool restart, bool *retend, uint32_t *retn, struct pack_reader *retreader,
	abox_error **reterr)
{
	struct pack_writer writer;
	int r;

	files_begin(files, &writer, FILE_LIST);
	pack_u32(&writer, place);
	pack_u8(&writer, restart);
	r = files_call(files, &writer, NULL, retreader, reterr);
	if (r < 0)
		return r;
	*retend = unpack_u8(retreader);
	*retn = unpack_u32(retreader);
	/* an answer without an entry that is not the end would be asked for again for ever */
	if (retreader->failed || (*retn == 0 && !*retend))
		return files_protocol(files, reterr);
	return 0;
}

int files_next_entry(abox_files *files, struct pack_reader *reader, const char **retname, struct file_entry *ret,
	abox_error **reterr)
{
	*retname = unpack_string(reader);
	file_entry_unpack(ret, reader);
	/* Security: a name that leads anywhere is no name */
	return reader->failed || !file_name_is_good(*retname) ? files_protocol(files, reterr) : 0;
}

int abox_files_stat(abox_files *files, const char *path, uint32_t flags, struct abox_file_entry *ret, abox_error **reterr)
{
	struct file_entry entry;
	char *name;
	int r;

	r = check(files, path, flags, ABOX_FILE_NO_FOLLOW, ret, reterr);
	if (r == 0)
		r = files_stat(files, 0, path, !(flags & ABOX_FILE_NO_FOLLOW), &entry, reterr);
	if (r < 0)
		return r;
	name = strdup(path);
	if (!name)
		return ABOX_E_MEMORY;
	free(files->name);
	files->name = name;
	give_entry(&entry, name, ret);
	return 0;
}

int abox_files_list(abox_files *files, const char *path, abox_file_list **ret, abox_error **reterr)
{
	struct file_entry entry;
	abox_file_list *list;
	int r;

	r = check(files, path, 0, 0, ret, reterr);
	if (r < 0)
		return r;
	list = calloc(1, sizeof(*list));
	if (list)
		list->answer = malloc(FILE_PACKET_MAX);
	if (!list || !list->answer) {
		free(list);
		return ABOX_E_MEMORY;
	}
	r = files_open_place(files, 0, path, &list->place, &entry, reterr);
	if (r < 0) {
		free(list->answer);
		free(list);
		return r;
	}
	list->files = abox_files_ref(files);
	*ret = list;
	return 0;
}

static int fetch(abox_file_list *list, abox_error **reterr)
{
	struct pack_reader reader;
	int r;

	r = files_list(list->files, list->place, !list->begun, &list->end, &list->n_left, &reader, reterr);
	if (r < 0)
		return r;
	list->begun = true;
	memcpy(list->answer, reader.data, reader.len);
	list->reader = reader;
	list->reader.data = list->answer;
	return 0;
}

int abox_file_list_next(abox_file_list *list, struct abox_file_entry *ret, abox_error **reterr)
{
	struct file_entry entry;
	const char *name = NULL;
	int r;

	r = require(list && ret, reterr, "a list and a place for the answer are required");
	while (r == 0 && list->n_left == 0) {
		if (list->end)
			return 0;
		r = fetch(list, reterr);
	}
	if (r == 0 && ++list->n_read > FILE_MAX_ENTRIES)
		r = error_set(reterr, ABOX_E_LIMIT, FILE_STAGE, NULL, "the folder has no end");
	if (r == 0)
		r = files_next_entry(list->files, &list->reader, &name, &entry, reterr);
	if (r < 0)
		return r;
	list->n_left--;
	if (list->n_left == 0 && list->reader.offset != list->reader.len)
		return files_protocol(list->files, reterr);
	give_entry(&entry, name, ret);
	return 1;
}

abox_file_list *abox_file_list_free(abox_file_list *list)
{
	if (!list)
		return NULL;
	files_close_number(list->files, list->place);
	abox_files_unref(list->files);
	free(list->answer);
	free(list);
	return NULL;
}

int abox_files_make_folder(abox_files *files, const char *path, uint32_t flags, uint32_t mode, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	r = check(files, path, flags, ABOX_FILE_PARENTS, path, reterr);
	if (r < 0)
		return r;
	files_begin(files, &writer, FILE_MAKE_FOLDER);
	pack_u32(&writer, 0);
	pack_string(&writer, path);
	pack_u32(&writer, mode);
	pack_u8(&writer, (flags & ABOX_FILE_PARENTS) != 0);
	r = files_call(files, &writer, NULL, &reader, reterr);
	if (r < 0)
		return r;
	unpack_u8(&reader);
	return unpack_done(&reader) ? 0 : files_protocol(files, reterr);
}

int abox_files_rename(abox_files *files, const char *from, const char *to, uint32_t flags, abox_error **reterr)
{
	struct pack_writer writer;
	int r;

	r = check(files, from, flags, ABOX_FILE_NEW, to, reterr);
	if (r < 0)
		return r;
	files_begin(files, &writer, FILE_RENAME);
	pack_string(&writer, from);
	pack_string(&writer, to);
	pack_u8(&writer, !(flags & ABOX_FILE_NEW));
	return files_call_plain(files, &writer, reterr);
}

int abox_files_remove(abox_files *files, const char *path, uint32_t flags, const struct abox_copy_options *options,
	abox_error **reterr)
{
	_cleanup_(copying_clear) struct copying copying = { 0 };
	struct pack_writer writer;
	struct pack_reader reader;
	int r;

	r = check(files, path, flags, ABOX_FILE_RECURSIVE, path, reterr);
	if (r == 0)
		r = copying_begin(&copying, files, options, reterr);
	if (r < 0)
		return r;
	files_begin(files, &writer, FILE_REMOVE);
	pack_u32(&writer, 0);
	pack_string(&writer, path);
	pack_u8(&writer, (flags & ABOX_FILE_RECURSIVE) != 0);
	r = files_call(files, &writer, &copying.progress, &reader, reterr);
	return r == 0 && !unpack_done(&reader) ? files_protocol(files, reterr) : r;
}
