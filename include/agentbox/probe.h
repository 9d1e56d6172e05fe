/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What this host can do: which walls can be used, what each can enforce, what is in the way, what helps.
 */
#ifndef AGENTBOX_PROBE_H
#define AGENTBOX_PROBE_H

#include <agentbox/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a probe has found out. Frozen; may be shared between threads. */
typedef struct abox_host abox_host;

/** How far a wall keeps a box and the host apart. Zero: not at all, since the wall cannot be used. */
enum abox_isolation {
	ABOX_ISOLATION_NONE = 0,
	ABOX_ISOLATION_NAMESPACES = 1,	/* the host's kernel, filtered */
	ABOX_ISOLATION_GVISOR = 2,	/* a kernel in user space between box and host */
	ABOX_ISOLATION_MICROVM = 3	/* a kernel of its own */
};

/** How well a rule is kept. Only the last counts as enforced. */
enum abox_enforcement {
	ABOX_NOT_ENFORCED = 0,
	ABOX_WATCHED = 1,	/* looked at now and then, and acted upon */
	ABOX_APPROXIMATED = 2,	/* kept, but not to the letter */
	ABOX_ENFORCED = 3
};

/**
 * abox_probe() - find out what this process can do on this host
 * @rethost:  released with abox_host_unref()
 * @reterr:   may be NULL
 *
 * Tries what it tells, in a child that ends before this returns: new namespaces, mounts in them, an overlay,
 * a proc; and runs runsc, where it is installed, for its version and flags. A host on which no wall can be used is no error: then abox_host_backend_usable() says no and the
 * blocker why.
 *
 * Effects:  on the host none; the child is none that wait(-1) or a SIGCHLD handler of the caller sees
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY, ABOX_E_SYSTEM
 * Since:    0.1
 */
ABOX_API int abox_probe(abox_host **rethost, abox_error **reterr);

/**
 * abox_probe_try() - find out what takes seconds, and keep it for abox_probe() and for plans
 * @reterr:  may be NULL
 *
 * Starts a virtual machine by KVM, where /dev/kvm opens for this user and it is not known whether that works: there are hosts
 * on which a kernel hangs. Asked once per boot of the host, kernel and QEMU.
 *
 * Effects:  runs QEMU for at most ten seconds; what came of it is kept in the cache folder
 * Threads:  any
 * Return:   0 (also where it does not work), ABOX_E_MEMORY, ABOX_E_SYSTEM
 * Since:    0.1
 */
ABOX_API int abox_probe_try(abox_error **reterr);

/** abox_host_ref() - one more owner; returns @host. Any thread. Since 0.1. */
ABOX_API abox_host *abox_host_ref(abox_host *host);

/** abox_host_unref() - one owner less; takes NULL, returns NULL. Any thread. Since 0.1. */
ABOX_API abox_host *abox_host_unref(abox_host *host);

/**
 * abox_host_dump() - everything as JSON
 * @host:     borrowed
 * @retjson:  {"host": {"kernel", "arch", "uid", "root", "user_namespaces", "landlock_abi", "control_groups":
 * {"limits", "controllers", "tree", "reason", "remedy"}, ...}, "backends": [{"name", "usable", "isolation",
 * "version", "blocker", "remedy"}], "capabilities": [{"name", "backend", "status", "by", "detail",
 * "remedy"}]}; what is not known or does not apply is left out. Released with abox_free()
 *
 * Threads:  any
 * Return:   0, ABOX_E_INVALID, ABOX_E_MEMORY
 * Since:    0.1
 */
ABOX_API int abox_host_dump(const abox_host *host, char **retjson);

/**
 * Backends, by index from 0. All texts belong to @host.
 *
 * abox_host_backend_name()       "namespaces", "gvisor", "microvm"; NULL behind the last
 * abox_host_backend_usable()     1 or 0
 * abox_host_backend_isolation()  enum abox_isolation, of the wall itself, usable or not
 * abox_host_backend_version()    what it would run with; NULL when there is nothing
 * abox_host_backend_blocker()    why it cannot be used, one line; NULL when it can
 * abox_host_backend_remedy()     the smallest thing that helps; NULL when nothing is known
 * Since: 0.1
 */
ABOX_API const char *abox_host_backend_name(const abox_host *host, uint32_t index);
ABOX_API int abox_host_backend_usable(const abox_host *host, uint32_t index);
ABOX_API int abox_host_backend_isolation(const abox_host *host, uint32_t index);
ABOX_API const char *abox_host_backend_version(const abox_host *host, uint32_t index);
ABOX_API const char *abox_host_backend_blocker(const abox_host *host, uint32_t index);
ABOX_API const char *abox_host_backend_remedy(const abox_host *host, uint32_t index);

/**
 * Capabilities of the namespaces wall here, by index from 0: what a plan lists under the same names, and
 * `waive` takes.
 *
 * abox_host_capability_name()    such as "limits.memory"; NULL behind the last
 * abox_host_capability_status()  enum abox_enforcement
 * abox_host_capability_by()      what does it, such as "kernel: cgroup v2"
 * abox_host_capability_detail()  what to know about it; NULL when there is nothing
 * abox_host_capability_remedy()  what would help; NULL when enforced or nothing is known
 * Since: 0.1
 */
ABOX_API const char *abox_host_capability_name(const abox_host *host, uint32_t index);
ABOX_API int abox_host_capability_status(const abox_host *host, uint32_t index);
ABOX_API const char *abox_host_capability_by(const abox_host *host, uint32_t index);
ABOX_API const char *abox_host_capability_detail(const abox_host *host, uint32_t index);
ABOX_API const char *abox_host_capability_remedy(const abox_host *host, uint32_t index);

/** abox_enforcement_name() - "not enforced", "watched", "approximated", "enforced"; "?" for another number.
 * Since 0.1. */
ABOX_API const char *abox_enforcement_name(int enforcement);

#ifdef __cplusplus
}
#endif
#endif
