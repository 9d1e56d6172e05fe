/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The first filesystem of the guest: a cpio archive ("newc") that the kernel unpacks into its memory. Made anew for each
 * boot, raw: packing it saves nothing.
 */
#include "machine/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"

#define FILE_MAX (64U << 20)

/* Names and contents are padded to four bytes, counted from the start of the archive. */
static void pad(struct text *archive)
{
	static const char zeros[4];

	text_add_bytes(archive, zeros, (4 - (archive->len & 3)) & 3);
}

static void add_entry(struct text *archive, const char *name, uint32_t mode, const void *data, size_t len)
{
	/* magic, inode, mode, uid, gid, links, mtime, length, device of the file and of the node, length of the
	 * name, no checksum */
	text_printf(archive, "070701%08X%08X%08X%08X%08X%08X%08zX%08X%08X%08X%08X%08zX%08X", 0, mode, 0, 0, 1, 0, len, 0,
		0, 0, 0, strlen(name) + 1, 0);
	text_add_bytes(archive, name, strlen(name) + 1);
	pad(archive);
	text_add_bytes(archive, data, len);
	pad(archive);
}

void machine_archive_folder(struct text *archive, const char *name)
{
	add_entry(archive, name, S_IFDIR | 0755, "", 0);
}

void machine_archive_file(struct text *archive, const char *name, uint32_t mode, const void *data, size_t len)
{
	add_entry(archive, name, S_IFREG | mode, data, len);
}

int machine_archive_copy(
	struct text *archive, const char *name, uint32_t mode, int fd, int stage, abox_error **reterr)
{
	_cleanup_(freep) char *data = NULL;
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, name, errno, "cannot look at it");
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > FILE_MAX)
		return error_set(reterr, ABOX_E_INVALID, stage, name, "is no file of a sound size");
	data = malloc((size_t)st.st_size);
	if (!data)
		return ABOX_E_MEMORY;
	n = fd_pread_all(fd, data, (size_t)st.st_size, 0);
	if (n != st.st_size)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, stage, name, n < 0 ? (int)-n : EIO, "cannot read it");
	machine_archive_file(archive, name, mode, data, (size_t)n);
	return archive->failed ? ABOX_E_MEMORY : 0;
}

int machine_archive_modules(struct text *archive, const struct machine_kernel *kernel,
	const struct machine_modules *modules, int stage, abox_error **reterr)
{
	_cleanup_(fd_closep) int folder_fd = -EBADF;
	int r = 0;

	folder_fd = open(kernel->modules, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder_fd < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, stage, kernel->modules, errno, "cannot open the folder of modules");
	machine_archive_folder(archive, MACHINE_MODULES);
	for (size_t i = 0; r == 0 && i < modules->n; i++) {
		_cleanup_(fd_closep) int fd =
			path_open_under(folder_fd, modules->paths[i], O_RDONLY, 0, PATH_FOLLOW);
		const char *base = strrchr(modules->paths[i], '/');
		char name[NAME_MAX + 32];

		if (fd < 0)
			return error_set_errno(reterr, ABOX_E_SYSTEM, stage, modules->paths[i], -fd,
				"cannot open the module");
		snprintf(name, sizeof(name), "%s/%02zu-%.200s", MACHINE_MODULES, i,
			base ? base + 1 : modules->paths[i]);
		r = machine_archive_copy(archive, name, 0400, fd, stage, reterr);
	}
	return r;
}

void machine_archive_end(struct text *archive)
{
	machine_archive_file(archive, "TRAILER!!!", 0, "", 0);
}
