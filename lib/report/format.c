/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The report as text that a person reads in a minute: what needs a decision first, then the story in the
 * order in which it is asked for. Every value comes from outside and is escaped for a terminal; long lists
 * are cut and counted.
 */
#include "report/report.h"

#include <string.h>
#include <time.h>

#define MAX_LINES 15 /* of one section */

static const char *member(const struct json *object, const char *name)
{
	return json_text(json_member(object, name));
}

static uint64_t number(const struct json *object, const char *name)
{
	return (uint64_t)json_number(json_member(object, name));
}

static void add_value(struct text *text, const char *value)
{
	if (value)
		text_add_escaped(text, value, strlen(value));
}

static void add_label(struct text *text, const char *label)
{
	text_printf(text, "%-12s ", label);
}

static void add_line(struct text *text, const char *label, const char *value)
{
	if (!value)
		return;
	add_label(text, label);
	add_value(text, value);
	text_add(text, "\n");
}

static void add_time(struct text *text, uint64_t usec)
{
	time_t seconds = (time_t)(usec / 1000000);
	char buffer[40];
	struct tm tm;

	if (gmtime_r(&seconds, &tm) && strftime(buffer, sizeof(buffer), "%Y-%m-%d %H:%M:%S UTC", &tm))
		text_add(text, buffer);
}

typedef void (*line_fn)(struct text *text, const struct json *entry);

static void add_section(struct text *text, const char *label, const struct json *list, line_fn line)
{
	size_t n = json_count(list);

	for (size_t i = 0; i < n && i < MAX_LINES; i++) {
		add_label(text, i == 0 ? label : "");
		line(text, json_element(list, i));
		text_add(text, "\n");
	}
	if (n > MAX_LINES) {
		add_label(text, "");
		text_printf(text, "... and %zu more\n", n - MAX_LINES);
	}
}

static void line_undecided(struct text *text, const struct json *entry)
{
	text_add(text, "! ");
	add_value(text, member(entry, "kind"));
	text_add(text, " ");
	add_value(text, member(entry, "id"));
	text_add(text, ": ");
	add_value(text, member(entry, "what"));
	text_add(text, " - ");
	add_value(text, member(entry, "why"));
}

static void line_attempt(struct text *text, const struct json *entry)
{
	text_printf(text, "%llu  ", (unsigned long long)number(entry, "number"));
	add_time(text, number(entry, "time_usec"));
	text_printf(text, "  pid %llu on ", (unsigned long long)number(entry, "pid"));
	add_value(text, member(entry, "host"));
}

static void add_network(struct text *text, const struct json *network)
{
	const struct json *allow = json_member(network, "allow");

	text_add(text, ", network ");
	add_value(text, member(network, "mode") ? member(network, "mode") : "none");
	for (size_t i = 0; i < json_count(allow) && i < 8; i++) {
		text_add(text, i ? ", " : ": ");
		add_value(text, member(json_element(allow, i), "host")
					? member(json_element(allow, i), "host")
					: member(json_element(allow, i), "cidr"));
	}
	if (json_count(allow) > 8)
		text_printf(text, " and %zu more", json_count(allow) - 8);
}

static void line_box(struct text *text, const struct json *entry)
{
	const struct json *waived = json_member(entry, "waived"), *weak = json_member(entry, "not_enforced");

	add_value(text, member(entry, "box"));
	text_add(text, " behind ");
	add_value(text, member(entry, "backend"));
	add_network(text, json_member(entry, "network"));
	if (json_count(waived))
		text_printf(text, ", %zu rules waived", json_count(waived));
	if (json_count(weak))
		text_printf(text, ", %zu not enforced", json_count(weak));
}

static void line_box_end(struct text *text, const struct json *entry)
{
	add_value(text, member(entry, "box"));
	text_add(text, " ended: ");
	add_value(text, member(entry, "outcome"));
}

static void line_receipt(struct text *text, const struct json *entry)
{
	add_value(text, member(entry, "box"));
	text_printf(text, ": %llu probes proven, %zu found less than promised",
		(unsigned long long)number(entry, "proven"), json_count(json_member(entry, "mismatches")));
}

static void line_host(struct text *text, const struct json *entry)
{
	add_value(text, member(entry, "host"));
	text_printf(text, " (%llu)", (unsigned long long)number(entry, "count"));
}

static void line_credential(struct text *text, const struct json *entry)
{
	add_value(text, member(entry, "name"));
	text_printf(text, ": used %llu times", (unsigned long long)number(entry, "uses"));
	if (member(entry, "first_host")) {
		text_add(text, ", for ");
		add_value(text, member(entry, "first_host"));
	}
	if (number(entry, "failures"))
		text_printf(text, ", failed %llu times", (unsigned long long)number(entry, "failures"));
}

static void line_stage(struct text *text, const struct json *entry)
{
	add_value(text, member(entry, "name"));
	text_add(text, ": ");
	add_value(text, member(entry, "state"));
	if (member(entry, "cause")) {
		text_add(text, " by ");
		add_value(text, member(entry, "cause"));
	}
	if (number(entry, "runs") > 1)
		text_printf(text, ", %llu runs", (unsigned long long)number(entry, "runs"));
}

static void line_change(struct text *text, const struct json *entry)
{
	const struct json *record = json_member(entry, "record");
	static const char *const names[] = {"path", "name", "id", "digest", "change_set"};

	add_value(text, member(entry, "type"));
	if (member(entry, "change_set")) {
		text_add(text, " ");
		add_value(text, member(entry, "change_set"));
	}
	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		if (member(record, names[i])) {
			text_add(text, " ");
			add_value(text, member(record, names[i]));
		}
}

static void line_resource(struct text *text, const struct json *entry)
{
	add_value(text, member(entry, "kind"));
	text_add(text, " ");
	add_value(text, member(entry, "id"));
	if (json_truth(json_member(entry, "duty")))
		text_add(text, " (to be removed)");
}

static void line_effect(struct text *text, const struct json *entry)
{
	text_printf(text, "%-10s ", member(entry, "state") ? member(entry, "state") : "?");
	add_value(text, member(entry, "what") ? member(entry, "what") : member(entry, "target"));
	text_add(text, "  [");
	add_value(text, member(entry, "class"));
	if (number(entry, "try") > 1)
		text_printf(text, ", try %llu", (unsigned long long)number(entry, "try"));
	if (number(entry, "late_outcomes"))
		text_add(text, ", an outcome came after the verdict");
	text_add(text, "] ");
	add_value(text, member(entry, "id"));
}

static void line_approval(struct text *text, const struct json *entry)
{
	text_printf(text, "%-10s ", member(entry, "state") ? member(entry, "state") : "?");
	add_value(text, member(entry, "text") ? member(entry, "text") : member(entry, "what"));
	if (member(entry, "by")) {
		text_add(text, "  by ");
		add_value(text, member(entry, "by"));
	}
}

static void line_decision(struct text *text, const struct json *entry)
{
	static const char *const names[] = {"effect", "approval", "stage", "state", "reason"};

	add_value(text, member(entry, "type"));
	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		if (member(entry, names[i])) {
			text_add(text, " ");
			add_value(text, member(entry, names[i]));
		}
	if (member(entry, "by")) {
		text_add(text, " by ");
		add_value(text, member(entry, "by"));
	}
}

static void line_failure(struct text *text, const struct json *entry)
{
	text_printf(text, "command %llu: ", (unsigned long long)number(entry, "command"));
	add_value(text, member(entry, "cause"));
	if (json_kind(json_member(entry, "exit_code")) == JSON_KIND_INTEGER)
		text_printf(text, ", exit code %llu", (unsigned long long)number(entry, "exit_code"));
}

static void add_end(struct text *text, const struct json *end)
{
	if (!end)
		return;
	add_label(text, "end");
	add_value(text, member(end, "status"));
	text_add(text, ", ");
	add_time(text, number(end, "time_usec"));
	if (member(end, "by")) {
		text_add(text, ", by ");
		add_value(text, member(end, "by"));
	}
	text_add(text, "\n");
	add_line(text, "outcome", member(end, "outcome"));
}

int report_format(const struct json *report, struct text *text)
{
	const struct json *commands = json_member(report, "commands"),
			  *journal = json_member(report, "journal");

	add_line(text, "task", member(report, "task"));
	add_line(text, "status", member(report, "status"));
	add_line(text, "for", member(report, "identity"));
	add_line(text, "about", member(report, "description"));
	if (json_truth(json_member(report, "incomplete")))
		add_line(text, "incomplete", "older records were pruned");
	add_section(text, "DECIDE", json_member(report, "undecided"), line_undecided);
	add_section(text, "attempts", json_member(report, "attempts"), line_attempt);
	add_section(text, "ran in", json_member(report, "boxes"), line_box);
	add_section(text, "", json_member(report, "box_ends"), line_box_end);
	add_section(text, "verified", json_member(report, "verified"), line_receipt);
	add_section(text, "reached", json_member(report, "allowed"), line_host);
	add_section(text, "denied", json_member(report, "denied"), line_host);
	add_section(text, "credentials", json_member(report, "credentials"), line_credential);
	add_section(text, "stages", json_member(report, "stages"), line_stage);
	if (number(commands, "count")) {
		add_label(text, "commands");
		text_printf(text, "%llu, %llu of them failed\n",
			(unsigned long long)number(commands, "count"),
			(unsigned long long)number(commands, "failed"));
	}
	add_section(text, "", json_member(commands, "failures"), line_failure);
	add_section(text, "effects", json_member(report, "effects"), line_effect);
	add_section(text, "changed", json_member(report, "changes"), line_change);
	add_section(text, "made", json_member(report, "resources"), line_resource);
	add_section(text, "approvals", json_member(report, "approvals"), line_approval);
	add_section(text, "decisions", json_member(report, "decisions"), line_decision);
	add_end(text, json_member(report, "end"));
	add_label(text, "journal");
	add_value(text, member(journal, "id"));
	text_printf(text, ", %llu records, %llu to %llu\n", (unsigned long long)number(journal, "records"),
		(unsigned long long)number(journal, "first_seq"),
		(unsigned long long)number(journal, "last_seq"));
	return text->failed ? ABOX_E_MEMORY : 0;
}
