/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rows: variables in their texts, and the spec that a row means for a backend.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner.h"

#define PROBE_IN_BOX "/probe/agentbox-probe"

static char *replace_all(char *text, const char *from, const char *to)
{
	char *at;

	while ((at = strstr(text, from))) {
		char *grown;

		if (asprintf(&grown, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) < 0)
			abort();
		free(text);
		text = grown;
	}
	return text;
}

static json_t *expand_text(const struct runner *runner, const char *text, const char *tmp)
{
	char *expanded = strdup(text), *user;
	json_t *value;

	if (asprintf(&user, "%u", runner->plain ? getuid() : 0) < 0 || !expanded)
		abort();
	expanded = replace_all(expanded, "${TMP}", tmp);
	expanded = replace_all(expanded, "${PROBE}", PROBE_IN_BOX);
	expanded = replace_all(expanded, "${HOST_PROBE}", runner->probe);
	expanded = replace_all(expanded, "${AGENTBOX}", runner->agentbox);
	expanded = replace_all(expanded, "${UID}", user);
	value = json_string(expanded);
	free(expanded);
	free(user);
	return value;
}

json_t *row_expand(const struct runner *runner, const json_t *value, const char *tmp)
{
	json_t *copy, *item;
	const char *key;
	size_t i;

	if (json_is_string(value))
		return expand_text(runner, json_string_value(value), tmp);
	if (json_is_array(value)) {
		copy = json_array();
		json_array_foreach(value, i, item)
			json_array_append_new(copy, row_expand(runner, item, tmp));
		return copy;
	}
	if (json_is_object(value)) {
		copy = json_object();
		json_object_foreach((json_t *)value, key, item) {
			json_t *name = expand_text(runner, key, tmp);

			json_object_set_new(copy, json_string_value(name), row_expand(runner, item, tmp));
			json_decref(name);
		}
		return copy;
	}
	return json_deep_copy(value);
}

/* The row's own spec, the backend, and the probe program's folder. A row whose spec is a text is given as it is. */
json_t *row_spec(const struct runner *runner, const json_t *row, const char *backend, const char *tmp)
{
	const json_t *written = json_object_get(row, "spec");
	json_t *spec, *mounts;
	char folder[4096];

	(void)tmp;
	if (json_is_string(written))
		return json_incref((json_t *)written);
	spec = written ? json_deep_copy(written) : json_object();
	if (!json_object_get(spec, "version"))
		json_object_set_new(spec, "version", json_integer(1));
	if (!json_object_get(spec, "backend"))
		json_object_set_new(spec, "backend", json_string(backend));
	mounts = json_object_get(spec, "mounts");
	if (!mounts) {
		mounts = json_array();
		json_object_set_new(spec, "mounts", mounts);
	}
	snprintf(folder, sizeof(folder), "%s", runner->probe);
	*strrchr(folder, '/') = 0;
	if (json_is_array(mounts))
		json_array_append_new(mounts, json_pack("{s:s,s:s,s:s}", "source", folder, "target", "/probe", "mode", "ro"));
	return spec;
}

bool row_concerns(const json_t *object, bool plain)
{
	const json_t *as = json_object_get(object, "as"), *one;
	size_t i;

	if (!as)
		return true;
	json_array_foreach(as, i, one)
		if (!strcmp(json_string_value(one), plain ? "plain" : "root"))
			return true;
	return false;
}

char *read_whole_file(const char *path, size_t *retlen)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	size_t len = 0;
	char *data;

	*retlen = 0;
	if (fd < 0)
		return NULL;
	data = fstat(fd, &st) == 0 ? malloc((size_t)st.st_size + 1) : NULL;
	while (data && len < (size_t)st.st_size) {
		ssize_t n = read(fd, data + len, (size_t)st.st_size - len);

		if (n <= 0)
			break;
		len += (size_t)n;
	}
	close(fd);
	if (data)
		data[len] = 0;
	*retlen = len;
	return data;
}
