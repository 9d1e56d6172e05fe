/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The two records of the store: workspace.json and layer.json.
 */
#ifndef WORKSPACE_RECORD_H
#define WORKSPACE_RECORD_H

#include <agentbox/error.h>

#include "base/json.h"
#include "base/macro.h"
#include "workspace/store.h"

struct layer_record {
	char id[STORE_ID_BYTES];
	char parent[STORE_ID_BYTES];	/* "" for the lowest */
	enum layer_flavour flavour;
	struct layer_ids ids;
	bool frozen;			/* with what follows */
	bool is_full;
	bool is_base;			/* what the workspace began with: not a change */
	uint64_t n_entries, n_bytes;
	char digest[65];
};

struct snapshot_record {
	char id[STORE_ID_BYTES];
	char *name;			/* NULL for none */
	char layer[STORE_ID_BYTES];	/* "" for that of an empty workspace without changes: never, a snapshot has one */
	char parent[STORE_ID_BYTES];	/* snapshot it came after, perhaps of another workspace; "" for none */
	uint64_t created_usec;
	uint64_t ttl_usec;		/* 0: none */
	uint64_t n_entries, n_bytes;	/* of the change */
};

struct workspace_record {
	char id[STORE_ID_BYTES];
	char *name, *task;		/* NULL for none */
	enum workspace_mode mode;
	bool is_full;			/* mode copy without overlay */
	enum layer_flavour flavour;
	struct layer_ids ids;
	uint64_t created_usec, ttl_usec;
	struct workspace_base base;
	char live[STORE_ID_BYTES];	/* layer; "" in mode direct */
	char parent[STORE_ID_BYTES];	/* layer below the live one; "" for none (then the folder of the host, if any) */
	char inherited[STORE_ID_BYTES];	/* layer that a fork began above: it and what is below is not counted; "" for none */
	char head[STORE_ID_BYTES];	/* snapshot that the live layer lies above; "" for none */
	char boot[64];			/* the machine's life in which the live layer was written without sync; "" for none */
	uint64_t limit_bytes, limit_inodes;	/* 0: none */
	struct snapshot_record *snapshots;	/* oldest first */
	size_t n_snapshots;
};

void workspace_base_clear(struct workspace_base *base);
int workspace_base_copy(const struct workspace_base *base, struct workspace_base *ret);
void snapshot_record_clear(struct snapshot_record *snapshot);
void workspace_record_clear(struct workspace_record *record);

/* From and to the file in dir_fd. Reading checks every field: ABOX_E_DAMAGED names the place, ABOX_E_UNSUPPORTED a
 * newer format, ABOX_E_NOT_FOUND that there is none. */
int workspace_record_read(int dir_fd, struct workspace_record *ret, abox_error **reterr);
int workspace_record_write(int dir_fd, const struct workspace_record *record, abox_error **reterr);
int layer_record_read(int dir_fd, struct layer_record *ret, abox_error **reterr);
int layer_record_write(int dir_fd, const struct layer_record *record, abox_error **reterr);

int workspace_record_parse(const char *text, size_t len, struct workspace_record *ret, abox_error **reterr);
int layer_record_parse(const char *text, size_t len, struct layer_record *ret, abox_error **reterr);
int layer_record_to_json(const struct layer_record *record, struct json **ret);
/* What abox_workspace_dump() shows; the names of its members are those of the file. */
int workspace_record_to_json(const struct workspace_record *record, struct json **ret);
int snapshot_record_to_json(const struct snapshot_record *snapshot, struct json **ret);

/* By id or name; NULL when it is not there. */
const struct snapshot_record *workspace_record_find(const struct workspace_record *record, const char *snapshot);
bool workspace_record_expired(const struct workspace_record *record, uint64_t now_usec);
bool snapshot_record_expired(const struct snapshot_record *snapshot, uint64_t now_usec);

#endif
