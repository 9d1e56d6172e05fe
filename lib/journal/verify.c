/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Verification: is this folder one whole chain? From the files alone, without a lock, in constant memory,
 * while others may append. Every damaged place is named; reading goes on behind it, at the next segment, as
 * what follows is still worth knowing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "journal/checkpoint.h"
#include "journal/handle.h"

#define DAMAGES_MAX 1000 /* told; more are only counted */
#define RECENT 1024      /* hashes kept, for checkpoints that speak of records a little before them */

struct verification {
	int dir_fd;
	const struct abox_journal_verify_options *options;
	struct checkpoint wanted; /* from options->checkpoint */
	bool wanted_seen;
	struct journal_identity identity;
	char id[ABOX_JOURNAL_ID_BYTES]; /* as the records say */
	struct chain chain;
	bool chain_known; /* false at first, and behind damage */
	uint64_t n_records, first_seq, n_checkpoints, n_blobs, n_damages;
	uint64_t pruned_before; /* segments below this were dropped, says a record */
	uint64_t first_segment;
	char carried_file[64]; /* of the newest journal.pruned */
	char carried_digest[DIGEST_TEXT_BYTES];
	struct text damages;
	struct text torn;
	char recent[RECENT][DIGEST_TEXT_BYTES]; /* by seq % RECENT */
};

static void add_damage(
	struct verification *v, uint64_t segment, uint64_t offset, uint64_t seq, const char *why)
{
	if (++v->n_damages > DAMAGES_MAX)
		return;
	if (v->damages.len > 0)
		text_add(&v->damages, ",");
	text_printf(&v->damages,
		"{\"segment\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"seq\":%" PRIu64 ",\"reason\":", segment,
		offset, seq);
	text_add_json(&v->damages, why, strlen(why));
	text_add(&v->damages, "}");
}

static int parse_body(const struct journal_record *record, struct json **ret)
{
	const struct json_bounds bounds = {
		.max_bytes = RECORD_LINE_MAX, .max_depth = 64, .stage = ABOX_STAGE_VERIFY
	};

	return json_parse(record->body, record->body_len, &bounds, ret, NULL);
}

static void take_id(struct verification *v, const struct json *body, const char *member)
{
	const char *id = json_text(json_member(body, member));

	if (id && strlen(id) == ABOX_JOURNAL_ID_BYTES - 1)
		memcpy(v->id, id, sizeof(v->id));
}

static bool seal_fits(const struct json *sealed, uint64_t number, const struct chain *chain)
{
	const char *hash = json_text(json_member(sealed, "hash"));

	return (uint64_t)json_number(json_member(sealed, "segment")) == number &&
	       (uint64_t)json_number(json_member(sealed, "bytes")) == chain->offset &&
	       (uint64_t)json_number(json_member(sealed, "seq")) == chain->seq && hash &&
	       strcmp(hash, chain->hash) == 0;
}

/* before: the end of the segment before, where that is known. */
static int check_head(struct verification *v, const struct journal_record *head, const struct chain *before)
{
	_cleanup_(json_unrefp) struct json *body = NULL;
	int r;

	r = parse_body(head, &body);
	if (r == ABOX_E_MEMORY)
		return r;
	if (r < 0 || (uint64_t)json_number(json_member(body, "segment")) != head->segment)
		add_damage(v, head->segment, 0, head->seq, "the head is not that of this segment");
	take_id(v, body, "journal");
	if (!v->chain_known)
		return 0;
	if (head->seq != before->seq + 1 || strcmp(head->prev, before->hash) != 0)
		add_damage(v, head->segment, 0, head->seq, "the segment does not follow the one before");
	else if (!seal_fits(json_member(body, "sealed"), head->segment - 1, before))
		add_damage(v, head->segment, 0, head->seq, "the seal does not fit the segment before");
	else if (head->room_bytes != before->room)
		add_damage(v, head->segment, 0, head->seq, "reserved room was not carried over");
	return 0;
}

static int check_checkpoint(struct verification *v, const struct journal_record *record, abox_error **reterr)
{
	struct checkpoint checkpoint;
	int r;

	v->n_checkpoints++;
	r = checkpoint_parse(record->body, record->body_len, &checkpoint, NULL);
	if (r == ABOX_E_MEMORY)
		return r;
	if (r < 0 || checkpoint.seq >= record->seq) {
		add_damage(v, record->segment, record->offset, record->seq, "malformed checkpoint");
		return 0;
	}
	if (checkpoint.seq >= v->first_seq && record->seq - checkpoint.seq < RECENT && v->chain_known &&
		strcmp(v->recent[checkpoint.seq % RECENT], checkpoint.hash) != 0)
		add_damage(v, record->segment, record->offset, record->seq,
			"the checkpoint speaks of another record");
	if (!v->options->public_key)
		return 0;
	r = checkpoint_check(&checkpoint, v->options->public_key, reterr);
	if (r == 0)
		add_damage(v, record->segment, record->offset, record->seq,
			"the signature of the checkpoint is wrong");
	return r < 0 ? r : 0;
}

static void take_pruned(struct verification *v, const struct json *body)
{
	const struct json *carried = json_member(body, "carried");
	const char *file = json_text(json_member(carried, "file")),
		   *digest = json_text(json_member(carried, "sha256"));

	v->pruned_before = MAX(v->pruned_before, (uint64_t)json_number(json_member(body, "before_segment")));
	if (file && digest && strlen(digest) == 64 && strncmp(file, "carried-", 8) == 0 &&
		!strchr(file, '/')) {
		snprintf(v->carried_file, sizeof(v->carried_file), "%s", file);
		memcpy(v->carried_digest, digest, sizeof(v->carried_digest));
	}
}

static int check_record(struct verification *v, const struct journal_record *record, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *body = NULL;

	v->n_records++;
	if (v->n_records == 1)
		v->first_seq = record->seq;
	memcpy(v->recent[record->seq % RECENT], record->hash, DIGEST_TEXT_BYTES);
	if (v->options->checkpoint && record->seq == v->wanted.seq) {
		v->wanted_seen = true;
		if (strcmp(record->hash, v->wanted.hash) != 0)
			add_damage(v, record->segment, record->offset, record->seq,
				"the checkpoint that was kept elsewhere speaks of another record");
	}
	if (!string_starts_with(record->type, "journal."))
		return 0;
	if (strcmp(record->type, "journal.checkpoint") == 0)
		return check_checkpoint(v, record, reterr);
	if (strcmp(record->type, "journal.pruned") != 0 && strcmp(record->type, "journal.adopted") != 0)
		return 0;
	if (parse_body(record, &body) == ABOX_E_MEMORY)
		return ABOX_E_MEMORY;
	if (strcmp(record->type, "journal.adopted") == 0)
		take_id(v, body, "journal");
	else
		take_pruned(v, body);
	return 0;
}

/* What live processes know to be durable; 0 where nothing can be said. */
static uint64_t shared_known(struct verification *v)
{
	struct journal_identity here = { .fsid = 0 };
	struct lock_file lock = LOCK_FILE_INIT;
	struct lock_state state = { .known = 0 };

	if (lock_open(&lock, v->dir_fd, false, NULL) == 0 &&
		identity_here(v->dir_fd, lock.fd, &here, NULL) == 0 && here.inode == v->identity.inode &&
		here.fsid == v->identity.fsid)
		(void)lock_read_state(&lock, &state, NULL);
	lock_close(&lock);
	return state.known;
}

enum newest { NEWEST_END, NEWEST_TORN, NEWEST_DAMAGED };

/* The chain of the newest segment ended: is there anything behind, or should there be? */
static int judge_newest(
	struct verification *v, struct segment *segment, uint64_t *retend, abox_error **reterr)
{
	int r;

	*retend = v->chain.offset;
	r = segment_claims(segment->fd, segment->number, v->chain.offset, v->chain.seq + 1, retend, reterr);
	if (r < 0)
		return r;
	if (r > 0 || shared_known(v) > v->chain.seq)
		return NEWEST_DAMAGED;
	return *retend > v->chain.offset ? NEWEST_TORN : NEWEST_END;
}

/* 1: a record after all, as a writer was at it just now; 0: the end, judged and told. */
static int end_newest(struct verification *v, struct segment *segment, struct segment_reader *reader,
	struct journal_record *record, abox_error **reterr)
{
	const struct timespec pause = { .tv_nsec = 2 * 1000 * 1000 };
	uint64_t end = 0;
	int r, judged = NEWEST_END;

	for (int i = 0; i < 5; i++) {
		judged = judge_newest(v, segment, &end, reterr);
		if (judged <= NEWEST_END)
			return judged;
		r = segment_reader_next(reader, &v->chain, true, record, reterr);
		if (r < 0 || r == SEGMENT_RECORD)
			return r < 0 ? r : 1;
		nanosleep(&pause, NULL);
	}
	if (judged == NEWEST_DAMAGED)
		add_damage(v, segment->number, v->chain.offset, v->chain.seq + 1,
			reader->why ? reader->why : "it is gone");
	else
		text_printf(&v->torn,
			"{\"segment\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64
			",\"seq\":%" PRIu64 "}",
			segment->number, v->chain.offset, end - v->chain.offset, v->chain.seq + 1);
	return 0;
}

static int check_behind_close(struct verification *v, struct segment *segment, abox_error **reterr)
{
	uint64_t end = v->chain.offset;
	int r;

	r = segment_claims(segment->fd, segment->number, v->chain.offset, UINT64_MAX, &end, reterr);
	if (r >= 0 && end > v->chain.offset)
		add_damage(
			v, segment->number, v->chain.offset, v->chain.seq, "bytes behind the closing record");
	return r < 0 ? r : 0;
}

static int walk_segment(struct verification *v, struct segment_reader *reader, struct segment *segment,
	bool newest, abox_error **reterr)
{
	struct journal_record record;
	int r;

	for (;;) {
		r = segment_reader_next(reader, &v->chain, true, &record, reterr);
		if (r < 0)
			return r;
		if (r != SEGMENT_RECORD && newest) {
			r = end_newest(v, segment, reader, &record, reterr);
			if (r <= 0)
				return r;
		} else if (r != SEGMENT_RECORD) {
			break;
		}
		r = check_record(v, &record, reterr);
		if (r < 0)
			return r;
		if (v->chain.closed)
			return check_behind_close(v, segment, reterr);
	}
	add_damage(v, segment->number, v->chain.offset, v->chain.seq + 1,
		reader->why ? reader->why : "the segment ends before its closing record");
	v->chain_known = false;
	return 0;
}

static int check_segment(struct verification *v, struct segment_reader *reader, uint64_t number, bool newest,
	abox_error **reterr)
{
	_cleanup_(segment_unrefp) struct segment *segment = NULL;
	_cleanup_(error_freep) abox_error *error = NULL;
	struct chain before = v->chain;
	struct journal_record head;
	int r;

	r = segment_read_head(v->dir_fd, number, reader, &segment, &v->chain, &head, &error);
	if (r == ABOX_E_DAMAGED || r == ABOX_E_PERMISSION) {
		add_damage(v, number, 0, v->chain_known ? before.seq + 1 : 0, abox_error_get_message(error));
		v->chain_known = false;
		return 0;
	}
	if (r < 0) {
		if (reterr)
			*reterr = steal_ptr(error);
		return r;
	}
	r = check_head(v, &head, &before);
	if (r == 0)
		r = check_record(v, &head, reterr);
	v->chain_known = true;
	return r < 0 ? r : walk_segment(v, reader, segment, newest, reterr);
}

/* The last number may be gone, or not the last, by the time it is read: then there is one more to look at. */
static int check_segments(struct verification *v, abox_error **reterr)
{
	struct segment_reader reader = SEGMENT_READER_INIT;
	_cleanup_(freep) uint64_t *numbers = NULL;
	uint64_t number, last = 0;
	char name[SEGMENT_NAME_BYTES];
	size_t n = 0;
	int r;

	r = segment_list(v->dir_fd, &numbers, &n, reterr);
	if (r < 0)
		return r;
	if (n == 0) {
		add_damage(v, 0, 0, 1, "there is no segment");
		return 0;
	}
	v->first_segment = numbers[0];
	for (size_t i = 0; i < n && r == 0; i++) {
		if (i > 0 && numbers[i] != numbers[i - 1] + 1) {
			add_damage(v, numbers[i - 1] + 1, 0, v->chain.seq + 1, "segments are missing");
			v->chain_known = false;
		}
		last = numbers[i];
		segment_name(last + 1, name);
		r = check_segment(v, &reader, last,
			i + 1 == n && faccessat(v->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0, reterr);
	}
	/* rotated meanwhile */
	for (number = last + 1; r == 0 && v->chain_known && v->chain.closed; number++) {
		segment_name(number, name);
		if (faccessat(v->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			break;
		segment_name(number + 1, name);
		r = check_segment(v, &reader, number,
			faccessat(v->dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0, reterr);
	}
	segment_reader_clear(&reader);
	return r;
}

static int check_blobs(struct verification *v, abox_error **reterr)
{
	uint8_t digest[DIGEST_BYTES];
	char text[DIGEST_TEXT_BYTES];
	struct dirent *entry;
	int r = 0, fd;
	DIR *dir;

	fd = openat(v->dir_fd, "blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || !(dir = fdopendir(fd))) {
		r = error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_VERIFY, "blobs", errno, "cannot list the blobs");
		fd_close(fd);
		return r;
	}
	while (r == 0 && (entry = readdir(dir))) {
		int blob_fd;

		if (strlen(entry->d_name) != 64 || strspn(entry->d_name, "0123456789abcdef") != 64)
			continue;
		v->n_blobs++;
		blob_fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (blob_fd < 0 && errno == ENOENT)
			continue; /* pruned meanwhile */
		r = blob_fd < 0 ? ABOX_E_IO : digest_sha256_fd(blob_fd, digest, NULL);
		fd_close(blob_fd);
		if (r < 0) {
			r = error_set_errno(
				reterr, r, ABOX_STAGE_VERIFY, entry->d_name, errno, "cannot read a blob");
			break;
		}
		hex_encode(digest, sizeof(digest), text);
		if (strcmp(text, entry->d_name) != 0) {
			char why[128];

			snprintf(why, sizeof(why), "blob %s is damaged", entry->d_name);
			add_damage(v, 0, 0, 0, why);
		}
	}
	closedir(dir);
	return r;
}

static int check_carried(struct verification *v, abox_error **reterr)
{
	uint8_t digest[DIGEST_BYTES];
	char text[DIGEST_TEXT_BYTES];
	int fd, r;

	if (!v->carried_file[0])
		return 0;
	fd = openat(v->dir_fd, v->carried_file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		add_damage(v, 0, 0, 0, "the records carried over from pruned segments are missing");
		return 0;
	}
	r = fd < 0 ? ABOX_E_IO : digest_sha256_fd(fd, digest, NULL);
	fd_close(fd);
	if (r < 0)
		return error_set_errno(reterr, r, ABOX_STAGE_VERIFY, v->carried_file, errno, "cannot read");
	hex_encode(digest, sizeof(digest), text);
	if (strcmp(text, v->carried_digest) != 0)
		add_damage(v, 0, 0, 0, "the records carried over from pruned segments are damaged");
	return 0;
}

static int check_rest(struct verification *v, abox_error **reterr)
{
	int r;

	if (v->first_segment > 1 && v->pruned_before < v->first_segment)
		add_damage(v, v->first_segment, 0, v->first_seq,
			"earlier segments are missing, and no record says that they "
			"were pruned");
	if (v->options->checkpoint && !v->wanted_seen && v->wanted.seq > v->chain.seq)
		add_damage(v, 0, 0, v->chain.seq + 1,
			"the end was cut off: the checkpoint that was kept elsewhere speaks of a later "
			"record");
	r = check_carried(v, reterr);
	if (r == 0 && v->options->blobs)
		r = check_blobs(v, reterr);
	if (r < 0)
		return r;
	if (v->id[0] && v->identity.id[0] && strcmp(v->id, v->identity.id) != 0)
		add_damage(v, 0, 0, 0, "the records are those of another journal than the file id says");
	return 0;
}

static int print(struct verification *v, char **retjson)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	text_printf(&text,
		"{\"ok\":%s,\"id\":\"%s\",\"records\":%" PRIu64 ",\"first_seq\":%" PRIu64
		",\"last_seq\":%" PRIu64 ",\"last_hash\":\"%s\",\"first_segment\":%" PRIu64
		",\"pruned_before\":%" PRIu64 ",\"torn\":",
		v->n_damages ? "false" : "true", v->identity.id, v->n_records, v->first_seq, v->chain.seq,
		v->chain.hash, v->first_segment, v->pruned_before);
	text_add(&text, v->torn.len ? v->torn.data : "null");
	text_printf(&text,
		",\"checkpoints\":%" PRIu64 ",\"blobs\":%" PRIu64 ",\"damages\":%" PRIu64 ",\"damage\":[",
		v->n_checkpoints, v->n_blobs, v->n_damages);
	text_add_bytes(&text, v->damages.data, v->damages.len);
	text_add(&text, "]}");
	if (v->damages.failed || v->torn.failed)
		return ABOX_E_MEMORY;
	return text_take(&text, retjson);
}

static int run(struct verification *v, const char *path, abox_error **reterr)
{
	const struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	bool read_only;
	int r;

	if (v->options->checkpoint) {
		r = checkpoint_parse(
			v->options->checkpoint, strlen(v->options->checkpoint), &v->wanted, reterr);
		if (r < 0)
			return r;
		if (v->options->public_key) {
			r = checkpoint_check(&v->wanted, v->options->public_key, reterr);
			if (r < 0)
				return r;
			if (r == 0)
				return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_VERIFY, NULL,
					"the signature of the checkpoint that was given is wrong");
		}
	}
	r = identity_open_folder(path, &options, &v->dir_fd, &read_only, reterr);
	if (r == 0)
		r = identity_read(v->dir_fd, &v->identity, reterr);
	if (r == 0)
		r = check_segments(v, reterr);
	return r == 0 ? check_rest(v, reterr) : r;
}

int abox_journal_verify(const char *path, const struct abox_journal_verify_options *options, char **retjson,
	abox_error **reterr)
{
	const struct abox_journal_verify_options defaults = ABOX_JOURNAL_VERIFY_OPTIONS_INIT;
	struct verification *v;
	int r;

	if (!path || !path[0] || !retjson || (options && options->size < sizeof(*options)))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_VERIFY, NULL, "path and retjson are required");
	v = calloc(1, sizeof(*v));
	if (!v)
		return ABOX_E_MEMORY;
	v->dir_fd = -EBADF;
	v->options = options ? options : &defaults;
	r = run(v, path, reterr);
	if (r == 0)
		r = print(v, retjson);
	if (r == 0)
		r = v->n_damages == 0;
	fd_close(v->dir_fd);
	text_clear(&v->damages);
	text_clear(&v->torn);
	free(v);
	return r;
}
