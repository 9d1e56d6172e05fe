/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The report on a host. What is promised: each line says what is enforced and by what, or what is in the way;
 * nothing is called enforced that a plan could not enforce. The facts behind it are found in facts.c.
 */
#include "probe/probe.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "probe/cell.h"

struct backend {
	const char *name;
	int isolation;
	bool usable;
	const char *version;
	const char *blocker;
	const char *remedy;
};

struct capability {
	const char *name;
	int status;
	const char *by;
	const char *detail;
	const char *remedy;
};

#define MAX_CAPABILITIES 32
#define KVM_TRIAL_USEC (10 * USEC_PER_SEC)	/* by hardware a machine is there in one */

struct abox_host {
	atomic_uint n_refs;
	struct host_facts facts;
	char version[80];
	struct runsc_facts runsc;
	char runsc_version[512];
	struct machine_host machine;
	struct kvm_verdict kvm;
	char machine_version[512];
	char landlock[64];
	struct backend backends[3];
	struct capability capabilities[MAX_CAPABILITIES];
	size_t n_capabilities;
};

static const char *filled(const char *text)
{
	return text[0] ? text : NULL;
}

static void describe_backends(abox_host *host)
{
	const struct host_facts *facts = &host->facts;

	snprintf(host->version, sizeof(host->version), "Linux %s", facts->release);
	if (host->runsc.version[0])
		snprintf(host->runsc_version, sizeof(host->runsc_version), "runsc %s on %s (%s)%s", host->runsc.version,
			host->runsc.platform, host->runsc.choice,
			host->runsc.no_automount ? ", without AT_NO_AUTOMOUNT" : "");
	host->backends[0] = (struct backend){ "namespaces", ABOX_ISOLATION_NAMESPACES, !facts->blocker[0],
		host->version, filled(facts->blocker), filled(facts->remedy) };
	host->backends[1] = (struct backend){ "gvisor", ABOX_ISOLATION_GVISOR, !host->runsc.blocker[0],
		filled(host->runsc_version), filled(host->runsc.blocker), filled(host->runsc.remedy) };
	/* the machine's programs stand in the same namespaces */
	if (facts->blocker[0]) {
		snprintf(host->machine.blocker, sizeof(host->machine.blocker), "%s", facts->blocker);
		snprintf(host->machine.remedy, sizeof(host->machine.remedy), "%s", facts->remedy);
	}
	if (host->machine.kernel.release[0])
		snprintf(host->machine_version, sizeof(host->machine_version), "Linux %s in QEMU, %s%s%s", host->machine.kernel.release,
			host->kvm.works && host->machine.kvm_for_boxes ? "by KVM" : "emulated",
			host->kvm.works && host->machine.kvm_for_boxes ? "" : "; KVM: ",
			!host->kvm.works ? host->kvm.text
			: host->machine.kvm_for_boxes
				? ""
				: "works, but /dev/kvm is not open to everybody, and a box is nobody of the host's");
	host->backends[2] = (struct backend){ "microvm", ABOX_ISOLATION_MICROVM, !host->machine.blocker[0],
		filled(host->machine_version), filled(host->machine.blocker), filled(host->machine.remedy) };
}

static void add(
	abox_host *host, const char *name, int status, const char *by, const char *detail, const char *remedy)
{
	if (host->n_capabilities < MAX_CAPABILITIES)
		host->capabilities[host->n_capabilities++] =
			(struct capability){ name, status, by, detail, remedy };
}

/* What only a control group can keep. */
static void add_by_cgroup(abox_host *host, const char *name, enum cgroup_controller controller)
{
	const struct cgroup_layout *layout = &host->facts.cgroup;

	if (layout->limits_version && (layout->controllers & CGROUP_BIT(controller)))
		add(host, name, ABOX_ENFORCED,
			layout->limits_version == 2 ? "kernel: cgroup v2" : "kernel: cgroup v1", NULL, NULL);
	else
		add(host, name, ABOX_NOT_ENFORCED, "nothing",
			layout->reason[0] ? layout->reason : "the host has no such controller for this user",
			filled(layout->remedy));
}

static void add_pids(abox_host *host)
{
	const struct host_facts *facts = &host->facts;

	if (facts->cgroup.limits_version && (facts->cgroup.controllers & CGROUP_BIT(CGROUP_PIDS)))
		add_by_cgroup(host, "limits.pids", CGROUP_PIDS);
	else if (facts->uid == 0 &&
		 facts->userns == USERNS_SINGLE) /* the limit does not bind the host's uid 0 */
		add_by_cgroup(host, "limits.pids", CGROUP_PIDS);
	else
		add(host, "limits.pids", ABOX_ENFORCED, "kernel: RLIMIT_NPROC in the box's user namespace",
			NULL, NULL);
}

static void add_limits(abox_host *host)
{
	add(host, "limits.wall", ABOX_ENFORCED, "keeper", NULL, NULL);
	add(host, "limits.idle", ABOX_ENFORCED, "keeper", NULL, NULL);
	add(host, "limits.output", ABOX_ENFORCED, "library and keeper: captured, copied and spooled streams",
		NULL, NULL);
	add(host, "limits.disk", ABOX_ENFORCED, "kernel: one tmpfs for every writable place",
		"a directly mounted workspace is not in it", NULL);
	add(host, "limits.inodes", ABOX_ENFORCED, "kernel: one tmpfs for every writable place", NULL, NULL);
	add(host, "limits.open_files", ABOX_ENFORCED, "kernel: RLIMIT_NOFILE of each process", NULL, NULL);
	add_by_cgroup(host, "limits.memory", CGROUP_MEMORY);
	add_by_cgroup(host, "limits.cpus", CGROUP_CPU);
	add_pids(host);
}

static void add_landlock(abox_host *host)
{
	int abi = host->facts.landlock_abi;

	if (abi < 2) {
		add(host, "landlock", ABOX_NOT_ENFORCED, "nothing",
			"no Landlock of ABI 2 or later; the first layer (mounts) stands alone",
			"use Linux 5.19 or later with landlock in CONFIG_LSM or boot with lsm=landlock,...");
		return;
	}
	snprintf(host->landlock, sizeof(host->landlock), "ABI %d, second layer%s", abi,
		abi >= 6 ? ", scopes" : "");
	add(host, "landlock", ABOX_ENFORCED, "kernel: landlock", host->landlock, NULL);
}

static void add_commands(abox_host *host)
{
	const struct host_facts *facts = &host->facts;

	if (facts->kill == KILL_CGROUP2)
		add(host, "command.tree", ABOX_ENFORCED, "kernel: cgroup.kill per command", NULL, NULL);
	else if (facts->kill == KILL_SCOPE)
		add(host, "command.tree", ABOX_ENFORCED, "kernel: landlock signal scope per command", NULL,
			NULL);
	else
		add(host, "command.tree", ABOX_ENFORCED, "kernel: a pid namespace per command",
			"commands do not see each other", NULL);
	if (facts->cgroup.tree_dir[0])
		add(host, "pause", ABOX_ENFORCED, "kernel: cgroup.freeze", NULL, NULL);
	else
		add(host, "pause", ABOX_APPROXIMATED, "guest: SIGSTOP to every process",
			"processes can notice it", filled(facts->cgroup.remedy));
}

static void describe_capabilities(abox_host *host)
{
	if (!host->backends[0].usable)
		return;	/* nothing is enforced by a wall that cannot be built */
	add(host, "filesystem", ABOX_ENFORCED, "kernel: mount namespace, private read-only root", NULL, NULL);
	add(host, "processes", ABOX_ENFORCED, "kernel: pid, ipc, uts and cgroup namespaces", NULL, NULL);
	add(host, "capabilities", ABOX_ENFORCED, "kernel: none, no_new_privs", NULL, NULL);
	add(host, "network", ABOX_ENFORCED, "kernel: network namespace",
		"none: only the box's own loopback; else connections through egress", NULL);
	add(host, "seccomp", ABOX_ENFORCED, "kernel: seccomp filter", NULL, NULL);
	add_landlock(host);
	add_commands(host);
	add_limits(host);
	if (host->facts.overlay)
		add(host, "workspace.overlay", ABOX_ENFORCED, "kernel: overlay",
			host->facts.overlay_fd ? NULL : "layers by text: few of them", NULL);
	else
		add(host, "workspace.overlay", ABOX_NOT_ENFORCED, "nothing",
			"this kernel mounts no overlay in a user namespace",
			"use Linux 5.15 or later with OVERLAY_FS, or a workspace of mode copy or direct");
	if (host->facts.userns == USERNS_ROOT)
		add(host, "ids", ABOX_ENFORCED, "kernel: a high range of ids of the box's own", NULL, NULL);
	else
		add(host, "ids", ABOX_ENFORCED,
			host->facts.userns == USERNS_TOOLS ? "newuidmap: subordinate ids"
							   : "kernel: one id, the caller's own",
			"on the host, files that the box makes belong to the caller", NULL);
}

/* What a box with a network has here. */
static void describe_cell(abox_host *host)
{
	struct cell_shape cell;

	if (!host->backends[0].usable)
		return;
	if (host_cell_read(&cell) < 0)
		add(host, "network.ports", ABOX_NOT_ENFORCED, "nothing",
			"this host cannot make the network of a box: only mode none can be had", NULL);
	else if (cell.port_rules)
		add(host, "network.ports", ABOX_ENFORCED, "kernel: routing rules by port", NULL, NULL);
	else
		add(host, "network.ports", ABOX_NOT_ENFORCED, "nothing",
			"ports that no rule names lead to the box itself, whatever the address",
			"use a kernel with IP_MULTIPLE_TABLES and IPV6_MULTIPLE_TABLES");
	add(host, "network.addresses", ABOX_ENFORCED, "egress",
		"not where the host has a proxy: it resolves the names", NULL);
}

int host_new(const struct host_facts *facts, const struct runsc_facts *runsc, const struct machine_host *machine,
	const struct kvm_verdict *kvm, abox_host **ret)
{
	abox_host *host = calloc(1, sizeof(*host));

	if (!host)
		return ABOX_E_MEMORY;
	host->n_refs = 1;
	host->facts = *facts;
	if (runsc)
		host->runsc = *runsc;
	else
		snprintf(host->runsc.blocker, sizeof(host->runsc.blocker), "not looked at");
	if (machine)
		host->machine = *machine;
	else
		snprintf(host->machine.blocker, sizeof(host->machine.blocker), "not looked at");
	if (kvm)
		host->kvm = *kvm;
	describe_backends(host);
	describe_capabilities(host);
	*ret = host;
	return 0;
}

const struct host_facts *host_get_facts(const abox_host *host)
{
	return &host->facts;
}

int abox_probe(abox_host **rethost, abox_error **reterr)
{
	struct host_facts facts;
	struct machine_host machine;
	struct runsc_facts runsc;
	struct kvm_verdict kvm;
	int r;

	if (!rethost)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_PROBE, NULL, "rethost is required");
	r = host_facts_read(&facts, reterr);
	if (r < 0)
		return r;
	r = runsc_facts_read(&facts, &runsc, reterr);
	if (r == 0)
		r = machine_host_read(NULL, ABOX_STAGE_PROBE, &machine, reterr);
	if (r == 0)
		kvm_recall(&machine, &kvm);
	if (r == 0)
		r = host_new(&facts, &runsc, &machine, &kvm, rethost);
	if (r == 0)
		describe_cell(*rethost);
	return r;
}

int abox_probe_try(abox_error **reterr)
{
	struct machine_host machine;
	struct kvm_verdict kvm;
	int r;

	r = machine_host_read(NULL, ABOX_STAGE_PROBE, &machine, reterr);
	return r < 0 ? r : kvm_try(&machine, KVM_TRIAL_USEC, &kvm, reterr);
}

abox_host *abox_host_ref(abox_host *host)
{
	if (host)
		atomic_fetch_add_explicit(&host->n_refs, 1, memory_order_relaxed);
	return host;
}

abox_host *abox_host_unref(abox_host *host)
{
	if (host && atomic_fetch_sub_explicit(&host->n_refs, 1, memory_order_acq_rel) == 1)
		free(host);
	return NULL;
}

static const struct backend *backend_at(const abox_host *host, uint32_t index)
{
	static const struct backend none = { .name = NULL };

	return host && index < ELEMENTSOF(host->backends) ? &host->backends[index] : &none;
}

const char *abox_host_backend_name(const abox_host *host, uint32_t index)
{
	return backend_at(host, index)->name;
}

int abox_host_backend_usable(const abox_host *host, uint32_t index)
{
	return backend_at(host, index)->usable;
}

int abox_host_backend_isolation(const abox_host *host, uint32_t index)
{
	return backend_at(host, index)->isolation;
}

const char *abox_host_backend_version(const abox_host *host, uint32_t index)
{
	return backend_at(host, index)->version;
}

const char *abox_host_backend_blocker(const abox_host *host, uint32_t index)
{
	return backend_at(host, index)->blocker;
}

const char *abox_host_backend_remedy(const abox_host *host, uint32_t index)
{
	return backend_at(host, index)->remedy;
}

static const struct capability *capability_at(const abox_host *host, uint32_t index)
{
	static const struct capability none = { .name = NULL };

	return host && index < host->n_capabilities ? &host->capabilities[index] : &none;
}

const char *abox_host_capability_name(const abox_host *host, uint32_t index)
{
	return capability_at(host, index)->name;
}

int abox_host_capability_status(const abox_host *host, uint32_t index)
{
	return capability_at(host, index)->status;
}

const char *abox_host_capability_by(const abox_host *host, uint32_t index)
{
	return capability_at(host, index)->by;
}

const char *abox_host_capability_detail(const abox_host *host, uint32_t index)
{
	return capability_at(host, index)->detail;
}

const char *abox_host_capability_remedy(const abox_host *host, uint32_t index)
{
	return capability_at(host, index)->remedy;
}

const char *abox_enforcement_name(int enforcement)
{
	static const char *const names[] = { "not enforced", "watched", "approximated", "enforced" };

	return enforcement >= 0 && (size_t)enforcement < ELEMENTSOF(names) ? names[enforcement] : "?";
}
