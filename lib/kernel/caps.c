/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Capabilities by the bare system calls. What is promised: after a call that returns 0 the sets are what the
 * header says, since they are read back; anything else is an error. Which capabilities a process should have
 * is left to the caller.
 */
#include "kernel/caps.h"

#include <string.h>

#include <agentbox/error.h>

#include "kernel/compat.h"

#define N_CAPS 64	/* the kernel has 41; it answers EINVAL above its last one */

/* All of them with their locks: root by uid, ambient raising, kept capabilities. No lock on NO_SETUID_FIXUP:
 * it decides what happens to capabilities that are gone. */
enum {
	SECUREBITS_NOROOT = 0x03,		/* with its lock */
	SECUREBITS_KEEP_CAPS_LOCKED = 0x20,
	SECUREBITS_NO_AMBIENT_RAISE = 0xc0,	/* with its lock */
};

int caps_read(struct caps *ret)
{
	struct sys_cap_header header = { .version = SYS_CAP_VERSION };
	struct sys_cap_data data[2];

	memset(data, 0, sizeof(data));
	memset(ret, 0, sizeof(*ret));
	if (sys_capget(&header, data) < 0)
		return -errno;
	ret->effective = data[0].effective | (uint64_t)data[1].effective << 32;
	ret->permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
	ret->inheritable = data[0].inheritable | (uint64_t)data[1].inheritable << 32;
	for (int cap = 0; cap < N_CAPS; cap++) {
		int r = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

		if (r < 0)
			break;
		if (r > 0)
			ret->bounding |= CAPS_BIT(cap);
		/* the kernel keeps the ambient set within these two */
		if ((ret->permitted & ret->inheritable & CAPS_BIT(cap)) &&
			prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) > 0)
			ret->ambient |= CAPS_BIT(cap);
	}
	return 0;
}

static int set_caps(uint64_t effective, uint64_t inheritable)
{
	struct sys_cap_header header = { .version = SYS_CAP_VERSION };
	const struct sys_cap_data data[2] = {
		{ (uint32_t)effective, (uint32_t)effective, (uint32_t)inheritable },
		{ (uint32_t)(effective >> 32), (uint32_t)(effective >> 32), (uint32_t)(inheritable >> 32) },
	};

	return sys_capset(&header, data) < 0 ? -errno : 0;
}

/* Up to the kernel's last one. Without CAP_SETPCAP this changes nothing; the caller reads back what is left. */
static void drop_bounding(uint64_t keep)
{
	for (int cap = 0; cap < N_CAPS; cap++) {
		if (!(keep & CAPS_BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break;
	}
}

int caps_drop_bounding(struct fault *fault)
{
	struct caps left;
	int r;

	drop_bounding(0);
	r = caps_read(&left);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "capabilities", "cannot read the capabilities");
	if (left.bounding)
		return fault_set(fault, ABOX_E_PERMISSION, 0, "capabilities",
			"bounding set stays after the drop: %llx", (unsigned long long)left.bounding);
	return 0;
}

int caps_drop_all(struct fault *fault)
{
	struct caps left;
	int r;

	/* Security: uid 0 inside must not get capabilities back by exec. With an empty bounding set, which is
	 * checked below, that cannot happen anyway; so this is a second lock and may fail for who lacks
	 * CAP_SETPCAP. */
	(void)prctl(PR_SET_SECUREBITS,
		SECUREBITS_NOROOT | SECUREBITS_KEEP_CAPS_LOCKED | SECUREBITS_NO_AMBIENT_RAISE, 0, 0, 0);
	drop_bounding(0);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	r = set_caps(0, 0);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "capabilities", "cannot drop the capabilities");
	r = caps_read(&left);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "capabilities", "cannot read the capabilities");
	if (left.effective | left.permitted | left.inheritable | left.bounding | left.ambient)
		return fault_set(fault, ABOX_E_PERMISSION, 0, "capabilities",
			"capabilities stay after the drop: permitted %llx, bounding %llx",
			(unsigned long long)left.permitted, (unsigned long long)left.bounding);
	return 0;
}

int caps_keep(uint64_t mask, bool inherit, struct fault *fault)
{
	struct caps left;
	int r;

	drop_bounding(mask);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	r = set_caps(mask, inherit ? mask : 0);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "capabilities", "cannot set the capabilities");
	for (int cap = 0; inherit && cap < N_CAPS; cap++)
		if ((mask & CAPS_BIT(cap)) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "capabilities",
				"cannot raise capability %d", cap);
	r = caps_read(&left);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "capabilities", "cannot read the capabilities");
	if (left.effective != mask || left.permitted != mask || left.inheritable != (inherit ? mask : 0) ||
		left.ambient != (inherit ? mask : 0) || (left.bounding & ~mask))
		return fault_set(fault, ABOX_E_PERMISSION, 0, "capabilities",
			"capabilities are not as asked for: permitted %llx, bounding %llx",
			(unsigned long long)left.permitted, (unsigned long long)left.bounding);
	return 0;
}

int caps_no_new_privs(struct fault *fault)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "no_new_privs", "cannot set no_new_privs");
	return 0;
}
