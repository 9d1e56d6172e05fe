/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What report.c (collects, writes JSON) and format.c (text for people) share. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include <agentbox/report.h>

#include "base/json.h"

struct abox_report {
	unsigned int refs;	/* atomic */
	char *json;
	struct json *tree;	/* the same, parsed */
	uint32_t undecided;
};

int report_format(const struct json *report, struct text *text);

#endif
