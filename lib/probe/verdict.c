/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The verdict's file: one line that says for whom it is, one with the results of the trial, one with the mounts.
 * Text, since people look into cache folders.
 */
#include "probe/verdict.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/place.h"
#include "base/strings.h"
#include "kernel/caps.h"
#include "kernel/compat.h"

#define NAME "host"
#define INITIAL_USERNS 0xEFFFFFFDU	/* the inode number of the first user namespace, in every kernel */

uint64_t verdict_mount_id(int fd)
{
	struct sys_statx answer;

	if (sys_statx(fd, "", AT_EMPTY_PATH, SYS_STATX_MNT_ID_UNIQUE, &answer) < 0 ||
		!(answer.mask & SYS_STATX_MNT_ID_UNIQUE))
		return 0;
	return answer.mnt_id;
}

/* A folder, where it is mounted and which of the folders there it is: chroots and mount namespaces differ in it. */
static bool place_text(const char *path, struct text *text)
{
	_cleanup_(fd_closep) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	uint64_t mount_id = verdict_mount_id(fd);
	struct stat st;

	if (fd < 0 || !mount_id || fstat(fd, &st) < 0)
		return false;
	text_printf(text, " %" PRIu64 ":%" PRIu64, mount_id, (uint64_t)st.st_ino);
	return true;
}

/* A switch of the administrator's; what is not there is told apart from every value. */
static void knob_text(const char *path, struct text *text)
{
	_cleanup_(freep) char *value = NULL;

	if (file_read_text(AT_FDCWD, path, 64, &value, NULL) < 0)
		text_add(text, " -");
	else
		text_printf(text, " %.*s", (int)strcspn(value, "\n "), value);
}

static bool in_first_userns(void)
{
	struct stat st;

	return stat("/proc/self/ns/user", &st) == 0 && st.st_ino == INITIAL_USERNS;
}

static bool build_key(struct text *text)
{
	struct utsname name;
	struct caps caps;

	/* numbers of other namespaces are used again; a filter around us cannot be told from another one */
	if (!in_first_userns() || prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0)
		return false;
	if (uname(&name) < 0 || caps_read(&caps) < 0)
		return false;
	text_printf(text, "1 %s|%s|%s %u %u %" PRIx64 " %d", name.release, name.version, name.machine, geteuid(),
		getegid(), caps.effective, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	knob_text("/proc/sys/kernel/random/boot_id", text);
	knob_text("/proc/sys/user/max_user_namespaces", text);
	knob_text("/proc/sys/kernel/unprivileged_userns_clone", text);
	knob_text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", text);
	return place_text("/", text) && place_text("/proc", text);
}

static bool is_private(int fd, mode_t kind)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind && st.st_uid == geteuid() && !(st.st_mode & 077);
}

/* The folder, where it is there and nobody else can have put anything into it. */
static int open_folder(void)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char path[PATH_MAX];

	if (place_path(PLACE_CACHE, path, sizeof(path)) < 0)
		return -EBADF;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd >= 0 && is_private(fd, S_IFDIR) ? steal_fd(fd) : -EBADF;
}

bool verdict_read_file(const char *name, char text[VERDICT_BYTES])
{
	_cleanup_(fd_closep) int folder_fd = open_folder(), fd = -EBADF;
	ssize_t n;

	if (folder_fd < 0)
		return false;
	fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || !is_private(fd, S_IFREG))
		return false;
	n = fd_read_all(fd, text, VERDICT_BYTES);
	if (n <= 0 || n >= VERDICT_BYTES || strnlen(text, (size_t)n) != (size_t)n || text[n - 1] != '\n')
		return false;
	text[n] = 0;
	return true;
}

/* "it works", or what else a plan can live with. */
static bool parse_trial(const char *line, struct trial *ret)
{
	struct trial trial;
	int n = 0;

	if (sscanf(line, "%d %d %d %d %d %d %d %d %d%n", &trial.clone, &trial.map, &trial.mount, &trial.proc,
		    &trial.overlay, &trial.overlay_fd, &trial.mount_beneath, &trial.tmpfs_xattr, &trial.setattr,
		    &n) != 9 ||
		line[n] != '\n')
		return false;
	if (!trial_is_good(&trial))
		return false;
	*ret = trial;
	return true;
}

static bool parse(char *text, struct verdict *verdict)
{
	size_t len = strlen(verdict->key);
	char *line = text + len + 1, *end;

	if (strncmp(text, verdict->key, len) != 0 || text[len] != '\n' || !parse_trial(line, &verdict->trial))
		return false;
	line = strchr(line, '\n') + 1;
	for (size_t i = 0; i < VERDICT_IDMAPS; i++) {
		uint64_t id = strtoull(line, &end, 10);

		if (end == line || !id)
			break;
		verdict->idmaps[verdict->n_idmaps++] = id;
		line = end;
	}
	return true;
}

void verdict_recall(struct verdict *verdict)
{
	_cleanup_(text_clear) struct text key = TEXT_INIT;
	char text[VERDICT_BYTES];

	*verdict = (struct verdict){ 0 };
	if (!build_key(&key) || key.failed || key.len >= sizeof(verdict->key) || strchr(key.data, '\n'))
		return;
	memcpy(verdict->key, key.data, key.len + 1);
	verdict->known = verdict_read_file(NAME, text) && parse(text, verdict);
	if (!verdict->known)
		verdict->n_idmaps = 0;
}

static void verdict_text(const struct verdict *verdict, struct text *text)
{
	const struct trial *trial = &verdict->trial;

	text_printf(text, "%s\n%d %d %d %d %d %d %d %d %d\n", verdict->key, trial->clone, trial->map, trial->mount,
		trial->proc, trial->overlay, trial->overlay_fd, trial->mount_beneath, trial->tmpfs_xattr,
		trial->setattr);
	for (size_t i = 0; i < verdict->n_idmaps; i++)
		text_printf(text, "%" PRIu64 " ", verdict->idmaps[i]);
	text_add(text, "\n");
}

void verdict_write_file(const char *name, const char *text, size_t len)
{
	_cleanup_(fd_closep) int folder_fd = -EBADF, fd = -EBADF;
	char unfinished[64];

	folder_fd = place_open(PLACE_CACHE, ABOX_STAGE_PROBE, NULL);
	if (folder_fd < 0 || len >= VERDICT_BYTES)
		return;
	/* whole or not at all; two that do it at once write the same */
	snprintf(unfinished, sizeof(unfinished), "%s.%d", name, (int)getpid());
	unlinkat(folder_fd, unfinished, 0);
	fd = openat(folder_fd, unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (fd_write_all(fd, text, len) < 0 || renameat(folder_fd, unfinished, folder_fd, name) < 0)
		unlinkat(folder_fd, unfinished, 0);
}

void verdict_keep(const struct verdict *verdict)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	if (!verdict->key[0] || !verdict->changed || !trial_is_good(&verdict->trial))
		return;
	verdict_text(verdict, &text);
	if (!text.failed)
		verdict_write_file(NAME, text.data, text.len);
}

void verdict_forget(const struct verdict *verdict)
{
	_cleanup_(fd_closep) int folder_fd = -EBADF;

	if (!verdict->known)
		return;
	folder_fd = open_folder();
	if (folder_fd >= 0)
		unlinkat(folder_fd, NAME, 0);
}
