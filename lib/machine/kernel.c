/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which kernel a machine starts, and the file that it is started from. The cache holds unpacked kernels under the digest
 * of the file that they came from, so a new kernel is a new file and an old one is never taken for it.
 */
#include "machine/machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/fd.h"

#define IMAGE_MAX (256U << 20)
#define BOOT "/boot"
#define CACHE_FOLDER "kernels"
#define REMEDY                                                                                               \
	"install one (apt-get install linux-image-cloud-amd64), or name a bzImage whose modules are in "     \
	"../lib/modules by ABOX_KERNEL or the key \"kernel\""

struct view {
	const uint8_t *data;
	size_t len;
	int fd;
};
#define VIEW_INIT ((struct view){ .fd = -EBADF })

static void view_clear(struct view *view)
{
	if (view->data)
		munmap((void *)(uintptr_t)view->data, view->len);
	view->fd = fd_close(view->fd);
	view->data = NULL;
}

/* 0 or -errno. The file is root's, or the caller's own: that it may be cut short meanwhile is theirs. */
static int view_open(const char *path, struct view *ret)
{
	_cleanup_(view_clear) struct view view = VIEW_INIT;
	struct stat st;
	void *data;

	view.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (view.fd < 0 || fstat(view.fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < 512 || st.st_size > IMAGE_MAX)
		return -EINVAL;
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, view.fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	view.data = data;
	view.len = (size_t)st.st_size;
	*ret = view;
	view = VIEW_INIT;
	return 0;
}

static bool has_modules(const char *folder)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/modules.dep", folder);
	return access(path, R_OK) == 0;
}

/* Beside the kernel first, as in an unpacked package; then the host's. */
static bool find_modules(struct machine_kernel *kernel)
{
	const char *slash = strrchr(kernel->path, '/');
	int folder_len = (int)(slash - kernel->path);

	if ((size_t)snprintf(kernel->modules, sizeof(kernel->modules), "%.*s/../lib/modules/%s", folder_len,
		    kernel->path, kernel->release) < sizeof(kernel->modules) &&
		has_modules(kernel->modules))
		return true;
	snprintf(kernel->modules, sizeof(kernel->modules), "/lib/modules/%s", kernel->release);
	return has_modules(kernel->modules);
}

/* 0 or a code, and what is wrong with this file. */
static int look_at(const char *path, struct machine_kernel *ret, const char **retwhy)
{
	_cleanup_(view_clear) struct view view = VIEW_INIT;
	struct machine_image image;
	int r;

	if (!realpath(path, ret->path)) {
		*retwhy = strerror(errno);
		return errno == ENOMEM ? ABOX_E_MEMORY : ABOX_E_NOT_FOUND;
	}
	r = view_open(ret->path, &view);
	if (r < 0) {
		*retwhy = r == -EINVAL ? "is no file of a sound size" : strerror(-r);
		return r == -EINVAL ? ABOX_E_INVALID : r == -EACCES ? ABOX_E_PERMISSION : ABOX_E_SYSTEM;
	}
	if (machine_image_parse(view.data, view.len, &image) < 0) {
		*retwhy = "is no kernel for this kind of machine";
		return ABOX_E_INVALID;
	}
	memcpy(ret->release, image.release, sizeof(ret->release));
	if (!find_modules(ret)) {
		*retwhy = "its modules are not there";
		return ABOX_E_NOT_FOUND;
	}
	return 0;
}

/* Cloud kernels first: they are made for machines like ours, and start faster. Then the newest. */
static int compare_names(const void *a, const void *b)
{
	const char *first = *(char *const *)a, *second = *(char *const *)b;
	bool first_cloud = strstr(first, "cloud"), second_cloud = strstr(second, "cloud");

	if (first_cloud != second_cloud)
		return first_cloud ? -1 : 1;
	return strverscmp(second, first);
}

static int list_boot(char ***retnames, size_t *retn)
{
	DIR *folder = opendir(BOOT);
	const struct dirent *entry;
	char **names = NULL;
	size_t n = 0;
	int r = 0;

	while (folder && r == 0 && (entry = readdir(folder))) {
		char **grown;

		if (!string_starts_with(entry->d_name, "vmlinuz-"))
			continue;
		grown = reallocarray(names, n + 1, sizeof(*names));
		if (grown)
			names = grown;
		if (!grown || !(names[n] = strdup(entry->d_name)))
			r = ABOX_E_MEMORY;
		else
			n++;
	}
	if (folder)
		closedir(folder);
	if (n > 1)
		qsort(names, n, sizeof(*names), compare_names);
	*retnames = names;
	*retn = n;
	return r;
}

static int find_in_boot(int stage, struct machine_kernel *ret, abox_error **reterr)
{
	const char *why = "there is none in " BOOT;
	char path[PATH_MAX];
	char **names;
	size_t n;
	int r = list_boot(&names, &n);
	bool found = false;

	for (size_t i = 0; r == 0 && !found && i < n; i++) {
		snprintf(path, sizeof(path), BOOT "/%s", names[i]);
		found = look_at(path, ret, &why) == 0;
	}
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
	if (r < 0 || found)
		return r;
	r = error_set(reterr, ABOX_E_NOT_FOUND, stage, n ? path : BOOT, "no kernel for a virtual machine: %s", why);
	return error_remedy(reterr, r, REMEDY);
}

int machine_kernel_find(const char *wanted, int stage, struct machine_kernel *ret, abox_error **reterr)
{
	const char *why = NULL;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (string_empty(wanted))
		wanted = secure_getenv("ABOX_KERNEL");
	if (string_empty(wanted))
		return find_in_boot(stage, ret, reterr);
	r = look_at(wanted, ret, &why);
	if (r == 0 || r == ABOX_E_MEMORY)
		return r;
	r = error_set(reterr, r, stage, wanted, "cannot be the kernel of a virtual machine: %s", why);
	return error_remedy(reterr, r, REMEDY);
}

/* -- the cache -- */

/* Appears under its name only when it is whole. Who comes second finds the other's, which is the same. Everybody may
 * read it, as a machine's user is nobody; the folder is closed. */
static int store(int cache_fd, const char *name, const uint8_t *data, size_t len)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char self[32];
	int r;

	fd = openat(cache_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, len);
	if (r < 0)
		return r;
	if (fchmod(fd, 0444) < 0 || fdatasync(fd) < 0)
		return -errno;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return linkat(AT_FDCWD, self, cache_fd, name, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST ? -errno : 0;
}

/* 0 when it is there. Security: the folder is the user's own, so that somebody else's file cannot be in it. */
static int look_for(int cache_fd, const char *name)
{
	struct stat st;

	if (fstatat(cache_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size > 0 ? 0 : -EINVAL;
}

static int keep(int cache_fd, const char *name, const struct view *view, const struct machine_image *image,
	const char *path, int stage, abox_error **reterr)
{
	_cleanup_(freep) uint8_t *unpacked = NULL;
	const uint8_t *data = view->data;
	size_t len = view->len, unpacked_len;
	int r = ABOX_E_UNSUPPORTED;

	if (image->payload)
		r = machine_image_unpack(view->data + image->payload, image->payload_len, &unpacked, &unpacked_len);
	if (r == ABOX_E_INVALID)
		return error_set(reterr, r, stage, path, "the packed kernel in it is damaged");
	if (r < 0 && r != ABOX_E_UNSUPPORTED)
		return r;
	if (r == 0 && machine_image_has_entry(unpacked, unpacked_len)) {
		data = unpacked;
		len = unpacked_len;
	}
	r = store(cache_fd, name, data, len);
	return r < 0 ? error_set_errno(reterr, ABOX_E_SYSTEM, stage, name, -r, "cannot keep the kernel") : 0;
}

int machine_kernel_place(const struct machine_kernel *kernel, int stage, char ret[PATH_MAX], abox_error **reterr)
{
	_cleanup_(view_clear) struct view view = VIEW_INIT;
	int r;

	r = view_open(kernel->path, &view);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, kernel->path, -r, "cannot open the kernel");
	return machine_cache_place(CACHE_FOLDER, view.data, view.len, stage, ret, reterr);
}

int machine_kernel_make(const struct machine_kernel *kernel, const char *place, int stage, abox_error **reterr)
{
	_cleanup_(view_clear) struct view view = VIEW_INIT;
	_cleanup_(fd_closep) int cache_fd = -EBADF;
	const char *name = strrchr(place, '/') + 1;
	char digest[DIGEST_TEXT_BYTES];
	struct machine_image image;
	int r;

	cache_fd = machine_cache_open(CACHE_FOLDER, stage, reterr);
	if (cache_fd < 0)
		return cache_fd;
	r = look_for(cache_fd, name);
	if (r == 0)
		return 0;
	if (r != -ENOENT)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, place, -r, "cannot be the kernel");
	r = view_open(kernel->path, &view);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, kernel->path, -r, "cannot open the kernel");
	r = digest_sha256_text(view.data, view.len, digest);
	if (r < 0)
		return r;
	if (strcmp(digest, name) != 0 || machine_image_parse(view.data, view.len, &image) < 0)
		return error_set(reterr, ABOX_E_NOT_FOUND, stage, kernel->path, "is not what it was when the plan was made");
	return keep(cache_fd, name, &view, &image, kernel->path, stage, reterr);
}
