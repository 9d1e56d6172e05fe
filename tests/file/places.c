/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "places.h"

#include <agentbox/command.h>
#include <agentbox/plan.h>
#include <agentbox/spec.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const place_names[PLACE_KINDS] = { "box", "empty", "overlay", "whole", "direct" };

int place_box(const char *json, abox_sandbox **ret, abox_error **reterr)
{
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	int r;

	r = abox_spec_from_json(json, &spec, reterr);
	if (r >= 0)
		r = abox_plan_compile(spec, &plan, reterr);
	if (r >= 0)
		r = abox_sandbox_start(plan, NULL, ret, reterr);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return r;
}

int place_shell(abox_sandbox *box, const char *script)
{
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "sh", "-c", script, NULL } };
	abox_result *result = NULL;
	int r = abox_command_run(box, &options, &result, NULL);

	if (r >= 0)
		r = abox_result_get_exit_code(result);
	abox_result_unref(result);
	return r;
}

char *place_text(abox_files *files, const char *path)
{
	char *data = NULL;

	return abox_files_read(files, path, 0, 0, &data, NULL, NULL) < 0 ? NULL : data;
}

static int make_workspace(
	struct scene *scene, enum place_kind kind, const char *lines, char path[128], abox_workspace **ret,
	abox_error **reterr)
{
	struct abox_workspace_options options = ABOX_WORKSPACE_OPTIONS_INIT;
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "of-%s", place_names[kind]);
	snprintf(path, 128, "%s/%s", scene->root, name);
	mkdirat(scene->root_fd, name, 0755);
	fd = openat(scene->root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || write_lines(fd, lines) < 0)
		return ABOX_E_IO;
	close(fd);
	if (kind != PLACE_EMPTY) {
		options.source_kind = ABOX_SOURCE_DIR;
		options.source = path;
	}
	options.mode = kind == PLACE_WHOLE ? WORKSPACE_COPY : kind == PLACE_DIRECT ? WORKSPACE_DIRECT : WORKSPACE_OVERLAY;
	options.flags = kind == PLACE_WHOLE ? ABOX_WORKSPACE_NO_OVERLAY : 0;
	return abox_workspace_create(&options, ret, reterr);
}

/* Lines of scene.h through a shell in the box. */
static int write_in_box(abox_sandbox *box, const char *lines)
{
	char script[4096] = "cd /workspace\n", line[256], *used = script + strlen(script);

	while (*lines) {
		size_t len = strcspn(lines, "\n");
		char kind, first[128] = "", second[128] = "";

		snprintf(line, sizeof(line), "%.*s", (int)len, lines);
		if (sscanf(line, "%c %127s %127[^\n]", &kind, first, second) < 2)
			return -1;
		if (kind == 'w')
			used += sprintf(used, "mkdir -p $(dirname %s); printf %%s '%s' > %s\n", first, second, first);
		else if (kind == 'd')
			used += sprintf(used, "mkdir -p %s\n", first);
		else if (kind == 's')
			used += sprintf(used, "ln -s %s %s\n", first, second);
		lines += len + (lines[len] == '\n');
	}
	return place_shell(box, script);
}

int place_begin(struct scene *scene, enum place_kind kind, const char *lines, struct place *ret, abox_error **reterr)
{
	char path[128];
	int r;

	*ret = (struct place){ .kind = kind };
	if (kind == PLACE_BOX) {
		r = place_box("{\"version\":1}", &ret->box, reterr);
		if (r >= 0 && write_in_box(ret->box, lines) != 0)
			r = ABOX_E_IO;
		return r < 0 ? r : abox_files_open_sandbox(ret->box, ABOX_FILES_WRITE, &ret->files, reterr);
	}
	r = make_workspace(scene, kind, lines, path, &ret->workspace, reterr);
	if (r >= 0)
		r = abox_files_open_workspace(ret->workspace, NULL, ABOX_FILES_WRITE, &ret->files, reterr);
	return r < 0 || kind != PLACE_EMPTY ? r : abox_files_upload(ret->files, path, "", NULL, NULL, reterr);
}

void place_end(struct place *place)
{
	char *id = NULL;

	abox_files_unref(place->files);
	if (place->box)
		abox_sandbox_stop(place->box, ABOX_STOP_SUCCESS, NULL, NULL);
	abox_sandbox_unref(place->box);
	if (place->workspace)
		id = strdup(abox_workspace_get_id(place->workspace));
	abox_workspace_unref(place->workspace);
	if (id)
		abox_workspace_remove(id, NULL);
	free(id);
	*place = (struct place){ 0 };
}
