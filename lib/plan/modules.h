/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef PLAN_MODULES_H
#define PLAN_MODULES_H

#include "plan/builder.h"

/* Refuses, by name and place, every written key whose module is not in this build. */
int plan_check_modules(struct plan_builder *builder, abox_error **reterr);

#endif
