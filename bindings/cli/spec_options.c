/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Options whose value has parts, and the spec that all options make together. Host paths may be relative here, as
 * everywhere in a shell; the spec wants them absolute, so they are resolved from the working directory first.
 */
#include "spec_options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Cuts value at colons that no backslash precedes; at most n parts. Returns their number, 0 for too many. */
static size_t split_colons(char *value, char **parts, size_t n)
{
	size_t count = 1;
	char *to = value;

	parts[0] = value;
	for (char *from = value; *from; from++) {
		if (*from == '\\' && (from[1] == ':' || from[1] == '\\'))
			*to++ = *++from;
		else if (*from == ':') {
			*to++ = 0;
			if (count == n)
				return 0;
			parts[count++] = to;
		} else
			*to++ = *from;
	}
	*to = 0;
	return count;
}

/* Security: a path that does not resolve is refused here and never passed on as it is written. */
static int host_path(const char *path, char **retabsolute)
{
	*retabsolute = realpath(path, NULL);
	if (*retabsolute)
		return 0;
	say("%s: %s", path, strerror(errno));
	return errno == ENOENT ? ABOX_E_NOT_FOUND : errno == EACCES ? ABOX_E_PERMISSION : ABOX_E_INVALID;
}

static int bad_value(const char *option, const char *value, const char *form)
{
	say("--%s %s: write it as %s", option, value, form);
	return ABOX_E_INVALID;
}

static int add_mount(struct cli_settings *settings, const char *value, char *copy, abox_error **reterr)
{
	char *parts[3], *source;
	size_t n = split_colons(copy, parts, 3);
	int mode = ABOX_MOUNT_RO, r;

	if (n < 2 || !parts[0][0] || !parts[1][0])
		return bad_value("mount", value, "SRC:DST[:ro|rw]");
	if (n == 3 && !strcmp(parts[2], "rw"))
		mode = ABOX_MOUNT_RW;
	else if (n == 3 && strcmp(parts[2], "ro"))
		return bad_value("mount", value, "SRC:DST[:ro|rw]");
	r = host_path(parts[0], &source);
	if (r < 0)
		return r;
	r = abox_spec_add_mount(settings->spec, source, parts[1], mode, reterr);
	free(source);
	return r;
}

static int add_tmpfs(struct cli_settings *settings, const char *value, char *copy, abox_error **reterr)
{
	char *parts[2] = { NULL };
	uint64_t bytes;
	size_t n = split_colons(copy, parts, 2);
	int r;

	if (n < 1 || !parts[0][0])
		return bad_value("tmpfs", value, "DST[:SIZE]");
	r = abox_spec_add_mount(settings->spec, NULL, parts[0], ABOX_MOUNT_TMPFS, reterr);
	if (r < 0 || n == 1)
		return r;
	for (unsigned last = 0; ; last++) {
		char pointer[64], *json = NULL;

		/* The mount that was just added is the last one there is. */
		snprintf(pointer, sizeof(pointer), "/mounts/%u", last + 1);
		r = abox_spec_get(settings->spec, pointer, &json, NULL);
		abox_free(json);
		if (r >= 0)
			continue;
		snprintf(pointer, sizeof(pointer), "/mounts/%u/size", last);
		if (parse_u64(parts[1], &bytes))
			return abox_spec_set_json(settings->spec, pointer, parts[1], reterr);
		return abox_spec_set_string(settings->spec, pointer, parts[1], reterr);
	}
}

static int set_workspace(struct cli_settings *settings, const char *value, char *copy, abox_error **reterr)
{
	static const char *const modes[] = { "overlay", "copy", "direct" };
	char *parts[2], *directory;
	size_t n = split_colons(copy, parts, 2);
	int mode = ABOX_WORKSPACE_OVERLAY, r;

	while (n == 2 && mode <= ABOX_WORKSPACE_DIRECT && strcmp(parts[1], modes[mode]))
		mode++;
	if (n < 1 || !parts[0][0] || mode > ABOX_WORKSPACE_DIRECT)
		return bad_value("workspace", value, "DIR[:overlay|copy|direct]");
	r = host_path(parts[0], &directory);
	if (r < 0)
		return r;
	r = abox_spec_set_workspace(settings->spec, directory, mode, reterr);
	free(directory);
	return r;
}

static int with_copy(struct cli_settings *settings, const char *value, abox_error **reterr,
	int (*function)(struct cli_settings *, const char *, char *, abox_error **))
{
	char *copy = strdup(value);
	int r;

	if (!copy)
		return ABOX_E_MEMORY;
	r = function(settings, value, copy, reterr);
	free(copy);
	return r;
}

int spec_option_mount(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	return with_copy(settings, value, reterr, add_mount);
}

int spec_option_tmpfs(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	return with_copy(settings, value, reterr, add_tmpfs);
}

int spec_option_workspace(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	return with_copy(settings, value, reterr, set_workspace);
}

/* In place of whatever the spec file says. */
static int set_stored(struct cli_settings *settings, const char *source, const char *id, abox_error **reterr)
{
	int r = abox_spec_set_json(settings->spec, "/workspace/source", source, reterr);

	return r < 0 ? r : abox_spec_set_string(settings->spec, "/workspace/source/id", id, reterr);
}

int spec_option_workspace_id(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	return set_stored(settings, "{\"kind\": \"workspace\"}", value, reterr);
}

int spec_option_from_snapshot(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	return set_stored(settings, "{\"kind\": \"snapshot\"}", value, reterr);
}

/* Nothing of our environment passes unless it is named: "--env NAME" names one. */
int spec_option_env(struct cli_settings *settings, const char *value, abox_error **reterr)
{
	const char *equals = strchr(value, '='), *ours;
	char *name;
	int r;

	name = strndup(value, equals ? (size_t)(equals - value) : strlen(value));
	if (!name)
		return ABOX_E_MEMORY;
	ours = equals ? equals + 1 : getenv(name);
	if (ours)
		r = abox_spec_add_env(settings->spec, name, ours, reterr);
	else {
		say("--env %s: there is no such variable here; write %s=VALUE", name, name);
		r = ABOX_E_INVALID;
	}
	free(name);
	return r;
}

/* Reads all of a file, or of standard input for "-"; the library refuses what is too long. */
static int read_whole(const char *path, char **retdata, size_t *retlen)
{
	size_t room = 65536, len = 0;
	char *data = NULL;
	int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) : dup(0);
	ssize_t n = -1;

	if (fd < 0)
		return -errno;
	/* One byte more than allowed is enough to have it refused as too long. */
	while (len <= ABOX_SPEC_MAX_BYTES) {
		char *grown = realloc(data, room);

		if (!grown)
			break;
		data = grown;
		n = read(fd, data + len, room - len);
		if (n <= 0)
			break;
		len += (size_t)n;
		if (len == room)
			room *= 2;
	}
	n = n < 0 ? -errno : 0;
	close(fd);
	if (n < 0 || !data) {
		free(data);
		return n < 0 ? (int)n : -ENOMEM;
	}
	*retdata = data;
	*retlen = len;
	return 0;
}

int spec_read_file(const char *path, abox_spec **retspec, abox_error **reterr)
{
	char *data = NULL;
	size_t len = 0;
	int r = read_whole(path, &data, &len);

	if (r < 0) {
		say("%s: %s", path, strerror(-r));
		return r == -ENOENT ? ABOX_E_NOT_FOUND : r == -ENOMEM ? ABOX_E_MEMORY : ABOX_E_IO;
	}
	r = abox_spec_from_bytes(data, len, retspec, reterr);
	free(data);
	return r;
}

int settings_make_spec(struct cli_settings *settings, abox_error **reterr)
{
	int r;

	if (settings->spec_file)
		r = spec_read_file(settings->spec_file, &settings->spec, reterr);
	else
		r = abox_spec_new(&settings->spec);
	if (r < 0)
		return r;
	r = options_apply_to_spec(settings, reterr);
	if (r < 0)
		return r;
	return abox_spec_check(settings->spec, reterr);
}
