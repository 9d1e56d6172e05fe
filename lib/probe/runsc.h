/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What runsc of this host is, and whether the gVisor wall can be built with it. */
#ifndef PROBE_RUNSC_H
#define PROBE_RUNSC_H

#include <linux/limits.h>

#include "probe/facts.h"

enum runsc_platform {
	RUNSC_KVM,	/* only where it was tried: a device that opens may still hang a guest */
	RUNSC_SYSTRAP,
	RUNSC_PTRACE,
	RUNSC_PLATFORMS,
};

struct runsc_facts {
	char path[PATH_MAX];
	char version[64];
	char platform[16];		/* the one that a box would run on */
	char choice[320];		/* why that one, for people */
	bool platforms[RUNSC_PLATFORMS];	/* that this release has */
	char key[PATH_MAX + 160];	/* for whom a verdict on them is; "": for nobody */
	bool has_overlay2, has_directfs, has_host_uds;	/* flags of this release */
	bool no_automount;		/* statx(2) with AT_NO_AUTOMOUNT fails: GNU ls and stat do not work unaided */
	char blocker[256];		/* "" when it can be used */
	char remedy[256];
};

/* Runs `runsc --version` and `runsc flags` once per file that runsc is (some 50 ms; remembered by the process). facts tell
 * whether the namespaces around it can be made. 0, ABOX_E_MEMORY; what cannot be used is no error but a blocker. */
int runsc_facts_read(const struct host_facts *facts, struct runsc_facts *ret, abox_error **reterr);

/*
 * How a box came up on the platform that was read; trouble NULL: it stands. It is kept for this boot of the host, this user
 * and this file of runsc. The next plan takes the fastest platform that has not failed; one that has worked is not said to
 * fail by a start that does, since machines are busy at times.
 */
void runsc_facts_tell(const struct runsc_facts *facts, const char *trouble);

#endif
