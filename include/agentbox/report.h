/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reports: what a task or run was, from its journal alone. A report is frozen once made and may be shared freely.
 */
#ifndef AGENTBOX_REPORT_H
#define AGENTBOX_REPORT_H

#include <agentbox/error.h>
#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct abox_report abox_report;

/**
 * abox_report_new() - read a journal from its beginning and make the report of one task
 * @journal:  opened for reading or append
 * @task:     job id; NULL reports all records that belong to no task
 * @ret:      released with abox_report_unref()
 * @reterr:   may be NULL
 *
 * It tells who started it, where the code ran, what was reachable, which credentials were used for what, what was
 * changed, approved by whom, verified, how it ended, and what is unknown and needs a decision. What segments that
 * were pruned held is said to be missing.
 *
 * Effects:  reads the journal
 * Threads:  any
 * Return:   0; ABOX_E_NOT_FOUND, ABOX_E_DAMAGED, and what the journal answers
 * Since:    0.1
 */
ABOX_API int abox_report_new(abox_journal *journal, const char *task, abox_report **ret, abox_error **reterr);

/** abox_report_ref() - one more owner. Since 0.1. */
ABOX_API abox_report *abox_report_ref(abox_report *report);
/** abox_report_unref() - let go; NULL is fine; returns NULL. Since 0.1. */
ABOX_API abox_report *abox_report_unref(abox_report *report);

/**
 * abox_report_get_undecided() - how many things need a person: unknown effects, ambiguous wishes, open stages,
 * cleanup duties. 0 for NULL. Since 0.1.
 */
ABOX_API uint32_t abox_report_get_undecided(const abox_report *report);

/** abox_report_dump() - the report as JSON; released with abox_free(). Since 0.1. */
ABOX_API int abox_report_dump(const abox_report *report, char **retjson);

/** abox_report_format() - as text that a person reads in a minute; safe on a terminal; abox_free(). Since 0.1. */
ABOX_API int abox_report_format(const abox_report *report, char **rettext);

#ifdef __cplusplus
}
#endif
#endif
