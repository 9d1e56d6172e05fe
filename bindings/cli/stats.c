/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox stats: live figures of a box.
 */
#include <inttypes.h>

#include "box.h"
#include "commands.h"

static const struct {
	const char *name;
	size_t offset;
} figures[] = {
	{ "cpu_usec", offsetof(struct abox_stats, cpu_usec) },
	{ "memory_bytes", offsetof(struct abox_stats, memory_bytes) },
	{ "memory_peak_bytes", offsetof(struct abox_stats, memory_peak_bytes) },
	{ "pids", offsetof(struct abox_stats, pids) },
	{ "disk_bytes", offsetof(struct abox_stats, disk_bytes) },
	{ "inodes", offsetof(struct abox_stats, inodes) },
	{ "oom_kills", offsetof(struct abox_stats, oom_kills) },
	{ "uptime_usec", offsetof(struct abox_stats, uptime_usec) },
	{ "commands_running", offsetof(struct abox_stats, commands_running) },
	{ "commands_started", offsetof(struct abox_stats, commands_started) },
};
enum { N_FIGURES = sizeof(figures) / sizeof(figures[0]) };

static void print_figures(const struct abox_stats *stats, bool json)
{
	for (size_t i = 0; i < N_FIGURES; i++) {
		uint64_t value = *(const uint64_t *)((const char *)stats + figures[i].offset);

		printf(json ? "%s\"%s\": " : "%s%-18s", !json ? "" : i ? ", " : "{", figures[i].name);
		/* What this host cannot tell is said to be unknown: a 0 would be a lie. */
		if (value == UINT64_MAX)
			fputs(json ? "null" : "unknown", stdout);
		else
			printf("%" PRIu64, value);
		if (!json)
			putchar('\n');
	}
	if (json)
		puts("}");
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	struct abox_stats stats = { ABOX_STATS_INIT };
	int r;

	r = box_open(settings, ABOX_OPEN_READ, &box, &error);
	if (r >= 0)
		r = abox_sandbox_stats(box, &stats, &error);
	if (r < 0)
		return fail(settings, r, error);
	print_figures(&stats, settings->json);
	return finish_stdout();
}

const struct cli_command cli_stats = {
	.name = "stats",
	.usage = "[--json] ID",
	.summary = "print what a box uses now",
	.help = "Prints processor time, memory, processes, disk and inodes of the box, each once; `unknown` (null with --json)\n"
		"is what this host cannot tell.\n",
	.words_min = 1,
	.words_max = 1,
	.run = run,
};
