/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * files INIT FOLDER: writes what the machine starts from into FOLDER/initramfs and the path of the unpacked kernel into
 * FOLDER/kernel. Ends with 77 where this machine has no kernel to start.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "machine/machine.h"

static int fail(abox_error *error, int code)
{
	fprintf(stderr, "%s: %s\n", abox_error_get_place(error), abox_error_get_message(error));
	if (abox_error_get_remedy(error))
		fprintf(stderr, "%s\n", abox_error_get_remedy(error));
	return code;
}

static int write_to(const char *folder, const char *name, const void *data, size_t len)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || fd_write_all(fd, data, len) < 0) {
		perror(path);
		return -1;
	}
	return close(fd);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "virtio_mmio", "virtio_blk", "virtiofs", "overlay", NULL };
	struct machine_modules modules;
	struct machine_kernel kernel;
	struct text archive = TEXT_INIT;
	abox_error *error = NULL;
	char place[PATH_MAX];
	int init_fd;

	if (argc != 3)
		return 2;
	if (machine_kernel_find(NULL, ABOX_STAGE_PLAN, &kernel, &error) < 0)
		return fail(error, 77);
	if (machine_modules_find(&kernel, names, ABOX_STAGE_PLAN, &modules, &error) < 0 ||
		machine_kernel_place(&kernel, ABOX_STAGE_START, place, &error) < 0 ||
		machine_kernel_make(&kernel, place, ABOX_STAGE_START, &error) < 0)
		return fail(error, 1);
	init_fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (machine_archive_copy(&archive, MACHINE_GUEST, 0755, init_fd, ABOX_STAGE_START, &error) < 0 ||
		machine_archive_modules(&archive, &kernel, &modules, ABOX_STAGE_START, &error) < 0)
		return fail(error, 1);
	machine_archive_end(&archive);
	if (archive.failed)
		return 1;
	return write_to(argv[2], "initramfs", archive.data, archive.len) < 0 || write_to(argv[2], "kernel", place, strlen(place)) < 0;
}
