/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef TESTS_JOURNAL_SUPPORT_H
#define TESTS_JOURNAL_SUPPORT_H

#include <agentbox/journal.h>

#include "journal/handle.h"

/* A fresh folder below TMPDIR, removed with all in it by folder_remove(). */
char *folder_new(void);
void folder_remove(char *folder);         /* frees the text too */
char *folder_journal(const char *folder); /* "FOLDER/journal", for free() */

/* Opens for append, creating; NULL and a line on stderr when that fails. */
abox_journal *open_append(const char *path, uint64_t segment_bytes);
int try_open(const char *path, uint32_t mode, uint64_t timeout_usec, abox_journal **ret);
/* One note with an integer and some filling; returns the code of the append. */
int put_note(abox_journal *journal, uint64_t number, size_t filling, int durability, uint64_t *retseq);

/* Counts records by reading all of them; negative on an error. */
int64_t count_records(const char *path);
/* abox_journal_verify(): 1 or 0; the text for free() when wanted. */
int verify(const char *path, char **retjson);

/* Bytes of a file in the journal folder; *retlen is its length. */
char *read_file(const char *path, const char *name, size_t *retlen);
void write_file(const char *path, const char *name, const void *data, size_t len);
void copy_folder(const char *from, const char *to);
bool long_tests(void); /* ABOX_TEST_LONG=1 */
uint64_t random_u64(uint64_t *state);

#endif
