/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Version and features of this build.
 */
#include <agentbox/version.h>

#include <stdlib.h>

const char *abox_version(void)
{
	return ABOX_VERSION;
}

const char *abox_features(void)
{
	return "namespaces gvisor microvm seccomp landlock cgroup1 cgroup2 network credential workspace file "
	       "journal effect task report";
}

void abox_free(void *memory)
{
	free(memory);
}
