/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a virtual machine of the microVM wall starts from: a kernel, the modules it needs before it has a root, and the
 * first filesystem in memory with the guest in it. Library code: read and made before anything runs; what runs is
 * the keeper's (backend/microvm).
 */
#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H

#include <linux/limits.h>

#include <agentbox/error.h>

#include "base/macro.h"
#include "base/strings.h"

/* -- kernel.c -- */

struct machine_kernel {
	char path[PATH_MAX];	/* canonical */
	char release[128];	/* as uname would show it in the guest */
	char modules[PATH_MAX];	/* folder of its modules: beside the kernel (../lib/modules/RELEASE), or the host's own */
};

/*
 * The kernel that `wanted` names; NULL: the one of $ABOX_KERNEL, else the best of /boot: a cloud kernel before others,
 * then the newest, of those whose modules are there. Nothing is made.
 * 0, ABOX_E_NOT_FOUND (with a remedy), ABOX_E_INVALID (no kernel of this machine), ABOX_E_SYSTEM, ABOX_E_MEMORY.
 */
int machine_kernel_find(const char *wanted, int stage, struct machine_kernel *ret, abox_error **reterr);

/*
 * The file that QEMU loads: in the cache folder, under the digest of the kernel's file. A packed kernel is unpacked for it
 * once, because that takes the guest some half a second each time. One that cannot be unpacked here (its compression
 * is neither LZ4 nor gzip), or has no entry for it, is kept packed: slower, nothing else.
 *
 * machine_kernel_place() only says where it would be; machine_kernel_make() sees to it that it is there.
 */
int machine_kernel_place(const struct machine_kernel *kernel, int stage, char ret[PATH_MAX], abox_error **reterr);
int machine_kernel_make(const struct machine_kernel *kernel, const char *place, int stage, abox_error **reterr);

/* -- host.c -- */

struct machine_host {
	char qemu[64], virtiofsd[64];
	struct machine_kernel kernel;
	char blocker[256], remedy[256];		/* "": machines can be started */
	char kvm_closed[128];			/* why no machine can be started by hardware; "": it looks as if */
	bool kvm_for_boxes;			/* what runs as nobody of the host's may open it too */
};
/* `wanted_kernel` as in machine_kernel_find(); one that was named and cannot be used is an error, all else a blocker. */
int machine_host_read(const char *wanted_kernel, int stage, struct machine_host *ret, abox_error **reterr);

/* -- image.c: the format of a kernel file; parses untrusted bytes -- */

struct machine_image {
	char release[128];
	size_t payload, payload_len;	/* of the compressed kernel; 0, 0 where the image is an ELF file itself */
};
/* 0 or ABOX_E_INVALID. */
int machine_image_parse(const uint8_t *data, size_t len, struct machine_image *ret);
/* What is packed: *retdata is allocated. 0, ABOX_E_UNSUPPORTED (another compression), ABOX_E_INVALID, ABOX_E_MEMORY. */
int machine_image_unpack(const uint8_t *payload, size_t len, uint8_t **retdata, size_t *retlen);
/* Whether an ELF file has the entry by which QEMU starts it (PVH). */
bool machine_image_has_entry(const uint8_t *data, size_t len);

/* LZ4 as kernels are packed: blocks of 8 MiB, each with its length before it. Bytes written, or -1. lz4.c */
ptrdiff_t machine_lz4(const uint8_t *data, size_t len, uint8_t *ret, size_t size);

/* -- modules.c -- */

#define MACHINE_MODULES_MAX 64

struct machine_modules {
	char *paths[MACHINE_MODULES_MAX];	/* below kernel->modules, in the order in which they are to be loaded */
	size_t n;
};
/*
 * What has to be loaded for these modules (names such as "virtiofs"; NULL-ended): they and what they depend on, each
 * once. One that is built into the kernel needs nothing. 0, ABOX_E_NOT_FOUND naming the missing one, ABOX_E_MEMORY.
 */
int machine_modules_find(const struct machine_kernel *kernel, const char *const *names, int stage,
	struct machine_modules *ret, abox_error **reterr);
void machine_modules_clear(struct machine_modules *modules);

/* -- cache.c -- */

/* Where what was made from these bytes would be, in folder `name` ("kernels"). Nothing is made. */
int machine_cache_place(
	const char *name, const void *data, size_t len, int stage, char ret[PATH_MAX], abox_error **reterr);
/* The folder, made where it is not there: a descriptor or a code. */
int machine_cache_open(const char *name, int stage, abox_error **reterr);

/* -- template.c -- */

#define MACHINE_TEMPLATE_VERSION 1

struct machine_template {	/* all that a template depends on but the boot of the host, which stands in the template */
	const char *qemu, *kernel_place;
	const void *archive;	/* first filesystem */
	size_t archive_len;
	const char *const *words;	/* command line of QEMU; NULL-ended */
};
/* Where it would be. Nothing is made. */
int machine_template_place(const struct machine_template *template, int stage, char ret[PATH_MAX], abox_error **reterr);
/* Makes the folder of templates, and removes from it what is of no use any more and all but the newest few. */
int machine_templates_tidy(int stage, abox_error **reterr);

/* -- archive.c: the first filesystem (newc cpio) -- */

#define MACHINE_GUEST "init"		/* the program; its name is what the kernel looks for */
#define MACHINE_MODULES "modules"	/* folder; names sort in the order of loading */

void machine_archive_folder(struct text *archive, const char *name);
void machine_archive_file(struct text *archive, const char *name, uint32_t mode, const void *data, size_t len);
/* Reads the file. 0, ABOX_E_SYSTEM, ABOX_E_MEMORY. */
int machine_archive_copy(struct text *archive, const char *name, uint32_t mode, int fd, int stage, abox_error **reterr);
int machine_archive_modules(struct text *archive, const struct machine_kernel *kernel,
	const struct machine_modules *modules, int stage, abox_error **reterr);
void machine_archive_end(struct text *archive);

#endif
