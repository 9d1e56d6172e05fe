/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox journal: look at a journal, add to it, and look after it.
 */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"

#define TEXT(slot) offsetof(struct cli_settings, text[slot])
#define FLAG(slot) offsetof(struct cli_settings, flag[slot])
#define FILE_BYTES_MAX (4L * 1024 * 1024)

const struct cli_option options_journal[] = {
	{ "journal", 0, "DIR", "the journal folder; else ABOX_JOURNAL", OPTION_TEXT,
		TEXT(JOURNAL_TEXT_PATH), NULL, NULL },
	{ "by", 0, "NAME", "who says so; recorded", OPTION_TEXT, TEXT(JOURNAL_TEXT_BY), NULL, NULL },
	{ 0 },
};

const char *journal_path(const struct cli_settings *settings)
{
	const char *path = settings->text[JOURNAL_TEXT_PATH];

	if (!path)
		path = getenv("ABOX_JOURNAL");
	if (!path || !*path) {
		say("name the journal folder: --journal DIR, or ABOX_JOURNAL");
		return NULL;
	}
	return path;
}

int journal_open(const struct cli_settings *settings, bool append, bool create, abox_journal **ret,
	abox_error **reterr)
{
	struct abox_journal_options options = ABOX_JOURNAL_OPTIONS_INIT;
	_cleanup_(text_freep) char *state = NULL;
	const char *path = journal_path(settings), *found;
	int r;

	if (!path)
		return ABOX_E_INVALID;
	options.mode = append ? ABOX_JOURNAL_APPEND : ABOX_JOURNAL_READ;
	options.flags = create ? ABOX_JOURNAL_CREATE : 0;
	r = abox_journal_open(path, &options, ret, reterr);
	if (r < 0 || !append || abox_journal_dump(*ret, &state, NULL) < 0)
		return r;
	found = strstr(state, "\"found\":[");
	if (found && found[9] != ']')
		say("opening the journal found: %s", found + 8);
	return 0;
}

static bool number_at(
	const struct cli_settings *settings, int slot, const char *option, uint64_t fallback, uint64_t *ret)
{
	*ret = fallback;
	if (!settings->text[slot] || parse_u64(settings->text[slot], ret))
		return true;
	say("%s %s: write it as a number", option, settings->text[slot]);
	return false;
}

/* For people, on one line: nothing in it may move the cursor. */
static void print_safe(const char *text)
{
	const unsigned char *p;

	for (p = (const unsigned char *)text; *p; p++)
		if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
			printf("\\x%02x", *p);
		else if (*p >= 0x80 && *p < 0xa0 && p > (const unsigned char *)text && p[-1] == 0xc2)
			printf("\\x%02x", *p);
		else
			putchar(*p);
}

static void print_record(const struct abox_journal_record *record, bool json)
{
	time_t seconds = (time_t)(record->time_usec / 1000000);
	char when[32] = "?";
	struct tm tm;

	if (json) {
		fwrite(record->line, 1, record->line_bytes, stdout);
		putchar('\n');
		return;
	}
	if (gmtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	printf("%6" PRIu64 "%s %s.%03uZ %-16s ", record->seq, record->durable ? " " : "?", when,
		(unsigned)(record->time_usec / 1000 % 1000), record->type);
	if (record->task) {
		printf("task=");
		print_safe(record->task);
		putchar(' ');
	}
	if (record->box) {
		printf("box=");
		print_safe(record->box);
		putchar(' ');
	}
	print_safe(record->body);
	putchar('\n');
}

static bool is_wanted(const struct cli_settings *settings, const struct abox_journal_record *record)
{
	const char *type = settings->text[JOURNAL_TEXT_TYPE], *task = settings->text[JOURNAL_TEXT_TASK];
	size_t n = type ? strlen(type) : 0;

	if (task && (!record->task || strcmp(record->task, task)))
		return false;
	if (!type)
		return true;
	/* "effect." stands for all that begin so */
	return n && type[n - 1] == '.' ? !strncmp(record->type, type, n) : !strcmp(record->type, type);
}

static int read_records(const struct cli_settings *settings, bool follow, abox_error **reterr)
{
	struct abox_journal_record record = ABOX_JOURNAL_RECORD_INIT;
	_cleanup_(abox_journal_reader_unrefp) abox_journal_reader *reader = NULL;
	_cleanup_(abox_journal_unrefp) abox_journal *journal = NULL;
	uint64_t from, to;
	int r;

	if (!number_at(settings, JOURNAL_TEXT_FROM, "--from", 0, &from) ||
		!number_at(settings, JOURNAL_TEXT_TO, "--to", UINT64_MAX, &to))
		return ABOX_E_INVALID;
	r = journal_open(settings, false, false, &journal, reterr);
	if (r >= 0)
		r = abox_journal_reader_new(journal, from,
			settings->flag[JOURNAL_FLAG_UNSYNCED] ? ABOX_JOURNAL_READ_UNSYNCED : 0, &reader,
			reterr);
	while (r >= 0) {
		r = abox_journal_reader_next(reader, &record, reterr);
		if (r > 0 && record.seq > to)
			return 0;
		if (r > 0 && is_wanted(settings, &record))
			print_record(&record, settings->json);
		if (r == 0 && (!follow || fflush(stdout) == EOF || ferror(stdout)))
			return 0;
		if (r == 0)
			r = abox_journal_reader_wait(reader, ABOX_FOREVER, reterr);
	}
	return r;
}

static int run_show(struct cli_settings *settings, abox_error **reterr)
{
	return read_records(settings, false, reterr);
}

static int run_follow(struct cli_settings *settings, abox_error **reterr)
{
	return read_records(settings, true, reterr);
}

static int run_export(struct cli_settings *settings, abox_error **reterr)
{
	_cleanup_(abox_journal_unrefp) abox_journal *journal = NULL;
	uint64_t from, to;
	int r;

	if (!number_at(settings, JOURNAL_TEXT_FROM, "--from", 0, &from) ||
		!number_at(settings, JOURNAL_TEXT_TO, "--to", UINT64_MAX, &to))
		return ABOX_E_INVALID;
	r = journal_open(settings, false, false, &journal, reterr);
	return r < 0 ? r : abox_journal_export(journal, from, to, STDOUT_FILENO, NULL, reterr);
}

/* The whole of a file, or of standard input for "-"; NULL after it has said why not. */
static char *read_text(const char *path)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "re") : stdin;
	char *text = malloc((size_t)FILE_BYTES_MAX + 1);
	size_t n = 0;

	if (!file || !text) {
		say("cannot read %s: %s", path, strerror(errno));
		free(text);
		return NULL;
	}
	n = fread(text, 1, (size_t)FILE_BYTES_MAX, file);
	if (ferror(file) || !feof(file)) {
		say("cannot read %s: %s", path, ferror(file) ? strerror(errno) : "it is too large");
		free(text);
		text = NULL;
	} else {
		text[n] = 0;
	}
	if (file != stdin)
		fclose(file);
	return text;
}

static int run_verify(struct cli_settings *settings, abox_error **reterr)
{
	struct abox_journal_verify_options options = ABOX_JOURNAL_VERIFY_OPTIONS_INIT;
	_cleanup_(text_freep) char *json = NULL;
	const char *path = journal_path(settings);
	char *key = NULL, *checkpoint = NULL;
	int r = path ? 0 : ABOX_E_INVALID;

	options.blobs = settings->flag[JOURNAL_FLAG_BLOBS];
	if (r == 0 && settings->text[JOURNAL_TEXT_PUBLIC_KEY]) {
		key = read_text(settings->text[JOURNAL_TEXT_PUBLIC_KEY]);
		r = key ? 0 : ABOX_E_INVALID;
	}
	if (r == 0 && settings->text[JOURNAL_TEXT_CHECKPOINT]) {
		checkpoint = read_text(settings->text[JOURNAL_TEXT_CHECKPOINT]);
		r = checkpoint ? 0 : ABOX_E_INVALID;
	}
	options.public_key = key;
	options.checkpoint = checkpoint;
	if (r == 0)
		r = abox_journal_verify(path, &options, &json, reterr);
	free(key);
	free(checkpoint);
	if (r < 0)
		return r;
	if (print_json_text(json))
		return ABOX_E_IO;
	return r == 1 ? 0 : ABOX_E_DAMAGED;
}

static bool parse_durability(const char *text, uint32_t *ret)
{
	static const char *const names[] = { "none", "data", "full" };

	*ret = ABOX_DURABILITY_DATA;
	for (uint32_t i = 0; text && i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*ret = ABOX_DURABILITY_NONE + i;
			return true;
		}
	if (text)
		say("--durability is none, data or full");
	return !text;
}

static int run_append(struct cli_settings *settings, abox_error **reterr)
{
	struct abox_journal_entry entry = ABOX_JOURNAL_ENTRY_INIT;
	_cleanup_(abox_journal_unrefp) abox_journal *journal = NULL;
	char *input = NULL;
	uint64_t seq = 0;
	int r;

	if (!parse_durability(settings->text[JOURNAL_TEXT_DURABILITY], &entry.durability))
		return ABOX_E_INVALID;
	entry.type = settings->text[JOURNAL_TEXT_TYPE];
	entry.task = settings->text[JOURNAL_TEXT_TASK];
	entry.body = settings->n_words > 1 ? settings->words[1] : NULL;
	if (entry.body && !strcmp(entry.body, "-"))
		entry.body = input = read_text("-");
	if (settings->n_words > 1 && !entry.body)
		return ABOX_E_INVALID;
	r = journal_open(settings, true, settings->flag[JOURNAL_FLAG_CREATE], &journal, reterr);
	if (r >= 0)
		r = abox_journal_append(journal, &entry, &seq, reterr);
	free(input);
	if (r >= 0)
		printf(settings->json ? "{\"seq\": %" PRIu64 "}\n" : "%" PRIu64 "\n", seq);
	return r;
}

static int run_rotate(struct cli_settings *settings, abox_error **reterr)
{
	_cleanup_(abox_journal_unrefp) abox_journal *journal = NULL;
	int r;

	r = journal_open(settings, true, false, &journal, reterr);
	return r < 0 ? r : abox_journal_rotate(journal, reterr);
}

/* Both change what the journal is: somebody has to say so. */
static const char *path_and_name(const struct cli_settings *settings, const char **retby)
{
	*retby = settings->text[JOURNAL_TEXT_BY];
	if (!*retby || !**retby) {
		say("say who does this: --by NAME");
		return NULL;
	}
	return journal_path(settings);
}

static int run_repair(struct cli_settings *settings, abox_error **reterr)
{
	_cleanup_(text_freep) char *json = NULL;
	const char *by, *path = path_and_name(settings, &by);
	int r;

	if (!path)
		return ABOX_E_INVALID;
	r = abox_journal_repair(path, by, &json, reterr);
	return r < 0 ? r : print_json_text(json) ? ABOX_E_IO : 0;
}

static int run_adopt(struct cli_settings *settings, abox_error **reterr)
{
	const char *by, *path = path_and_name(settings, &by);

	return path ? abox_journal_adopt(path, by, reterr) : ABOX_E_INVALID;
}

static int run_prune(struct cli_settings *settings, abox_error **reterr)
{
	struct abox_journal_prune_options options = ABOX_JOURNAL_PRUNE_OPTIONS_INIT;
	_cleanup_(abox_journal_unrefp) abox_journal *journal = NULL;
	_cleanup_(text_freep) char *json = NULL;
	int r;

	if (!number_at(settings, JOURNAL_TEXT_KEEP, "--keep", 0, &options.keep_segments) ||
		!number_at(settings, JOURNAL_TEXT_TO, "--to", 0, &options.before_seq))
		return ABOX_E_INVALID;
	options.dry_run = settings->flag[JOURNAL_FLAG_DRY_RUN];
	r = journal_open(settings, true, false, &journal, reterr);
	if (r >= 0)
		r = abox_journal_prune(journal, &options, &json, reterr);
	return r < 0 ? r : print_json_text(json) ? ABOX_E_IO : 0;
}

static int run_checkpoint(struct cli_settings *settings, abox_error **reterr)
{
	_cleanup_(abox_journal_unrefp) abox_journal *journal = NULL;
	_cleanup_(text_freep) char *json = NULL;
	char *key;
	int r;

	if (settings->n_words < 2)
		return say("usage: agentbox journal checkpoint KEY-FILE"), ABOX_E_INVALID;
	key = read_text(settings->words[1]);
	if (!key)
		return ABOX_E_INVALID;
	r = journal_open(settings, true, false, &journal, reterr);
	if (r >= 0)
		r = abox_journal_checkpoint(journal, key, &json, reterr);
	free(key);
	if (r >= 0)
		puts(json);
	return r;
}

static const struct {
	const char *name;
	unsigned words_max;
	int (*run)(struct cli_settings *settings, abox_error **reterr);
} verbs[] = {
	{ "show", 1, run_show },
	{ "follow", 1, run_follow },
	{ "verify", 1, run_verify },
	{ "export", 1, run_export },
	{ "append", 2, run_append },
	{ "rotate", 1, run_rotate },
	{ "repair", 1, run_repair },
	{ "adopt", 1, run_adopt },
	{ "prune", 1, run_prune },
	{ "checkpoint", 2, run_checkpoint },
};

static int run(struct cli_settings *settings)
{
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		if (strcmp(settings->words[0], verbs[i].name))
			continue;
		if (settings->n_words > verbs[i].words_max)
			return say("agentbox journal %s takes no '%s'", verbs[i].name,
				       settings->words[verbs[i].words_max]),
			       CLI_EXIT_USAGE;
		r = verbs[i].run(settings, &error);
		if (r < 0 && !error) /* told already, or there was no memory for more */
			return r == ABOX_E_INVALID ? CLI_EXIT_USAGE : CLI_EXIT_FAILED;
		if (r < 0)
			return fail(settings, r, error);
		return finish_stdout();
	}
	say("agentbox journal has no '%s'; see agentbox journal --help", settings->words[0]);
	return CLI_EXIT_USAGE;
}

static const struct cli_option journal_options[] = {
	{ "task", 0, "TASK", "only this task; for append: its task", OPTION_TEXT, TEXT(JOURNAL_TEXT_TASK),
		NULL, NULL },
	{ "type", 0, "TYPE", "only this type ('effect.' for all that begin so); for append: its type",
		OPTION_TEXT, TEXT(JOURNAL_TEXT_TYPE), NULL, NULL },
	{ "from", 0, "SEQ", "from this record on", OPTION_TEXT, TEXT(JOURNAL_TEXT_FROM), NULL, NULL },
	{ "to", 0, "SEQ", "up to this record; for prune: only what is wholly below", OPTION_TEXT,
		TEXT(JOURNAL_TEXT_TO), NULL, NULL },
	{ "keep", 0, "N", "prune: so many sealed segments stay", OPTION_TEXT, TEXT(JOURNAL_TEXT_KEEP), NULL,
		NULL },
	{ "dry-run", 0, NULL, "prune: only tell", OPTION_FLAG, FLAG(JOURNAL_FLAG_DRY_RUN), NULL, NULL },
	{ "create", 0, NULL, "append: make the journal when it is not there", OPTION_FLAG,
		FLAG(JOURNAL_FLAG_CREATE), NULL, NULL },
	{ "durability", 0, "WHAT", "append: none, data (default) or full", OPTION_TEXT,
		TEXT(JOURNAL_TEXT_DURABILITY), NULL, NULL },
	{ "unsynced", 0, NULL, "show what is not on the disk yet, too; marked with ?", OPTION_FLAG,
		FLAG(JOURNAL_FLAG_UNSYNCED), NULL, NULL },
	{ "blobs", 0, NULL, "verify: the blob folder too", OPTION_FLAG, FLAG(JOURNAL_FLAG_BLOBS), NULL,
		NULL },
	{ "public-key", 0, "FILE", "verify: signed checkpoints must fit this key (PEM)", OPTION_TEXT,
		TEXT(JOURNAL_TEXT_PUBLIC_KEY), NULL, NULL },
	{ "checkpoint", 0, "FILE", "verify: this checkpoint, kept elsewhere, must be in it", OPTION_TEXT,
		TEXT(JOURNAL_TEXT_CHECKPOINT), NULL, NULL },
	{ 0 },
};

static const struct cli_option *const groups[] = { options_journal, journal_options, NULL };

const struct cli_command cli_journal = {
	.name = "journal",
	.usage = "VERB --journal DIR [OPTIONS]",
	.summary = "look at a journal, add to it, look after it",
	.help = "Verbs:\n"
		"  show         print records; with --json the exact lines\n"
		"  follow       print records, and go on as they come\n"
		"  verify       check every record, seal and gap; exit status 1 when something is damaged\n"
		"  export       write the lines to standard output\n"
		"  append BODY  append a record with this JSON object ('-': standard input); prints its "
		"number\n"
		"  rotate       begin a new segment\n"
		"  checkpoint KEY  sign how far the journal has come (Ed25519, PEM); keep what it prints "
		"elsewhere\n"
		"  repair       rewrite a poisoned journal, cut damage out of its newest segment; needs "
		"--by\n"
		"  adopt        take a copied or restored folder as a journal of its own; needs --by\n"
		"  prune        drop old segments and blobs that nothing needs any more\n",
	.groups = groups,
	.words_min = 1,
	.words_max = 2,
	.run = run,
};
