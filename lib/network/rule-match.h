/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How parts of a request are held against a rule. Whoever wrote the other end may read a path or a query
 * differently than we do; so each answer says "yes", "no", or "that depends on who reads it".
 */
#ifndef NETWORK_RULE_MATCH_H
#define NETWORK_RULE_MATCH_H

#include "base/macro.h"

enum match {
	MATCH_NO = 0,
	MATCH_YES,
	MATCH_UNSURE,
};

#define MATCH_PATH_MAX 8192 /* a longer path is unsure */
#define MATCH_PATTERN_MAX 2048

/* Host names, canonical: the name itself, or with a pattern `*.` everything below it. */
bool match_host(const char *pattern, const char *host);
enum match match_path(const char *const *patterns, const char *path, size_t len);
/* A value of a parameter or header: `*` stands for anything. */
bool match_value(const char *pattern, const char *value, size_t len);
enum match match_query(const char *name, const char *pattern, const char *query, size_t len);

#endif
