/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox net: what a box reaches. Each verb is a command of its own, with options and help.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <agentbox/network.h>

#include "box.h"
#include "commands.h"
#include "net_rule.h"

#define FOLLOW_USEC 200000
#define NET_FLAG(i) offsetof(struct cli_settings, flag[i])

enum { NET_CUT, NET_DENIED, NET_TOKEN };

static inline void json_freep(json_t **json) { json_decref(*json); }

/* -- log -- */

static void print_event(json_t *line)
{
	json_t *event = json_object_get(line, "event");
	const char *type = json_string_value(json_object_get(line, "type"));
	time_t seconds = (time_t)(json_integer_value(json_object_get(line, "time_usec")) / 1000000);
	const char *name;
	json_t *value;
	struct tm tm;
	char when[32] = "";

	if (gmtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	printf("%s  %-10s", when, type ? type : "?");
	json_object_foreach(event, name, value)
	{
		char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);

		if (json_is_string(value) && text)
			printf(" %s=%.*s", name, (int)strlen(text) - 2, text + 1);
		else
			printf(" %s=%s", name, text ? text : "?");
		free(text);
	}
	putchar('\n');
}

/* Calls visit for each event from the cursor on. 1 when there was one, 0, or a code. */
static int each_event(abox_sandbox *box, uint64_t *cursor, void (*visit)(json_t *, const char *, void *), void *userdata,
	abox_error **reterr)
{
	_cleanup_(text_freep) char *lines = NULL;
	int r = abox_network_events(box, *cursor, &lines, cursor, reterr);

	for (char *line = lines, *end; r > 0 && (end = strchr(line, '\n')); line = end + 1) {
		_cleanup_(json_freep) json_t *parsed = NULL;

		*end = 0;
		parsed = json_loads(line, 0, NULL);
		if (parsed)
			visit(parsed, line, userdata);
	}
	return r;
}

static void show_event(json_t *event, const char *line, void *userdata)
{
	const struct cli_settings *settings = userdata;

	if (settings->json)
		puts(line);
	else
		print_event(event);
}

static int run_log(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	uint64_t cursor = 0;
	bool ended = false;
	int r;

	r = box_open(settings, ABOX_OPEN_READ, &box, &error);
	while (r >= 0) {
		int state = abox_sandbox_get_state(box, NULL);

		/* once more after the end, since the last ones came before it */
		r = each_event(box, &cursor, show_event, settings, &error);
		if (r < 0 || (r == 0 && (!settings->follow || ended)))
			break;
		fflush(stdout);
		ended = state < 0 || state >= ABOX_SANDBOX_STOPPED;
		if (r == 0 && !ended)
			usleep(FOLLOW_USEC);
	}
	return r < 0 ? fail(settings, r, error) : finish_stdout();
}

/* -- learn -- */

struct learned {
	bool denied;	/* also what was refused */
	json_t *hosts;	/* {"host": {"port": true}} */
};

static void learn_event(json_t *line, const char *text, void *userdata)
{
	struct learned *learned = userdata;
	json_t *event = json_object_get(line, "event"), *ports;
	const char *type = json_string_value(json_object_get(line, "type")),
		   *host = json_string_value(json_object_get(event, "host"));
	json_int_t port = json_integer_value(json_object_get(event, "port"));
	char number[16];

	if (!type || !host || !host[0] || port < 1 || port > 65535)
		return;
	if (strcmp(type, "net.allow") != 0 && !(learned->denied && strcmp(type, "net.deny") == 0))
		return;
	ports = json_object_get(learned->hosts, host);
	if (!ports) {
		ports = json_object();
		json_object_set_new(learned->hosts, host, ports);
	}
	snprintf(number, sizeof(number), "%d", (int)port);
	json_object_set_new(ports, number, json_true());
}

static json_t *allow_list(json_t *hosts)
{
	json_t *list = json_array(), *ports;
	const char *host, *port;
	json_t *value;

	json_object_foreach(hosts, host, ports)
	{
		json_t *rule = json_object(), *numbers = json_array();

		json_object_foreach(ports, port, value)
			json_array_append_new(numbers, json_integer(atoi(port)));
		net_rule_set_target(rule, host);
		json_object_set_new(rule, "ports", numbers);
		json_array_append_new(list, rule);
	}
	return list;
}

static int run_learn(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(json_freep) json_t *hosts = json_object(), *answer = NULL;
	struct learned learned = { settings->flag[NET_DENIED], hosts };
	_cleanup_(text_freep) char *text = NULL;
	uint64_t cursor = 0;
	int r;

	r = box_open(settings, ABOX_OPEN_READ, &box, &error);
	do {
		if (r >= 0)
			r = each_event(box, &cursor, learn_event, &learned, &error);
	} while (r > 0);
	if (r < 0)
		return fail(settings, r, error);
	answer = json_pack("{s:{s:s,s:o}}", "network", "mode", "allow", "allow", allow_list(hosts));
	text = answer ? json_dumps(answer, JSON_INDENT(2)) : NULL;
	if (!text)
		return fail(settings, ABOX_E_MEMORY, NULL);
	puts(text);
	return finish_stdout();
}

/* -- show, allow, deny -- */

static int run_show(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(text_freep) char *info = NULL, *rules = NULL, *text = NULL;
	_cleanup_(json_freep) json_t *answer = NULL;
	int r;

	r = box_open(settings, ABOX_OPEN_ATTACH, &box, &error);
	if (r == ABOX_E_STATE) {	/* it has ended: what was in force can still be read */
		error = (abox_error_free(error), NULL);
		r = box_open(settings, ABOX_OPEN_READ, &box, &error);
	} else if (r >= 0) {
		r = abox_network_info(box, &info, &error);
	}
	if (r >= 0)
		r = abox_network_get_rules(box, &rules, &error);
	if (r < 0)
		return fail(settings, r, error);
	answer = info ? json_loads(info, 0, NULL) : json_object();
	json_object_set_new(answer, "rules", json_loads(rules, 0, NULL));
	text = json_dumps(answer, JSON_COMPACT);
	return text ? print_json_text(text) : fail(settings, ABOX_E_MEMORY, NULL);
}

static int change(struct cli_settings *settings, const char *list)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(abox_spec_unrefp) abox_spec *spec = NULL;
	_cleanup_(text_freep) char *rules = NULL;
	int r;

	r = box_open(settings, ABOX_OPEN_CONTROL, &box, &error);
	if (r >= 0)
		r = abox_network_get_rules(box, &rules, &error);
	if (r >= 0)
		r = abox_spec_from_json(rules, &spec, &error);
	for (unsigned i = 1; r >= 0 && i < settings->n_words; i++)
		r = net_rule_add(spec, list, settings->words[i], &error);
	if (r >= 0)
		r = abox_network_set_rules(box, spec, settings->flag[NET_CUT] ? ABOX_NETWORK_CUT : 0, &error);
	return r < 0 ? fail(settings, r, error) : finish_stdout();
}

static int run_allow(struct cli_settings *settings)
{
	return change(settings, "/network/allow");
}

static int run_deny(struct cli_settings *settings)
{
	settings->flag[NET_CUT] = true;
	return change(settings, "/network/deny");
}

static int run_rules(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	_cleanup_(abox_spec_unrefp) abox_spec *spec = NULL;
	int r;

	r = box_open(settings, ABOX_OPEN_CONTROL, &box, &error);
	if (r >= 0)
		r = spec_read_file(settings->words[1], &spec, &error);
	if (r >= 0)
		r = abox_network_set_rules(box, spec, settings->flag[NET_CUT] ? ABOX_NETWORK_CUT : 0, &error);
	return r < 0 ? fail(settings, r, error) : finish_stdout();
}

/* -- publish -- */

static int run_publish(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	struct abox_publish wish = { ABOX_PUBLISH_INIT };
	struct abox_published published = { ABOX_PUBLISHED_INIT };
	_cleanup_(text_freep) char *address = NULL;
	int r;

	r = net_publish_parse(settings->words[1], &address, &wish.host_port, &wish.port);
	if (r < 0)
		return CLI_EXIT_USAGE;
	wish.address = address;
	wish.token = settings->flag[NET_TOKEN];
	r = box_open(settings, ABOX_OPEN_CONTROL, &box, &error);
	if (r >= 0)
		r = abox_network_publish(box, &wish, &published, &error);
	if (r < 0)
		return fail(settings, r, error);
	if (settings->json)
		printf("{\"id\": %u, \"address\": \"%s\", \"host_port\": %u, \"port\": %u, \"token\": \"%s\"}\n", published.id,
			address ? address : "127.0.0.1", published.host_port, wish.port, published.token);
	else
		printf("%s:%u%s%s\n", address ? address : "127.0.0.1", published.host_port, published.token[0] ? " " : "",
			published.token);
	return finish_stdout();
}

static int run_unpublish(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	_cleanup_(abox_sandbox_unrefp) abox_sandbox *box = NULL;
	uint64_t id;
	int r;

	if (!parse_u64(settings->words[1], &id) || id > UINT32_MAX)
		return say("%s: write the number that `agentbox net show` gives it", settings->words[1]), CLI_EXIT_USAGE;
	r = box_open(settings, ABOX_OPEN_CONTROL, &box, &error);
	if (r >= 0)
		r = abox_network_unpublish(box, (uint32_t)id, &error);
	return r < 0 ? fail(settings, r, error) : finish_stdout();
}

/* -- the verbs -- */

static const struct cli_option options_log[] = {
	{ "follow", 'f', NULL, "go on until the box ends", OPTION_FLAG, offsetof(struct cli_settings, follow), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_learn[] = {
	{ "denied", 0, NULL, "also what was refused", OPTION_FLAG, NET_FLAG(NET_DENIED), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_change[] = {
	{ "cut", 0, NULL, "end open connections that are not allowed any more", OPTION_FLAG, NET_FLAG(NET_CUT), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_publish[] = {
	{ "token", 0, NULL, "let only requests in that bring the bearer token which is printed", OPTION_FLAG,
	  NET_FLAG(NET_TOKEN), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups_log[] = { options_log, NULL };
static const struct cli_option *const groups_learn[] = { options_learn, NULL };
static const struct cli_option *const groups_change[] = { options_change, NULL };
static const struct cli_option *const groups_publish[] = { options_publish, NULL };

#define RULE_HELP                                                                                            \
	"HOST is a name, `*.` and a name for everything below it, or an address or range of addresses; without a\n"  \
	"port 80 and 443 are meant.\n"

static const struct cli_command *const verbs[] = {
	&(const struct cli_command){ .name = "net show", .usage = "ID",
	  .summary = "rules in force and published ports, as JSON",
	  .help = "Prints the mode, the state of the egress, published ports and the rules that are in force.\n",
	  .words_min = 1, .words_max = 1, .run = run_show },
	&(const struct cli_command){ .name = "net log", .usage = "[OPTIONS] ID",
	  .summary = "what a box reached, and what was refused",
	  .help = "Prints a line for each decision, with the rule that made it; with --json each is an object.\n",
	  .groups = groups_log, .words_min = 1, .words_max = 1, .run = run_log },
	&(const struct cli_command){ .name = "net learn", .usage = "[--denied] ID",
	  .summary = "the allow list that a box would have needed",
	  .help = "Prints a spec with a rule for each host and port that the box has reached, for --spec. Start the box\n"
		  "with --net open, or take what was refused with --denied.\n",
	  .groups = groups_learn, .words_min = 1, .words_max = 1, .run = run_learn },
	&(const struct cli_command){ .name = "net allow", .usage = "ID HOST[:PORT]...",
	  .summary = "let a running box reach more",
	  .help = "Adds rules to those of a running box. " RULE_HELP, .groups = groups_change, .words_min = 2,
	  .words_max = CLI_WORDS_ANY, .run = run_allow },
	&(const struct cli_command){ .name = "net deny", .usage = "ID HOST[:PORT]...",
	  .summary = "let a running box reach less",
	  .help = "Adds rules that deny, which are tried first; open connections that they concern are ended. " RULE_HELP,
	  .words_min = 2, .words_max = CLI_WORDS_ANY, .run = run_deny },
	&(const struct cli_command){ .name = "net rules", .usage = "[--cut] ID FILE",
	  .summary = "replace the rules of a running box",
	  .help = "Puts the /network of a spec in place of the rules of a running box. A file that is refused changes\n"
		  "nothing.\n",
	  .groups = groups_change, .words_min = 2, .words_max = 2, .run = run_rules },
	&(const struct cli_command){ .name = "net publish", .usage = "[--token] ID [ADDR:]PORT:BOXPORT",
	  .summary = "let the host reach a port of the box",
	  .help = "Prints where: PORT 0 takes any that is free. ADDR is 127.0.0.1 when it is not given.\n",
	  .groups = groups_publish, .words_min = 2, .words_max = 2, .run = run_publish },
	&(const struct cli_command){ .name = "net unpublish", .usage = "ID NUMBER",
	  .summary = "close a published port",
	  .help = "NUMBER is what `agentbox net show` calls its id. Its connections end.\n", .words_min = 2,
	  .words_max = 2, .run = run_unpublish },
	NULL,
};

static int run(struct cli_settings *settings)
{
	return cli_run_verb(settings, verbs, "net", "VERB [OPTIONS] ID ...");
}

const struct cli_command cli_net = {
	.name = "net",
	.usage = "VERB ...",
	.summary = "what a box reaches: log, rules, published ports",
	.help = "What a running box may reach and did reach, and which of its ports the host can reach. `agentbox net\n"
		"help` lists what can be done.\n",
	.words_min = 0,
	.words_max = CLI_WORDS_ANY,
	.stops_at_word = true,
	.run = run,
};
