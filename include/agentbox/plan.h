/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A plan: a spec checked and resolved for one backend on this host. It is frozen, may be shared between threads,
 * holds no secret, and is safe to print. Making one reads the host and changes nothing.
 */
#ifndef AGENTBOX_PLAN_H
#define AGENTBOX_PLAN_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * abox_plan_compile() - check a spec against this host and resolve it
 * @spec:     borrowed; may be changed or released afterwards
 * @retplan:  released with abox_plan_unref()
 * @reterr:   names the spec field and what helps; may be NULL
 *
 * What the user wrote and this host cannot enforce is refused, unless the spec waives that rule by name. A default
 * that cannot be enforced is listed in the plan as `not enforced (default)`; `"strict": true` refuses it too.
 * What this build does not contain is refused by name.
 *
 * Effects:  on the host none (it is only read; a child that only asks the kernel may be started and reaped)
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_UNSUPPORTED, ABOX_E_UNAVAILABLE, ABOX_E_NOT_FOUND, ABOX_E_PERMISSION,
 *           ABOX_E_MEMORY, ABOX_E_SYSTEM
 * Since:    0.1
 */
ABOX_API int abox_plan_compile(const abox_spec *spec, abox_plan **retplan, abox_error **reterr);

/** abox_plan_ref() - one more owner; returns @plan. Any thread. Since 0.1. */
ABOX_API abox_plan *abox_plan_ref(abox_plan *plan);

/** abox_plan_unref() - one owner less; takes NULL, returns NULL. Any thread. Since 0.1. */
ABOX_API abox_plan *abox_plan_unref(abox_plan *plan);

/**
 * abox_plan_dump() - the plan as JSON
 * @plan:     borrowed
 * @retjson:  released with abox_free()
 * @reterr:   may be NULL
 *
 * Members: "digest", "backend", "spec" (resolved, with defaults), "enforcement" (a list of {"name", "by", "status",
 * "written", "detail"}; status is enforced, approximated, watched, not enforced, not enforced (default) or waived),
 * "waived", "rootfs", "mounts", "network", "limits", "warnings".
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_plan_dump(const abox_plan *plan, char **retjson, abox_error **reterr);

/**
 * abox_plan_get_digest() - SHA-256 over everything the plan enforces, 64 hexadecimal digits
 * @plan:     borrowed
 *
 * Equal digests mean equal boxes on this host. Receipts, results and reports cite it.
 *
 * Threads:  any
 * Return:   text that belongs to the plan; NULL for a NULL plan
 * Since:    0.1
 */
ABOX_API const char *abox_plan_get_digest(const abox_plan *plan);

/** abox_plan_get_backend() - "namespaces", "gvisor" or "microvm"; belongs to the plan. Since 0.1. */
ABOX_API const char *abox_plan_get_backend(const abox_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
