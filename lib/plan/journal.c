/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the box must never see: the journal that it is recorded in, and the folders in which live boxes and
 * workspaces are kept (a box of a plain user has the uid that may talk to keepers).
 */
#include "plan/builder.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/place.h"

int plan_canonical(const char *path, char ret[PATH_MAX])
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');
	size_t len;

	if (realpath(path, ret))
		return 0;
	if (errno != ENOENT || !slash || slash[1] == 0)
		return -errno;
	len = (size_t)(slash - path);
	if (len >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, path, len);
	parent[len] = 0;
	if (!realpath(len ? parent : "/", ret))
		return -errno;
	len = strlen(ret);
	if (len + strlen(slash) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(ret + (len == 1 ? 0 : len), slash);
	return 0;
}

/* The folder of the host that would show `path` in the box; NULL when none does. */
static const char *shown_by(const struct plan_builder *builder, const char *path)
{
	for (uint32_t i = 0; i < builder->flat.n_sources; i++) {
		const struct flat_source *source = &builder->flat.sources[i];

		if (source->kind != FLAT_DEVICE &&
			(path_is_under(path, source->path) || path_is_under(source->path, path)))
			return source->path;
	}
	return NULL;
}

static int check_places(struct plan_builder *builder, abox_error **reterr)
{
	static const enum place places[] = { PLACE_RUN, PLACE_STATE };
	char path[PATH_MAX], real[PATH_MAX];
	const char *source;

	for (size_t i = 0; i < ELEMENTSOF(places); i++) {
		if (place_path(places[i], path, sizeof(path)) < 0 || plan_canonical(path, real) < 0)
			continue;	/* not there: nothing to be seen */
		source = shown_by(builder, real);
		if (source)
			return error_remedy(reterr,
				error_set(reterr, ABOX_E_DENIED, ABOX_STAGE_PLAN, source,
					"it would show the box the library's own folder %s", real),
				"give a narrower folder, or set ABOX_HOME to a place outside of it");
	}
	return 0;
}

int plan_build_journal(struct plan_builder *builder, abox_error **reterr)
{
	char real[PATH_MAX];
	const char *path, *source;
	int r;

	r = check_places(builder, reterr);
	if (r < 0 || !spec_has(builder->spec, "/journal"))
		return r;
	path = spec_string(builder->spec, "/journal");
	r = plan_canonical(path, real);
	if (r < 0)
		return spec_refuse(builder->spec, reterr, ABOX_E_NOT_FOUND, ABOX_STAGE_PLAN, "/journal",
			"cannot reach the folder of the journal: %s", strerror(-r));
	source = shown_by(builder, real);
	if (source)
		return error_remedy(reterr,
			spec_refuse(builder->spec, reterr, ABOX_E_DENIED, ABOX_STAGE_PLAN, "/journal",
				"the box would see its journal through %s", source),
			"keep the journal outside of every folder that the box is given");
	builder->journal = builder_text(builder, "%s", real);
	enforcement_add(builder, &(struct enforcement){ .name = "journal",
					 .by = "recorder",
					 .pointer = "/journal",
					 .required = true,
					 .detail = "the box is stopped when its records cannot be written" });
	return 0;
}
