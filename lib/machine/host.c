/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether this host can start virtual machines for boxes, and with what. Only looks: whether a kernel really starts by
 * hardware is found out by starting one (probe/kvm.c).
 */
#include "machine/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static void find_program(const char *const *paths, char *ret, size_t size)
{
	for (size_t i = 0; paths[i]; i++) {
		if (access(paths[i], X_OK) != 0)
			continue;
		snprintf(ret, size, "%s", paths[i]);
		return;
	}
	ret[0] = 0;
}

static int block(struct machine_host *host, const char *blocker, const char *remedy)
{
	if (!host->blocker[0]) {
		snprintf(host->blocker, sizeof(host->blocker), "%s", blocker);
		snprintf(host->remedy, sizeof(host->remedy), "%s", remedy);
	}
	return 0;
}

/* In its namespaces QEMU is nobody of the host's where root starts it, and has no groups: only what is open to everybody can be
 * used for a box. */
static void look_at_kvm(struct machine_host *host)
{
	struct stat st;

	if (stat("/dev/kvm", &st) < 0)
		snprintf(host->kvm_closed, sizeof(host->kvm_closed), "there is no /dev/kvm");
	else if (access("/dev/kvm", R_OK | W_OK) < 0)
		snprintf(host->kvm_closed, sizeof(host->kvm_closed), "/dev/kvm is closed to this user");
	else
		host->kvm_for_boxes = (st.st_mode & 06) == 06;
}

int machine_host_read(const char *wanted_kernel, int stage, struct machine_host *ret, abox_error **reterr)
{
	static const char *const machines[] = { "/usr/bin/qemu-system-x86_64", "/usr/libexec/qemu-kvm", NULL };
	static const char *const servers[] = { "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd", "/usr/bin/virtiofsd", NULL };
	abox_error *error = NULL;
	int r;

	memset(ret, 0, sizeof(*ret));
#if !defined(__x86_64__)
	block(ret, "virtual machines are for x86-64 only in this build", "use another wall");
#endif
	find_program(machines, ret->qemu, sizeof(ret->qemu));
	find_program(servers, ret->virtiofsd, sizeof(ret->virtiofsd));
	look_at_kvm(ret);
	if (!ret->qemu[0])
		block(ret, "there is no QEMU for x86-64 machines", "apt-get install qemu-system-x86");
	else if (!ret->virtiofsd[0])
		block(ret, "there is no virtiofsd, which shares the files", "apt-get install virtiofsd");
	r = machine_kernel_find(wanted_kernel, stage, &ret->kernel, &error);
	if (r < 0 && r != ABOX_E_MEMORY && string_empty(wanted_kernel)) {
		block(ret, abox_error_get_message(error), abox_error_get_remedy(error));
		r = 0;
	}
	if (r < 0 && reterr) {
		*reterr = error;
		return r;
	}
	abox_error_free(error);
	return r;
}
