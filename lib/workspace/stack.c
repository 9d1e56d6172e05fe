/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the layers that the store opens to the two trees that the change side compares: what is there now, and
 * what the workspace began as.
 */
#include <stdlib.h>

#include "base/fd.h"
#include "workspace/change.h"

static enum view_flavour flavour_of(const struct layer_stack *stack)
{
	return stack->flavour == LAYER_USER ? VIEW_USER : VIEW_TRUSTED;
}

void stack_views_clear(struct stack_views *views)
{
	free(views->layers);
	*views = (struct stack_views){0};
}

int stack_views_init(const struct layer_stack *stack, struct stack_views *ret)
{
	size_t n = stack->n_lowers + (stack->top_fd >= 0), used = 0, n_new;
	struct view_layer *layers = calloc(n + 1, sizeof(*layers));

	if (!layers)
		return ABOX_E_MEMORY;
	if (stack->top_fd >= 0)
		layers[used++] = (struct view_layer){stack->top_fd, flavour_of(stack)};
	for (size_t i = 0; i < stack->n_lowers; i++) {
		bool is_base = i + stack->n_base >= stack->n_lowers;

		layers[used++] = (struct view_layer){stack->lower_fds[i],
			is_base ? VIEW_PLAIN : flavour_of(stack), is_base && stack->base_is_host};
	}
	/* A whole tree hides what lies below it, without a mark that would say so. */
	if (stack->is_full) {
		layers[0].flavour = VIEW_PLAIN;
		*ret = (struct stack_views){layers, {layers, 1}, {layers + 1, n - 1}};
		return 0;
	}
	n_new = n - stack->n_base;
	*ret = (struct stack_views){layers, {layers, n}, {layers + n_new, stack->n_base}};
	return 0;
}
