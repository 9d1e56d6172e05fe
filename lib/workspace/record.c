/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Records as JSON files. What is promised: what was read was whole and well-formed, and a file that this
 * release does not understand is refused rather than half understood. Replacing is atomic
 * (home_replace_file()).
 */
#include "workspace/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "workspace/home.h"

#define STAGE ABOX_STAGE_WORKSPACE
#define WORKSPACE_FILE "workspace.json"
#define LAYER_FILE "layer.json"
#define MAX_BYTES (64U << 20)
#define MAX_SNAPSHOTS 100000U

static const char *const mode_names[] = {"overlay", "copy", "direct"};
static const char *const flavour_names[] = {"trusted", "user"};
static const char *const base_names[] = {"empty", "dir", "tar"};
static const char *const ids_names[] = {"own", "range"};

void workspace_base_clear(struct workspace_base *base)
{
	free(base->path);
	free(base->digest);
	*base = (struct workspace_base){0};
}

int workspace_base_copy(const struct workspace_base *base, struct workspace_base *ret)
{
	struct workspace_base copy = *base;

	copy.path = base->path ? strdup(base->path) : NULL;
	copy.digest = base->digest ? strdup(base->digest) : NULL;
	if ((base->path && !copy.path) || (base->digest && !copy.digest)) {
		workspace_base_clear(&copy);
		return ABOX_E_MEMORY;
	}
	*ret = copy;
	return 0;
}

void snapshot_record_clear(struct snapshot_record *snapshot)
{
	free(snapshot->name);
	*snapshot = (struct snapshot_record){0};
}

void workspace_record_clear(struct workspace_record *record)
{
	for (size_t i = 0; i < record->n_snapshots; i++)
		snapshot_record_clear(&record->snapshots[i]);
	free(record->snapshots);
	free(record->name);
	free(record->task);
	workspace_base_clear(&record->base);
	*record = (struct workspace_record){0};
}

/* Writing: members that are empty are left out. `failed` is looked at once. */
struct writer {
	struct json *object;
	bool failed;
};

static void put(struct writer *writer, const char *name, struct json *value)
{
	if (json_put_member(writer->object, name, value) < 0)
		writer->failed = true;
}

static void put_text(struct writer *writer, const char *name, const char *text)
{
	if (!string_empty(text))
		put(writer, name, json_new_string(text));
}

static void put_number(struct writer *writer, const char *name, uint64_t number)
{
	put(writer, name, json_new_integer((int64_t)number));
}

static void put_bound(struct writer *writer, const char *name, uint64_t number)
{
	if (number > 0)
		put_number(writer, name, number);
}

/* A path may hold any byte; JSON texts are UTF-8: as everywhere in the library, other bytes travel as U+DC80
 * and up, which a JSON text cannot hold either. So a path is kept in hexadecimal where it is not UTF-8. */
static void put_path(struct writer *writer, const char *path)
{
	struct json *value;
	char *hex;

	if (string_empty(path))
		return;
	value = json_new_string(path);
	if (value) {
		put(writer, "path", value);
		return;
	}
	hex = malloc(2 * strlen(path) + 1);
	if (hex)
		hex_encode(path, strlen(path), hex);
	put(writer, "path_hex", hex ? json_new_string(hex) : NULL);
	free(hex);
}

static int writer_take(struct writer *writer, struct json **ret)
{
	if (writer->failed || !writer->object) {
		json_unref(writer->object);
		return ABOX_E_MEMORY;
	}
	*ret = writer->object;
	return 0;
}

static struct json *ids_to_json(const struct layer_ids *ids)
{
	struct writer writer = {.object = json_new_object()};
	struct json *json = NULL;

	if (!writer.object)
		return NULL;
	put_text(&writer, "kind", ids_names[ids->kind]);
	put_number(&writer, "base", ids->base);
	put_number(&writer, "count", ids->count);
	put_number(&writer, "inside_uid", ids->inside_uid);
	put_number(&writer, "inside_gid", ids->inside_gid);
	put_number(&writer, "owner_uid", ids->owner_uid);
	put_number(&writer, "owner_gid", ids->owner_gid);
	return writer_take(&writer, &json) < 0 ? NULL : json;
}

static struct json *base_to_json(const struct workspace_base *base)
{
	struct writer writer = {.object = json_new_object()};
	struct json *json = NULL;

	if (!writer.object)
		return NULL;
	put_text(&writer, "kind", base_names[base->kind]);
	put_path(&writer, base->path);
	put_bound(&writer, "device", base->device);
	put_bound(&writer, "inode", base->inode);
	put_text(&writer, "digest", base->digest);
	put_text(&writer, "workspace", base->workspace);
	put_text(&writer, "snapshot", base->snapshot);
	put_number(&writer, "since_sec", (uint64_t)base->since_sec);
	put_number(&writer, "since_nsec", base->since_nsec);
	return writer_take(&writer, &json) < 0 ? NULL : json;
}

int snapshot_record_to_json(const struct snapshot_record *snapshot, struct json **ret)
{
	struct writer writer = {.object = json_new_object()};

	if (!writer.object)
		return ABOX_E_MEMORY;
	put_text(&writer, "id", snapshot->id);
	put_text(&writer, "name", snapshot->name);
	put_text(&writer, "layer", snapshot->layer);
	put_text(&writer, "parent", snapshot->parent);
	put_number(&writer, "created_usec", snapshot->created_usec);
	put_bound(&writer, "ttl_usec", snapshot->ttl_usec);
	put_number(&writer, "entries", snapshot->n_entries);
	put_number(&writer, "bytes", snapshot->n_bytes);
	return writer_take(&writer, ret);
}

static struct json *snapshots_to_json(const struct workspace_record *record)
{
	struct json *array = json_new_array();

	for (size_t i = 0; array && i < record->n_snapshots; i++) {
		struct json *snapshot = NULL;

		if (snapshot_record_to_json(&record->snapshots[i], &snapshot) < 0 ||
			json_append_element(array, snapshot) < 0)
			array = json_unref(array);
	}
	return array;
}

int workspace_record_to_json(const struct workspace_record *record, struct json **ret)
{
	struct writer writer = {.object = json_new_object()};

	if (!writer.object)
		return ABOX_E_MEMORY;
	put_number(&writer, "format", STORE_FORMAT);
	put_text(&writer, "id", record->id);
	put_text(&writer, "name", record->name);
	put_text(&writer, "task", record->task);
	put_text(&writer, "mode", mode_names[record->mode]);
	put(&writer, "whole_copy", json_new_boolean(record->is_full));
	put_text(&writer, "flavour", flavour_names[record->flavour]);
	put(&writer, "ids", ids_to_json(&record->ids));
	put_number(&writer, "created_usec", record->created_usec);
	put_bound(&writer, "ttl_usec", record->ttl_usec);
	put(&writer, "base", base_to_json(&record->base));
	put_text(&writer, "live", record->live);
	put_text(&writer, "parent", record->parent);
	put_text(&writer, "inherited", record->inherited);
	put_text(&writer, "head", record->head);
	put_text(&writer, "unsynced_since_boot", record->boot);
	put_bound(&writer, "limit_bytes", record->limit_bytes);
	put_bound(&writer, "limit_inodes", record->limit_inodes);
	put(&writer, "snapshots", snapshots_to_json(record));
	return writer_take(&writer, ret);
}

int layer_record_to_json(const struct layer_record *record, struct json **ret)
{
	struct writer writer = {.object = json_new_object()};

	if (!writer.object)
		return ABOX_E_MEMORY;
	put_number(&writer, "format", STORE_FORMAT);
	put_text(&writer, "id", record->id);
	put_text(&writer, "parent", record->parent);
	put_text(&writer, "flavour", flavour_names[record->flavour]);
	put(&writer, "ids", ids_to_json(&record->ids));
	put(&writer, "frozen", json_new_boolean(record->frozen));
	put(&writer, "whole", json_new_boolean(record->is_full));
	put(&writer, "base", json_new_boolean(record->is_base));
	put_number(&writer, "entries", record->n_entries);
	put_number(&writer, "bytes", record->n_bytes);
	put_text(&writer, "digest", record->digest);
	return writer_take(&writer, ret);
}

/* Reading. The first thing that is wrong is remembered with its place. */
struct reader {
	const struct json *object;
	const char *file;
	const char *wrong;
	bool memory;
};

static void wrong(struct reader *reader, const char *name)
{
	if (!reader->wrong)
		reader->wrong = name;
}

static uint64_t get_number(struct reader *reader, const char *name, bool needed, uint64_t max)
{
	const struct json *value = json_member(reader->object, name);
	int64_t number = json_number(value);

	if (!value && !needed)
		return 0;
	if (json_kind(value) != JSON_KIND_INTEGER || number < 0 || (uint64_t)number > max) {
		wrong(reader, name);
		return 0;
	}
	return (uint64_t)number;
}

static bool get_truth(struct reader *reader, const char *name)
{
	const struct json *value = json_member(reader->object, name);

	if (json_kind(value) != JSON_KIND_BOOLEAN)
		wrong(reader, name);
	return json_truth(value);
}

static const char *get_text(struct reader *reader, const char *name)
{
	const struct json *value = json_member(reader->object, name);

	if (value && json_kind(value) != JSON_KIND_STRING)
		wrong(reader, name);
	return json_text(value);
}

static char *dup_text(struct reader *reader, const char *name)
{
	const char *text = get_text(reader, name);
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		reader->memory = true;
	return copy;
}

/* Security: ids become names of files; nothing but 32 digits is one. */
static void get_id(struct reader *reader, const char *name, bool needed, char ret[STORE_ID_BYTES])
{
	const char *text = get_text(reader, name);

	ret[0] = 0;
	if (!text && !needed)
		return;
	if (!text || !home_is_id(text)) {
		wrong(reader, name);
		return;
	}
	memcpy(ret, text, STORE_ID_BYTES);
}

static uint32_t get_word(struct reader *reader, const char *name, const char *const *words, size_t n)
{
	const char *text = get_text(reader, name);

	for (size_t i = 0; text && i < n; i++)
		if (strcmp(text, words[i]) == 0)
			return (uint32_t)i;
	wrong(reader, name);
	return 0;
}

static struct reader read_within(struct reader *reader, const char *name)
{
	struct reader inner = {.object = json_member(reader->object, name), .file = reader->file};

	if (json_kind(inner.object) != JSON_KIND_OBJECT)
		wrong(reader, name);
	return inner;
}

static void leave(struct reader *reader, const struct reader *inner)
{
	if (inner->wrong)
		wrong(reader, inner->wrong);
	reader->memory |= inner->memory;
}

static void get_ids(struct reader *reader, struct layer_ids *ret)
{
	struct reader inner = read_within(reader, "ids");

	ret->kind = get_word(&inner, "kind", ids_names, ELEMENTSOF(ids_names));
	ret->base = (uint32_t)get_number(&inner, "base", true, UINT32_MAX - LAYER_RANGE_COUNT);
	ret->count = (uint32_t)get_number(&inner, "count", true, LAYER_RANGE_COUNT);
	ret->inside_uid = (uint32_t)get_number(&inner, "inside_uid", true, UINT32_MAX - 1);
	ret->inside_gid = (uint32_t)get_number(&inner, "inside_gid", true, UINT32_MAX - 1);
	ret->owner_uid = (uint32_t)get_number(&inner, "owner_uid", true, UINT32_MAX - 1);
	ret->owner_gid = (uint32_t)get_number(&inner, "owner_gid", true, UINT32_MAX - 1);
	leave(reader, &inner);
}

static char *get_path(struct reader *reader)
{
	const char *hex = get_text(reader, "path_hex");
	size_t len = hex ? strlen(hex) / 2 : 0;
	char *path;

	if (!hex)
		return dup_text(reader, "path");
	path = calloc(1, len + 1);
	if (!path)
		reader->memory = true;
	else if (strlen(hex) % 2 != 0 || hex_decode(hex, path, len) < 0 || strlen(path) != len)
		wrong(reader, "path_hex");
	return path;
}

static void get_base(struct reader *reader, struct workspace_base *ret)
{
	struct reader inner = read_within(reader, "base");

	ret->kind = get_word(&inner, "kind", base_names, ELEMENTSOF(base_names));
	ret->path = get_path(&inner);
	ret->device = get_number(&inner, "device", false, INT64_MAX);
	ret->inode = get_number(&inner, "inode", false, INT64_MAX);
	ret->digest = dup_text(&inner, "digest");
	get_id(&inner, "workspace", false, ret->workspace);
	get_id(&inner, "snapshot", false, ret->snapshot);
	ret->since_sec = (int64_t)get_number(&inner, "since_sec", true, INT64_MAX);
	ret->since_nsec = (uint32_t)get_number(&inner, "since_nsec", true, 999999999);
	if (ret->kind == BASE_FOLDER && string_empty(ret->path))
		wrong(&inner, "path");
	leave(reader, &inner);
}

static void get_snapshot(struct reader *reader, struct snapshot_record *ret)
{
	get_id(reader, "id", true, ret->id);
	ret->name = dup_text(reader, "name");
	get_id(reader, "layer", true, ret->layer);
	get_id(reader, "parent", false, ret->parent);
	ret->created_usec = get_number(reader, "created_usec", true, INT64_MAX);
	ret->ttl_usec = get_number(reader, "ttl_usec", false, INT64_MAX);
	ret->n_entries = get_number(reader, "entries", true, INT64_MAX);
	ret->n_bytes = get_number(reader, "bytes", true, INT64_MAX);
}

static void get_snapshots(struct reader *reader, struct workspace_record *ret)
{
	const struct json *array = json_member(reader->object, "snapshots");
	size_t n = json_count(array);

	if (json_kind(array) != JSON_KIND_ARRAY || n > MAX_SNAPSHOTS) {
		wrong(reader, "snapshots");
		return;
	}
	ret->snapshots = calloc(n + 1, sizeof(*ret->snapshots));
	if (!ret->snapshots) {
		reader->memory = true;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct reader inner = {.object = json_element(array, i), .file = reader->file};

		get_snapshot(&inner, &ret->snapshots[ret->n_snapshots++]);
		leave(reader, &inner);
	}
}

static int parse_text(const char *file, const char *text, size_t len, struct json **ret, abox_error **reterr)
{
	const struct json_bounds bounds = {.max_bytes = MAX_BYTES, .max_depth = 8, .stage = STAGE};
	_cleanup_(json_unrefp) struct json *json = NULL;
	int r;

	r = json_parse(text, len, &bounds, &json, reterr);
	if (r == ABOX_E_MEMORY)
		return r;
	if (r < 0 || json_kind(json) != JSON_KIND_OBJECT)
		return error_set(reterr, ABOX_E_DAMAGED, STAGE, file, "the record is not JSON");
	if (json_number(json_member(json, "format")) > STORE_FORMAT)
		return error_set(reterr, ABOX_E_UNSUPPORTED, STAGE, file,
			"made by a newer release (format %lld)",
			(long long)json_number(json_member(json, "format")));
	*ret = steal_ptr(json);
	return 0;
}

static int read_file(int dir_fd, const char *file, char **rettext, size_t *retlen, abox_error **reterr)
{
	int r;

	r = file_read_text(dir_fd, file, MAX_BYTES, rettext, retlen);
	if (r == -ENOENT)
		return error_set(reterr, ABOX_E_NOT_FOUND, STAGE, file, "the record is not there");
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_IO, STAGE, file, -r, "cannot read the record");
	return 0;
}

static int reader_end(const struct reader *reader, abox_error **reterr)
{
	if (reader->memory)
		return ABOX_E_MEMORY;
	if (reader->wrong)
		return error_set(reterr, ABOX_E_DAMAGED, STAGE, reader->file, "the record is damaged at '%s'",
			reader->wrong);
	return 0;
}

int workspace_record_parse(const char *text, size_t len, struct workspace_record *ret, abox_error **reterr)
{
	_cleanup_(workspace_record_clear) struct workspace_record record = {0};
	_cleanup_(json_unrefp) struct json *json = NULL;
	struct reader reader = {.file = WORKSPACE_FILE};
	int r;

	r = parse_text(WORKSPACE_FILE, text, len, &json, reterr);
	if (r < 0)
		return r;
	reader.object = json;
	(void)get_number(&reader, "format", true, STORE_FORMAT);
	get_id(&reader, "id", true, record.id);
	record.name = dup_text(&reader, "name");
	record.task = dup_text(&reader, "task");
	record.mode = get_word(&reader, "mode", mode_names, ELEMENTSOF(mode_names));
	record.is_full = get_truth(&reader, "whole_copy");
	record.flavour = get_word(&reader, "flavour", flavour_names, ELEMENTSOF(flavour_names));
	get_ids(&reader, &record.ids);
	record.created_usec = get_number(&reader, "created_usec", true, INT64_MAX);
	record.ttl_usec = get_number(&reader, "ttl_usec", false, INT64_MAX);
	get_base(&reader, &record.base);
	get_id(&reader, "live", record.mode != WORKSPACE_DIRECT, record.live);
	get_id(&reader, "parent", false, record.parent);
	get_id(&reader, "inherited", false, record.inherited);
	get_id(&reader, "head", false, record.head);
	if (get_text(&reader, "unsynced_since_boot"))
		strncpy(record.boot, get_text(&reader, "unsynced_since_boot"), sizeof(record.boot) - 1);
	record.limit_bytes = get_number(&reader, "limit_bytes", false, INT64_MAX);
	record.limit_inodes = get_number(&reader, "limit_inodes", false, INT64_MAX);
	get_snapshots(&reader, &record);
	r = reader_end(&reader, reterr);
	if (r < 0)
		return r;
	*ret = record;
	record = (struct workspace_record){0};
	return 0;
}

int layer_record_parse(const char *text, size_t len, struct layer_record *ret, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *json = NULL;
	struct reader reader = {.file = LAYER_FILE};
	struct layer_record record = {0};
	const char *digest;
	int r;

	r = parse_text(LAYER_FILE, text, len, &json, reterr);
	if (r < 0)
		return r;
	reader.object = json;
	(void)get_number(&reader, "format", true, STORE_FORMAT);
	get_id(&reader, "id", true, record.id);
	get_id(&reader, "parent", false, record.parent);
	record.flavour = get_word(&reader, "flavour", flavour_names, ELEMENTSOF(flavour_names));
	get_ids(&reader, &record.ids);
	record.frozen = get_truth(&reader, "frozen");
	record.is_full = get_truth(&reader, "whole");
	record.is_base = get_truth(&reader, "base");
	record.n_entries = get_number(&reader, "entries", true, INT64_MAX);
	record.n_bytes = get_number(&reader, "bytes", true, INT64_MAX);
	digest = get_text(&reader, "digest");
	if (digest && strlen(digest) == sizeof(record.digest) - 1)
		memcpy(record.digest, digest, sizeof(record.digest));
	else if (digest || record.frozen)
		wrong(&reader, "digest");
	r = reader_end(&reader, reterr);
	if (r < 0)
		return r;
	*ret = record;
	return 0;
}

int workspace_record_read(int dir_fd, struct workspace_record *ret, abox_error **reterr)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r;

	r = read_file(dir_fd, WORKSPACE_FILE, &text, &len, reterr);
	return r < 0 ? r : workspace_record_parse(text, len, ret, reterr);
}

int layer_record_read(int dir_fd, struct layer_record *ret, abox_error **reterr)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r;

	r = read_file(dir_fd, LAYER_FILE, &text, &len, reterr);
	return r < 0 ? r : layer_record_parse(text, len, ret, reterr);
}

static int write_file(int dir_fd, const char *file, const struct json *json, abox_error **reterr)
{
	_cleanup_(freep) char *text = NULL;
	int r;

	r = json_print_new(json, &text);
	if (r < 0)
		return r;
	return home_replace_file(dir_fd, file, text, strlen(text), reterr);
}

int workspace_record_write(int dir_fd, const struct workspace_record *record, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *json = NULL;
	int r;

	r = workspace_record_to_json(record, &json);
	return r < 0 ? r : write_file(dir_fd, WORKSPACE_FILE, json, reterr);
}

int layer_record_write(int dir_fd, const struct layer_record *record, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *json = NULL;
	int r;

	r = layer_record_to_json(record, &json);
	return r < 0 ? r : write_file(dir_fd, LAYER_FILE, json, reterr);
}

const struct snapshot_record *workspace_record_find(
	const struct workspace_record *record, const char *snapshot)
{
	for (size_t i = 0; i < record->n_snapshots; i++) {
		const struct snapshot_record *each = &record->snapshots[i];

		if (strcmp(each->id, snapshot) == 0 || (each->name && strcmp(each->name, snapshot) == 0))
			return each;
	}
	return NULL;
}

static bool expired(uint64_t created_usec, uint64_t ttl_usec, uint64_t now_usec)
{
	return ttl_usec > 0 && now_usec > created_usec && now_usec - created_usec > ttl_usec;
}

bool workspace_record_expired(const struct workspace_record *record, uint64_t now_usec)
{
	return expired(record->created_usec, record->ttl_usec, now_usec);
}

bool snapshot_record_expired(const struct snapshot_record *snapshot, uint64_t now_usec)
{
	return expired(snapshot->created_usec, snapshot->ttl_usec, now_usec);
}
