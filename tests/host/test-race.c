/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * T1-9: while boxes start, somebody else puts links in the place of what is mounted, of where it is mounted and
 * of what is masked. A start may be refused; a box that stands shows what was granted, where it was granted.
 *
 * The links are exchanged with the real thing without a pause, so both are met; that is counted, and so is that
 * a look-up without our care is led astray.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

#define SECRET "SECRET-OF-THE-HOST"

static char base[1024];

static int starts(void)
{
	return is_long() ? 1000 : 200;
}

static char *at(const char *format, ...)
{
	static char paths[4][2048];
	static int next;
	char *path = paths[next++ % 4];
	int n = snprintf(path, sizeof(paths[0]), "%s/", base);
	va_list args;

	va_start(args, format);
	vsnprintf(path + n, sizeof(paths[0]) - (size_t)n, format, args);
	va_end(args);
	return path;
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* Whether it holds that text, all of it and nothing else. */
static bool holds(const char *path, const char *text)
{
	char buffer[256];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buffer, sizeof(buffer));

	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text) && memcmp(buffer, text, (size_t)n) == 0;
}

/* vol is what the box gets parts of, beside each part its link; out is what it must not get. */
static void make_places(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(base, sizeof(base), "%s/race-XXXXXX", tmp ? tmp : "/tmp");
	cr_assert_not_null(mkdtemp(base), "%s: %s", base, strerror(errno));
	cr_assert_eq(chmod(base, 0755), 0);
	for (const char *const *name = (const char *const[]){ "out", "data", "vol", "vol/folder", "vol/tree",
				    "vol/tree/sub", NULL };
		*name; name++)
		cr_assert_eq(mkdir(at("%s", *name), 0755), 0, "%s", *name);
	put(at("out/secret"), SECRET);
	put(at("data/data"), "data");
	put(at("vol/folder/mark"), "mark");
	put(at("vol/file"), "mark");
	cr_assert_eq(symlink(at("out"), at("vol/folder-link")), 0);
	cr_assert_eq(symlink(at("out/secret"), at("vol/file-link")), 0);
	cr_assert_eq(symlink("/home", at("vol/tree/sub-link")), 0);
}

static void remove_places(void)
{
	char text[4096];

	cr_expect_eq(program_run((const char *const[]){ "/bin/rm", "-rf", base, NULL }, NULL, 60, text, sizeof(text)), 0,
		"%s", text);
}

/* -- the racer -- */

struct pair {
	char real[2048], link[2048];
};

static void exchange(const struct pair *pair)
{
	syscall(SYS_renameat2, AT_FDCWD, pair->real, AT_FDCWD, pair->link, RENAME_EXCHANGE);
}

static pid_t racer_start(const struct pair *pairs, size_t n, volatile unsigned long *count)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		for (size_t i = 0; i < n; i++)
			exchange(&pairs[i]);
		++*count;
	}
}

static unsigned long *shared_count(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(page, MAP_FAILED);
	return page;
}

static void racer_stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* -- one start -- */

enum { FOLDER, FILE_, TARGET, N_PLANS };

/* What each plan grants, and what a box that stands looks at. It writes as well: into what it was given. */
static const char *const looks[N_PLANS] = {
	"cat /given/mark /given/secret 2>/dev/null; echo x >/given/written",
	"cat /given; echo x >>/given",
	"cat /tree/sub/data; ls -d /home/data 2>/dev/null",
};

static abox_plan *plan_for(int which)
{
	char spec[8192];
	int n = snprintf(spec, sizeof(spec), "{\"version\": 1, \"mounts\": [");

	if (which == TARGET)
		n += snprintf(spec + n, sizeof(spec) - (size_t)n,
			"{\"source\": \"%s\", \"target\": \"/tree\", \"mode\": \"rw\"},"
			"{\"source\": \"%s\", \"target\": \"/tree/sub\", \"mode\": \"ro\"}]}",
			at("vol/tree"), at("data"));
	else
		n += snprintf(spec + n, sizeof(spec) - (size_t)n,
			"{\"source\": \"%s\", \"target\": \"/given\", \"mode\": \"rw\"}]}",
			at(which == FOLDER ? "vol/folder" : "vol/file"));
	cr_assert_lt((size_t)n, sizeof(spec));
	return plan_of(spec);
}

struct tally {
	int stood, whole, refused, astray;
};

static void start_once(abox_plan *plan, int which, struct tally *tally)
{
	static const char *const wanted[N_PLANS] = { "mark", "mark", "data" };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT,
		.argv = (const char *const[]){ "sh", "-c", looks[which], NULL } };
	abox_sandbox *box = NULL;
	abox_result *result = NULL;
	abox_error *err = NULL;
	int r = abox_sandbox_start(plan, NULL, &box, &err);

	if (r < 0) {
		cr_expect(r == ABOX_E_NOT_FOUND || r == ABOX_E_SYSTEM, "a refusal of another kind: %s: %s",
			abox_code_name(r), abox_error_get_message(err));
		abox_error_free(err);
		tally->refused++;
		return;
	}
	r = abox_command_run(box, &options, &result, NULL);
	cr_assert_geq(r, 0, "%s", abox_code_name(r));
	/* a mount point that is moved afterwards takes its mount with it, or loses it when it is removed */
	cr_expect(strncmp(output_of(result, 1), wanted[which], 4) == 0 || which == TARGET, "the box sees '%s'",
		output_of(result, 1));
	tally->whole += strncmp(output_of(result, 1), wanted[which], 4) == 0;
	cr_expect_null(strstr(output_of(result, 1), SECRET));
	cr_expect_null(strstr(output_of(result, 1), "/home/data"), "mounted at another place");
	abox_result_unref(result);
	cr_expect_geq(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL), 0);
	abox_sandbox_unref(box);
	tally->stood++;
}

/* The control: who looks by name alone does get out. */
static bool goes_astray(int which)
{
	struct stat st;

	if (which == TARGET)
		return lstat(at("vol/tree/sub"), &st) == 0 && S_ISLNK(st.st_mode);
	return holds(at(which == FOLDER ? "vol/folder/secret" : "vol/file"), SECRET);
}

/* Nothing was written outside, and no mount point was made in what belongs to the host. */
static void check_places(void)
{
	struct stat st;

	cr_expect(holds(at("out/secret"), SECRET), "the secret was written to");
	cr_expect_eq(lstat(at("out/written"), &st), -1, "something was written outside");
	cr_expect_eq(lstat(at("out/data"), &st), -1);
	cr_expect(holds(at("data/data"), "data"));
}

/* What a race must have met to say anything. */
static bool met(const struct tally *tally, bool both)
{
	return tally->whole > 0 && tally->astray > 0 && (!both || tally->refused > 0);
}

static bool all_met(const struct tally *tallies, bool both)
{
	for (int which = 0; which < N_PLANS; which++)
		if (!met(&tallies[which], both))
			return false;
	return true;
}

/* A racer that was seldom let run is raced on with. */
static void race(abox_plan *const *plans, struct tally *tallies, bool both)
{
	for (int i = 0; i < starts() || (!all_met(tallies, both) && i < 20 * starts()); i++) {
		int which = i % N_PLANS;

		for (int look = 0; look < 50 && !tallies[which].astray; look++)
			tallies[which].astray += goes_astray(which);
		start_once(plans[which], which, &tallies[which]);
		check_places();
	}
}

static void check_tallies(const struct tally *tallies, bool both)
{
	for (int which = 0; which < N_PLANS; which++) {
		cr_log_info("%d: stood %d, refused %d", which, tallies[which].stood, tallies[which].refused);
		cr_expect_gt(tallies[which].whole, 0, "%d: no box ever showed what was granted", which);
		cr_expect_gt(tallies[which].astray, 0, "%d: the link was never met", which);
		if (both)
			cr_expect_gt(tallies[which].refused, 0, "%d: no start met the link", which);
	}
}

/* T1-9: by another process, as fast as it can. */
Test(race, T1_9_links_exchanged_by_a_process, .timeout = 600)
{
	struct leaks *before = leaks_take();
	volatile unsigned long *count = shared_count();
	struct tally tallies[N_PLANS] = { { 0 } };
	abox_plan *plans[N_PLANS];
	struct pair pairs[N_PLANS];
	pid_t racer;

	make_places();
	for (int which = 0; which < N_PLANS; which++) {
		static const char *const names[N_PLANS] = { "vol/folder", "vol/file", "vol/tree/sub" };

		plans[which] = plan_for(which);
		snprintf(pairs[which].real, sizeof(pairs[which].real), "%s", at("%s", names[which]));
		snprintf(pairs[which].link, sizeof(pairs[which].link), "%s", at("%s-link", names[which]));
	}
	racer = racer_start(pairs, N_PLANS, count);
	race(plans, tallies, true);
	racer_stop(racer);
	cr_expect_gt(*count, (unsigned long)starts());
	check_tallies(tallies, true);
	for (int which = 0; which < N_PLANS; which++)
		abox_plan_unref(plans[which]);
	munmap((void *)count, 4096);
	remove_places();
	assert_no_leaks(before);
}

/* T1-9: by a command in another box that was given the volume for writing. Between its steps the name is not there
 * at all, so what makes a missing mount point is met, too. */
Test(race, T1_9_links_put_by_another_box, .timeout = 600)
{
	struct leaks *before = leaks_take();
	struct tally tallies[N_PLANS] = { { 0 } };
	char spec[4096], script[8192];
	abox_plan *plans[N_PLANS];
	abox_sandbox *other;
	abox_command *racer;

	make_places();
	for (int which = 0; which < N_PLANS; which++)
		plans[which] = plan_for(which);
	snprintf(spec, sizeof(spec),
		"{\"version\": 1, \"mounts\": [{\"source\": \"%s\", \"target\": \"/vol\", \"mode\": \"rw\"}],"
		"\"limits\": {\"wall\": \"1h\"}}",
		at("vol"));
	snprintf(script, sizeof(script),
		"cd /vol; swap() { mv -T $1 $1-kept; cp -P $1-link $1; rm -f $1; mv -T $1-kept $1; };"
		"while :; do swap folder; swap file; swap tree/sub; done");
	other = box_of(spec);
	racer = start_words(other, "sh", "-c", script);
	race(plans, tallies, false);
	abox_command_unref(racer);
	stop_box(other);
	check_tallies(tallies, false);
	for (int which = 0; which < N_PLANS; which++)
		abox_plan_unref(plans[which]);
	remove_places();
	assert_no_leaks(before);
}

/* -- devices -- */

/* The device nodes of a box are the host's, looked at again: its /dev/null is raced in a /dev of our own. */
static int race_device(void *argument)
{
	struct pair pair = { "/dev/null", "/dev/null-link" };
	volatile unsigned long *count =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int stood = 0, refused = 0;
	abox_plan *plan = NULL;
	pid_t racer;

	apart_check(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	apart_check(mount("dev", "/dev", "tmpfs", MS_NOSUID, "mode=0755") == 0);
	for (unsigned int minor = 3; minor <= 9; minor++) {
		static const char *const names[] = { "null", "", "zero", "", "full", "random", "urandom" };
		char path[32];

		snprintf(path, sizeof(path), "/dev/%s", names[minor - 3]);
		if (names[minor - 3][0])
			apart_check(mknod(path, S_IFCHR | 0666, makedev(1, minor)) == 0 && chmod(path, 0666) == 0);
	}
	apart_check(mknod("/dev/tty", S_IFCHR | 0666, makedev(5, 0)) == 0);
	apart_check(symlink(at("out/secret"), pair.link) == 0 && count != MAP_FAILED);
	apart_check(try_plan("{\"version\": 1}", &plan) >= 0);
	racer = racer_start(&pair, 1, count);
	for (int i = 0; i < starts() / 2; i++) {
		/* the box is not root on the host: for writing, the secret would have to be its own */
		static const char *const words[] = { "sh", "-c",
			"! grep -q . /dev/null && echo x >/dev/null && test -c /dev/null", NULL };
		abox_sandbox *box = NULL;
		int r = abox_sandbox_start(plan, NULL, &box, NULL), code = -1;

		if (r < 0) {
			refused++;
			continue;
		}
		stood++;
		apart_check(try_run(box, words, &code) >= 0 && code == 0);
		apart_check(abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL) >= 0);
		abox_sandbox_unref(box);
		apart_check(holds(at("out/secret"), SECRET));
	}
	racer_stop(racer);
	abox_plan_unref(plan);
	apart_say("stood %d, refused %d, exchanges %lu", stood, refused, *count);
	return stood > 0 && refused > 0 && *count > 0 ? 0 : 1;
}

/* T1-9: what a box gets as /dev/null is that device or there is no box. */
Test(race, T1_9_device_replaced_by_a_link, .timeout = 600)
{
	needs("root");
	make_places();
	assert_apart(race_device, NULL, 500);
	remove_places();
}
