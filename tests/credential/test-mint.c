/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Providers: what each gives, and that whatever goes wrong is told without the value. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "credential/mint.h"

static const char *const environment[] = { "PATH=/usr/bin:/bin", "TOKEN=from-variable", "BAD=a\nb",
	"EMPTY=", NULL };

static struct slot slot_of(uint32_t kind, const char *source, const char *script)
{
	static const char *const scopes[] = { "contents:read", NULL }, *const none[] = { NULL };
	static const char *argv[] = { "sh", "-c", NULL, NULL };

	argv[2] = script;
	return (struct slot){ .name = "forge",
		.revoke = none,
		.kind = kind,
		.source = source,
		.argv = script ? argv : none,
		.subject = "user:1",
		.resource = "org/repo",
		.audience = "",
		.scopes = scopes,
		.ttl_usec = 600 * USEC_PER_SEC };
}

static void expect_value(const struct slot *slot, const char *value)
{
	struct minted minted = { 0 };
	const char *why = "";

	cr_assert_eq(mint(slot, environment, &minted, &why), 0, "%s", why);
	cr_expect_eq(minted.len, strlen(value));
	cr_expect_eq(memcmp(minted.value, value, minted.len), 0);
	minted_clear(&minted);
	cr_expect_null(minted.value);
}

static void expect_refused(const struct slot *slot, const char *reason)
{
	struct minted minted = { 0 };
	const char *why = "";

	cr_expect_lt(mint(slot, environment, &minted, &why), 0, "%s", reason);
	cr_expect(strstr(why, reason), "'%s' is not '%s'", why, reason);
	cr_expect_null(strstr(why, "SECRET"));
	cr_expect_null(minted.value);
}

/* As in the minter: not each program reads its question. */
static void ignore_pipes(void)
{
	signal(SIGPIPE, SIG_IGN);
}

TestSuite(mint, .init = ignore_pipes);

Test(mint, variable)
{
	struct slot good = slot_of(SLOT_VARIABLE, "TOKEN", NULL), bad = slot_of(SLOT_VARIABLE, "BAD", NULL);
	struct slot empty = slot_of(SLOT_VARIABLE, "EMPTY", NULL),
		    none = slot_of(SLOT_VARIABLE, "TOKE", NULL);

	expect_value(&good, "from-variable");
	expect_refused(&bad, "control character");
	expect_refused(&empty, "empty");
	expect_refused(&none, "no variable");
}

Test(mint, file_is_read_again)
{
	char path[] = "/tmp/agentbox-mint-XXXXXX";
	int fd = mkstemp(path);
	struct slot slot = slot_of(SLOT_FILE, path, NULL), none = slot_of(SLOT_FILE, "/nonexistent/x", NULL);

	cr_assert_eq(write(fd, "first\n", 6), 6);
	expect_value(&slot, "first");
	cr_assert_eq(pwrite(fd, "other\n", 6, 0), 6);
	expect_value(&slot, "other");
	cr_assert_eq(pwrite(fd, "SECRET\nx\n", 9, 0), 9);
	expect_refused(&slot, "control character");
	cr_assert_eq(ftruncate(fd, 1 << 20), 0);
	expect_refused(&slot, "too long");
	expect_refused(&none, "cannot be read");
	unlink(path);
	close(fd);
}

/* The program is told the four questions, and says how long its answer holds. */
Test(mint, program)
{
	struct slot slot = slot_of(SLOT_EXEC, "",
		"grep -q '\"subject\":\"user:1\",\"resource\":\"org/repo\",\"audience\":\"\","
		"\"scopes\":\\[\"contents:read\"\\],\"ttl\":600' && "
		"printf '{\"value\":\"minted\",\"expires_in\":100}'");
	struct minted minted = { 0 };
	const char *why = "";
	uint64_t now = clock_monotonic_usec();

	cr_assert_eq(mint(&slot, environment, &minted, &why), 0, "%s", why);
	cr_expect_eq(memcmp(minted.value, "minted", 6), 0);
	cr_expect_geq(minted.until_usec, now + 85 * USEC_PER_SEC);
	cr_expect_leq(minted.until_usec, clock_monotonic_usec() + 90 * USEC_PER_SEC);
	minted_clear(&minted);
}

/* T13-3: late is bounded elsewhere; failing, expired, with line ends, endless. */
Test(mint, program_that_fails, .timeout = 60)
{
	static const struct {
		const char *script, *reason;
	} rows[] = {
		{ "echo '{\"value\":\"SECRET\"}'; exit 3", "failed" },
		{ "kill -9 $$", "failed" },
		{ "exec /nonexistent/program", "found" },
		{ "echo SECRET", "did not answer with" },
		{ "echo '{\"token\":\"SECRET\"}'", "did not answer with" },
		{ "echo '{\"value\":7}'", "did not answer with" },
		{ "echo '{\"value\":\"SECRET\",\"expires_in\":0}'", "expired" },
		{ "echo '{\"value\":\"SECRET\",\"expires_in\":-5}'", "expired" },
		{ "echo '{\"value\":\"SECRET\",\"expires_in\":\"1h\"}'", "did not answer with" },
		{ "printf %s '{\"value\":\"SECRET\\r\\nX: y\"}'", "control character" },
		{ "echo '{\"value\":\"\"}'", "empty" },
		{ "head -c 1048576 /dev/zero", "too much" },
		{ "printf '{\"value\":\"'; head -c 20000 /dev/zero | tr '\\0' a; printf '\"}'", "too long" },
	};

	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		struct slot slot = slot_of(SLOT_EXEC, "", rows[i].script);

		expect_refused(&slot, rows[i].reason);
	}
}

/* What takes a value back reads it on its input, and nowhere else. */
Test(mint, program_that_revokes)
{
	static const char *revoke[] = { "sh", "-c", NULL, NULL };
	struct slot slot = slot_of(SLOT_EXEC, "", "echo '{\"value\":\"SECRET\"}'");
	struct minted minted = { 0 };
	const char *why = "";

	slot.revoke = revoke;
	cr_assert_eq(mint(&slot, environment, &minted, &why), 0, "%s", why);
	cr_expect(minted.revocable);
	revoke[2] = "read question; case \"$question\" in *'\"name\":\"forge\"'*'\"why\":\"renewed\",\"value\":\"SECRET\"}') "
		    "! env | grep SECRET;; *) exit 1;; esac";
	cr_expect_eq(mint_revoke(&slot, environment, &minted, "renewed", &why), 0, "%s", why);
	cr_expect_lt(mint_revoke(&slot, environment, &minted, "end", &why), 0);
	cr_expect_str_eq(why, "its program failed");
	revoke[2] = "exec /nonexistent/program";
	cr_expect_lt(mint_revoke(&slot, environment, &minted, "end", &why), 0);
	minted_clear(&minted);
	slot.revoke = revoke + 3;
	cr_assert_eq(mint(&slot, environment, &minted, &why), 0, "%s", why);
	cr_expect_not(minted.revocable);
	minted_clear(&minted);
}

/* T13-3: what a harness gives is looked at as every other value is; it may shorten the life, and not lengthen it. */
Test(mint, value_that_was_given)
{
	struct slot slot = slot_of(SLOT_CALLBACK, "", NULL);
	static char large[MINT_VALUE_MAX + 1];
	uint64_t now = clock_monotonic_usec();
	struct minted minted = { 0 };
	const char *why = "";

	memset(large, 'x', sizeof(large));
	cr_assert_eq(mint_given(&slot, "given", 5, 100 * USEC_PER_SEC, &minted, &why), 0, "%s", why);
	cr_expect_geq(minted.until_usec, now + 90 * USEC_PER_SEC);
	cr_expect_lt(minted.until_usec, now + 100 * USEC_PER_SEC);
	minted_clear(&minted);
	cr_assert_eq(mint_given(&slot, large, MINT_VALUE_MAX, 86400 * USEC_PER_SEC, &minted, &why), 0, "%s", why);
	cr_expect_lt(minted.until_usec, clock_monotonic_usec() + 600 * USEC_PER_SEC);
	minted_clear(&minted);
	cr_expect_lt(mint_given(&slot, large, sizeof(large), 0, &minted, &why), 0);
	cr_expect_lt(mint_given(&slot, "a\r\nb", 4, 0, &minted, &why), 0);
	cr_expect_lt(mint_given(&slot, "", 0, 0, &minted, &why), 0);
	cr_expect_null(minted.value);
}

Test(mint, slots_come_back_as_they_went)
{
	static const char text[] =
		"{\"version\":1,\"credentials\":[{\"name\":\"forge\",\"provider\":{\"kind\":\"exec\",\"argv\":[\"a\",\"b\"],\"revoke\":[\"c\"]},"
		"\"subject\":\"s\",\"resource\":\"r\",\"audience\":\"u\",\"scopes\":[\"x\",\"y\"],\"ttl\":\"5m\"},"
		"{\"name\":\"plain\",\"provider\":{\"kind\":\"env\",\"variable\":\"TOKEN\"}},"
		"{\"name\":\"asked\",\"provider\":{\"kind\":\"callback\"}}]}";
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct pack_reader reader;
	abox_spec *spec = NULL;
	struct slot *slots;
	size_t n;

	cr_assert_eq(abox_spec_from_json(text, &spec, NULL), 0);
	cr_assert_eq(slots_pack(spec, &writer), 0);
	abox_spec_unref(spec);
	reader = PACK_READER(writer.data, writer.len);
	slots = slots_unpack(&reader, &n);
	cr_assert_not_null(slots);
	cr_assert_eq(n, 3);
	cr_expect_str_eq(slots[0].revoke[0], "c");
	cr_expect_null(slots[0].revoke[1]);
	cr_expect_eq(slots[2].kind, SLOT_CALLBACK);
	cr_expect_str_eq(slots[0].argv[1], "b");
	cr_expect_str_eq(slots[0].scopes[1], "y");
	cr_expect_eq(slots[0].ttl_usec, 300 * USEC_PER_SEC);
	cr_expect_str_eq(slots[1].source, "TOKEN");
	slots_free(slots, n);
	for (size_t len = 0; len < writer.len; len++) {
		reader = PACK_READER(writer.data, len);
		cr_expect_null(slots_unpack(&reader, &n), "%zu", len);
	}
}
