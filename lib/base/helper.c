/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The helper programs and how they are found. Embedded ones lie in the library as bytes (helper-images.S, made by the build);
 * each start puts them into a sealed memory file, so that nobody can write to a helper that runs.
 */
#include "base/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/error.h"
#include "base/macro.h"
#include "base/memfd.h"

#ifdef HELPER_DIR

#include <stdio.h>

int helper_open(const char *name, int *retfd, abox_error **reterr)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), HELPER_DIR "/agentbox-%s", name);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return error_set_errno(reterr, errno == ENOENT ? ABOX_E_NOT_FOUND : ABOX_E_SYSTEM, ABOX_STAGE_START, path,
			errno, "cannot open the helper program");
	*retfd = fd;
	return 0;
}

#else

struct helper_image {
	const char *name;
	const void *data;
	uint64_t len;
};
extern const struct helper_image helper_images[] __attribute__((visibility("hidden")));
extern const uint64_t helper_n_images __attribute__((visibility("hidden")));

int helper_open(const char *name, int *retfd, abox_error **reterr)
{
	for (uint64_t i = 0; i < helper_n_images; i++) {
		const struct helper_image *image = &helper_images[i];
		int r;

		if (strcmp(image->name, name) != 0)
			continue;
		r = memfd_new_sealed(image->name, image->data, image->len, 0111, retfd);
		if (r < 0)
			return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_START, name, -r,
				"cannot put the helper program into memory");
		return 0;
	}
	return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_START, name, "there is no such helper program");
}

#endif
