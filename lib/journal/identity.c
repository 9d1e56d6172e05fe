/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which journal is this, and is this the place where it lives?
 *
 * A random id and a place (file system and inode of the lock file) stand in the file `id`. A copied or
 * restored folder has another inode: it knows nothing of what the original did since, and must not go on as
 * if it were the original. The machine is told and never decides: cloned machines share it, and moved disks
 * change it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/json.h"
#include "journal/handle.h"
#include "journal/inject.h"

/* Locks on these can be lost silently, or hold on one machine only. FUSE cannot be told from a network. */
static const struct {
	uint32_t magic;
	const char *name;
} network_filesystems[] = {
	{ 0x6969, "NFS" },
	{ 0x517b, "SMB" },
	{ 0xff534d42, "CIFS" },
	{ 0xfe534d42, "SMB2" },
	{ 0x5346414f, "AFS" },
	{ 0x6b414653, "kAFS" },
	{ 0x73757245, "Coda" },
	{ 0x01021997, "9P" },
	{ 0x65735546, "FUSE" },
	{ 0x00c36400, "Ceph" },
	{ 0x7461636f, "OCFS2" },
	{ 0x01161970, "GFS2" },
	{ 0x0bd00bd0, "Lustre" },
	{ 0x564c, "NCP" },
	{ 0x47504653, "GPFS" },
	{ 0x19830326, "BeeGFS" },
};

static int check_filesystem(int dir_fd, bool append, bool *retread_only, abox_error **reterr)
{
	struct statfs fs;
	int r;

	if (fstatfs(dir_fd, &fs) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, errno,
			"cannot look at the file system");
	*retread_only = (fs.f_flags & ST_RDONLY) != 0;
	for (size_t i = 0; append && i < ELEMENTSOF(network_filesystems); i++)
		if ((uint32_t)fs.f_type == network_filesystems[i].magic) {
			r = error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_JOURNAL, NULL,
				"the folder is on %s, where locks can be lost silently",
				network_filesystems[i].name);
			return error_remedy(reterr, r, "keep the journal on a local file system");
		}
	return 0;
}

/* Security: whoever may write here could forge records, or swap the lock file under us. */
static int check_owner(int dir_fd, abox_error **reterr)
{
	struct stat st, parent;

	if (fstat(dir_fd, &st) < 0 || fstatat(dir_fd, "..", &parent, 0) < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, errno, "cannot stat the folder");
	if (st.st_uid != geteuid())
		return error_set(reterr, ABOX_E_PERMISSION, ABOX_STAGE_JOURNAL, NULL,
			"the folder belongs to uid %u, not to the caller", (unsigned int)st.st_uid);
	if (st.st_mode & 022)
		return error_set(reterr, ABOX_E_PERMISSION, ABOX_STAGE_JOURNAL, NULL,
			"others may write into the folder (mode %04o)", (unsigned int)st.st_mode & 07777);
	if ((parent.st_mode & S_IWOTH) && !(parent.st_mode & S_ISVTX))
		return error_set(reterr, ABOX_E_PERMISSION, ABOX_STAGE_JOURNAL, "..",
			"everybody may rename the folder away (mode of its parent %04o)",
			(unsigned int)parent.st_mode & 07777);
	return 0;
}

/* A trailing slash would make the kernel follow a link in the last component. */
static char *without_trailing_slashes(const char *path)
{
	char *copy = strdup(path);
	size_t n = copy ? strlen(copy) : 0;

	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = 0;
	return copy;
}

static int make_folder(const char *path, bool exclusive, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF, parent_fd = -EBADF;

	if (mkdir(path, 0700) < 0) {
		if (errno != EEXIST)
			return error_set_errno(reterr, errno == ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_SYSTEM,
				ABOX_STAGE_JOURNAL, path, errno, "cannot create the folder");
		if (exclusive)
			return error_set(reterr, ABOX_E_EXISTS, ABOX_STAGE_JOURNAL, path,
				"there is something already");
		return 0;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		parent_fd = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent_fd < 0 || jio_sync(parent_fd) < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, path, errno, "cannot sync the parent folder");
	return 0;
}

int identity_open_folder(const char *path, const struct abox_journal_options *options, int *retfd,
	bool *retread_only, abox_error **reterr)
{
	_cleanup_(freep) char *clean = without_trailing_slashes(path);
	_cleanup_(fd_closep) int fd = -EBADF;
	bool append = options->mode == ABOX_JOURNAL_APPEND;
	int r;

	if (!clean)
		return ABOX_E_MEMORY;
	if (options->flags & ABOX_JOURNAL_CREATE) {
		r = make_folder(clean, options->flags & ABOX_JOURNAL_EXCLUSIVE, reterr);
		if (r < 0)
			return r;
	}
	fd = open(clean, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(reterr,
			errno == ENOENT                      ? ABOX_E_NOT_FOUND
			: errno == ENOTDIR || errno == ELOOP ? ABOX_E_PERMISSION
							     : ABOX_E_SYSTEM,
			ABOX_STAGE_JOURNAL, clean, errno, "cannot open the journal folder");
	r = check_filesystem(fd, append, retread_only, reterr);
	if (r == 0 && append)
		r = check_owner(fd, reterr);
	if (r < 0)
		return error_prefix(reterr, r, "journal '%s'", clean);
	*retfd = steal_fd(fd);
	return 0;
}

int identity_new_id(char ret[ABOX_JOURNAL_ID_BYTES], abox_error **reterr)
{
	uint8_t bytes[16];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, errno, "no random bytes");
	hex_encode(bytes, sizeof(bytes), ret);
	return 0;
}

static void read_machine(char ret[33])
{
	_cleanup_(freep) char *text = NULL;

	ret[0] = 0;
	if (file_read_text(AT_FDCWD, "/etc/machine-id", 128, &text, NULL) < 0)
		return;
	if (strspn(text, "0123456789abcdef") == 32)
		snprintf(ret, 33, "%.32s", text);
}

int identity_here(int dir_fd, int lock_fd, struct journal_identity *ret, abox_error **reterr)
{
	struct statfs fs;
	struct stat st;

	if (fstatfs(dir_fd, &fs) < 0 || fstat(lock_fd, &st) < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_JOURNAL, NULL, errno, "cannot tell the place");
	memcpy(&ret->fsid, &fs.f_fsid, sizeof(ret->fsid));
	if (ret->fsid == 0)
		ret->fsid = st.st_dev;
	ret->inode = st.st_ino;
	read_machine(ret->machine);
	return 0;
}

static int parse_identity(const struct json *json, struct journal_identity *ret, abox_error **reterr)
{
	const char *id = json_text(json_member(json, "id"));
	const char *fsid = json_text(json_member(json, "fsid"));
	const char *machine = json_text(json_member(json, "machine"));
	const char *inode = json_text(json_member(json, "inode"));
	int64_t format = json_number(json_member(json, "format"));
	uint8_t bytes[16];

	if (format > FORMAT_NUMBER)
		return error_set(reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_JOURNAL, "id",
			"the journal has format %lld, this library knows %d", (long long)format,
			FORMAT_NUMBER);
	if (!id || !fsid || !machine || !inode || format < 1 || strlen(id) != 32 ||
		hex_decode(id, bytes, 16) < 0)
		return error_set(
			reterr, ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, "id", "is not the identity of a journal");
	memcpy(ret->id, id, sizeof(ret->id));
	ret->fsid = strtoull(fsid, NULL, 16);
	ret->inode = strtoull(inode, NULL, 10);
	snprintf(ret->machine, sizeof(ret->machine), "%s", machine);
	return 0;
}

int identity_read(int dir_fd, struct journal_identity *ret, abox_error **reterr)
{
	_cleanup_(freep) char *text = NULL;
	_cleanup_(fd_closep) int fd = -EBADF;
	const struct json_bounds bounds = { .max_bytes = 4096, .max_depth = 2, .stage = ABOX_STAGE_JOURNAL };
	struct json *json = NULL;
	size_t len;
	int r;

	fd = jio_open(dir_fd, "id", O_RDONLY, 0);
	r = fd < 0 ? fd : fd_read_text(fd, 4096, &text, &len);
	if (r < 0)
		return error_set_errno(reterr, r == -ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_IO,
			ABOX_STAGE_JOURNAL, "id", -r, "cannot read the identity");
	r = json_parse(text, len, &bounds, &json, NULL);
	if (r < 0)
		return error_set(reterr, r == ABOX_E_MEMORY ? r : ABOX_E_DAMAGED, ABOX_STAGE_JOURNAL, "id",
			"is not the identity of a journal");
	r = parse_identity(json, ret, reterr);
	json_unref(json);
	return r;
}

int identity_write(int dir_fd, const struct journal_identity *identity, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char text[256];
	int r, n;

	n = snprintf(text, sizeof(text),
		"{\"format\":%d,\"id\":\"%s\",\"fsid\":\"%016" PRIx64 "\",\"inode\":\"%" PRIu64
		"\",\"machine\":\"%s\"}\n",
		FORMAT_NUMBER, identity->id, identity->fsid, identity->inode, identity->machine);
	r = jio_unlink(dir_fd, "id.new");
	if (r == -ENOENT)
		r = 0;
	if (r == 0)
		fd = r = jio_open(dir_fd, "id.new", O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd >= 0)
		r = jio_pwrite(fd, text, (size_t)n, 0);
	if (r >= 0)
		r = jio_sync(fd);
	if (r >= 0)
		r = jio_rename(dir_fd, "id.new", "id");
	if (r >= 0)
		r = jio_sync(dir_fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_JOURNAL, "id", -r, "cannot write the identity");
	return 0;
}
