/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PLAN_ABSENT_H
#define PLAN_ABSENT_H

#include "plan/builder.h"

/* Refuses, by name and place, a value that this build does not do. */
int plan_check_absent(struct plan_builder *builder, abox_error **reterr);

#endif
