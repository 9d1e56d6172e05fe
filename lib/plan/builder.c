/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The plan in the making: arrays that grow and texts that stay until the plan is packed. Lack of memory is
 * remembered here and told once by the compiler, so that the parts can be written without a check in every
 * line.
 */
#include "plan/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"

/* Room for one more element of size bytes: the new element, zeroed, or NULL. */
static void *grow(struct plan_builder *builder, void **array, size_t *allocated, size_t n, size_t size)
{
	size_t bytes, wanted;
	void *grown;

	if (builder->failed)
		return NULL;
	if (n == *allocated) {
		wanted = *allocated ? *allocated * 2 : 16;
		if (!size_mul(wanted, size, &bytes) || !(grown = realloc(*array, bytes))) {
			builder->failed = true;
			return NULL;
		}
		*array = grown;
		*allocated = wanted;
	}
	return memset((char *)*array + n * size, 0, size);
}
#define GROW(builder, array, allocated, n) grow(builder, (void **)&(array), &(allocated), n, sizeof(*(array)))

void builder_clear(struct plan_builder *builder)
{
	for (size_t i = 0; i < builder->n_texts; i++)
		free(builder->texts[i]);
	free(builder->texts);
	free(builder->warnings);
	free(builder->directories);
	free(builder->enforcements);
	free(builder->secrets);
	free((void *)builder->flat.env);
	free(builder->flat.sources);
	free(builder->flat.steps);
	free(builder->flat.landlock);
	free(builder->flat.network.ports);
	free(builder->flat.network.publish);
	*builder = (struct plan_builder){ 0 };
}

static const char *keep_text(struct plan_builder *builder, char *text)
{
	char **slot = text ? GROW(builder, builder->texts, builder->allocated_texts, builder->n_texts) : NULL;

	if (!slot) {
		builder->failed = true;
		free(text);
		return "";
	}
	*slot = text;
	builder->n_texts++;
	return text;
}

const char *builder_text(struct plan_builder *builder, const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	return keep_text(builder, text);
}

const void *builder_bytes(struct plan_builder *builder, const void *data, size_t len)
{
	char *copy = malloc(len + 1);

	if (copy) {
		memcpy(copy, data, len);
		copy[len] = 0;
	}
	return keep_text(builder, copy);
}

void builder_warn(struct plan_builder *builder, const char *format, ...)
{
	char *text = NULL, **slot;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	keep_text(builder, text);
	slot = GROW(builder, builder->warnings, builder->allocated_warnings, builder->n_warnings);
	if (!slot)
		return;
	*slot = text;
	builder->n_warnings++;
}

int32_t builder_source(struct plan_builder *builder, const struct flat_source *source)
{
	struct flat_plan *flat = &builder->flat;
	struct flat_source *slot = GROW(builder, flat->sources, builder->allocated_sources, flat->n_sources);

	if (!slot)
		return -1;
	*slot = *source;
	return (int32_t)flat->n_sources++;
}

void builder_step(struct plan_builder *builder, const struct flat_step *step)
{
	struct flat_plan *flat = &builder->flat;
	struct flat_step *slot = GROW(builder, flat->steps, builder->allocated_steps, flat->n_steps);

	if (!slot)
		return;
	*slot = *step;
	if (!slot->target)
		slot->target = "";
	if (!slot->name)
		slot->name = "";
	if (!slot->content)
		slot->content = "";
	flat->n_steps++;
}

static bool directory_known(const struct plan_builder *builder, const char *path)
{
	for (size_t i = 0; i < builder->n_directories; i++)
		if (strcmp(builder->directories[i], path) == 0)
			return true;
	return false;
}

static void directory_remember(struct plan_builder *builder, const char *path)
{
	char **slot;

	if (directory_known(builder, path))
		return;
	slot = GROW(builder, builder->directories, builder->allocated_directories, builder->n_directories);
	if (!slot)
		return;
	*slot = (char *)builder_text(builder, "%s", path);
	builder->n_directories++;
}

void builder_directory(struct plan_builder *builder, const char *target, uint32_t mode, uint32_t attr)
{
	builder_parents(builder, target, false);
	directory_remember(builder, target);
	builder_step(builder, &(struct flat_step){
		.op = FLAT_OP_DIRECTORY, .target = target, .mode = mode, .attr = attr, .source = -1 });
}

void builder_parents(struct plan_builder *builder, const char *target, bool self)
{
	char path[PATH_MAX];
	size_t len = strlen(target);

	if (len >= sizeof(path))
		return;	/* compile has refused such paths */
	for (size_t i = 1; i <= len; i++) {
		if (target[i] != '/' && !(self && i == len))
			continue;
		memcpy(path, target, i);
		path[i] = 0;
		if (directory_known(builder, path))
			continue;
		directory_remember(builder, path);
		builder_step(builder, &(struct flat_step){ .op = FLAT_OP_DIRECTORY,
					      .mode = 0755,
					      .source = -1,
					      .target = builder_text(builder, "%s", path) });
	}
}

void builder_symlink(struct plan_builder *builder, const char *target, const char *content)
{
	builder_parents(builder, target, false);
	builder_step(builder, &(struct flat_step){ .op = FLAT_OP_SYMLINK,
				      .target = target,
				      .content = content,
				      .content_len = strlen(content),
				      .source = -1 });
}

void builder_file(
	struct plan_builder *builder, const char *target, uint32_t mode, const void *content, size_t len)
{
	builder_parents(builder, target, false);
	builder_step(builder, &(struct flat_step){ .op = FLAT_OP_FILE,
				      .target = target,
				      .mode = mode,
				      .content = content,
				      .content_len = len,
				      .source = -1 });
}

void builder_bind(struct plan_builder *builder, int32_t source, const char *target, uint32_t attr)
{
	builder_parents(builder, target, false);
	directory_remember(builder, target);	/* a mount point is there, whatever it is */
	builder_step(builder,
		&(struct flat_step){ .op = FLAT_OP_BIND, .target = target, .source = source, .attr = attr });
}

void builder_scratch(
	struct plan_builder *builder, const char *name, const char *target, uint32_t mode, uint32_t attr)
{
	builder_parents(builder, target, false);
	directory_remember(builder, target);
	builder_step(builder, &(struct flat_step){ .op = FLAT_OP_SCRATCH,
				      .name = name,
				      .target = target,
				      .mode = mode,
				      .attr = attr,
				      .source = -1 });
}

void builder_landlock(struct plan_builder *builder, const char *path, uint32_t access)
{
	struct flat_plan *flat = &builder->flat;
	struct flat_landlock *slot =
		GROW(builder, flat->landlock, builder->allocated_landlock, flat->n_landlock);

	if (!slot)
		return;
	*slot = (struct flat_landlock){ .path = path, .access = access };
	flat->n_landlock++;
}

const struct flat_step *builder_covering(const struct plan_builder *builder, const char *target)
{
	const struct flat_step *found = NULL;

	for (uint32_t i = 0; i < builder->flat.n_steps; i++) {
		const struct flat_step *step = &builder->flat.steps[i];
		bool mounts = step->op == FLAT_OP_BIND || step->op == FLAT_OP_OVERLAY ||
			      step->op == FLAT_OP_SCRATCH || step->op == FLAT_OP_TMPFS ||
			      step->op == FLAT_OP_PROC;

		if (mounts && path_is_under(target, step->target) &&
			(!found || strlen(step->target) >= strlen(found->target)))
			found = step;
	}
	return found;
}
