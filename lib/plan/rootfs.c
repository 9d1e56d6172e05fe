/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The root of the box: a read-only view of the host's system folders, or of a root folder such as an unpacked
 * image; and what every root gets besides: /dev, /proc, private writable places, all of them on one tmpfs
 * that is the quota.
 */
#include "plan/builder.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/path.h"
#include "kernel/landlock.h"

#define ROOT_TMPFS_BYTES                                                                                     \
	(16ULL << 20) /* folders, links and the small files of /etc; nothing that a command writes */

/* Folders of the system, whichever layout the host has: links are made again as links, folders are bound. */
static const char *const system_folders[] = {
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store",
};

static void add_system_folder(struct plan_builder *builder, const char *path)
{
	char link[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (lstat(path, &st) < 0)
		return;
	if (S_ISLNK(st.st_mode)) {
		n = readlink(path, link, sizeof(link) - 1);
		if (n <= 0)
			return;
		link[n] = 0;
		builder_symlink(builder, path, builder_text(builder, "%s", link));
		return;
	}
	if (!S_ISDIR(st.st_mode))
		return;
	builder_bind(builder,
		builder_source(builder, &(struct flat_source){ .path = path, .kind = FLAT_DIRECTORY }), path,
		FLAT_ATTR_RDONLY | FLAT_ATTR_RECURSIVE);
}

static int build_host_root(struct plan_builder *builder)
{
	builder->flat.root_source = -1;
	builder->flat.root_size_bytes = ROOT_TMPFS_BYTES;
	for (size_t i = 0; i < ELEMENTSOF(system_folders); i++)
		add_system_folder(builder, system_folders[i]);
	return 0;
}

static int build_folder_root(struct plan_builder *builder, abox_error **reterr)
{
	const char *path = spec_string(builder->spec, "/rootfs/path");
	char real[PATH_MAX];
	struct stat st;

	if (!builder->facts->overlay)
		return spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, "/rootfs/kind",
			"a root folder needs overlay mounts, which this host does not allow");
	if (!path || !realpath(path, real) || stat(real, &st) < 0)
		return spec_refuse(builder->spec, reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, "/rootfs/path",
			"cannot reach the root folder: %s", strerror(errno));
	if (!S_ISDIR(st.st_mode) || strcmp(real, "/") == 0)
		return spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, "/rootfs/path",
			"%s is not a folder that can be a root", real);
	builder->flat.root_source = builder_source(builder, &(struct flat_source){
		.path = builder_text(builder, "%s", real), .kind = FLAT_DIRECTORY });
	return 0;
}

static void add_device(struct plan_builder *builder, const char *name, unsigned int minor, unsigned int major)
{
	builder_bind(builder,
		builder_source(builder, &(struct flat_source){ .path = builder_text(builder, "/dev/%s", name),
			.kind = FLAT_DEVICE, .device_major = major, .device_minor = minor }),
		builder_text(builder, "/dev/%s", name), 0);
}

/* gVisor has devices, processes and a /sys of its own: places for them, and the shared memory. */
static void build_places(struct plan_builder *builder)
{
	builder_directory(builder, "/dev", 0755, 0);
	builder_directory(builder, "/proc", 0555, 0);
	builder_directory(builder, "/sys", 0555, 0);
	builder_scratch(builder, "shm", "/dev/shm", 01777, FLAT_ATTR_OWNER_BOX);
}

static void build_dev(struct plan_builder *builder)
{
	add_device(builder, "null", 3, 1);
	add_device(builder, "zero", 5, 1);
	add_device(builder, "full", 7, 1);
	add_device(builder, "random", 8, 1);
	add_device(builder, "urandom", 9, 1);
	add_device(builder, "tty", 0, 5);
	builder_directory(builder, "/dev/pts", 0755, 0);
	builder_step(
		builder, &(struct flat_step){ .op = FLAT_OP_DEVPTS, .target = "/dev/pts", .source = -1 });
	builder_symlink(builder, "/dev/ptmx", "pts/ptmx");
	builder_symlink(builder, "/dev/fd", "/proc/self/fd");
	builder_symlink(builder, "/dev/stdin", "/proc/self/fd/0");
	builder_symlink(builder, "/dev/stdout", "/proc/self/fd/1");
	builder_symlink(builder, "/dev/stderr", "/proc/self/fd/2");
	builder_scratch(builder, "shm", "/dev/shm", 01777, FLAT_ATTR_OWNER_BOX);
}

/*
 * Kernel files that tell about the host. Most are closed to everyone but the host's root, whom no box maps;
 * what anybody may read is masked. Where the caller is uid 0 without the right to map other ids, the box runs
 * as the host's uid 0 and everything is masked.
 */
static void build_proc(struct plan_builder *builder)
{
	static const char *const files[] = {
		"acpi",
		"asound",
		"bus",
		"cmdline",
		"config.gz",
		"fs",
		"irq",
		"kallsyms",
		"kcore",
		"key-users",
		"keys",
		"kmsg",
		"kpagecount",
		"kpageflags",
		"kpagecgroup",
		"latency_stats",
		"modules",
		"pagetypeinfo",
		"sched_debug",
		"scsi",
		"slabinfo",
		"sysrq-trigger",
		"timer_list",
		"timer_stats",
		"vmallocinfo",
	};
	bool outside_root = builder->flat.map == FLAT_MAP_SINGLE && builder->flat.outside_uid == 0;
	struct stat st;

	builder_directory(builder, "/proc", 0555, 0);
	builder_step(builder, &(struct flat_step){ .op = FLAT_OP_PROC, .target = "/proc", .source = -1 });
	for (size_t i = 0; i < ELEMENTSOF(files); i++) {
		const char *path = builder_text(builder, "/proc/%s", files[i]);

		if (stat(path, &st) < 0 || (!(st.st_mode & 07) && !outside_root))
			continue;
		builder_step(
			builder, &(struct flat_step){ .op = FLAT_OP_MASK, .target = path, .source = -1 });
	}
	builder_step(
		builder, &(struct flat_step){ .op = FLAT_OP_READONLY, .target = "/proc/sys", .source = -1 });
}

/* Which processors there are, for glibc, JVMs and schedulers of thread pools; nothing else of /sys. */
static void build_sys(struct plan_builder *builder)
{
	struct stat st;

	builder_directory(builder, "/sys", 0555, 0);
	if (stat("/sys/devices/system/cpu", &st) < 0)
		return;
	builder_bind(builder,
		builder_source(builder, &(struct flat_source){
			.path = "/sys/devices/system/cpu", .kind = FLAT_DIRECTORY, .optional = 1 }),
		"/sys/devices/system/cpu", FLAT_ATTR_RDONLY | FLAT_ATTR_OPTIONAL);
}

static void build_writable(struct plan_builder *builder)
{
	static const char *const writable[] = { "/tmp", "/var/tmp", "/run", "/dev/shm", "/workspace" };

	builder_scratch(builder, "tmp", "/tmp", 01777, FLAT_ATTR_OWNER_BOX);
	builder_scratch(builder, "run", "/run", 0755, FLAT_ATTR_OWNER_BOX);
	builder_scratch(builder, "home", builder->flat.home, 0700, FLAT_ATTR_OWNER_BOX);
	builder_symlink(builder, "/var/run", "/run");
	builder_symlink(builder, "/var/lock", "/tmp");
	if (builder->flat.root_source < 0)
		builder_symlink(builder, "/var/tmp", "/tmp");
	else	/* it is there, and is not ours to replace */
		builder_scratch(builder, "vartmp", "/var/tmp", 01777, FLAT_ATTR_OWNER_BOX);
	builder_directory(builder, "/var/lib", 0755, 0);
	for (size_t i = 0; i < ELEMENTSOF(writable); i++)
		builder_landlock(builder, writable[i], LANDLOCK_RW);
	builder_landlock(builder, builder->flat.home, LANDLOCK_RW);
	builder_landlock(builder, "/", LANDLOCK_RO);
	builder_landlock(builder, "/dev", LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_DEVICE);
	builder_landlock(builder, "/proc", LANDLOCK_READ | LANDLOCK_WRITE);
}

int plan_build_rootfs(struct plan_builder *builder, abox_error **reterr)
{
	bool folder = strcmp(spec_string(builder->spec, "/rootfs/kind"), "dir") == 0;
	int r;

	r = folder ? build_folder_root(builder, reterr) : build_host_root(builder);
	if (r < 0)
		return r;
	if (builder->wall != PLAN_GVISOR) {
		build_dev(builder);
		build_proc(builder);
		build_sys(builder);
	} else {
		build_places(builder);
	}
	build_writable(builder);
	return builder->wall == PLAN_GVISOR ? plan_gvisor_inside(builder, reterr) : 0;
}
