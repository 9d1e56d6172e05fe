/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a virtual machine starts from, on kernels and modules that are made here. */
#include <criterion/criterion.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "base/path.h"
#include "machine/machine.h"

#define RELEASE "6.1.0-9-cloud-test"

static char folder[] = "/tmp/abox-machine-XXXXXX";
static char *given;	/* kernel of whoever runs the tests */

static void enter(void)
{
	char path[256];

	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/home", folder);
	setenv("ABOX_HOME", path, 1);
	given = getenv("ABOX_KERNEL") ? strdup(getenv("ABOX_KERNEL")) : NULL;
	unsetenv("ABOX_KERNEL");
}

static void leave(void)
{
	int parent_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

	cr_expect_eq(path_remove_tree(parent_fd, folder + sizeof("/tmp")), 0);
	close(parent_fd);
	free(given);
}

static void write_file(const char *name, const void *data, size_t len)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		cr_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	cr_assert(fd >= 0);
	cr_assert_eq(fd_write_all(fd, data, len), 0);
	close(fd);
}

static void write_text(const char *name, const char *text)
{
	write_file(name, text, strlen(text));
}

/* An ELF file with one segment of notes. */
static size_t make_elf(uint8_t *data, uint32_t note)
{
	Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64 }, .e_phoff = sizeof(header), .e_phnum = 1,
		.e_phentsize = sizeof(Elf64_Phdr) };
	Elf64_Phdr segment = { .p_type = PT_NOTE, .p_offset = 256, .p_filesz = 24 };
	uint32_t notes[6] = { 4, 8, note };

	memset(data, 0, 4096);
	memcpy(data, &header, sizeof(header));
	memcpy(data + sizeof(header), &segment, sizeof(segment));
	memcpy(notes + 3, "Xen", 4);
	memcpy(data + 256, notes, sizeof(notes));
	strcpy((char *)data + 512, "Linux version %s");
	strcpy((char *)data + 600, "Linux version " RELEASE " (somebody)");
	return 4096;
}

/* A bzImage with this payload. */
static size_t make_image(uint8_t *data, const void *payload, size_t len)
{
	memset(data, 0, 1536);
	data[0x1f1] = 2;	/* sectors */
	memcpy(data + 0x202, "HdrS", 4);
	data[0x206] = 0x0f;
	data[0x207] = 0x02;
	data[0x20e] = 0x00;	/* release at 0x200 + 0x200 */
	data[0x20f] = 0x02;
	strcpy((char *)data + 0x400, RELEASE " (built here)");
	memcpy(data + 0x24c, &(uint32_t){ (uint32_t)len }, 4);
	memcpy(data + 1536, payload, len);
	return 1536 + len;
}

static size_t pack_gzip(const uint8_t *data, size_t len, uint8_t *packed, size_t size)
{
	z_stream stream = { .next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)len, .next_out = packed,
		.avail_out = (uInt)size };

	cr_assert_eq(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
	cr_assert_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
	deflateEnd(&stream);
	return size - stream.avail_out;
}

static void write_image(const char *name, uint32_t note)
{
	static uint8_t elf[4096], packed[8192], image[16384];
	size_t len = pack_gzip(elf, make_elf(elf, note), packed, sizeof(packed));

	write_file(name, image, make_image(image, packed, len));
}

static void write_modules(void)
{
	write_text("lib/modules/" RELEASE "/modules.dep",
		"kernel/a/fuse.ko:\nkernel/a/virtiofs.ko: kernel/b/virtio.ko kernel/b/virtio_ring.ko kernel/a/fuse.ko\n"
		"kernel/b/virtio.ko: kernel/b/virtio_ring.ko\nkernel/b/virtio_ring.ko:\n"
		"kernel/b/virtio-rng.ko.xz: kernel/b/virtio.ko kernel/b/virtio_ring.ko\n");
	write_text("lib/modules/" RELEASE "/modules.builtin", "kernel/c/virtio_mmio.ko\n");
	write_text("lib/modules/" RELEASE "/kernel/a/fuse.ko", "FUSE");
	write_text("lib/modules/" RELEASE "/kernel/a/virtiofs.ko", "VIRTIOFS");
	write_text("lib/modules/" RELEASE "/kernel/b/virtio.ko", "VIRTIO");
	write_text("lib/modules/" RELEASE "/kernel/b/virtio_ring.ko", "RING");
	write_text("lib/modules/" RELEASE "/kernel/b/virtio-rng.ko.xz", "RNG");
}

static struct machine_kernel found(void)
{
	struct machine_kernel kernel;
	char path[512];

	snprintf(path, sizeof(path), "%s/boot/vmlinuz-" RELEASE, folder);
	cr_assert_eq(machine_kernel_find(path, ABOX_STAGE_PLAN, &kernel, NULL), 0);
	return kernel;
}

static int open_made(const struct machine_kernel *kernel, struct stat *st)
{
	char place[PATH_MAX];
	int fd;

	cr_assert_eq(machine_kernel_place(kernel, ABOX_STAGE_PLAN, place, NULL), 0);
	cr_assert_eq(machine_kernel_make(kernel, place, ABOX_STAGE_START, NULL), 0);
	fd = open(place, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0);
	cr_assert_eq(fstat(fd, st), 0);
	return fd;
}

/* A packed kernel is unpacked once, and the cache is used from then on. */
Test(machine, kernel_is_unpacked_once, .init = enter, .fini = leave)
{
	struct machine_kernel kernel;
	struct stat first, second;
	uint8_t head[4];
	int fd;

	write_image("boot/vmlinuz-" RELEASE, 18);
	write_modules();
	kernel = found();
	cr_assert_str_eq(kernel.release, RELEASE);
	fd = open_made(&kernel, &first);
	cr_assert_eq(pread(fd, head, 4, 0), 4);
	cr_assert_eq(memcmp(head, ELFMAG, 4), 0);
	cr_assert_eq(first.st_size, 4096);
	close(fd);
	close(open_made(&kernel, &second));
	cr_assert_eq(first.st_ino, second.st_ino);
}

/* One that QEMU cannot start unpacked is started as it is. */
Test(machine, kernel_without_entry_stays_packed, .init = enter, .fini = leave)
{
	struct machine_kernel kernel;
	struct stat st;
	uint8_t magic[4];
	int fd;

	write_image("boot/vmlinuz-" RELEASE, 17);
	write_modules();
	kernel = found();
	fd = open_made(&kernel, &st);
	cr_assert_eq(pread(fd, magic, 4, 0x202), 4);
	cr_assert_eq(memcmp(magic, "HdrS", 4), 0);
	close(fd);
}

/* A kernel that was replaced between plan and start is not started in its place. */
Test(machine, kernel_must_be_that_of_the_plan, .init = enter, .fini = leave)
{
	struct machine_kernel kernel;
	char place[PATH_MAX];

	write_image("boot/vmlinuz-" RELEASE, 18);
	write_modules();
	kernel = found();
	cr_assert_eq(machine_kernel_place(&kernel, ABOX_STAGE_PLAN, place, NULL), 0);
	write_image("boot/vmlinuz-" RELEASE, 17);
	cr_assert_eq(machine_kernel_make(&kernel, place, ABOX_STAGE_START, NULL), ABOX_E_NOT_FOUND);
}

/* What is wrong with a named kernel is said, with a remedy. */
Test(machine, unusable_kernel_is_named, .init = enter, .fini = leave)
{
	static const char noise[1024] = "no kernel";
	struct machine_kernel kernel;
	abox_error *error = NULL;
	char path[512];

	cr_assert_eq(machine_kernel_find("/nonexistent/vmlinuz", ABOX_STAGE_PLAN, &kernel, &error), ABOX_E_NOT_FOUND);
	cr_assert(strstr(abox_error_get_remedy(error), "ABOX_KERNEL"));
	abox_error_free(error);
	write_file("boot/noise", noise, sizeof(noise));
	snprintf(path, sizeof(path), "%s/boot/noise", folder);
	cr_assert_eq(machine_kernel_find(path, ABOX_STAGE_PLAN, &kernel, NULL), ABOX_E_INVALID);
	write_image("boot/vmlinuz-" RELEASE, 18);
	snprintf(path, sizeof(path), "%s/boot/vmlinuz-" RELEASE, folder);
	error = NULL;
	cr_assert_eq(machine_kernel_find(path, ABOX_STAGE_PLAN, &kernel, &error), ABOX_E_NOT_FOUND);
	cr_assert(strstr(abox_error_get_message(error), "modules"), "%s", abox_error_get_message(error));
	abox_error_free(error);
}

/* The environment names a kernel where the spec does not. */
Test(machine, kernel_of_the_environment, .init = enter, .fini = leave)
{
	struct machine_kernel kernel;
	char path[512];

	write_image("boot/vmlinuz-" RELEASE, 18);
	write_modules();
	snprintf(path, sizeof(path), "%s/boot/vmlinuz-" RELEASE, folder);
	setenv("ABOX_KERNEL", path, 1);
	cr_assert_eq(machine_kernel_find(NULL, ABOX_STAGE_PLAN, &kernel, NULL), 0);
	cr_assert_str_eq(kernel.path, path);
}

/* Each module comes once, after those that it needs; what is built in is left out; what is missing is named. */
Test(machine, modules_come_in_the_order_of_loading, .init = enter, .fini = leave)
{
	static const char *const names[] = { "virtio_mmio", "virtiofs", "virtio_rng", NULL }, *const lost[] = {
		"virtio", "vsock", NULL };
	static const char *const expected[] = { "kernel/a/fuse.ko", "kernel/b/virtio_ring.ko", "kernel/b/virtio.ko",
		"kernel/a/virtiofs.ko", "kernel/b/virtio-rng.ko.xz" };
	struct machine_modules modules;
	struct machine_kernel kernel;
	abox_error *error = NULL;

	write_image("boot/vmlinuz-" RELEASE, 18);
	write_modules();
	kernel = found();
	cr_assert_eq(machine_modules_find(&kernel, names, ABOX_STAGE_PLAN, &modules, NULL), 0);
	cr_assert_eq(modules.n, ELEMENTSOF(expected));
	for (size_t i = 0; i < modules.n; i++)
		cr_assert_str_eq(modules.paths[i], expected[i]);
	machine_modules_clear(&modules);
	cr_assert_eq(machine_modules_find(&kernel, lost, ABOX_STAGE_PLAN, &modules, &error), ABOX_E_NOT_FOUND);
	cr_assert_str_eq(abox_error_get_place(error), "vsock");
	abox_error_free(error);
}

/* The archive is what cpio says it is: headers of 110 bytes, everything padded to four. */
Test(machine, archive_is_newc, .init = enter, .fini = leave)
{
	static const char *const names[] = { "virtiofs", NULL };
	struct machine_modules modules;
	struct machine_kernel kernel;
	struct text archive = TEXT_INIT;
	size_t at = 0, n = 0;
	char last[256] = "", contents[256] = "";

	write_image("boot/vmlinuz-" RELEASE, 18);
	write_modules();
	kernel = found();
	cr_assert_eq(machine_modules_find(&kernel, names, ABOX_STAGE_PLAN, &modules, NULL), 0);
	machine_archive_file(&archive, MACHINE_GUEST, 0755, "guest", 5);
	cr_assert_eq(machine_archive_modules(&archive, &kernel, &modules, ABOX_STAGE_START, NULL), 0);
	machine_archive_end(&archive);
	while (at < archive.len) {
		unsigned int name_len, len;

		cr_assert(archive.len - at >= 110 && memcmp(archive.data + at, "070701", 6) == 0);
		cr_assert_eq(sscanf(archive.data + at + 54, "%8X", &len), 1);
		cr_assert_eq(sscanf(archive.data + at + 94, "%8X", &name_len), 1);
		snprintf(last, sizeof(last), "%s", archive.data + at + 110);
		cr_assert_eq(strlen(last) + 1, name_len);
		at = (at + 110 + name_len + 3) & ~(size_t)3;
		snprintf(contents + strlen(contents), sizeof(contents) - strlen(contents), "%s=%.*s ", last, (int)len,
			archive.data + at);
		at = (at + len + 3) & ~(size_t)3;
		n++;
	}
	cr_assert_eq(at, archive.len);
	cr_assert_str_eq(last, "TRAILER!!!");
	cr_assert(strstr(contents, "init=guest modules= modules/00-fuse.ko=FUSE modules/01-virtio_ring.ko=RING "), "%s",
		contents);
	cr_assert_eq(n, 7);
	machine_modules_clear(&modules);
	text_clear(&archive);
}

/* Literals, matches that feed on themselves, long lengths; and nothing but -1 for what is cut or leads outside. */
Test(machine, lz4_blocks)
{
	/* 4 literals "abcd", then a match of 4+15+1 at distance 4, then the literals "!" of the last sequence */
	static const uint8_t block[] = { 0x4f, 'a', 'b', 'c', 'd', 4, 0, 1, 0x10, '!' };
	uint8_t framed[4 + 4 + sizeof(block)] = { 0x02, 0x21, 0x4c, 0x18, sizeof(block) }, out[64];

	memcpy(framed + 8, block, sizeof(block));
	cr_assert_eq(machine_lz4(framed, sizeof(framed), out, sizeof(out)), 25);
	cr_assert_eq(memcmp(out, "abcdabcdabcdabcdabcdabcd!", 25), 0);
	cr_assert_eq(machine_lz4(framed, sizeof(framed), out, 24), -1, "more than there is room for");
	for (size_t len = 1; len < sizeof(framed); len++)
		cr_assert(machine_lz4(framed, len, out, sizeof(out)) <= 0, "cut at %zu", len);
	framed[8 + 5] = 5;
	cr_assert_eq(machine_lz4(framed, sizeof(framed), out, sizeof(out)), -1, "before the beginning");
	framed[8 + 5] = 0;
	cr_assert_eq(machine_lz4(framed, sizeof(framed), out, sizeof(out)), -1, "distance 0");
	framed[0] = 0;
	cr_assert_eq(machine_lz4(framed, sizeof(framed), out, sizeof(out)), -1, "another format");
}

/* A kernel of this machine's own distribution, where there is one. */
Test(machine, kernel_of_the_host, .init = enter, .fini = leave)
{
	static const char *const names[] = { "virtio_mmio", "virtio_console", "virtiofs", NULL };
	struct machine_modules modules;
	struct machine_kernel kernel;
	abox_error *error = NULL;
	struct stat st;

	if (given)
		setenv("ABOX_KERNEL", given, 1);
	if (machine_kernel_find(NULL, ABOX_STAGE_PLAN, &kernel, &error) < 0) {
		abox_error_free(error);
		leave();
		cr_skip_test("needs a kernel: apt-get install linux-image-cloud-amd64");
	}
	cr_assert_eq(machine_modules_find(&kernel, names, ABOX_STAGE_PLAN, &modules, NULL), 0);
	machine_modules_clear(&modules);
	close(open_made(&kernel, &st));
	cr_assert_gt(st.st_size, 1 << 20);
}
