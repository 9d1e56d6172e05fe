/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where the library keeps things, and that nobody else can have put them there. What is kept is the caller's
 * business.
 */
#include "base/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"

static const struct {
	const char *name;	/* below ABOX_HOME */
	const char *of_root;
	const char *variable;
	const char *below_home;	/* when the variable says nothing; NULL: /tmp/agentbox-UID */
} places[PLACE_N] = {
	[PLACE_RUN] = { "run", "/run/agentbox", "XDG_RUNTIME_DIR", NULL },
	[PLACE_STATE] = { "state", "/var/lib/agentbox", "XDG_STATE_HOME", ".local/state" },
	[PLACE_CACHE] = { "cache", "/var/cache/agentbox", "XDG_CACHE_HOME", ".cache" },
};

static const char *absolute_variable(const char *name)
{
	const char *value = secure_getenv(name);

	return value && value[0] == '/' ? value : NULL;
}

static bool own_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

int place_path(enum place place, char *ret, size_t size)
{
	const char *home = absolute_variable("ABOX_HOME"), *named = absolute_variable(places[place].variable);
	int n;

	if (place == PLACE_RUN && named && !own_folder(named))
		named = NULL;
	if (home)
		n = snprintf(ret, size, "%s/%s", home, places[place].name);
	else if (geteuid() == 0)
		n = snprintf(ret, size, "%s", places[place].of_root);
	else if (named)
		n = snprintf(ret, size, "%s/agentbox", named);
	else if (!places[place].below_home)
		n = snprintf(ret, size, "/tmp/agentbox-%u", geteuid());
	else if ((home = absolute_variable("HOME")))
		n = snprintf(ret, size, "%s/%s/agentbox", home, places[place].below_home);
	else
		return -ENOENT;
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

/* mkdir -p of what the user's own environment named, or of a folder of the system: links on the way are
 * theirs. */
static int make_parents(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int r;

		*slash = 0;
		r = mkdir(path, 0700);
		*slash = '/';
		if (r < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
			return -errno;
	}
	return 0;
}

/*
 * Security: a folder in /tmp may have been planted by another user. It is ours only when it is a real folder,
 * owned by us, and closed to all others.
 */
static int open_private(const char *path, int stage, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	struct stat st;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, path, errno, "cannot make the folder");
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, path, errno, "cannot open the folder");
	if (st.st_uid != geteuid())
		return error_set(
			reterr, ABOX_E_PERMISSION, stage, path, "the folder belongs to uid %u", st.st_uid);
	if ((st.st_mode & 077) && fchmod(fd, 0700) < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, stage, path, errno, "cannot close the folder to others");
	return steal_fd(fd);
}

int place_open(enum place place, int stage, abox_error **reterr)
{
	char path[PATH_MAX];
	int r;

	r = place_path(place, path, sizeof(path));
	if (r == 0)
		r = make_parents(path);
	if (r < 0)
		r = error_set_errno(reterr, ABOX_E_SYSTEM, stage, places[place].variable, -r,
			"there is no place for the folder");
	else
		r = open_private(path, stage, reterr);
	return r < 0 ? error_remedy(reterr, r, "set ABOX_HOME to a folder of your own") : r;
}
