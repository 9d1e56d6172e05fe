/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef AGENTBOX_VERSION_H
#define AGENTBOX_VERSION_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Version of the headers a program was compiled with. */
#define ABOX_VERSION_MAJOR 0
#define ABOX_VERSION_MINOR 1
#define ABOX_VERSION_PATCH 0
#define ABOX_VERSION "0.1.0"

/**
 * abox_version() - version of the library that is loaded
 *
 * Threads:  any
 * Return:   static text "MAJOR.MINOR.PATCH"; never NULL
 * Since:    0.1
 */
ABOX_API const char *abox_version(void);

/**
 * abox_features() - what this build of the library contains
 *
 * A feature that is not listed is refused by name at abox_plan_compile(); it is never ignored. "effect" stands for the
 * effects of tasks (effect.h) and for rules that make effects of a box's requests (`network.allow[].effect`).
 *
 * Threads:  any
 * Return:   static text, names separated by single blanks, for example "namespaces seccomp landlock"
 * Since:    0.1
 */
ABOX_API const char *abox_features(void);

#ifdef __cplusplus
}
#endif
#endif
