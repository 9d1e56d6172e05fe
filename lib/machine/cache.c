/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What of machines is kept on the host: folders below the cache folder, and in each a file under the digest of what it
 * was made from. What is in a folder, and for how long, is for whoever has it.
 */
#include "machine/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/place.h"

int machine_cache_place(
	const char *name, const void *data, size_t len, int stage, char ret[PATH_MAX], abox_error **reterr)
{
	char folder[PATH_MAX], digest[DIGEST_TEXT_BYTES];
	int r;

	r = digest_sha256_text(data, len, digest);
	if (r < 0)
		return r;
	r = place_path(PLACE_CACHE, folder, sizeof(folder));
	if (r < 0 || (size_t)snprintf(ret, PATH_MAX, "%s/%s/%s", folder, name, digest) >= PATH_MAX)
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_SYSTEM, stage, "cache", "there is no place for %s of machines", name),
			"set ABOX_HOME to a folder of your own");
	return 0;
}

int machine_cache_open(const char *name, int stage, abox_error **reterr)
{
	_cleanup_(fd_closep) int place_fd = place_open(PLACE_CACHE, stage, reterr);
	int fd;

	if (place_fd < 0)
		return place_fd;
	if (mkdirat(place_fd, name, 0700) < 0 && errno != EEXIST)
		return error_set_errno(reterr, ABOX_E_SYSTEM, stage, name, errno, "cannot make the folder of the cache");
	fd = openat(place_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? error_set_errno(reterr, ABOX_E_SYSTEM, stage, name, errno, "cannot open the folder of the cache") : fd;
}
