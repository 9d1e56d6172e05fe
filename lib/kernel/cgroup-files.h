/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The small files of a group, for the files cgroup*.c alone. Answers -errno. */
#ifndef KERNEL_CGROUP_FILES_H
#define KERNEL_CGROUP_FILES_H

#include "base/macro.h"

/* The text of a file, NUL-terminated, cut at size - 1 (which no file that is read here reaches). */
int cgroup_read_file(int dir_fd, const char *file, char *ret, size_t size);
int cgroup_read_number(int dir_fd, const char *file, uint64_t *ret);
/* The number behind a key, in a file of lines "key number": -ENODATA when the key is missing. */
int cgroup_read_key(int dir_fd, const char *file, const char *key, uint64_t *ret);
/* True when one of the words in text, between blanks, is `word`. */
bool cgroup_has_word(const char *text, const char *word);

#endif
