/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a plan has besides for the microVM wall: the machine's command line, its first filesystem, and an outer root in
 * which QEMU and the server of files run. The tree of the box is the same as behind namespaces: what is read-only there,
 * and the quota, are the host kernel's, on the host's side of the machine. What only the machine's own kernel can mount
 * (/proc, terminals) the guest mounts behind the wall.
 */
#include "plan/builder.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/helper.h"
#include "machine/machine.h"
#include "network/cell.h"
#include "probe/kvm.h"

#define KERNEL "/kernel"
#define INITRAMFS "/initramfs"
#define FILES_SOCKET "/files"	/* these three as in backend/microvm/microvm.h */
#define CONTROL_SOCKET "/control"
#define MEMORY_FILE "/proc/self/fd/3"
#define OWN_BYTES (128ULL << 20)	/* what a machine needs besides: kernel, first filesystem, page tables */
#define MAX_WORDS 128
#define MAX_CPUS 64


/* -- what the guest mounts -- */

static bool is_kernels_own(const struct flat_step *step)
{
	return step->op == FLAT_OP_PROC || step->op == FLAT_OP_DEVPTS || step->op == FLAT_OP_MQUEUE ||
		strncmp(step->target, "/proc/", 6) == 0 ||
		(step->op == FLAT_OP_BIND && strncmp(step->target, "/sys/", 5) == 0);
}

static void mark_inner(struct plan_builder *builder)
{
	for (uint32_t i = 0; i < builder->flat.n_steps; i++) {
		struct flat_step *step = &builder->flat.steps[i];

		if (!is_kernels_own(step))
			continue;
		if (step->op == FLAT_OP_BIND)
			*step = (struct flat_step){ .op = FLAT_OP_DIRECTORY, .target = step->target, .mode = 0555, .source = -1,
				.name = "", .content = "" };
		step->attr |= FLAT_ATTR_INNER;
	}
}

/* -- the first filesystem -- */

/* Only where a machine has been seen to start by it, and nobody of the host's may open the device. */
static void choose_hardware(struct plan_builder *builder)
{
	struct kvm_verdict verdict;

	kvm_recall(builder->machine, &verdict);
	builder->machine->kvm_for_boxes = verdict.works && builder->machine->kvm_for_boxes;
}

static bool by_kvm(const struct plan_builder *builder)
{
	return builder->machine->kvm_for_boxes;
}

/* Whether the machine has a device for its files. Then it is in the middle of what the host does, and can be no template. By
 * hardware it starts in a moment from its kernel, and has the device too. */
static bool is_live(const struct plan_builder *builder)
{
	return strcmp(spec_string(builder->spec, "/files"), "live") == 0 || by_kvm(builder);
}

static int build_archive(struct plan_builder *builder, const struct machine_host *host, struct text *archive, abox_error **reterr)
{
	const char *const wanted[] = { "virtio_mmio", "virtio_console", is_live(builder) ? "virtiofs" : "fuse",
		plan_has_network(builder) ? "virtio_net" : NULL, NULL };
	_cleanup_(freep) void *guest = NULL;
	struct machine_modules list;
	size_t len;
	int r;

	r = helper_read("guest", &guest, &len, reterr);
	if (r < 0)
		return r;
	machine_archive_file(archive, MACHINE_GUEST, 0555, guest, len);
	r = machine_modules_find(&host->kernel, wanted, ABOX_STAGE_PLAN, &list, reterr);
	if (r < 0)
		return r;
	r = machine_archive_modules(archive, &host->kernel, &list, ABOX_STAGE_PLAN, reterr);
	machine_modules_clear(&list);
	machine_archive_end(archive);
	return r == 0 && archive->failed ? ABOX_E_MEMORY : r;
}

/* -- the outer root -- */

static void outer(struct plan_builder *builder, const struct flat_step *step)
{
	struct flat_step copy = *step;

	copy.attr |= FLAT_ATTR_OUTER;
	if (copy.op != FLAT_OP_BIND)
		copy.source = -1;
	builder_step(builder, &copy);
}

static void outer_bind(struct plan_builder *builder, const struct flat_source *source, const char *target, uint32_t attr)
{
	outer(builder, &(struct flat_step){ .op = FLAT_OP_BIND, .target = target, .attr = attr,
		.source = builder_source(builder, source) });
}

/* Programs and libraries of the host. */
static void add_system(struct plan_builder *builder)
{
	static const char *const folders[] = { "/usr", "/lib", "/lib64", "/bin", "/nix/store", "/gnu/store" };
	char link[PATH_MAX];
	struct stat st;
	ssize_t n;

	outer(builder, &(struct flat_step){ .op = FLAT_OP_DIRECTORY, .target = "/etc", .mode = 0755 });
	for (size_t i = 0; i < ELEMENTSOF(folders); i++) {
		if (lstat(folders[i], &st) < 0 || strchr(folders[i] + 1, '/'))
			continue;
		if (S_ISDIR(st.st_mode)) {
			outer_bind(builder, &(struct flat_source){ .path = folders[i], .kind = FLAT_DIRECTORY }, folders[i],
				FLAT_ATTR_RDONLY | FLAT_ATTR_RECURSIVE);
		} else if (S_ISLNK(st.st_mode) && (n = readlink(folders[i], link, sizeof(link) - 1)) > 0) {
			link[n] = 0;
			outer(builder, &(struct flat_step){ .op = FLAT_OP_SYMLINK, .target = folders[i],
				.content = builder_text(builder, "%s", link), .content_len = (size_t)n });
		}
	}
	if (stat("/etc/ld.so.cache", &st) == 0)
		outer_bind(builder, &(struct flat_source){ .path = "/etc/ld.so.cache", .kind = FLAT_FILE, .optional = 1 },
			"/etc/ld.so.cache", FLAT_ATTR_RDONLY | FLAT_ATTR_OPTIONAL);
}

static void add_outer_root(struct plan_builder *builder, const char *kernel, const struct text *archive)
{
	add_system(builder);
	outer(builder, &(struct flat_step){ .op = FLAT_OP_DIRECTORY, .target = "/proc", .mode = 0555 });
	outer(builder, &(struct flat_step){ .op = FLAT_OP_PROC, .target = "/proc" });
	outer(builder, &(struct flat_step){ .op = FLAT_OP_DIRECTORY, .target = "/dev", .mode = 0755 });
	outer_bind(builder, &(struct flat_source){ .path = "/dev/null", .kind = FLAT_DEVICE, .device_major = 1,
		.device_minor = 3 }, "/dev/null", 0);
	outer_bind(builder, &(struct flat_source){ .path = "/dev/urandom", .kind = FLAT_DEVICE, .device_major = 1,
		.device_minor = 9 }, "/dev/urandom", FLAT_ATTR_RDONLY);
	if (by_kvm(builder))
		outer_bind(builder, &(struct flat_source){ .path = "/dev/kvm", .kind = FLAT_DEVICE, .device_major = 10,
			.device_minor = 232 }, "/dev/kvm", 0);
	outer_bind(builder, &(struct flat_source){ .path = kernel, .kind = FLAT_FILE }, KERNEL, FLAT_ATTR_RDONLY);
	outer(builder, &(struct flat_step){ .op = FLAT_OP_FILE, .target = INITRAMFS, .mode = 0444,
		.content = builder_bytes(builder, archive->data, archive->len), .content_len = archive->len });
}

/* -- the command line -- */

struct words {
	const char *list[MAX_WORDS];
	size_t n;
};

static void add_word(struct words *words, const char *word)
{
	if (words->n + 1 < MAX_WORDS)
		words->list[words->n++] = word;
}

static void add_words(struct words *words, const char *const *list)
{
	for (; *list; list++)
		add_word(words, *list);
}

/*
 * Whether something of the tree may change beside the box while it runs: then the machine looks again at each open, which
 * makes the start of a program some ten times slower. What is mounted read-only is not looked at again.
 */
static bool host_writes_too(const struct plan_builder *builder)
{
	const struct flat_plan *flat = &builder->flat;

	for (uint32_t i = 0; i < flat->n_steps; i++) {
		const struct flat_step *step = &flat->steps[i];

		if (step->op == FLAT_OP_BIND && step->source >= 0 && flat->sources[step->source].kind != FLAT_DEVICE &&
			!(step->attr & (FLAT_ATTR_RDONLY | FLAT_ATTR_OUTER)))
			return true;
	}
	return false;
}

/* QEMU itself opens the connections of the machine, in the cell that it stands in: so they meet the same listeners and
 * the same refusals there as those of any other program of a box. */
static void add_network(struct plan_builder *builder, struct words *words)
{
	if (!plan_has_network(builder))
		return;
	add_word(words, "-netdev");
	add_word(words, builder->flat.network.cell.v6
			? "user,id=cell,ipv4=on,net=" CELL_LINK_NET4 ",host=" CELL_LINK_GATEWAY4 ",dns=" CELL_LINK_UNUSED4
			  ",ipv6=on,ipv6-net=" CELL_LINK_NET6 ",ipv6-host=" CELL_LINK_GATEWAY6 ",ipv6-dns=" CELL_LINK_UNUSED6
			: "user,id=cell,ipv4=on,net=" CELL_LINK_NET4 ",host=" CELL_LINK_GATEWAY4 ",dns=" CELL_LINK_UNUSED4 ",ipv6=off");
	add_words(words, (const char *const[]){ "-device", "virtio-net-device,netdev=cell", NULL });
}

/* What makes the machine what it is: of these words, its kernel and its first filesystem, a template is one. */
static void add_machine(struct plan_builder *builder, const struct machine_host *host, uint64_t bytes, uint64_t n_cpus, struct words *words)
{
	unsigned long long mib = (bytes + (1 << 20) - 1) >> 20;
	bool live = is_live(builder);

	add_word(words, host->qemu);
	add_words(words, (const char *const[]){ "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-M", by_kvm(builder) ? "microvm,accel=kvm,isa-serial=on,x-option-roms=off,memory-backend=memory"
				      : "microvm,accel=tcg,isa-serial=on,x-option-roms=off,memory-backend=memory", "-cpu", "max",
		"-global", "virtio-mmio.force-legacy=false", "-m", NULL });
	add_word(words, builder_text(builder, "%lluM", mib));
	add_word(words, "-object");
	add_word(words, builder_text(builder, live ? "memory-backend-memfd,id=memory,size=%lluM,share=on"
						   : "memory-backend-file,id=memory,size=%lluM,mem-path=" MEMORY_FILE ",share=on", mib));
	add_word(words, "-smp");
	add_word(words, builder_text(builder, "%llu", (unsigned long long)n_cpus));
	add_words(words, (const char *const[]){ "-chardev", "file,id=console,path=/proc/self/fd/2", "-serial", "chardev:console",
		"-chardev", "stdio,id=port,signal=off", "-device", "virtio-serial-device,max_ports=3",
		"-device", "virtserialport,chardev=port,name=agentbox,nr=1", "-chardev", "socket,id=files,path=" FILES_SOCKET,
		"-device", live ? "vhost-user-fs-device,chardev=files,tag=files" : "virtserialport,chardev=files,name=files,nr=2", NULL });
	add_network(builder, words);
	add_words(words, (const char *const[]){ "-kernel", KERNEL, "-initrd", INITRAMFS, "-append", NULL });
	/* ports are words for the guest; the backend puts a number behind the last one */
	add_word(words, builder_text(builder, "console=ttyS0 quiet reboot=t panic=-1 lsm=landlock cryptomgr.notests "
		"sysctl.vm.overcommit_memory=1 vport0p1 %stsc=reliable tsc_early_khz=", live ? "" : "vport0p2 "));
}

/* An empty word stands between what is run; the rest is for a machine that may go on from a template. */
static int add_program(struct plan_builder *builder, const struct machine_host *host, const struct text *archive, uint64_t bytes,
	uint64_t n_cpus, abox_error **reterr)
{
	struct words words = { .n = 0 }, machine = { .n = 0 };
	struct machine_template template = { .qemu = host->qemu, .kernel_place = builder->kernel_place,
		.archive = archive->data, .archive_len = archive->len };
	char place[PATH_MAX];
	int r;

	add_machine(builder, host, bytes, n_cpus, &machine);
	machine.list[machine.n] = NULL;
	add_word(&words, host->virtiofsd);
	add_words(&words, (const char *const[]){ "--fd=0", "-o", "source=" FLAT_BOX, "-o", "sandbox=chroot", "-o", "xattr", "-o",
		host_writes_too(builder) ? "cache=auto" : "cache=always", "-o", "log_level=warn",
		/* behind a port, a thread fewer is a way less for each request */
		is_live(builder) ? "--thread-pool-size=2" : "--thread-pool-size=0", "", NULL });
	add_words(&words, machine.list);
	if (!is_live(builder)) {
		add_words(&words, (const char *const[]){ "", "-chardev", "socket,id=control,path=" CONTROL_SOCKET,
			"-mon", "chardev=control,mode=control", "", "-incoming", "defer", NULL });
		template.words = machine.list;
		r = machine_template_place(&template, ABOX_STAGE_PLAN, place, reterr);
		if (r < 0)
			return r;
		outer_bind(builder, &(struct flat_source){ .path = builder_text(builder, "%s", place), .kind = FLAT_FILE, .optional = 1 },
			FLAT_TEMPLATE, FLAT_ATTR_RDONLY | FLAT_ATTR_OPTIONAL);
	}
	words.list[words.n] = NULL;
	builder->flat.program = builder_bytes(builder, words.list, (words.n + 1) * sizeof(*words.list));
	return 0;
}

void plan_microvm_walls(struct plan_builder *builder)
{
	static const struct enforcement entries[] = {
		{ .name = "filesystem", .by = "host kernel: the tree that the machine is shown, its mounts read-only", .required = true },
		{ .name = "processes", .by = "machine: a kernel of its own", .required = true },
		{ .name = "capabilities", .by = "machine's kernel: none, no_new_privs", .required = true },
		{ .name = "command.tree", .by = "machine's kernel: a pid namespace per command (commands do not see each other)",
			.required = true, .detail = "a command is killed with everything it has started" },
	};
	const struct machine_host *host = builder->machine;

	builder->flat.kill = FLAT_KILL_PIDNS;
	for (size_t i = 0; i < ELEMENTSOF(entries); i++)
		enforcement_add(builder, &entries[i]);
	enforcement_add(builder, &(struct enforcement){ .name = "machine", .required = true,
		.by = by_kvm(builder) ? "QEMU microvm, by KVM, in namespaces of its own with an empty root"
				      : "QEMU microvm, emulated, in namespaces of its own with an empty root",
		.detail = builder_text(builder, "Linux %s of %s", host->kernel.release, host->kernel.path) });
	enforcement_add(builder, &(struct enforcement){ .name = "machine.start",
		.by = is_live(builder) ? "its kernel: it has a device for shared files, which can be in no template"
				       : "a template of an earlier box of this user; its kernel, where there is none or it is not sound",
		.detail = is_live(builder) ? NULL : "the memory is a copy; entropy, time and names come before anything runs" });
}

/* Keys that are about machines alone are not ignored by other walls. */
static int check_keys(struct plan_builder *builder, abox_error **reterr)
{
	static const char *const keys[] = { "/kernel", "/files" };

	if (builder->wall != PLAN_MICROVM) {
		for (size_t i = 0; i < ELEMENTSOF(keys); i++)
			if (spec_written(builder->spec, "%s", keys[i]))
				return error_remedy(reterr,
					spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN, keys[i],
						"only the wall \"microvm\" has it, and this box has \"%s\"",
						builder->flat.backend),
					"write \"backend\": \"microvm\", or leave the key out");
		return 0;
	}
	return 0;
}

int plan_build_microvm(struct plan_builder *builder, abox_error **reterr)
{
	const struct machine_host *host = builder->machine;
	_cleanup_(text_clear) struct text archive = TEXT_INIT;
	uint64_t bytes = builder->flat.limits.memory_bytes, cpu_millis = builder->flat.cgroup_limits.cpu_millis;
	char place[PATH_MAX], real[PATH_MAX];
	int r;

	r = check_keys(builder, reterr);
	if (r < 0 || builder->wall != PLAN_MICROVM)
		return r;
	choose_hardware(builder);	/* once: the verdict may change meanwhile */
	r = build_archive(builder, host, &archive, reterr);
	if (r == 0)
		r = machine_kernel_place(&host->kernel, ABOX_STAGE_PLAN, place, reterr);
	if (r < 0)
		return r;
	if (plan_canonical(place, real) < 0)
		memcpy(real, place, sizeof(real));
	if (spec_count(builder->spec, "/mounts") > 0 && !host_writes_too(builder))
		builder_warn(builder, "what the host changes in a mounted folder while the machine runs may not be seen in it");
	mark_inner(builder);
	add_outer_root(builder, builder_text(builder, "%s", real), &archive);
	builder->kernel_place = builder_text(builder, "%s", place);
	if (builder->failed)
		return ABOX_E_MEMORY;
	return add_program(builder, host, &archive, (bytes ? bytes : 2ULL << 30) + OWN_BYTES,
		cpu_millis ? MIN(MAX_CPUS, (cpu_millis + 999) / 1000) : 1, reterr);
}
