/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What would run on the host: paths that programs of the host execute, or take orders from, as soon as
 * somebody works in the folder (git, a shell, an editor, an agent). It is a table of names, an eye for the
 * rights of files and for repositories that hide in sub-folders, and a list of the keys of a git config that
 * name programs.
 *
 * It warns; it does not promise completeness: any source file runs once somebody builds it.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "workspace/changes.h"

#define CONFIG_MAX (1024 * 1024)

static const struct {
	const char *pattern;
	const char *risk;
} table[] = {
	{"**/.git/hooks/**", "git-hook"},
	{"**/.git/modules/**/hooks/**", "git-hook"},
	{"**/.git/worktrees/**/config.worktree", "git-config"},
	{"**/.githooks/**", "git-hook"},
	{"**/.husky/**", "git-hook"},
	{"**/.pre-commit-config.yaml", "git-hook"},
	{"**/.git/config", "git-config"},
	{"**/.git/config.worktree", "git-config"},
	{"**/.git/modules/**/config", "git-config"},
	{"**/.git/info/attributes", "git-config"},
	{"**/.git/commondir", "git-link"},
	{"**/.git/objects/info/alternates", "git-link"},
	{"**/.gitconfig", "git-config"},
	{"**/.gitmodules", "git-config"},
	{"**/.bashrc", "shell-start"},
	{"**/.bash_profile", "shell-start"},
	{"**/.bash_login", "shell-start"},
	{"**/.bash_logout", "shell-start"},
	{"**/.bash_aliases", "shell-start"},
	{"**/.profile", "shell-start"},
	{"**/.zshrc", "shell-start"},
	{"**/.zshenv", "shell-start"},
	{"**/.zprofile", "shell-start"},
	{"**/.zlogin", "shell-start"},
	{"**/.zlogout", "shell-start"},
	{"**/.kshrc", "shell-start"},
	{"**/.cshrc", "shell-start"},
	{"**/.tcshrc", "shell-start"},
	{"**/.envrc", "shell-start"},
	{"**/.config/fish/**", "shell-start"},
	{"**/.ssh/**", "shell-start"},
	{"**/.vscode/tasks.json", "editor-task"},
	{"**/.vscode/launch.json", "editor-task"},
	{"**/.vscode/settings.json", "editor-task"},
	{"**/*.code-workspace", "editor-task"},
	{"**/.idea/**", "editor-task"},
	{"**/.zed/**", "editor-task"},
	{"**/.vimrc", "editor-task"},
	{"**/.nvimrc", "editor-task"},
	{"**/.nvim.lua", "editor-task"},
	{"**/.exrc", "editor-task"},
	{"**/.emacs", "editor-task"},
	{"**/.dir-locals.el", "editor-task"},
	{"**/.devcontainer/**", "editor-task"},
	{"**/.devcontainer.json", "editor-task"},
	{"**/.gdbinit", "tool-start"},
	{"**/.lldbinit", "tool-start"},
	{"**/.npmrc", "tool-start"},
	{"**/.yarnrc", "tool-start"},
	{"**/.yarnrc.yml", "tool-start"},
	{"**/.pnpmfile.cjs", "tool-start"},
	{"**/.cargo/config", "tool-start"},
	{"**/.cargo/config.toml", "tool-start"},
	{"**/sitecustomize.py", "tool-start"},
	{"**/usercustomize.py", "tool-start"},
	{"**/.pythonstartup", "tool-start"},
	{"**/*.pth", "tool-start"},
	{"**/.github/workflows/**", "pipeline"},
	{"**/.gitlab-ci.yml", "pipeline"},
	{"**/.mcp.json", "agent-config"},
	{"**/AGENTS.md", "agent-config"},
	/* Folders of tools keep what they run under the same few names. */
	{"**/.[!.]*/settings.json", "agent-config"},
	{"**/.[!.]*/settings.local.json", "agent-config"},
	{"**/.[!.]*/mcp.json", "agent-config"},
	{"**/.[!.]*/hooks.json", "agent-config"},
	{"**/.[!.]*/hooks/**", "agent-config"},
	{"**/.[!.]*/commands/**", "agent-config"},
};

/* Keys that name a program, or another file of settings. `*` stands for any text between the dots. */
static const char *const config_keys[] = {
	"core.fsmonitor",
	"core.hookspath",
	"core.sshcommand",
	"core.gitproxy",
	"core.editor",
	"core.pager",
	"core.askpass",
	"core.attributesfile",
	"core.worktree",
	"core.alternaterefscommand",
	"sequence.editor",
	"gpg.program",
	"gpg.*.program",
	"gpg.ssh.defaultkeycommand",
	"credential.helper",
	"credential.*.helper",
	"diff.external",
	"diff.*.command",
	"diff.*.textconv",
	"filter.*.clean",
	"filter.*.smudge",
	"filter.*.process",
	"merge.*.driver",
	"mergetool.*.cmd",
	"mergetool.*.path",
	"difftool.*.cmd",
	"difftool.*.path",
	"pager.*",
	"alias.*",
	"include.path",
	"includeif.*.path",
	"interactive.difffilter",
	"remote.*.uploadpack",
	"remote.*.receivepack",
	"remote.*.vcs",
	"remote.*.proxy",
	"submodule.*.update",
	"uploadpack.packobjectshook",
	"url.*.insteadof",
	"url.*.pushinsteadof",
	"man.*.cmd",
	"browser.*.cmd",
	"browser.*.path",
	"guitool.*.cmd",
	"trailer.*.command",
	"trailer.*.cmd",
	"web.browser",
	"instaweb.httpd",
	"sendemail.sendmailcmd",
	"sendemail.tocmd",
	"sendemail.cccmd",
	"http.proxy",
	"protocol.*.allow",
	"safe.directory",
};

static void add_risk(struct change *change, const char *risk)
{
	size_t i = 0;

	while (i < RISK_MAX && change->risks[i]) {
		if (strcmp(change->risks[i], risk) == 0)
			return;
		i++;
	}
	if (i < RISK_MAX)
		change->risks[i] = risk;
}

static bool key_matches(const char *pattern, const char *key)
{
	const char *star = strchr(pattern, '*');
	size_t before, after, len = strlen(key);

	if (!star)
		return strcmp(pattern, key) == 0;
	before = (size_t)(star - pattern);
	after = strlen(star + 1);
	return len > before + after && strncmp(pattern, key, before) == 0 &&
	       strcmp(key + len - after, star + 1) == 0;
}

/* "[section "sub"]" to "section.sub", "[section]" to "section"; lower case. */
static void read_section(const char *line, size_t len, char *section, size_t size)
{
	size_t used = 0;

	for (size_t i = 1; i < len && line[i] != ']' && used + 1 < size; i++) {
		if (line[i] == '"' || line[i] == '\\')
			continue;
		section[used++] =
			line[i] == ' ' || line[i] == '\t' ? '.' : (char)tolower((unsigned char)line[i]);
	}
	section[used] = 0;
}

static void note_key(struct text *found, const char *section, const char *line, size_t len)
{
	char key[512];
	size_t used, n = 0;

	while (n < len && (isalnum((unsigned char)line[n]) || line[n] == '-'))
		n++;
	used = strlen(section);
	if (n == 0 || used + n + 2 > sizeof(key))
		return;
	memcpy(key, section, used);
	key[used++] = '.';
	for (size_t i = 0; i < n; i++)
		key[used++] = (char)tolower((unsigned char)line[i]);
	key[used] = 0;
	for (size_t i = 0; i < ELEMENTSOF(config_keys); i++) {
		if (!key_matches(config_keys[i], key))
			continue;
		if (found->len < 4096)
			text_printf(found, "%s%s", found->len ? ", " : "", key);
		return;
	}
}

/* The names of dangerous keys in a git config; the values stay where they are, they may be secrets. */
static void read_config(const char *data, size_t len, struct text *found)
{
	char section[256] = "";

	while (len > 0) {
		const char *end = memchr(data, '\n', len);
		size_t line_len = end ? (size_t)(end - data) : len, skip = 0;

		while (skip < line_len && (data[skip] == ' ' || data[skip] == '\t' || data[skip] == '\r'))
			skip++;
		if (skip < line_len && data[skip] == '[') {
			const char *close = memchr(data + skip, ']', line_len - skip);

			read_section(data + skip, line_len - skip, section, sizeof(section));
			if (close) { /* a key may follow on the same line */
				size_t rest = (size_t)(close + 1 - data);

				while (rest < line_len && (data[rest] == ' ' || data[rest] == '\t'))
					rest++;
				note_key(found, section, data + rest, line_len - rest);
			}
		} else
			note_key(found, section, data + skip, line_len - skip);
		if (!end)
			break;
		len -= line_len + 1;
		data = end + 1;
	}
}

static int classify_config(
	const struct view *now, const struct view_step *step, struct change *change, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	_cleanup_(freep) char *data = NULL;
	struct text found = TEXT_INIT;
	size_t len;
	int r;

	if (change->now.type != ABOX_FILE_REGULAR)
		return 0;
	if (change->now.size_bytes > CONFIG_MAX) {
		change->detail = strdup("too long to be looked at");
		return change->detail ? 0 : ABOX_E_MEMORY;
	}
	r = view_open_file(now, step->now_dir, step->name, &step->now, &fd);
	if (r >= 0)
		r = fd_read_text(fd, CONFIG_MAX, &data, &len);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_IO, ABOX_STAGE_WORKSPACE, step->path, -r, "cannot read the file");
	read_config(data, len, &found);
	if (!found.len && !found.failed)
		return 0;
	return text_take(&found, &change->detail);
}

static bool has(const struct view *now, const struct view_dir *dir, const char *name)
{
	struct view_entry entry;

	return view_lookup(now, dir, name, &entry) >= 0 && entry.st.st_mode != 0;
}

/* A folder with HEAD and config, or HEAD, objects and refs, is a repository to git, whatever it is called. */
static bool is_bare_repository(const struct view *now, const struct view_step *step)
{
	static const char *const names[] = {"HEAD", "config", "objects", "refs", "hooks", "commondir"};
	bool named = false;

	for (size_t i = 0; i < ELEMENTSOF(names); i++)
		named |= strcmp(step->name, names[i]) == 0;
	if (!named || pattern_match("**/.git", step->path) || !has(now, step->now_dir, "HEAD"))
		return false;
	return has(now, step->now_dir, "config") ||
	       (has(now, step->now_dir, "objects") && has(now, step->now_dir, "refs"));
}

/* True for a target that may lead out of the workspace: absolute, or with more `..` than folders above it. */
static bool leads_out(const char *path, const char *target)
{
	int depth = 0;

	if (target[0] == '/')
		return true;
	for (; *path; path++)
		depth += *path == '/';
	while (*target) {
		size_t len = strcspn(target, "/");

		if (len == 2 && target[0] == '.' && target[1] == '.')
			depth--;
		else if (len > 0 && !(len == 1 && target[0] == '.'))
			depth++;
		if (depth < 0)
			return true;
		target += len;
		target += *target == '/';
	}
	return false;
}

int risk_classify(
	const struct view *now, const struct view_step *step, struct change *change, abox_error **reterr)
{
	int r = 0;

	if (change->now.type == ABOX_FILE_NONE)
		return 0; /* what is gone runs no more */
	if (strcmp(step->name, ".git") == 0 && change->now.type != ABOX_FILE_FOLDER)
		add_risk(change, "git-link");
	if (change->now.type != ABOX_FILE_FOLDER) {
		for (size_t i = 0; i < ELEMENTSOF(table); i++) {
			if (!pattern_match(table[i].pattern, step->path))
				continue;
			add_risk(change, table[i].risk);
			break;
		}
	}
	if (change->risks[0] && strcmp(change->risks[0], "git-config") == 0)
		r = classify_config(now, step, change, reterr);
	if (r >= 0 && is_bare_repository(now, step)) {
		add_risk(change, "bare-repository");
		if (!change->detail && strcmp(step->name, "config") == 0)
			r = classify_config(now, step, change, reterr);
	}
	if (change->now.type == ABOX_FILE_REGULAR && (change->now.mode & 06000))
		add_risk(change, "set-id");
	if (change->now.type == ABOX_FILE_REGULAR && (change->now.mode & 0111))
		add_risk(change, "executable");
	if (change->now.type == ABOX_FILE_LINK && leads_out(step->path, change->now.target))
		add_risk(change, "link-outside");
	return r;
}
