/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The receipt: a probe program runs as a command of the live box and tries the walls; what it found is held
 * against what the plan promises. A probe that could not run, or a line that is missing, is a mismatch and
 * never a proof.
 */
#include <agentbox/network.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/helper.h"
#include "command/command.h"
#include "keeper/wire.h"
#include "sandbox/sandbox.h"

#define VERIFY_TIMEOUT_USEC (120 * USEC_PER_SEC)
#define PLAN_MAX (16 << 20)

/* Places of an ordinary host that no box shows unless the spec mounts them. */
static const char *const hidden_candidates[] = { "/etc/shadow", "/boot", "/srv", "/media", "/mnt", "/var/log",
	"/var/spool", "/lost+found", "/etc/ssh", "/run/systemd", "/run/dbus", "/run/docker.sock" };

static bool same_branch(const char *a, const char *b)
{
	size_t len = MIN(strlen(a), strlen(b));

	return strncmp(a, b, len) == 0 && (a[len] == 0 || a[len] == '/') && (b[len] == 0 || b[len] == '/');
}

static bool plan_shows(const struct json *plan, const char *path)
{
	const struct json *mounts = json_member(plan, "mounts");
	const char *rootfs = json_text(json_member(plan, "rootfs"));

	if (rootfs && strcmp(rootfs, "host") != 0)
		return true;	/* another root may have whatever it likes at these places */
	for (size_t i = 0; i < json_count(mounts); i++) {
		const char *target = json_text(json_member(json_element(mounts, i), "target"));

		if (target && strcmp(target, "/") != 0 && same_branch(target, path))
			return true;
	}
	return false;
}

static int read_plan(const abox_sandbox *box, struct json **ret, abox_error **reterr)
{
	struct json_bounds bounds = { .max_bytes = PLAN_MAX, .max_depth = 32, .stage = ABOX_STAGE_VERIFY };
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r;

	r = file_read_text(box->box_fd, STATE_PLAN, PLAN_MAX, &text, &len);
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_GONE, ABOX_STAGE_VERIFY, STATE_PLAN, -r,
			"cannot read the plan of the box");
	return json_parse(text, len, &bounds, ret, reterr);
}

/* The rules may have been changed since the plan was made. */
static int read_rules(abox_sandbox *box, struct json **ret, abox_error **reterr)
{
	struct json_bounds bounds = { .max_bytes = PLAN_MAX, .max_depth = 32, .stage = ABOX_STAGE_VERIFY };
	_cleanup_(freep) char *text = NULL;
	int r = abox_network_get_rules(box, &text, reterr);

	return r < 0 ? r : json_parse(text, strlen(text), &bounds, ret, reterr);
}

/* Whether a rule lets in addresses that begin so: only one that names them does. */
static bool is_named(const struct json *rules, const char *prefix, const char *host)
{
	for (size_t i = 0; i < json_count(rules); i++) {
		const char *cidr = json_text(json_member(json_element(rules, i), "cidr")),
			   *name = json_text(json_member(json_element(rules, i), "host"));

		if ((cidr && string_starts_with(cidr, prefix)) || (name && host && strcmp(name, host) == 0))
			return true;
	}
	return false;
}

/* What the probe is told of the box's network; returns the number of words. */
static size_t network_words(const struct json *plan, const struct json *in_force, const char **words, char port[32], char unnamed[32])
{
	const struct json *network = json_member(plan, "network"), *ports = json_member(network, "ports"),
			  *rules = json_member(json_member(in_force, "network"), "allow");
	int64_t first = json_number(json_element(ports, 0)), other = 1;
	size_t n = 0;

	if (json_count(ports) == 0) {
		words[n++] = "network=none";
		return n;
	}
	for (size_t i = 0; i < json_count(ports); i++)	/* ascending */
		other += json_number(json_element(ports, i)) == other;
	snprintf(port, 32, "port=%lld", (long long)first);
	snprintf(unnamed, 32, "unnamed=%lld", (long long)other);
	words[n++] = "network=cell";
	words[n++] = port;
	words[n++] = unnamed;
	if (is_named(rules, "127.", "host.agentbox"))
		words[n++] = "named=loopback";
	if (is_named(rules, "169.254.", NULL))
		words[n++] = "named=metadata";
	return n;
}

static int run_probe(abox_sandbox *box, const struct json *plan, abox_result **retresult, abox_error **reterr)
{
	_cleanup_(command_unrefp) abox_command *command = NULL;
	_cleanup_(fd_closep) int program_fd = -EBADF;
	const char *argv[ELEMENTSOF(hidden_candidates) + 9] = { "agentbox-probe", "verify" };
	char words[ELEMENTSOF(hidden_candidates)][64], port[32], unnamed[32];
	_cleanup_(json_unrefp) struct json *in_force = NULL;
	size_t n = 2;
	int r;

	r = read_rules(box, &in_force, reterr);
	if (r < 0)
		return r;
	n += network_words(plan, in_force, argv + n, port, unnamed);
	for (size_t i = 0; i < ELEMENTSOF(hidden_candidates); i++) {
		if (access(hidden_candidates[i], F_OK) < 0 || plan_shows(plan, hidden_candidates[i]))
			continue;
		snprintf(words[i], sizeof(words[i]), "hidden=%s", hidden_candidates[i]);
		argv[n++] = words[i];
	}
	if (box->backend && strcmp(box->backend, "gvisor") == 0)
		argv[n++] = "environ=shared";
	r = helper_open("probe", &program_fd, reterr);
	if (r < 0)
		return r;
	r = command_start_program(box,
		&(struct abox_command_options){ ABOX_COMMAND_OPTIONS_INIT, .argv = argv, .cwd = "/",
			.stdout_mode = ABOX_STREAM_CAPTURE, .stderr_mode = ABOX_STREAM_CAPTURE,
			.output_bytes = 1 << 20, .timeout_usec = VERIFY_TIMEOUT_USEC },
		program_fd, &command, reterr);
	if (r < 0)
		return r;
	r = abox_command_wait(command, ABOX_FOREVER, retresult, reterr);
	return r < 0 ? r : 0;
}

struct receipt {
	struct text proven, mismatches;
	uint32_t n_lines, n_mismatches;
	bool complete;
};

static void add_member(struct text *text, const char *name, const char *value, const char *after)
{
	text_printf(text, "\"%s\":", name);
	text_add_json(text, value, strlen(value));
	text_add(text, after);
}

static void add_line(struct receipt *receipt, const char *name, const char *expected, const char *outcome,
	const char *detail)
{
	bool match = strcmp(expected, outcome) == 0;
	struct text *text = match ? &receipt->proven : &receipt->mismatches;

	text_add(text, text->len ? ",{" : "{");
	add_member(text, "name", name, ",");
	add_member(text, "expected", expected, ",");
	add_member(text, "outcome", outcome, ",");
	add_member(text, "detail", detail, "}");
	receipt->n_lines++;
	receipt->n_mismatches += !match;
}

/* "NAME<TAB>EXPECTED<TAB>OUTCOME<TAB>DETAIL", and "end N" last. */
static void read_line(struct receipt *receipt, char *line)
{
	char *fields[4] = { line };
	unsigned int n;

	if (sscanf(line, "end %u", &n) == 1) {
		receipt->complete = n == receipt->n_lines;
		return;
	}
	for (size_t i = 1; i < ELEMENTSOF(fields); i++) {
		char *tab = strchr(fields[i - 1], '\t');

		if (!tab)
			return;
		*tab = 0;
		fields[i] = tab + 1;
	}
	add_line(receipt, fields[0], fields[1], fields[2], fields[3]);
}

static int read_receipt(const abox_result *result, struct receipt *receipt)
{
	const void *data;
	char *copy, *save = NULL;
	size_t len;

	abox_result_get_output(result, 1, &data, &len);
	copy = strdup(data);
	if (!copy)
		return ABOX_E_MEMORY;
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		read_line(receipt, line);
	free(copy);
	if (!receipt->complete || abox_result_get_exit_code(result) != 0)
		add_line(receipt, "probe", "complete", "incomplete", abox_result_get_evidence(result));
	return 0;
}

static int format_receipt(const abox_sandbox *box, const struct receipt *receipt, char **retjson)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	if (receipt->proven.failed || receipt->mismatches.failed)
		return ABOX_E_MEMORY;
	text_printf(&text,
		"{\"sandbox\":\"%s\",\"plan_digest\":\"%s\",\"backend\":\"%s\",\"verified_usec\":%llu,",
		box->id, box->plan_digest ? box->plan_digest : "", box->backend ? box->backend : "",
		(unsigned long long)clock_wall_usec());
	text_printf(&text, "\"proven\":[%s],\"mismatches\":[%s]}",
		receipt->proven.len ? receipt->proven.data : "",
		receipt->mismatches.len ? receipt->mismatches.data : "");
	return text_take(&text, retjson);
}

/* Where the box has a journal its receipt stands there too; a handle that does not control the box leaves
 * that out. */
static int tell_keeper(abox_sandbox *box, const char *receipt, abox_error **reterr)
{
	struct pack_writer writer;

	if (box->mode != ABOX_OPEN_CONTROL)
		return 0;
	client_begin(&box->client, &writer, WIRE_VERIFIED);
	pack_u64(&writer, box->epoch);
	pack_string(&writer, receipt);
	return client_simple(&box->client, &writer, reterr);
}

int abox_sandbox_verify(abox_sandbox *box, char **retjson, abox_error **reterr)
{
	_cleanup_(result_unrefp) abox_result *result = NULL;
	_cleanup_(json_unrefp) struct json *plan = NULL;
	struct receipt receipt = { 0 };
	int r;

	if (!box || !retjson)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_VERIFY, NULL, "box and retjson are required");
	r = read_plan(box, &plan, reterr);
	if (r == 0)
		r = run_probe(box, plan, &result, reterr);
	if (r == 0)
		r = read_receipt(result, &receipt);
	if (r == 0)
		r = format_receipt(box, &receipt, retjson);
	if (r == 0)
		r = tell_keeper(box, *retjson, reterr);
	if (r == 0 && receipt.n_mismatches)
		r = error_set(reterr, ABOX_E_MISMATCH, ABOX_STAGE_VERIFY, box->id,
			"%u of %u probes found less than the plan promises", receipt.n_mismatches,
			receipt.n_lines);
	text_clear(&receipt.proven);
	text_clear(&receipt.mismatches);
	return r;
}
