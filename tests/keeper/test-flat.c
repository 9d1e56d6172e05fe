/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include <agentbox/error.h>

#include "plan/flat.h"

static struct flat_source sources[] = {
	{ .path = "/usr", .kind = FLAT_DIRECTORY },
	{ .path = "/dev/null", .kind = FLAT_DEVICE, .device_major = 1, .device_minor = 3 },
};
static struct flat_step steps[] = {
	{ .op = FLAT_OP_DIRECTORY, .mode = 0755, .source = -1, .target = "/usr" },
	{ .op = FLAT_OP_BIND, .attr = FLAT_ATTR_RDONLY, .source = 0, .target = "/usr" },
	{ .op = FLAT_OP_FILE, .mode = 0644, .source = -1, .target = "/etc/hosts", .content = "a\0b", .content_len = 3 },
	{ .op = FLAT_OP_SCRATCH, .mode = 01777, .source = -1, .target = "/tmp", .name = "tmp" },
};
static struct flat_landlock rules[] = { { .path = "/usr", .access = 3 } };
static const char *const env[] = { "PATH=/usr/bin", "HOME=/home/agent", NULL };

static struct flat_plan example(void)
{
	return (struct flat_plan){
		.digest = "ab", .backend = "namespaces", .name = "n", .hostname = "agentbox", .cwd = "/", .home = "/home/agent",
		.map = FLAT_MAP_SINGLE, .map_count = 1, .inside_uid = 1000, .inside_gid = 1000, .env = env, .root_source = -1,
		.root_size_bytes = 1 << 20, .limits = { .wall_usec = 5, .open_files = 1024 }, .kill = FLAT_KILL_SCOPE,
		.cgroup = { .limits_version = 1, .limits_dir = { "/a", "/b", "", "" }, .tree_dir = "/c" },
		.sources = sources, .n_sources = ELEMENTSOF(sources), .steps = steps, .n_steps = ELEMENTSOF(steps),
		.landlock = rules, .n_landlock = ELEMENTSOF(rules), .filter = "12345678", .filter_len = 8,
	};
}

/* What the library packed is what the keeper reads. */
Test(flat, round_trip)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct flat_plan plan = example(), back;

	cr_assert(flat_pack(&plan, &writer));
	cr_assert_eq(flat_unpack(writer.data, writer.len, &back, NULL), 0);
	cr_assert_eq(back.n_steps, ELEMENTSOF(steps));
	cr_assert_str_eq(back.steps[1].target, "/usr");
	cr_assert_eq(back.steps[1].source, 0);
	cr_assert_eq(back.steps[2].content_len, 3);
	cr_assert_eq(memcmp(back.steps[2].content, "a\0b", 3), 0);
	cr_assert_eq(back.sources[1].device_minor, 3);
	cr_assert_str_eq(back.env[1], "HOME=/home/agent");
	cr_assert_null(back.env[2]);
	cr_assert_str_eq(back.cgroup.limits_dir[1], "/b");
	cr_assert_str_eq(back.cgroup.tree_dir, "/c");
	cr_assert_eq(back.limits.open_files, 1024);
	cr_assert_eq(back.filter_len, 8);
	flat_clear(&back);
}

/* A plan cut at any byte, or with a byte behind it, is refused and leaks nothing. */
Test(flat, refuses_a_plan_cut_anywhere)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct flat_plan plan = example(), back;

	cr_assert(flat_pack(&plan, &writer));
	for (size_t len = 0; len < writer.len; len++)
		cr_assert_eq(flat_unpack(writer.data, len, &back, NULL), ABOX_E_PROTOCOL, "cut at %zu", len);
	pack_u8(&writer, 0);
	cr_assert_eq(flat_unpack(writer.data, writer.len, &back, NULL), ABOX_E_PROTOCOL);
}

static int unpack_changed(const struct flat_plan *plan)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct flat_plan back;
	int r;

	cr_assert(flat_pack(plan, &writer));
	r = flat_unpack(writer.data, writer.len, &back, NULL);
	if (r == 0)
		flat_clear(&back);
	return r;
}

/* Indices, enums and names that lead outside of the plan do not reach the code that trusts them. */
Test(flat, refuses_what_leads_outside)
{
	struct flat_step step = steps[1];
	struct flat_plan plan = example();

	plan.steps = &step;
	plan.n_steps = 1;
	cr_assert_eq(unpack_changed(&plan), 0);
	step.source = 2;
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
	step.source = -1;
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
	step = steps[3];
	step.name = "../tmp";
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
	step = steps[3];
	step.op = 99;
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
	step = steps[3];
	step.target = "tmp";
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
	plan = example();
	plan.kill = 3;
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
	plan = example();
	plan.root_source = 2;
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
	plan = example();
	plan.filter_len = 7;
	cr_assert_eq(unpack_changed(&plan), ABOX_E_PROTOCOL);
}
