/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox doctor: what this host can enforce, and what helps where it cannot.
 */
#include <agentbox/plan.h>
#include <agentbox/probe.h>
#include <agentbox/sandbox.h>
#include <agentbox/spec.h>
#include <stdlib.h>

#include "commands.h"

static void abox_host_unrefp(abox_host **host)
{
	abox_host_unref(*host);
}

static void print_backend(const abox_host *host, uint32_t i)
{
	const char *version = abox_host_backend_version(host, i), *blocker = abox_host_backend_blocker(host, i);
	const char *remedy = abox_host_backend_remedy(host, i);

	printf("%-12s %s%s%s\n", abox_host_backend_name(host, i),
	       abox_host_backend_usable(host, i) > 0 ? "usable" : "not usable", version ? ", " : "", version ? version : "");
	if (blocker)
		printf("    blocker: %s\n", blocker);
	if (remedy)
		printf("    remedy:  %s\n", remedy);
}

static void print_capability(const abox_host *host, uint32_t i)
{
	const char *by = abox_host_capability_by(host, i), *detail = abox_host_capability_detail(host, i);
	const char *remedy = abox_host_capability_remedy(host, i);

	printf("  %-22s %-13s %s%s%s\n", abox_host_capability_name(host, i),
	       abox_enforcement_name(abox_host_capability_status(host, i)), by ? by : "", detail && by ? ", " : "",
	       detail ? detail : "");
	if (remedy)
		printf("  %-22s remedy: %s\n", "", remedy);
}

/* Prints all. Returns how many walls are usable. */
static unsigned print_host(const abox_host *host, bool silent)
{
	unsigned usable = 0;

	for (uint32_t i = 0; abox_host_backend_name(host, i); i++) {
		usable += abox_host_backend_usable(host, i) > 0;
		if (!silent)
			print_backend(host, i);
	}
	if (silent)
		return usable;
	puts("\nWhat a box can be held to here:");
	for (uint32_t i = 0; abox_host_capability_name(host, i); i++)
		print_capability(host, i);
	return usable;
}

enum { FLAG_TRY };

static const struct cli_option options[] = {
	{ "try", 0, NULL, "also start a virtual machine by KVM and a box on each platform of gVisor, for some seconds each; what came of it is kept until the host boots",
	  OPTION_FLAG, offsetof(struct cli_settings, flag[FLAG_TRY]), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups[] = { options, NULL };

/* What came of a start the library keeps. One that fails is what is looked for: no error. */
static int try_gvisor(const char *platform, abox_error **reterr)
{
	static const char text[] = "{\"version\": 1, \"backend\": \"gvisor\"}";
	abox_sandbox *box = NULL;
	abox_plan *plan = NULL;
	abox_spec *spec = NULL;
	int r;

	if (setenv("ABOX_RUNSC_PLATFORM", platform, 1) < 0)
		return ABOX_E_MEMORY;
	r = abox_spec_from_json(text, &spec, reterr);
	if (r >= 0 && abox_plan_compile(spec, &plan, NULL) >= 0 && abox_sandbox_start(plan, NULL, &box, NULL) >= 0)
		abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, NULL);
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	unsetenv("ABOX_RUNSC_PLATFORM");
	return r < 0 ? r : 0;
}

/* One that the user has named is the only one. */
static int try_all(abox_error **reterr)
{
	static const char *const platforms[] = { "kvm", "systrap", "ptrace" };
	int r = abox_probe_try(reterr);

	if (getenv("ABOX_RUNSC_PLATFORM"))
		return r;
	for (size_t i = 0; r >= 0 && i < sizeof(platforms) / sizeof(platforms[0]); i++)
		r = try_gvisor(platforms[i], reterr);
	return r;
}

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_host_unrefp) abox_host *host = NULL;
	_cleanup_(text_freep) char *json = NULL;
	unsigned usable;
	int r;

	r = settings->flag[FLAG_TRY] ? try_all(&error) : 0;
	if (r >= 0)
		r = abox_probe(&host, &error);
	if (r >= 0 && settings->json)
		r = abox_host_dump(host, &json);
	if (r < 0)
		return fail(settings, r, error);
	usable = print_host(host, settings->json);
	r = json ? print_json_text(json) : finish_stdout();
	return usable && r == 0 ? CLI_EXIT_DONE : CLI_EXIT_FAILED;
}

const struct cli_command cli_doctor = {
	.name = "doctor",
	.usage = "[--try] [--json]",
	.summary = "tell what this host can enforce, and what helps",
	.help =
	"Asks the host which walls are usable, what each can enforce, what blocks the others and the smallest remedy.\n"
	"Nothing is changed. With --try it is found out whether machines start by KVM (they are emulated otherwise), and on which platforms runsc does. The exit code is 1 when no wall is usable.\n",
	.groups = groups,
	.run = run,
};
