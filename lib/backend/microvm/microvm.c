/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The microVM wall: QEMU in the outer namespaces, and beside it the server of the box's root, which is the same tree that
 * the namespaces wall would have: what is read-only there the host keeps so. The guest is the first program of the
 * machine and talks over a port, which is QEMU's stdin and stdout; console and QEMU itself write to stderr.
 *
 * Security: QEMU has no rights but those of a program in an empty root: no capabilities, its own filter on, no monitor,
 * no devices but those of its command line, no network but the box's cell, whose only way out is egress.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <agentbox/error.h>

#include "backend/microvm/microvm.h"
#include "backend/outer.h"
#include "base/clock.h"
#include "base/fd.h"
#include "kernel/caps.h"

#define READY_USEC (90 * USEC_PER_SEC)	/* by emulation on a busy machine it takes seconds */
#define TSC_USEC 10000
#define INNER_ROOT "/root"		/* in the machine, until it becomes the root there */
#define LISTS 4

/* What the server of files may do as another of the box's ids, and to drop the rest by itself. */
#define FILES_CAPS                                                                                           \
	(1ULL << 0 /* CHOWN */ | 1ULL << 1 /* DAC_OVERRIDE */ | 1ULL << 3 /* FOWNER */ | 1ULL << 4 /* FSETID */ | \
		CAPS_BIT(CAPS_SETGID) | CAPS_BIT(CAPS_SETUID) | CAPS_BIT(CAPS_SETPCAP) | 1ULL << 18 /* SYS_CHROOT */ | \
		CAPS_BIT(CAPS_MKNOD) | CAPS_BIT(CAPS_SETFCAP))

static char texts[SETUP_MOUNTS][PATH_MAX];
static struct guest_setup setup;
static uint64_t wanted_usec;

/* -- what the guest makes of the tree: what only its own kernel can -- */

static void add_mount(const char *source, const char *target, const char *type, const char *options, uint64_t flags)
{
	setup.mounts[setup.n_mounts++] = (struct setup_mount){ source, target, type, options, flags };
}

static void add_inner(const struct flat_step *step)
{
	static const uint64_t usual = MS_NOSUID | MS_NODEV | MS_NOEXEC;
	char *target = texts[setup.n_mounts];

	snprintf(target, sizeof(texts[0]), INNER_ROOT "%s", step->target);
	switch (step->op) {
	case FLAT_OP_PROC:
		add_mount("proc", target, "proc", "", usual);
		break;
	case FLAT_OP_DEVPTS:
		add_mount("devpts", target, "devpts", "newinstance,ptmxmode=0666,mode=0620", MS_NOSUID | MS_NOEXEC);
		break;
	case FLAT_OP_MQUEUE:
		add_mount("mqueue", target, "mqueue", "", usual);
		break;
	case FLAT_OP_MASK:
		add_mount("", target, SETUP_MASK, "", 0);
		break;
	case FLAT_OP_READONLY:
		add_mount("", target, SETUP_READONLY, "", 0);
		break;
	default:	/* of the kernel's own folders */
		add_mount(step->target, target, "", "", MS_BIND);
		add_mount("", target, SETUP_READONLY, "", 0);
		break;
	}
}

/* The cell is around QEMU, which carries the machine's connections into it. */
static int fill_link(const struct flat_network *network, struct fault *fault)
{
	if (network->mode == FLAT_NETWORK_NONE)
		return 0;
	if (network->n_ports > SETUP_PORTS)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "network", "too many ports");
	setup.link = 1;
	setup.link_v6 = network->cell.v6;
	for (setup.n_ports = 0; setup.n_ports < network->n_ports; setup.n_ports++)
		setup.ports[setup.n_ports] = network->ports[setup.n_ports];
	return 0;
}

static int fill_setup(const struct flat_plan *plan, const char *files, struct fault *fault)
{
	static uint8_t entropy[SETUP_ENTROPY_BYTES];

	if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy))
		return fault_set(fault, ABOX_E_SYSTEM, errno, "entropy", "there is none to be had");
	setup = (struct guest_setup){ .hostname = plan->hostname, .filter = plan->filter, .filter_len = plan->filter_len,
		.entropy = entropy, .entropy_len = sizeof(entropy), .memory_bytes = plan->limits.memory_bytes, .pids = plan->limits.pids, .own_kernel = 1, .loopback = plan->lo_up,
		.root = INNER_ROOT, .uid = plan->inside_uid, .gid = plan->inside_gid };
	add_mount("files", INNER_ROOT, files, "", MS_NOSUID);
	add_mount("sysfs", "/sys", "sysfs", "", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY);
	for (uint32_t i = 0; i < plan->n_steps; i++) {
		if (!(plan->steps[i].attr & FLAT_ATTR_INNER))
			continue;
		if (setup.n_mounts + 2 > SETUP_MOUNTS)
			return fault_set(fault, ABOX_E_LIMIT, 0, plan->steps[i].target, "too many mounts for the guest");
		add_inner(&plan->steps[i]);
	}
	return fill_link(&plan->network, fault);
}

/* -- the clock -- */

/* What the processor's counter runs at. An emulated machine passes it through but has no means to measure it: without
 * being told, its kernel gets stuck in half of all starts. */
static uint64_t tsc_khz(void)
{
#if defined(__x86_64__)
	struct timespec begin, now;
	uint64_t first, last, nsec;

	clock_gettime(CLOCK_MONOTONIC_RAW, &begin);
	first = __builtin_ia32_rdtsc();
	do {
		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		last = __builtin_ia32_rdtsc();
		nsec = (uint64_t)(now.tv_sec - begin.tv_sec) * 1000000000 + (uint64_t)now.tv_nsec - (uint64_t)begin.tv_nsec;
	} while (nsec < TSC_USEC * NSEC_PER_USEC);
	return (last - first) * 1000000 / nsec;
#else
	return 0;
#endif
}

/* The command lines of the plan, split where an empty word is: server of files, QEMU; and for a machine that may go on from
 * a template, whose memory is a number of MiB for the first word, what is added for a monitor and for going on. The kernel's
 * last word waits for a number. */
struct lines {
	const char *words[LISTS][MICROVM_WORDS];
	size_t n;
};
enum { LINE_FILES, LINE_MACHINE, LINE_CONTROL, LINE_GO_ON };

static int take_words(const struct flat_plan *plan, struct lines *lines, struct fault *fault)
{
	static const char wanted[] = " tsc_early_khz=";
	static char line[2048];
	size_t n = 0;

	lines->n = 0;
	for (size_t i = 0; plan->program && plan->program[i]; i++) {
		const char *word = plan->program[i];
		size_t len = strlen(word);

		if (!word[0]) {
			lines->words[lines->n++][n] = NULL;
			n = 0;
			if (lines->n == LISTS)
				break;
			continue;
		}
		if (n + 1 >= MICROVM_WORDS)
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "its command line is too long");
		if (len >= sizeof(wanted) - 1 && strcmp(word + len - (sizeof(wanted) - 1), wanted) == 0) {
			snprintf(line, sizeof(line), "%s%llu", word, (unsigned long long)tsc_khz());
			word = line;
		}
		lines->words[lines->n][n++] = word;
	}
	if (lines->n < LISTS)
		lines->words[lines->n++][n] = NULL;
	if ((lines->n != LINE_MACHINE + 1 && lines->n != LISTS) || !lines->words[LINE_FILES][0] || !lines->words[LINE_MACHINE][0])
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "it names no machine");
	return 0;
}

/* -- the programs -- */

static int spawn_files(const char *const *words, const char *path, int log_fd, struct bridge *bridge, struct fault *fault)
{
	int fd = microvm_listen(path, fault), r;

	if (fd < 0)
		return fd;
	r = caps_keep(FILES_CAPS, true, fault);
	if (r < 0)
		return r;
	bridge->second_pid = bridge_spawn(words, fd, log_fd, log_fd, -EBADF);
	fd_close(fd);
	if (bridge->second_pid < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -bridge->second_pid, "virtiofsd", "cannot start a process");
	return 0;
}

/* How much memory the machine has stands behind "-m", in MiB. */
static uint64_t memory_of(const char *const *words)
{
	for (; words[0] && words[1]; words++)
		if (strcmp(words[0], "-m") == 0)
			return strtoull(words[1], NULL, 10) << 20;
	return 0;
}

static int start_by_port(const struct flat_plan *plan, const struct lines *lines, struct bridge *bridge, struct bridge_pipes *pipes,
	struct fault *fault)
{
	struct microvm_template template = { .machine = lines->words[LINE_MACHINE], .control = lines->words[LINE_CONTROL],
		.go_on = lines->words[LINE_GO_ON], .memory_bytes = memory_of(lines->words[LINE_MACHINE]), .bridge = bridge };
	int fd, r;

	if (!template.memory_bytes)
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "its machine has no memory");
	fd = microvm_listen(MICROVM_FILES, fault);
	if (fd < 0)
		return fd;
	r = microvm_files_start(plan, fd, pipes->err_fd, fault);
	return r < 0 ? r : microvm_template_start(plan, &template, pipes, fault);
}

static int run(const struct flat_plan *plan, int scratch_fd, struct fault *fault)
{
	static struct lines lines;
	struct bridge bridge = { .name = "qemu", .second_name = "virtiofsd", .stage = "kernel", .scratch_fd = scratch_fd,
		.ready_usec = wanted_usec, .setup = &setup };
	struct bridge_pipes pipes;
	bool by_port;
	int r;

	r = bridge_start_cell(&bridge, plan, fault);
	if (r == 0)
		r = bridge_make_pipes(&bridge, &pipes, fault);
	if (r == 0)
		r = take_words(plan, &lines, fault);
	by_port = lines.n == LISTS;
	if (r == 0)
		r = fill_setup(plan, by_port ? SETUP_FILES : "virtiofs", fault);
	if (r == 0)
		r = spawn_files(lines.words[LINE_FILES], by_port ? MICROVM_SERVER : MICROVM_FILES, pipes.err_fd, &bridge, fault);
	if (r == 0)
		r = caps_drop_all(fault);
	if (r < 0)
		return r;
	setup.wall_usec = clock_wall_usec();
	r = by_port ? start_by_port(plan, &lines, &bridge, &pipes, fault)
		    : bridge_start(&bridge, lines.words[LINE_MACHINE], &pipes, fault);
	if (by_port)
		setup.wall_usec = clock_wall_usec();	/* the machine has just gone on */
	return r < 0 ? r : bridge_run(plan, &bridge, fault);
}

static int start(const struct flat_plan *plan, const struct cgroup_group *group, uint64_t ready_usec,
	struct backend_wall *ret, struct fault *fault)
{
	if (!flat_has_program(plan))
		return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "it names no machine");
	wanted_usec = ready_usec;
	return outer_start(plan, group, run, ret, fault);
}

const struct backend_ops backend_microvm = {
	.name = "microvm",
	.ready_usec = READY_USEC,
	.start = start,
	.join = outer_join,
	.stop = outer_stop,
};
