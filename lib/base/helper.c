/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The door to the helper programs. Embedded, each is a few bytes of the library's own read-only data
 * (helper-images.S, made by the build), and runs from a sealed memory file; installed, it is a file below
 * libexec.
 */
#include "base/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/memfd.h"

#ifdef HELPERS_EMBEDDED

struct image {
	const char *name;
	const char *begin, *end;
};
extern const struct image helper_images[] __attribute__((visibility("hidden")));
extern const char helper_images_end[] __attribute__((visibility("hidden")));

int helper_open(const char *name, int *retfd, abox_error **reterr)
{
	const struct image *last = (const struct image *)helper_images_end;
	char title[64];
	int r;

	snprintf(title, sizeof(title), "agentbox-%s", name);
	for (const struct image *image = helper_images; image < last; image++) {
		if (strcmp(image->name, name) != 0)
			continue;
		r = memfd_new_sealed(title, image->begin, (size_t)(image->end - image->begin), 0111, retfd);
		if (r < 0)
			return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_PLAN, title, -r,
				"cannot keep the helper program");
		return 0;
	}
	return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, title,
		"this library carries no such helper program");
}

int helper_read(const char *name, void **retdata, size_t *retlen, abox_error **reterr)
{
	const struct image *last = (const struct image *)helper_images_end;

	for (const struct image *image = helper_images; image < last; image++) {
		if (strcmp(image->name, name) != 0)
			continue;
		*retlen = (size_t)(image->end - image->begin);
		*retdata = malloc(*retlen + 1);
		if (!*retdata)
			return ABOX_E_MEMORY;
		memcpy(*retdata, image->begin, *retlen);
		return 0;
	}
	return error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, name, "this library carries no such helper program");
}

#else

int helper_open(const char *name, int *retfd, abox_error **reterr)
{
	char path[4096];
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/agentbox-%s", HELPERS_FOLDER, name) >= sizeof(path))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, name,
			"the path of the helper programs is too long");
	fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return error_remedy(reterr,
			error_set(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, path,
				"the helper program is not installed"),
			"install libagentbox again, or build it with -Dhelpers=embedded");
	if (fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_PLAN, path, errno,
			"cannot open the helper program");
	*retfd = fd;
	return 0;
}

int helper_read(const char *name, void **retdata, size_t *retlen, abox_error **reterr)
{
	char path[4096], *text;
	int r;

	if ((size_t)snprintf(path, sizeof(path), "%s/agentbox-%s", HELPERS_FOLDER, name) >= sizeof(path))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN, name,
			"the path of the helper programs is too long");
	r = file_read_text(AT_FDCWD, path, 16 << 20, &text, retlen);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, path, -r, "cannot read the helper program");
	*retdata = text;
	return 0;
}

#endif
