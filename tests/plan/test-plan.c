/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <agentbox/agentbox.h>

#include "base/error.h"
#include "base/json.h"

static int compile(const char *text, char **retjson, abox_error **reterr)
{
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	int r;

	r = abox_spec_from_json(text, &spec, reterr);
	if (r == 0)
		r = abox_plan_compile(spec, &plan, reterr);
	if (r == 0 && retjson)
		r = abox_plan_dump(plan, retjson, reterr);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return r;
}

static struct json *dump_of(const char *text)
{
	struct json_bounds bounds = { .max_bytes = 1 << 24, .max_depth = 32 };
	_cleanup_(error_freep) abox_error *error = NULL;
	_cleanup_(freep) char *json = NULL;
	struct json *tree = NULL;

	cr_assert_eq(compile(text, &json, &error), 0, "%s", abox_error_get_message(error));
	cr_assert_eq(json_parse(json, strlen(json), &bounds, &tree, NULL), 0);
	return tree;
}

static const struct json *enforcement(const struct json *plan, const char *name)
{
	const struct json *list = json_member(plan, "enforcement");

	for (size_t i = 0; i < json_count(list); i++)
		if (strcmp(json_text(json_member(json_element(list, i), "name")), name) == 0)
			return json_element(list, i);
	return NULL;
}

static void refused(const char *text, int code, const char *place)
{
	_cleanup_(error_freep) abox_error *error = NULL;
	int r = compile(text, NULL, &error);

	cr_assert_eq(r, code, "%s: %s (%s)", text, abox_code_name(r), abox_error_get_message(error));
	cr_assert_str_eq(abox_error_get_place(error), place, "%s", text);
}

/* The least spec gives a plan that says what is enforced, and holds nothing that the host could be told by.
 */
Test(plan, least_spec_compiles)
{
	_cleanup_(json_unrefp) struct json *plan = dump_of("{\"version\":1}");
	static const char *const promised[] = { "ids", "groups", "filesystem", "processes", "capabilities",
		"network", "seccomp", "landlock", "command.tree", "limits.wall", "limits.memory",
		"limits.pids", "limits.disk", "limits.inodes", "limits.open_files", "limits.output",
		"pause" };

	cr_assert_eq(strlen(json_text(json_member(plan, "digest"))), 64);
	cr_assert_str_eq(json_text(json_member(plan, "backend")), "namespaces");
	for (size_t i = 0; i < ELEMENTSOF(promised); i++)
		cr_assert(enforcement(plan, promised[i]), "%s is not in the plan", promised[i]);
}

/* What no module of this build can do is refused by name and place; its neighbour that asks for nothing is
 * fine. */
Test(plan, refuses_what_is_not_built)
{
	refused("{\"version\":1,\"files\":\"image\"}", ABOX_E_UNSUPPORTED, "/files");
	refused("{\"version\":1,\"credentials\":[{\"name\":\"c\",\"provider\":{\"kind\":\"env\",\"variable\":\"X\"}}]}",
		ABOX_E_INVALID, "/credentials");
	refused("{\"version\":1,\"kernel\":\"/boot/vmlinuz\"}", ABOX_E_UNSUPPORTED, "/kernel");
	refused("{\"version\":1,\"files\":\"live\"}", ABOX_E_UNSUPPORTED, "/files");
	cr_assert_eq(compile("{\"version\":1,\"workspace\":{\"on_success\":\"discard\"}}", NULL, NULL), 0);
	cr_assert_eq(compile("{\"version\":1,\"network\":{\"mode\":\"none\"}}", NULL, NULL), 0);
}

/* T18-4: a wall that is asked for and cannot be built is refused with its name; no weaker one is taken in its place. */
Test(plan, never_takes_a_weaker_wall)
{
	setenv("ABOX_RUNSC", "/nonexistent/runsc", 1);
	refused("{\"version\":1,\"backend\":\"gvisor\"}", ABOX_E_UNAVAILABLE, "gvisor");
	refused("{\"version\":1,\"isolation_floor\":\"gvisor\"}", ABOX_E_UNAVAILABLE, "gvisor");
	setenv("ABOX_KERNEL", "/nonexistent/vmlinuz", 1);
	refused("{\"version\":1,\"backend\":\"microvm\"}", ABOX_E_UNAVAILABLE, "microvm");
	refused("{\"version\":1,\"isolation_floor\":\"microvm\"}", ABOX_E_UNAVAILABLE, "microvm");
	setenv("ABOX_RUNSC", "/bin/true", 1);	/* runs, and is no runsc */
	refused("{\"version\":1,\"backend\":\"gvisor\"}", ABOX_E_UNAVAILABLE, "gvisor");
}

/* A source that is not there is named with its place; one that is there compiles. */
Test(plan, names_missing_sources)
{
	refused("{\"version\":1,\"mounts\":[{\"source\":\"/nowhere/x\",\"target\":\"/x\"}]}",
		ABOX_E_NOT_FOUND, "/mounts/0/source");
	refused("{\"version\":1,\"workspace\":{\"source\":{\"kind\":\"dir\",\"path\":\"/nowhere\"}}}",
		ABOX_E_NOT_FOUND, "/workspace/source/path");
	cr_assert_eq(
		compile("{\"version\":1,\"mounts\":[{\"source\":\"/usr\",\"target\":\"/x\"}]}", NULL, NULL),
		0);
}

/* A mount point inside a folder of the host must exist, since nothing is ever made there (B57: whatever the
 * order). */
Test(plan, makes_nothing_in_host_folders)
{
	refused("{\"version\":1,\"mounts\":[{\"source\":\"/usr\",\"target\":\"/usr/no-such-folder\"}]}",
		ABOX_E_NOT_FOUND, "/mounts/0/target");
	cr_assert_eq(compile("{\"version\":1,\"mounts\":[{\"source\":\"/usr\",\"target\":\"/usr/share\"}]}",
			     NULL, NULL),
		0);
}

/* B57: parents are mounted before children, whatever the order in the spec. */
Test(plan, mounts_parents_first)
{
	_cleanup_(json_unrefp) struct json *plan = dump_of("{\"version\":1,\"mounts\":["
		"{\"source\":\"/usr/lib\",\"target\":\"/a/lib\"},{\"source\":\"/usr\",\"target\":\"/a\"}]}");
	const struct json *mounts = json_member(plan, "mounts");
	size_t parent = 0, child = 0;

	for (size_t i = 0; i < json_count(mounts); i++) {
		const char *target = json_text(json_member(json_element(mounts, i), "target"));

		parent = strcmp(target, "/a") == 0 ? i : parent;
		child = strcmp(target, "/a/lib") == 0 ? i : child;
	}
	cr_assert_gt(parent, 0);
	cr_assert_gt(child, parent);
}

/* A waiver must name something that is there; the remedy lists the names. */
Test(plan, refuses_unknown_waivers)
{
	_cleanup_(error_freep) abox_error *error = NULL;

	cr_assert_eq(compile("{\"version\":1,\"waive\":[\"everything\"]}", NULL, &error), ABOX_E_INVALID);
	cr_assert_str_eq(abox_error_get_place(error), "/waive/0");
	cr_assert(strstr(abox_error_get_remedy(error), "limits.memory"));
}

/* A written limit that this user cannot have is refused with the way out, and runs once it is waived. */
Test(plan, written_limit_is_kept_or_refused)
{
	_cleanup_(json_unrefp) struct json *defaults = dump_of("{\"version\":1}");
	const struct json *memory = enforcement(defaults, "limits.memory");
	_cleanup_(error_freep) abox_error *error = NULL;
	int r;

	r = compile("{\"version\":1,\"limits\":{\"memory\":\"256MiB\"}}", NULL, &error);
	if (strcmp(json_text(json_member(memory, "status")), "enforced") == 0) {
		cr_assert_eq(r, 0);
		return;
	}
	cr_assert_str_eq(json_text(json_member(memory, "status")), "not enforced (default)");
	cr_assert_eq(r, ABOX_E_UNSUPPORTED);
	cr_assert_str_eq(abox_error_get_place(error), "/limits/memory");
	cr_assert(abox_error_get_remedy(error));
	cr_assert_eq(
		compile("{\"version\":1,\"waive\":[\"limits.memory\"],\"limits\":{\"memory\":\"256MiB\"}}",
			NULL, NULL),
		0);
	cr_assert_eq(compile("{\"version\":1,\"strict\":true}", NULL, NULL), ABOX_E_UNSUPPORTED);
}

/* A quota cannot be kept in a folder of the host that is written directly: refused when written, listed when
 * not. */
Test(plan, direct_workspace_has_no_quota)
{
	static const char *const workspace = "{\"version\":1,\"workspace\":{\"mode\":\"direct\",\"source\":"
					     "{\"kind\":\"dir\",\"path\":\"%s\"}}%s}";
	char folder[] = "/tmp/agentbox-test-XXXXXX", text[512];
	_cleanup_(json_unrefp) struct json *plan = NULL;

	cr_assert(mkdtemp(folder));
	snprintf(text, sizeof(text), workspace, folder, ",\"limits\":{\"disk\":\"1GiB\"}");
	refused(text, ABOX_E_UNSUPPORTED, "/limits/disk");
	snprintf(text, sizeof(text), workspace, folder, "");
	plan = dump_of(text);
	rmdir(folder);
	cr_assert(plan);
}

/* A repository's config is held by default, in every mode; what is missing is told where it can be made, and a
 * pattern that cannot be kept is refused. */
Test(plan, protects_by_default)
{
	static const char *const workspace = "{\"version\":1,\"workspace\":{\"mode\":\"%s\",\"source\":"
					     "{\"kind\":\"dir\",\"path\":\"%s\"}%s}}";
	char folder[] = "/tmp/agentbox-test-XXXXXX", path[64], text[512];

	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/.git", folder);
	cr_assert_eq(mkdir(path, 0755), 0);
	for (int direct = 0; direct < 2; direct++) {
		_cleanup_(json_unrefp) struct json *plan = NULL;
		const struct json *mounts;
		bool held = false;

		snprintf(text, sizeof(text), workspace, direct ? "direct" : "overlay", folder, "");
		plan = dump_of(text);
		mounts = json_member(plan, "mounts");
		for (size_t i = 0; i < json_count(mounts); i++)
			held |= strcmp(json_text(json_member(json_element(mounts, i), "target")),
					"/workspace/.git/hooks") == 0;
		cr_expect_eq(held, !direct, "nothing is there to be held in mode direct");
		cr_expect_eq(enforcement(plan, "workspace.protect_absent") != NULL, direct);
	}
	snprintf(text, sizeof(text), workspace, "overlay", folder, ",\"protect\":[\"*.key\"]");
	refused(text, ABOX_E_UNSUPPORTED, "/workspace/protect");
	snprintf(text, sizeof(text), workspace, "direct", folder, ",\"protect\":[\"a/b\"]");
	refused(text, ABOX_E_UNSUPPORTED, "/workspace/protect");
	rmdir(path);
	rmdir(folder);
}

/* Equal wishes have equal digests whatever the box is called; another wish has another. */
Test(plan, digest_is_about_what_is_enforced)
{
	_cleanup_(json_unrefp) struct json *a = dump_of("{\"version\":1,\"name\":\"a\"}");
	_cleanup_(json_unrefp) struct json *b = dump_of("{\"version\":1,\"name\":\"b\"}");
	_cleanup_(json_unrefp) struct json *c = dump_of("{\"version\":1,\"limits\":{\"wall\":\"7s\"}}");

	cr_assert_str_eq(json_text(json_member(a, "digest")), json_text(json_member(b, "digest")));
	cr_assert_str_neq(json_text(json_member(a, "digest")), json_text(json_member(c, "digest")));
}

/* A plan is safe to print: values under secret-looking names are left out, others stand there. */
Test(plan, leaves_secrets_out)
{
	_cleanup_(freep) char *json = NULL;

	cr_assert_eq(
		compile("{\"version\":1,\"env\":{\"API_TOKEN\":\"hunter2hunter2\",\"CI\":\"visible-value\"}}",
			&json, NULL),
		0);
	cr_assert_not(strstr(json, "hunter2"));
	cr_assert(strstr(json, "visible-value"));
}

/* The box must not see its own journal, nor the library's folders; a journal beside what it is given is fine.
 */
Test(plan, journal_is_never_shown)
{
	char folder[] = "/tmp/agentbox-test-XXXXXX", text[1024];

	cr_assert(mkdtemp(folder));
	snprintf(text, sizeof(text),
		"{\"version\":1,\"journal\":\"%s/j\",\"workspace\":{\"source\":{\"kind\":\"dir\","
		"\"path\":\"%s\"}}}",
		folder, folder);
	refused(text, ABOX_E_DENIED, "/journal");
	snprintf(text, sizeof(text),
		"{\"version\":1,\"journal\":\"%s-j\",\"workspace\":{\"source\":{\"kind\":\"dir\","
		"\"path\":\"%s\"}}}",
		folder, folder);
	cr_assert_eq(compile(text, NULL, NULL), 0);
	setenv("ABOX_HOME", folder, 1);
	snprintf(text, sizeof(text), "%s/run", folder);
	mkdir(text, 0700);
	snprintf(text, sizeof(text), "{\"version\":1,\"mounts\":[{\"source\":\"%s\",\"target\":\"/x\"}]}",
		folder);
	refused(text, ABOX_E_DENIED, folder);
	snprintf(text, sizeof(text), "%s/run", folder);
	rmdir(text);
	rmdir(folder);
}
