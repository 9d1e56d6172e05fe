/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * agentbox fs: look at files of a box or workspace, and put them in order. Each verb is a command of its own.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "files.h"

enum { FLAG_RECURSIVE, FLAG_PARENTS, FLAG_NEW };

#define FLAG_AT(i) offsetof(struct cli_settings, flag[i])

static const struct cli_option options_rm[] = {
	{ "recursive", 'r', NULL, "a folder with all that is in it", OPTION_FLAG, FLAG_AT(FLAG_RECURSIVE), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_mkdir[] = {
	{ "parents", 'p', NULL, "make missing folders above it; a folder that is there is fine", OPTION_FLAG,
	  FLAG_AT(FLAG_PARENTS), NULL, NULL },
	{ 0 }
};
static const struct cli_option options_mv[] = {
	{ "no-clobber", 'n', NULL, "fail when something is there", OPTION_FLAG, FLAG_AT(FLAG_NEW), NULL, NULL },
	{ 0 }
};
static const struct cli_option *const groups_rm[] = { options_rm, NULL };
static const struct cli_option *const groups_mkdir[] = { options_mkdir, NULL };
static const struct cli_option *const groups_mv[] = { options_mv, NULL };

/* One call on one file of one place. */
typedef int (*verb_fn)(struct cli_settings *settings, abox_files *files, const char *path, abox_error **reterr);

static int run_verb(struct cli_settings *settings, uint32_t flags, verb_fn verb)
{
	_cleanup_(remote_clear) struct remote remote = { 0 };
	_cleanup_(abox_files_unrefp) abox_files *files = NULL;
	_cleanup_(abox_error_freep) abox_error *error = NULL;
	int r;

	if (!remote_parse(settings->words[0], true, &remote))
		return say("'%s' is not ID:PATH", settings->words[0]), CLI_EXIT_USAGE;
	r = remote_open(&remote, flags, &files, &error);
	if (r >= 0)
		r = verb(settings, files, remote.path, &error);
	r = remote_finish(settings, files, r, &error);
	return r == CLI_EXIT_DONE ? finish_stdout() : r;
}

static size_t utf8_len(const unsigned char *text)
{
	size_t n = text[0] < 0x80 ? 1 : text[0] >= 0xc2 && text[0] < 0xe0 ? 2 : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
		: text[0] >= 0xf0 && text[0] < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < n; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
		(text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return n;
}

/* As the library writes names: a byte that is not UTF-8 becomes U+DC80 + byte - 0x80, so that every name survives. */
static void print_json_name(const char *name)
{
	putchar('"');
	for (const unsigned char *at = (const unsigned char *)name; *at;) {
		size_t n = utf8_len(at);

		if (n == 0)
			printf("\\udc%02x", *at++);
		else if (*at < 0x20 || *at == 0x7f)
			printf("\\u%04x", *at++);
		else {
			if (*at == '"' || *at == '\\')
				putchar('\\');
			fwrite(at, 1, n, stdout);
			at += n;
		}
	}
	putchar('"');
}

/* On a terminal nothing of a name does anything but show. */
static void print_name(const char *name)
{
	bool terminal = isatty(STDOUT_FILENO);

	for (const unsigned char *at = (const unsigned char *)name; *at;) {
		size_t n = utf8_len(at);

		if (terminal && (n == 0 || *at < 0x20 || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0))) {
			printf("\\x%02x", *at++);
			continue;
		}
		n = n ? n : 1;
		fwrite(at, 1, n, stdout);
		at += n;
	}
}

static const char *type_name(int type)
{
	static const char *const names[] = { "none", "file", "folder", "link", "fifo", "socket", "device" };

	return type >= 0 && type < (int)(sizeof(names) / sizeof(names[0])) ? names[type] : "?";
}

static void print_entry(const struct abox_file_entry *entry, bool json)
{
	if (json) {
		printf("{\"name\": ");
		print_json_name(entry->name);
		printf(", \"type\": \"%s\", \"mode\": \"%04o\", \"size\": %" PRIu64 ", \"allocated\": %" PRIu64
		       ", \"modified\": %" PRId64 ".%09u, \"uid\": %u, \"gid\": %u, \"links\": %u",
			type_name(entry->type), entry->mode, entry->size_bytes, entry->allocated_bytes, entry->modified_sec,
			entry->modified_nsec, entry->uid, entry->gid, entry->n_links);
		if (entry->target) {
			printf(", \"target\": ");
			print_json_name(entry->target);
		}
		putchar('}');
		return;
	}
	printf("%-6s %04o %5u %5u %12" PRIu64 "  ", type_name(entry->type), entry->mode, entry->uid, entry->gid,
		entry->size_bytes);
	print_name(entry->name);
	if (entry->target) {
		fputs(" -> ", stdout);
		print_name(entry->target);
	}
	putchar('\n');
}

static int do_ls(struct cli_settings *settings, abox_files *files, const char *path, abox_error **reterr)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;
	abox_file_list *list = NULL;
	bool first = true;
	int r;

	r = abox_files_list(files, path, &list, reterr);
	if (r < 0)
		return r;
	if (settings->json)
		putchar('[');
	while ((r = abox_file_list_next(list, &entry, reterr)) > 0) {
		if (settings->json)
			fputs(first ? "\n  " : ",\n  ", stdout);
		print_entry(&entry, settings->json);
		first = false;
	}
	if (settings->json)
		puts("\n]");
	abox_file_list_free(list);
	return r;
}

static int do_cat(struct cli_settings *settings, abox_files *files, const char *path, abox_error **reterr)
{
	(void)settings;
	return abox_files_read_to(files, path, 0, STDOUT_FILENO, NULL, reterr);
}

static int do_stat(struct cli_settings *settings, abox_files *files, const char *path, abox_error **reterr)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;
	int r = abox_files_stat(files, path, ABOX_FILE_NO_FOLLOW, &entry, reterr);

	if (r < 0)
		return r;
	print_entry(&entry, settings->json);
	if (settings->json)
		putchar('\n');
	return 0;
}

static int do_rm(struct cli_settings *settings, abox_files *files, const char *path, abox_error **reterr)
{
	struct abox_copy_options options = ABOX_COPY_OPTIONS_INIT;

	progress_interruptible();
	options.progress = progress_count;
	options.progress_userdata = (void *)"removing:";
	return abox_files_remove(
		files, path, settings->flag[FLAG_RECURSIVE] ? ABOX_FILE_RECURSIVE : 0, &options, reterr);
}

static int do_mkdir(struct cli_settings *settings, abox_files *files, const char *path, abox_error **reterr)
{
	return abox_files_make_folder(
		files, path, settings->flag[FLAG_PARENTS] ? ABOX_FILE_PARENTS : 0, 0755, reterr);
}

static int do_mv(struct cli_settings *settings, abox_files *files, const char *path, abox_error **reterr)
{
	struct remote to = { 0 };
	const char *target = settings->words[1];
	int r;

	if (remote_parse(target, false, &to))
		target = to.path;
	r = abox_files_rename(files, path, target, settings->flag[FLAG_NEW] ? ABOX_FILE_NEW : 0, reterr);
	remote_clear(&to);
	return r;
}

#define VERB(word, flags)                                                                                    \
	static int run_##word(struct cli_settings *settings)                                                 \
	{                                                                                                    \
		return run_verb(settings, flags, do_##word);                                                 \
	}
VERB(ls, 0)
VERB(cat, 0)
VERB(stat, 0)
VERB(rm, ABOX_FILES_WRITE)
VERB(mkdir, ABOX_FILES_WRITE)
VERB(mv, ABOX_FILES_WRITE)
#undef VERB

static const struct cli_command *const verbs[] = {
	&(const struct cli_command){ .name = "fs ls", .usage = "[--json] ID[:PATH]", .summary = "what is in a folder",
	  .help = "One line each: type, permission bits, user, group, size, name, and where a link points.\n",
	  .words_min = 1, .words_max = 1, .run = run_ls },
	&(const struct cli_command){ .name = "fs cat", .usage = "ID:PATH", .summary = "the content of a file",
	  .help = "A link is followed as long as it stays in the workspace. Only regular files are read.\n",
	  .words_min = 1, .words_max = 1, .run = run_cat },
	&(const struct cli_command){ .name = "fs stat", .usage = "[--json] ID[:PATH]", .summary = "what a path is",
	  .help = "As a line of `fs ls`. A link is looked at itself.\n", .words_min = 1, .words_max = 1, .run = run_stat },
	&(const struct cli_command){ .name = "fs rm", .usage = "[-r] ID:PATH",
	  .summary = "remove a file, link or folder",
	  .help = "A link is removed, never what it leads to. The workspace itself stays.\n", .groups = groups_rm,
	  .words_min = 1, .words_max = 1, .run = run_rm },
	&(const struct cli_command){ .name = "fs mkdir", .usage = "[-p] ID:PATH", .summary = "make a folder",
	  .help = "It belongs to the box's user.\n", .groups = groups_mkdir, .words_min = 1, .words_max = 1,
	  .run = run_mkdir },
	&(const struct cli_command){ .name = "fs mv", .usage = "[-n] ID:PATH PATH",
	  .summary = "give another name or place",
	  .help = "Both lie in the same workspace. What has the new name is replaced. A folder that lies in a layer below cannot be\n"
		  "renamed in one step by a plain user: copy it and remove the old one.\n",
	  .groups = groups_mv, .words_min = 2, .words_max = 2, .run = run_mv },
	NULL,
};

static int run(struct cli_settings *settings)
{
	return cli_run_verb(settings, verbs, "fs", "VERB [OPTIONS] ID:PATH");
}

const struct cli_command cli_fs = {
	.name = "fs",
	.usage = "VERB ...",
	.summary = "look at files of a box or workspace, and put them in order",
	.help =
	"ID is a running box or a workspace that no box runs on, by id or name; PATH lies below its /workspace. `agentbox fs\n"
	"help` lists what can be done; `agentbox cp` copies.\n",
	.words_min = 0,
	.words_max = CLI_WORDS_ANY,
	.stops_at_word = true,
	.run = run,
};
