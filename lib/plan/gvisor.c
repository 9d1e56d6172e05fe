/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a plan has besides for the gVisor wall: the guest program inside, runsc with its bundle in the outer root, and what is
 * enforced by whom. The tree of the box is the same as behind namespaces: its mounts carry what is read-only and the quota,
 * on the host's side of the gofer.
 */
#include "plan/builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/helper.h"
#include "probe/runsc.h"

#define GUEST "/.agentbox/guest"
#define PRELOAD "/.agentbox/stat-shim.so"
#define BUNDLE "/bundle"
#define SENTRY_BYTES (96ULL << 20)	/* less leaves nothing for a command */
#define SENTRY_PIDS 1024	/* threads of sentry and gofer, and stubs of processes, dead ones too for a while */

static int add_image(struct plan_builder *builder, const char *name, const char *target, uint32_t mode, abox_error **reterr)
{
	_cleanup_(freep) void *image = NULL;
	size_t len;
	int r;

	r = helper_read(name, &image, &len, reterr);
	if (r < 0)
		return r;
	builder_file(builder, target, mode, builder_bytes(builder, image, len), len);
	return 0;
}

int plan_gvisor_inside(struct plan_builder *builder, abox_error **reterr)
{
	int r = add_image(builder, "guest", GUEST, 0555, reterr);

	if (r < 0 || !builder->runsc->no_automount)
		return r;
	r = add_image(builder, "statshim", PRELOAD, 0555, reterr);
	if (r < 0)
		return r;
	builder_file(builder, "/etc/ld.so.preload", 0644, PRELOAD "\n", strlen(PRELOAD) + 1);
	builder_warn(builder,
		"this runsc answers EINVAL to AT_NO_AUTOMOUNT, which GNU ls and stat use: %s, preloaded by /etc/ld.so.preload, "
		"takes the flag away; static programs that use it stay broken", PRELOAD);
	return 0;
}

/* -- the bundle -- */

static void outer(struct plan_builder *builder, const struct flat_step *step)
{
	struct flat_step copy = *step;

	copy.attr |= FLAT_ATTR_OUTER;
	if (copy.op != FLAT_OP_BIND)
		copy.source = -1;
	builder_step(builder, &copy);
}

static void outer_folder(struct plan_builder *builder, const char *target)
{
	outer(builder, &(struct flat_step){ .op = FLAT_OP_DIRECTORY, .target = target, .mode = 0755 });
}

static void add_capabilities(struct text *text)
{
	static const char *const sets[] = { "bounding", "effective", "permitted", "inheritable" };
	/* of the guest; a command has none */
	static const char *const caps = "[\"CAP_CHOWN\",\"CAP_DAC_OVERRIDE\",\"CAP_DAC_READ_SEARCH\",\"CAP_FOWNER\",\"CAP_KILL\","
		"\"CAP_SETGID\",\"CAP_SETUID\",\"CAP_SETPCAP\",\"CAP_SYS_ADMIN\",\"CAP_SYS_CHROOT\",\"CAP_SYS_RESOURCE\","
		"\"CAP_SYS_PTRACE\"]";

	text_add(text, "\"capabilities\":{");
	for (size_t i = 0; i < ELEMENTSOF(sets); i++)
		text_printf(text, "%s\"%s\":%s", i ? "," : "", sets[i], caps);
	text_add(text, "}");
}

/* Writable places are mounts of their own in the sandbox too, so that everything else is read-only there as well. */
static bool is_writable(const struct flat_step *step)
{
	if (step->attr & (FLAT_ATTR_RDONLY | FLAT_ATTR_OUTER))
		return false;
	return step->op == FLAT_OP_SCRATCH || step->op == FLAT_OP_OVERLAY || step->op == FLAT_OP_TMPFS ||
		step->op == FLAT_OP_BIND;
}

static void add_mount(struct text *text, const char *target)
{
	text_add(text, ",{\"type\":\"bind\",\"options\":[\"rbind\",\"rw\"],\"destination\":");
	text_add_json(text, target, strlen(target));
	text_add(text, ",\"source\":\"" FLAT_BOX);
	text_add_escaped(text, target, strlen(target));
	text_add(text, "\"}");
}

static const char *config(struct plan_builder *builder)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const struct flat_plan *flat = &builder->flat;

	text_add(&text, "{\"ociVersion\":\"1.0.2\",\"hostname\":");
	text_add_json(&text, flat->hostname, strlen(flat->hostname));
	text_add(&text, ",\"root\":{\"path\":\"" FLAT_BOX "\",\"readonly\":true},\"process\":{\"user\":{\"uid\":0,\"gid\":0},"
			"\"args\":[\"" GUEST "\"],\"env\":[],\"cwd\":\"/\",");
	add_capabilities(&text);
	text_add(&text, "},\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"}");
	for (uint32_t i = 0; i < flat->n_steps; i++) {
		if (is_writable(&flat->steps[i]))
			add_mount(&text, flat->steps[i].target);
	}
	text_add(&text, "],\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":\"mount\"}]}}");
	if (text.failed) {
		builder->failed = true;
		return "";
	}
	return builder_text(builder, "%s", text.data);
}

static void add_program(struct plan_builder *builder)
{
	const struct runsc_facts *runsc = builder->runsc;
	const char *argv[16];
	size_t n = 0;

	argv[n++] = "/runsc";
	argv[n++] = "--root=/state";
	/* the box's own network namespace is around it */
	argv[n++] = "--network=host";
	argv[n++] = "--ignore-cgroups";
	argv[n++] = builder_text(builder, "--platform=%s", runsc->platform);
	if (runsc->has_overlay2)
		argv[n++] = "--overlay2=none";	/* quotas and layers are the kernel's */
	if (runsc->has_directfs)
		argv[n++] = "--directfs=false";	/* all files go through the gofer */
	if (runsc->has_host_uds)
		argv[n++] = "--host-uds=none";
	argv[n++] = "run";
	argv[n++] = "--bundle=" BUNDLE;
	argv[n++] = "box";
	argv[n] = NULL;
	builder->flat.program = builder_bytes(builder, argv, (n + 1) * sizeof(*argv));
}

int plan_build_gvisor(struct plan_builder *builder, abox_error **reterr)
{
	const char *text;
	int32_t runsc, null;

	if (builder->wall != PLAN_GVISOR)
		return 0;
	text = config(builder);
	outer_folder(builder, "/proc");
	outer(builder, &(struct flat_step){ .op = FLAT_OP_PROC, .target = "/proc" });
	outer_folder(builder, "/dev");
	outer_folder(builder, "/tmp");
	outer_folder(builder, "/state");
	outer_folder(builder, BUNDLE);
	outer(builder, &(struct flat_step){ .op = FLAT_OP_FILE, .target = BUNDLE "/config.json", .mode = 0600, .content = text,
		.content_len = strlen(text) });
	null = builder_source(builder, &(struct flat_source){ .path = "/dev/null", .kind = FLAT_DEVICE, .device_major = 1,
		.device_minor = 3 });
	outer(builder, &(struct flat_step){ .op = FLAT_OP_BIND, .target = "/dev/null", .source = null });
	if (strcmp(builder->runsc->platform, "kvm") == 0)
		outer(builder, &(struct flat_step){ .op = FLAT_OP_BIND, .target = "/dev/kvm",
			.source = builder_source(builder, &(struct flat_source){ .path = "/dev/kvm", .kind = FLAT_DEVICE,
				.device_major = 10, .device_minor = 232 }) });
	runsc = builder_source(builder, &(struct flat_source){ .path = builder_text(builder, "%s", builder->runsc->path),
		.kind = FLAT_FILE });
	outer(builder, &(struct flat_step){ .op = FLAT_OP_BIND, .target = "/runsc", .source = runsc, .attr = FLAT_ATTR_RDONLY });
	add_program(builder);
	return 0;
}

/* -- what is enforced -- */

int plan_gvisor_limits(struct plan_builder *builder, abox_error **reterr)
{
	struct flat_plan *flat = &builder->flat;

	flat->limits.own_by_rlimit = 1;
	flat->limits.pids_by_rlimit = 1;
	/* the group holds sentry and gofer: where it bites the box ends, so commands meet their own limit before */
	if (flat->cgroup_limits.pids)
		flat->cgroup_limits.pids = flat->cgroup_limits.pids * 4 + SENTRY_PIDS;
	if (flat->cgroup_limits.memory_bytes && flat->cgroup_limits.memory_bytes < SENTRY_BYTES)
		return error_remedy(reterr,
			spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, "/limits/memory",
				"the gVisor wall itself takes more than %llu MiB", SENTRY_BYTES >> 20),
			"allow at least %llu MiB", SENTRY_BYTES >> 20);
	return 0;
}

void plan_gvisor_walls(struct plan_builder *builder)
{
	const struct runsc_facts *runsc = builder->runsc;

	builder->flat.kill = FLAT_KILL_PIDNS;
	enforcement_add(builder, &(struct enforcement){ .name = "filesystem", .required = true,
		.by = builder_text(builder, "gVisor %s (%s): gofer over a private tree; kernel: mount namespace, read-only root",
			runsc->version, runsc->platform),
		.detail = "chmod, truncate and utime of a read-only file may be answered with success and do nothing; /dev/tty "
			  "cannot be opened by name" });
	enforcement_add(builder, &(struct enforcement){ .name = "processes", .required = true,
		.by = "gVisor: processes of its own kernel; kernel: user, pid, ipc, uts and cgroup namespaces around it",
		.detail = "in /proc everybody in the box reads environment, maps and numbers of descriptors of all processes of the box; "
			  "/sys is gVisor's" });
	enforcement_add(builder, &(struct enforcement){ .name = "capabilities", .required = true,
		.by = "gVisor: none, no_new_privs",
		.detail = "/proc/self/status has no line for no_new_privs" });
	enforcement_add(builder, &(struct enforcement){ .name = "command.tree", .required = true,
		.by = "gVisor: a pid namespace per command (commands do not see each other)",
		.detail = "a command is killed with everything it has started; /proc shows the numbers of the box" });
}
