/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The places where files are served: a running box, a workspace at rest in each mode. One body is run on all of them, as
 * root and as a plain user; nothing asserts below the fork (workspace/scene.h).
 */
#ifndef TESTS_FILE_PLACES_H
#define TESTS_FILE_PLACES_H

#include <agentbox/file.h>
#include <agentbox/sandbox.h>

#include "workspace/scene.h"

enum place_kind {
	PLACE_BOX = 0,
	PLACE_EMPTY,		/* at rest: one layer */
	PLACE_OVERLAY,		/* above a folder of the host */
	PLACE_WHOLE,		/* mode copy, a whole tree */
	PLACE_DIRECT,
	PLACE_KINDS,
};
extern const char *const place_names[PLACE_KINDS];

struct place {
	enum place_kind kind;
	abox_sandbox *box;
	abox_workspace *workspace;
	abox_files *files;	/* opened for writing */
};
/* The folder of PLACE_OVERLAY and the others holds `lines` (scene.h) before; a box gets them by write. 0 or a code. */
int place_begin(struct scene *scene, enum place_kind kind, const char *lines, struct place *ret, abox_error **reterr);
void place_end(struct place *place);
int place_box(const char *spec, abox_sandbox **ret, abox_error **reterr);
/* Runs `sh -c` in the box: its exit code, or a negative code. */
int place_shell(abox_sandbox *box, const char *script);
/* The content of a file through the API; malloc; NULL when it cannot be read. */
char *place_text(abox_files *files, const char *path);

#define EACH_PLACE(scene, kind) for (enum place_kind kind = 0; kind < PLACE_KINDS && !(scene)->failed; kind++)

#endif
