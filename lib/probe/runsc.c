/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * runsc, looked at: which release, which flags, which platform. Promises that nothing is asked of a release that does not
 * have it, and that a known defect has a name. Nothing is started but runsc itself, with two commands that only print.
 */
#include "probe/runsc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/strings.h"
#include "kernel/pidfd.h"
#include "kernel/spawn.h"
#include "probe/verdict.h"

#define ANSWER_USEC (10 * USEC_PER_SEC)
#define ANSWER_BYTES 65536
#define OLDEST_RELEASE 20221201	/* what is older was never tried */
#define AUTOMOUNT_RELEASE 20240101	/* from here on the flag is taken to be known */

#define VERDICT_NAME "runsc"	/* file of the cache folder */
#define VERDICT_TEXT 160
#define WORKS "works"

static const char *const platforms[] = { [RUNSC_KVM] = "kvm", [RUNSC_SYSTRAP] = "systrap", [RUNSC_PTRACE] = "ptrace" };

static const char *const places[] = { "/usr/bin/runsc", "/usr/local/bin/runsc", "/usr/local/sbin/runsc", "/usr/sbin/runsc" };

static int block(struct runsc_facts *facts, const char *blocker, const char *remedy)
{
	snprintf(facts->blocker, sizeof(facts->blocker), "%s", blocker);
	snprintf(facts->remedy, sizeof(facts->remedy), "%s", remedy);
	return 0;
}

/* Security: it runs with the rights of the caller, so nobody else may have written it. */
static bool is_trusted(const struct stat *st)
{
	return S_ISREG(st->st_mode) && (st->st_uid == 0 || st->st_uid == geteuid()) && !(st->st_mode & (S_IWGRP | S_IWOTH)) &&
		(st->st_mode & 0111);
}

static bool find(struct runsc_facts *facts, struct stat *retst)
{
	const char *wish = getenv("ABOX_RUNSC");

	for (size_t i = 0; i < (wish ? 1 : ELEMENTSOF(places)); i++) {
		char real[PATH_MAX];

		if (!realpath(wish ? wish : places[i], real) || stat(real, retst) < 0)
			continue;
		snprintf(facts->path, sizeof(facts->path), "%s", real);
		if (is_trusted(retst))
			return true;
		block(facts, "runsc belongs to somebody else, or others may write it", "chown root and chmod 755 it");
		return false;
	}
	block(facts, wish ? "there is no runsc where ABOX_RUNSC points to" : "runsc is not installed",
		wish ? "let ABOX_RUNSC name the program" : "install the package runsc, or set ABOX_RUNSC to the program");
	return false;
}

static size_t read_until(int fd, char *text, size_t size, uint64_t deadline)
{
	size_t len = 0;

	while (len + 1 < size) {
		struct pollfd entry = { .fd = fd, .events = POLLIN };
		uint64_t now = clock_monotonic_usec();
		ssize_t n;

		if (now >= deadline || poll(&entry, 1, clock_poll_msec(now, deadline)) < 0)
			break;
		n = entry.revents ? read(fd, text + len, size - 1 - len) : 0;
		if (n <= 0 && entry.revents)
			break;
		len += (size_t)MAX(n, 0);
	}
	text[len] = 0;
	return len;
}

/* What it prints for --version and flags, through a shell, since helpers have no output of their own. */
static int ask(const char *path, char *text, size_t size, abox_error **reterr)
{
	const char *argv[] = { "sh", "-c", "\"$0\" --version >&3 2>&3; \"$0\" flags >&3 2>&3", path, NULL };
	_cleanup_(fd_closep) int shell_fd = open("/bin/sh", O_PATH | O_CLOEXEC), pidfd = -EBADF;
	int pair[2], r;

	text[0] = 0;
	if (shell_fd < 0)
		return 0;
	if (pipe2(pair, O_CLOEXEC) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_PROBE, "runsc", errno, "no pipe for its answer");
	r = spawn_helper(&(struct spawn_request){ .program_fd = shell_fd, .argv = argv, .fds = &pair[1], .n_fds = 1,
				 .stage = ABOX_STAGE_PROBE }, &pidfd, &(pid_t){ 0 }, reterr);
	fd_close(pair[1]);
	if (r == 0) {
		read_until(pair[0], text, size, clock_deadline(clock_monotonic_usec(), ANSWER_USEC));
		pidfd_signal(pidfd, SIGKILL);	/* it has ended, or will not */
	}
	fd_close(pair[0]);
	return r;
}

static bool has_flag(const char *text, const char *name)
{
	char line[64];

	snprintf(line, sizeof(line), "\n  -%s", name);
	for (const char *at = strstr(text, line); at; at = strstr(at + 1, line)) {
		char next = at[strlen(line)];

		if (next == '\n' || next == ' ' || next == '\t')
			return true;
	}
	return false;
}

/* The number of a release, YYYYMMDD, wherever it stands in the version: "release-20230102.0", "0.0~20221219.0". */
static long release_of(const char *version)
{
	for (const char *at = version; *at; at++) {
		if (strspn(at, "0123456789") >= 8)
			return strtol((char[9]){ at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], 0 }, NULL, 10);
		at += strspn(at, "0123456789");
		if (!*at)
			break;
	}
	return 0;
}

static bool ptrace_is_off(void)
{
	_cleanup_(freep) char *text = NULL;

	return file_read_text(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", 64, &text, NULL) == 0 && atoi(text) >= 3;
}

static void find_platforms(struct runsc_facts *facts, const char *text)
{
	const char *line = strstr(text, "specifies which platform to use");
	size_t len = line ? strcspn(line, "\n") : 0;

	for (size_t i = 0; i < RUNSC_PLATFORMS; i++)
		facts->platforms[i] = line && memmem(line, len, platforms[i], strlen(platforms[i]));
	/* which all releases had before others were listed */
	facts->platforms[RUNSC_PTRACE] |= !facts->platforms[RUNSC_SYSTRAP];
}

static void judge(struct runsc_facts *facts, const char *text)
{
	long release;

	if (sscanf(text, "runsc version %63s", facts->version) != 1) {
		block(facts, "runsc does not run here", "try `runsc --version`");
		return;
	}
	release = release_of(facts->version);
	if (release && release < OLDEST_RELEASE) {
		block(facts, "this runsc is older than December 2022", "install a newer one");
		return;
	}
	if (!has_flag(text, "platform") || !has_flag(text, "ignore-cgroups") || !has_flag(text, "file-access")) {
		block(facts, "this runsc lacks flags that are needed", "install the runsc of a gVisor release");
		return;
	}
	if (ptrace_is_off()) {
		block(facts, "kernel.yama.ptrace_scope is 3: nothing may be traced", "boot with another kernel.yama.ptrace_scope");
		return;
	}
	facts->has_overlay2 = has_flag(text, "overlay2");
	facts->has_directfs = has_flag(text, "directfs");
	facts->has_host_uds = has_flag(text, "host-uds");
	facts->no_automount = !release || release < AUTOMOUNT_RELEASE;
	find_platforms(facts, text);
}

/* -- which platform -- */

static void make_key(const struct stat *st, struct runsc_facts *facts)
{
	_cleanup_(freep) char *boot = NULL;
	int len;

	facts->key[0] = 0;
	if (strchr(facts->path, '\n') || file_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL) < 0)
		return;
	len = snprintf(facts->key, sizeof(facts->key), "1 %.36s %u %s %llu:%llu %llu %lld.%09ld", boot, geteuid(), facts->path,
		(unsigned long long)st->st_dev, (unsigned long long)st->st_ino, (unsigned long long)st->st_size,
		(long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	if (len < 0 || (size_t)len >= sizeof(facts->key))
		facts->key[0] = 0;
}

/* What is kept of each: "" where nothing is. */
static void recall(const struct runsc_facts *facts, char ret[RUNSC_PLATFORMS][VERDICT_TEXT])
{
	char text[VERDICT_BYTES], *line, *next;
	size_t len = strlen(facts->key);

	memset(ret, 0, RUNSC_PLATFORMS * VERDICT_TEXT);
	if (!len || !verdict_read_file(VERDICT_NAME, text) || strncmp(text, facts->key, len) != 0 || text[len] != '\n')
		return;
	for (line = text + len + 1; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = 0;
		for (size_t i = 0; i < RUNSC_PLATFORMS; i++) {
			size_t name = strlen(platforms[i]);

			if (strncmp(line, platforms[i], name) == 0 && line[name] == ' ')
				snprintf(ret[i], VERDICT_TEXT, "%s", line + name + 1);
		}
	}
}

/* runsc is nobody of the host's in its namespaces. */
static const char *kvm_trouble(void)
{
	struct stat st;

	if (stat("/dev/kvm", &st) < 0)
		return "there is no /dev/kvm";
	return (st.st_mode & (S_IROTH | S_IWOTH)) == (S_IROTH | S_IWOTH) ? NULL : "/dev/kvm is not open to everybody";
}

static const char *trouble_of(size_t platform, const char *kept)
{
	const char *trouble = platform == RUNSC_KVM ? kvm_trouble() : NULL;

	if (trouble)
		return trouble;
	if (strcmp(kept, WORKS) == 0)
		return NULL;
	if (kept[0])
		return kept;
	return platform == RUNSC_KVM ? "not tried" : NULL;
}

static void add_choice(struct runsc_facts *facts, const char *name, const char *text)
{
	size_t len = strlen(facts->choice);

	snprintf(facts->choice + len, sizeof(facts->choice) - len, "%s%s: %s", len ? "; " : "", name, text);
}

/* The one that is asked for by name; else the first that may do; and if all have failed the last, which needs least. */
static void choose(struct runsc_facts *facts)
{
	const char *wish = getenv("ABOX_RUNSC_PLATFORM");
	char kept[RUNSC_PLATFORMS][VERDICT_TEXT];

	recall(facts, kept);
	facts->choice[0] = facts->platform[0] = 0;
	for (size_t i = 0; i < RUNSC_PLATFORMS && !facts->platform[0]; i++) {
		const char *trouble = trouble_of(i, kept[i]);
		bool last = i == RUNSC_PTRACE || (i == RUNSC_SYSTRAP && !facts->platforms[RUNSC_PTRACE]);

		if (!facts->platforms[i] || (wish && strcmp(wish, platforms[i]) != 0))
			continue;
		if (wish && i == RUNSC_KVM && kvm_trouble()) {
			block(facts, kvm_trouble(), "unset ABOX_RUNSC_PLATFORM, or chmod 666 /dev/kvm");
			return;
		}
		if (wish || !trouble || last)
			snprintf(facts->platform, sizeof(facts->platform), "%s", platforms[i]);
		if (wish)
			add_choice(facts, platforms[i], "named by ABOX_RUNSC_PLATFORM");
		else if (trouble)
			add_choice(facts, platforms[i], trouble);
		else
			add_choice(facts, platforms[i], kept[i][0] ? "has worked" : "not tried yet");
	}
	if (!facts->platform[0])
		block(facts, "this runsc does not have the platform that ABOX_RUNSC_PLATFORM names", "unset ABOX_RUNSC_PLATFORM");
}

void runsc_facts_tell(const struct runsc_facts *facts, const char *trouble)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	char kept[RUNSC_PLATFORMS][VERDICT_TEXT];

	if (!facts->key[0])
		return;
	recall(facts, kept);
	text_printf(&text, "%s\n", facts->key);
	for (size_t i = 0; i < RUNSC_PLATFORMS; i++) {
		bool is_it = strcmp(platforms[i], facts->platform) == 0;

		if (is_it && (strcmp(kept[i], WORKS) == 0 || (trouble && strcmp(kept[i], trouble) == 0)))
			return;	/* known, or not believed */
		if (is_it)
			snprintf(kept[i], VERDICT_TEXT, "%s", trouble ? trouble : WORKS);
		kept[i][strcspn(kept[i], "\n")] = 0;
		if (kept[i][0])
			text_printf(&text, "%s %s\n", platforms[i], kept[i]);
	}
	if (!text.failed)
		verdict_write_file(VERDICT_NAME, text.data, text.len);
}

int runsc_facts_read(const struct host_facts *facts, struct runsc_facts *ret, abox_error **reterr)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct runsc_facts known;
	static struct stat known_st;
	_cleanup_(freep) char *text = NULL;
	struct stat st;
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	if (facts->blocker[0])
		return block(ret, facts->blocker, facts->remedy);
	if (!find(ret, &st))
		return 0;
	pthread_mutex_lock(&lock);
	if (strcmp(known.path, ret->path) == 0 && known_st.st_ino == st.st_ino && known_st.st_size == st.st_size &&
		known_st.st_mtim.tv_sec == st.st_mtim.tv_sec && known_st.st_mtim.tv_nsec == st.st_mtim.tv_nsec) {
		*ret = known;
		pthread_mutex_unlock(&lock);
		if (!ret->blocker[0])
			choose(ret);
		return 0;
	}
	text = malloc(ANSWER_BYTES);
	r = text ? ask(ret->path, text, ANSWER_BYTES, reterr) : ABOX_E_MEMORY;
	if (r == 0) {
		judge(ret, text);
		make_key(&st, ret);
		known = *ret;
		known_st = st;
	}
	pthread_mutex_unlock(&lock);
	if (r == 0 && !ret->blocker[0])
		choose(ret);
	return r;
}
