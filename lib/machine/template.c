/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where templates of machines are kept: in the cache folder, each under the digest of what it depends on. They are made by
 * the first box that could have used one (backend/microvm), stored by its keeper, and of use until the host is started
 * again. Here they are only named and cleared away.
 */
#include "machine/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/pack.h"

#define FOLDER "templates"
#define KEPT 4	/* each is some 100 MB on the disk */

/* QEMU by what tells that it was replaced: its bytes are too many to be read each time. */
static int add_program(struct pack_writer *writer, const char *path, int stage, abox_error **reterr)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, path, errno, "cannot be looked at");
	pack_string(writer, path);
	pack_u64(writer, st.st_dev);
	pack_u64(writer, st.st_ino);
	pack_u64(writer, (uint64_t)st.st_size);
	pack_u64(writer, (uint64_t)st.st_ctim.tv_sec);
	pack_u64(writer, (uint64_t)st.st_ctim.tv_nsec);
	return 0;
}

/* Kind of processor, of the first one. */
static void add_processor(struct pack_writer *writer)
{
	static const char *const names[] = { "model name", "microcode", "flags" };
	char text[16384];
	_cleanup_(fd_closep) int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : fd_read_all(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = 0;
	for (size_t i = 0; i < ELEMENTSOF(names); i++) {
		const char *line = strstr(text, names[i]);

		pack_bytes(writer, line ? line : "", line ? strcspn(line, "\n") : 0);
	}
}

int machine_template_place(const struct machine_template *template, int stage, char ret[PATH_MAX], abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	int r;

	pack_u32(&writer, MACHINE_TEMPLATE_VERSION);
	pack_u32(&writer, geteuid());
	r = add_program(&writer, template->qemu, stage, reterr);
	if (r < 0)
		return r;
	pack_string(&writer, template->kernel_place);
	pack_bytes(&writer, template->archive, template->archive_len);
	pack_strings(&writer, template->words);
	add_processor(&writer);
	if (writer.failed)
		return ABOX_E_MEMORY;
	return machine_cache_place(FOLDER, writer.data, writer.len, stage, ret, reterr);
}

struct entry {
	char name[NAME_MAX + 1];
	time_t when;
};

/* The youngest stay, so many as are kept. Those of another boot are of no use: they are removed at once. */
static void consider(int folder_fd, const char *name, time_t booted, struct entry *kept, size_t *n)
{
	struct entry entry = { .when = 0 };
	size_t oldest = 0;
	struct stat st;

	if (name[0] == '.' || fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	snprintf(entry.name, sizeof(entry.name), "%s", name);
	entry.when = st.st_mtim.tv_sec;
	if (entry.when < booted) {
		unlinkat(folder_fd, name, 0);
		return;
	}
	if (*n < KEPT) {
		kept[(*n)++] = entry;
		return;
	}
	for (size_t i = 1; i < KEPT; i++)
		if (kept[i].when < kept[oldest].when)
			oldest = i;
	if (kept[oldest].when < entry.when) {
		unlinkat(folder_fd, kept[oldest].name, 0);
		kept[oldest] = entry;
	} else {
		unlinkat(folder_fd, name, 0);
	}
}

int machine_templates_tidy(int stage, abox_error **reterr)
{
	int fd = machine_cache_open(FOLDER, stage, reterr);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	time_t booted = (time_t)((clock_wall_usec() - clock_boot_usec()) / USEC_PER_SEC) - 1;
	static _Thread_local struct entry kept[KEPT];
	struct dirent *entry;
	size_t n = 0;

	if (fd < 0)
		return fd;
	if (!folder) {
		fd_close(fd);
		return ABOX_E_MEMORY;
	}
	while ((entry = readdir(folder)))
		consider(fd, entry->d_name, booted, kept, &n);
	closedir(folder);
	return 0;
}
