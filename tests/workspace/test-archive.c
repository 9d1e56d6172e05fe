/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/strings.h"
#include "support.h"
#include "workspace/archive.h"
#include "workspace/changes.h"

static struct scene scene;
static int low = -EBADF, top = -EBADF, out = -EBADF;
static struct view_layer layers[2];
static const struct view view = {layers, 2};
static struct layer_ids ids;
static struct archive_lost lost;
static abox_error *error;
static char digest[DIGEST_TEXT_BYTES];

static void set_up(void)
{
	cr_assert_eq(scene_begin(&scene), 0);
	low = make_root(&scene, "low");
	top = make_root(&scene, "top");
	out = make_root(&scene, "out");
	cr_assert(low >= 0 && top >= 0 && out >= 0);
	layers[0] = (struct view_layer){top, VIEW_USER, true};
	layers[1] = (struct view_layer){low, VIEW_PLAIN, true};
	layer_ids_of_process(geteuid(), getegid(), &ids);
	lost = (struct archive_lost){0};
}

static void tear_down(void)
{
	archive_lost_clear(&lost);
	error = abox_error_free(error);
	fd_close(low);
	fd_close(top);
	fd_close(out);
	scene_end(&scene);
}

static int open_file(const char *name, int flags)
{
	int fd = openat(scene.fd, name, flags | O_CLOEXEC, 0644);

	cr_assert_geq(fd, 0, "%s: %s", name, strerror(errno));
	return fd;
}

static int export_to(const char *name, const struct scan_rules *rules)
{
	_cleanup_(fd_closep) int fd = open_file(name, O_WRONLY | O_CREAT | O_TRUNC);

	error = abox_error_free(error);
	archive_lost_clear(&lost);
	return archive_export(&view, &ids, rules, fd, &lost, digest, &error);
}

static void empty_out(void)
{
	fd_close(out);
	path_remove_tree(scene.fd, "out");
	out = make_root(&scene, "out");
	cr_assert_geq(out, 0);
}

static int import_from(const char *name, const char *expected, const struct archive_bounds *bounds)
{
	_cleanup_(fd_closep) int fd = open_file(name, O_RDONLY);

	error = abox_error_free(error);
	archive_lost_clear(&lost);
	empty_out();
	return archive_import(fd, out, &ids, bounds, expected, &lost, digest, &error);
}

static int extract_from(const char *name, const struct archive_bounds *bounds)
{
	_cleanup_(fd_closep) int fd = open_file(name, O_RDONLY);

	error = abox_error_free(error);
	archive_lost_clear(&lost);
	empty_out();
	return archive_extract(fd, out, &ids, bounds, &lost, &error);
}

static bool same_files(const char *a, const char *b)
{
	char command[256];

	snprintf(command, sizeof(command), "cmp -s %s/%s %s/%s", scene.path, a, scene.path, b);
	return system(command) == 0;
}

static void put_xattr(int dir_fd, const char *path, const char *name, const char *value)
{
	_cleanup_(fd_closep) int fd = openat(dir_fd, path, O_RDONLY | O_NONBLOCK);

	cr_assert_eq(fsetxattr(fd, name, value, strlen(value), 0), 0, "%s", strerror(errno));
}

/* A tree with everything that an archive can carry. */
static void make_rich_tree(void)
{
	char name[256], target[301];
	int fd;

	put(low, "plain", "text\n");
	put(low, "deleted", "x");
	put_whiteout(top, "deleted");
	put(top, ".wh.foo", "no deletion");
	put(top, "d/.wh..wh..opq", "no mark");
	put_mode(top, "d/tool", "#!/bin/sh\n", 0751);
	put(top, "\xff\n\t\x1b-*", "odd");
	put(top, "-leading", "dash");
	memset(name, 'n', 255);
	name[255] = 0;
	put(top, name, "long name");
	memcpy(name, "d2/", 3);
	put(top, name, "longer");
	memset(target, 't', 300);
	target[300] = 0;
	put_link(top, "long-target", target);
	put_link(top, "loop-a", "loop-b");
	put_link(top, "loop-b", "loop-a");
	put_link(top, "out", "/etc/shadow");
	put_dir(top, "empty");
	cr_assert_eq(mkfifoat(top, "fifo", 0640), 0);
	put(top, "linked", "content of two names");
	cr_assert_eq(linkat(top, "linked", top, "d/other-name", 0), 0);
	put_xattr(top, "d/tool", "user.note", "kept");
	put_xattr(top, "d", "user.folder", "kept");
	put(top, "sparse", "");
	fd = openat(top, "sparse", O_WRONLY);
	cr_assert_eq(ftruncate(fd, (off_t)3 << 30), 0);
	cr_assert_eq(pwrite(fd, "middle", 6, (off_t)1 << 30), 6);
	cr_assert_eq(pwrite(fd, "end", 3, ((off_t)3 << 30) - 3), 3);
	close(fd);
	put(top, "old", "before 1970");
	utimensat(top, "old", (struct timespec[]){{-5, 250000000}, {-5, 250000000}}, 0);
	utimensat(top, "d/tool", (struct timespec[]){{1, 0}, {1234567890, 123456789}}, 0);
	utimensat(top, "d", (struct timespec[]){{1, 0}, {1000000000, 0}}, 0);
	cr_assert_eq(fchmodat(top, "empty", 0511, 0), 0);
}

/* Export, import, export again: the same bytes, and the tree has everything it had. */
Test(archive, round_trip_is_exact, .init = set_up, .fini = tear_down, .timeout = 60)
{
	_cleanup_(freep) char *wanted = NULL, *got = NULL;
	struct view_layer again = {.flavour = VIEW_PLAIN};
	char first[DIGEST_TEXT_BYTES], value[8] = "";
	struct stat a, b;
	int fd;

	make_rich_tree();
	cr_assert_eq(export_to("one.tgz", NULL), 0, "%s: %s", abox_error_get_place(error),
		abox_error_get_message(error));
	cr_expect_eq(lost.n_lost, 0, "%s", lost.list.data);
	strcpy(first, digest);
	cr_assert_eq(import_from("one.tgz", first, NULL), 0, "%s: %s", abox_error_get_place(error),
		abox_error_get_message(error));
	wanted = list_view(&view);
	got = list_tree(out);
	cr_expect_str_eq(got, wanted);
	again.root_fd = out;
	fd = open_file("two.tgz", O_WRONLY | O_CREAT);
	cr_assert_eq(archive_export(&(struct view){&again, 1}, &ids, NULL, fd, &lost, digest, &error), 0);
	close(fd);
	cr_expect_str_eq(digest, first);
	cr_expect(same_files("one.tgz", "two.tgz"));
	fstatat(out, "linked", &a, 0);
	fstatat(out, "d/other-name", &b, 0);
	cr_expect_eq(a.st_ino, b.st_ino);
	fstatat(out, "d/tool", &a, 0);
	cr_expect(a.st_mtim.tv_sec == 1234567890 && a.st_mtim.tv_nsec == 123456789);
	fstatat(out, "old", &a, 0);
	cr_expect(a.st_mtim.tv_sec == -5 && a.st_mtim.tv_nsec == 250000000);
	fstatat(out, "sparse", &a, 0);
	cr_expect_lt(a.st_blocks, 1000);
	fd = openat(out, "d", O_RDONLY);
	cr_expect_eq(fgetxattr(fd, "user.folder", value, sizeof(value)), 4);
	close(fd);
	fchmodat(top, "empty", 0755, 0);
}

/* Another program reads what we write, and we read what it writes. */
Test(archive, tar_and_we_understand_each_other, .init = set_up, .fini = tear_down, .timeout = 60)
{
	static const char *const formats[] = {"pax", "gnu", "ustar"};
	_cleanup_(freep) char *wanted = NULL, *theirs = NULL;
	char command[512];
	int fd;

	make_rich_tree();
	fchmodat(top, "empty", 0755, 0);
	cr_assert_eq(export_to("one.tgz", NULL), 0);
	snprintf(command, sizeof(command), "mkdir %s/x && tar -xpzf %s/one.tgz -C %s/x 2>%s/tar-says",
		scene.path, scene.path, scene.path, scene.path);
	cr_expect_eq(system(command), 0);
	wanted = list_view(&view);
	fd = openat(scene.fd, "x/tree", O_RDONLY | O_DIRECTORY);
	theirs = list_tree(fd);
	cr_expect_str_eq(theirs, wanted);
	for (size_t i = 0; i < ELEMENTSOF(formats); i++) {
		_cleanup_(freep) char *got = NULL;

		if (i == 2) { /* what ustar cannot say */
			unlinkat(fd, "sparse", 0);
			unlinkat(fd, "long-target", 0);
			unlinkat(fd, "old", 0);
			path_remove_tree(fd, "d2");
			snprintf(command, sizeof(command), "cd %s/x/tree && rm -f n*", scene.path);
			cr_assert_eq(system(command), 0);
			free(theirs);
			theirs = list_tree(fd);
		}
		snprintf(command, sizeof(command), "tar -C %s/x/tree --format=%s -c%sf %s/theirs.tar .",
			scene.path, formats[i],
			i == 0   ? "zS"
			: i == 1 ? "S"
				 : "",
			scene.path);
		cr_assert_eq(system(command), 0);
		cr_assert_eq(extract_from("theirs.tar", NULL), 0, "%s: %s: %s", formats[i],
			abox_error_get_place(error), abox_error_get_message(error));
		got = list_tree(out);
		cr_expect_str_eq(got, theirs, "%s", formats[i]);
	}
	close(fd);
}

/* The same tree gives the same bytes whatever the order, place and hour of its making. */
Test(archive, export_is_deterministic, .init = set_up, .fini = tear_down)
{
	const struct timespec times[2] = {{5, 0}, {5, 0}};

	put(low, "a", "1");
	put(top, "b", "2");
	utimensat(low, "a", times, 0);
	utimensat(top, "b", times, 0);
	cr_assert_eq(export_to("one.tgz", NULL), 0);
	unlinkat(low, "a", 0);
	unlinkat(top, "b", 0);
	put(top, "a", "1");
	put(low, "b", "2");
	utimensat(top, "a", times, 0);
	utimensat(low, "b", times, 0);
	sleep(1);
	cr_assert_eq(export_to("two.tgz", NULL), 0);
	cr_expect(same_files("one.tgz", "two.tgz"));
	put(low, "b", "3");
	cr_assert_eq(export_to("three.tgz", NULL), 0);
	cr_expect_not(same_files("one.tgz", "three.tgz"));
}

/* --- hostile archives, made byte by byte --- */

struct raw {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100], magic[8];
	char rest[247];
};

static int raw_fd = -EBADF;

static void raw_begin(void)
{
	raw_fd = open_file("raw.tar", O_WRONLY | O_CREAT | O_TRUNC);
}

static void raw_bytes(const void *data, size_t len)
{
	static const char zeros[512];

	cr_assert_eq(fd_write_all(raw_fd, data, len), 0);
	cr_assert_eq(fd_write_all(raw_fd, zeros, (512 - len % 512) % 512), 0);
}

static void raw_header(char type, const char *name, const char *target, unsigned mode, size_t size)
{
	struct raw raw = {.type = type,
		.magic = "ustar\0"
			 "00"};
	unsigned sum = 0;
	char number[32];

	_Static_assert(sizeof(raw) == 512, "one block");
	memcpy(raw.name, name, strnlen(name, 100));
	memcpy(raw.target, target, strnlen(target, 100));
	snprintf(raw.mode, sizeof(raw.mode), "%07o", mode);
	strcpy(raw.uid, "0000000");
	strcpy(raw.gid, "0000000");
	snprintf(number, sizeof(number), "%011zo", size);
	memcpy(raw.size, number, sizeof(raw.size));
	strcpy(raw.mtime, "00000000000");
	memset(raw.sum, ' ', 8);
	for (size_t i = 0; i < 512; i++)
		sum += ((unsigned char *)&raw)[i];
	snprintf(raw.sum, sizeof(raw.sum), "%06o", sum);
	raw_bytes(&raw, sizeof(raw));
}

static void raw_entry(char type, const char *name, const char *target, unsigned mode, const char *content)
{
	raw_header(type, name, target, mode, strlen(content));
	if (*content)
		raw_bytes(content, strlen(content));
}

static void raw_record(const char *key, const char *value)
{
	char record[4096], number[32];
	size_t len = strlen(key) + strlen(value) + 3;

	snprintf(number, sizeof(number), "%zu", len + 2);
	len += strlen(number);
	if (snprintf(NULL, 0, "%zu", len) != (int)strlen(number))
		len++;
	snprintf(record, sizeof(record), "%zu %s=%s\n", len, key, value);
	raw_entry('x', "pax", "", 0644, record);
}

static void raw_end(void)
{
	static const char zeros[1024];

	cr_assert_eq(fd_write_all(raw_fd, zeros, sizeof(zeros)), 0);
	close(raw_fd);
	raw_fd = -EBADF;
}

/* T2-1, T2-2, T2-4, T2-5 and kin: each refused whole, and nothing outside is touched. */
Test(archive, hostile_entries_are_refused_whole, .init = set_up, .fini = tear_down, .timeout = 60)
{
	char absolute[128];
	struct stat st;

	static const struct {
		char type;
		const char *name, *target;
		int code;
	} rows[] = {
		{'0', "../x", "", ABOX_E_ESCAPE},
		{'0', "/x", "", ABOX_E_ESCAPE},
		{'0', "a/../../x", "", ABOX_E_ESCAPE},
		{'0', "a/../x", "", ABOX_E_ESCAPE},
		{'0', "..", "", ABOX_E_ESCAPE},
		{'5', "../d", "", ABOX_E_ESCAPE},
		{'2', "../l", "x", ABOX_E_ESCAPE},
		{'1', "h", "../victim", ABOX_E_ESCAPE},
		{'1', "h", "/etc/passwd", ABOX_E_ESCAPE},
		{'1', "h", "nothing", ABOX_E_ESCAPE},
		{'1', "h", "link/victim", ABOX_E_ESCAPE},
		{'1', "h", "link", ABOX_E_ESCAPE},
		{'0', "link/x", "", ABOX_E_ESCAPE},
		{'5', "link/x", "", ABOX_E_ESCAPE},
		{'2', "link/x", "y", ABOX_E_ESCAPE},
		{'0', "good/x", "", ABOX_E_ESCAPE},
		{'0', "good", "", ABOX_E_DAMAGED},
		{'2', "good", "x", ABOX_E_DAMAGED},
		{'5', "link", "", ABOX_E_ESCAPE},
		{'5', "good", "", ABOX_E_ESCAPE},
		{'3', "null", "", ABOX_E_DENIED},
		{'4', "disk", "", ABOX_E_DENIED},
		{'V', "volume", "", ABOX_E_UNSUPPORTED},
		{'M', "more", "", ABOX_E_UNSUPPORTED},
		{'2', "l", "", ABOX_E_DAMAGED},
		{'0', "", "", ABOX_E_ESCAPE},
	};

	put(scene.fd, "victim", "v");
	snprintf(absolute, sizeof(absolute), "%s", scene.path);
	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		int r;

		raw_begin();
		raw_entry('0', "good", "", 0644, "first");
		raw_entry('2', "link", absolute, 0777, "");
		raw_entry(rows[i].type, rows[i].name, rows[i].target, 0644, "");
		raw_end();
		r = extract_from("raw.tar", NULL);
		cr_expect_eq(r, rows[i].code, "%c %s -> %s gives %d: %s", rows[i].type, rows[i].name,
			rows[i].target, r, abox_error_get_message(error));
		cr_expect_not(there(scene.fd, "x"), "%s", rows[i].name);
	}
	cr_assert_eq(fstatat(scene.fd, "victim", &st, 0), 0);
	cr_expect_eq(st.st_nlink, 1);
	cr_expect_str_eq(get(scene.fd, "victim"), "v");
	/* the control: the same archive without the bad entry is taken, its link as a link */
	raw_begin();
	raw_entry('0', "good", "", 0644, "first");
	raw_entry('2', "link", absolute, 0777, "");
	raw_entry('1', "h", "good", 0644, "");
	raw_end();
	cr_assert_eq(extract_from("raw.tar", NULL), 0, "%s", abox_error_get_message(error));
	cr_expect_str_eq(get(out, "h"), "first");
	cr_expect(S_ISLNK(mode_of(out, "link")));
}

/* Set-id bits and attributes that give rights do not arrive, and the list says so (T2-5); a fifo arrives as
 * one. */
Test(archive, rights_are_left_out, .init = set_up, .fini = tear_down, .timeout = 20)
{
	int fd;

	raw_begin();
	raw_record("SCHILY.xattr.security.capability", "\x01\x01\x01\x01\x01");
	raw_entry('0', "capable", "", 04755, "x");
	raw_record("SCHILY.xattr.trusted.overlay.opaque", "y");
	raw_entry('5', "folder", "", 02775, "");
	raw_record("SCHILY.xattr.user.overlay.opaque", "y");
	raw_entry('5', "folder2", "", 0755, "");
	raw_record("SCHILY.xattr.user.fine", "kept");
	raw_entry('0', "fine", "", 0644, "x");
	raw_entry('6', "README.md", "", 0644, "");
	raw_end();
	cr_assert_eq(extract_from("raw.tar", NULL), 0, "%s", abox_error_get_message(error));
	cr_expect_eq(mode_of(out, "capable") & 07777, 0755);
	cr_expect_eq(mode_of(out, "folder") & 07777, 0775);
	cr_expect(S_ISFIFO(mode_of(out, "README.md")));
	fd = openat(out, "capable", O_RDONLY);
	cr_expect_lt(fgetxattr(fd, "security.capability", NULL, 0), 0);
	close(fd);
	fd = openat(out, "folder2", O_RDONLY);
	cr_expect_lt(fgetxattr(fd, "user.overlay.opaque", NULL, 0), 0);
	close(fd);
	fd = openat(out, "fine", O_RDONLY);
	cr_expect_eq(fgetxattr(fd, "user.fine", NULL, 0), 4);
	close(fd);
	cr_expect_eq(lost.n_lost, 5, "%s", lost.list.data);
	cr_expect(strstr(lost.list.data, "security.capability"));
}

/* Names that are too long, headers that lie, ends that are cut: damage, told as such. */
Test(archive, damage_is_told, .init = set_up, .fini = tear_down, .timeout = 60)
{
	char command[512];
	struct stat st;

	make_rich_tree();
	fchmodat(top, "empty", 0755, 0);
	cr_assert_eq(export_to("one.tgz", NULL), 0);
	fstatat(scene.fd, "one.tgz", &st, 0);
	for (off_t cut = st.st_size - 1; cut > 0; cut = cut * 3 / 4) {
		int r;

		snprintf(command, sizeof(command), "head -c %lld %s/one.tgz > %s/cut.tgz", (long long)cut,
			scene.path, scene.path);
		cr_assert_eq(system(command), 0);
		r = import_from("cut.tgz", NULL, NULL);
		cr_expect(r == ABOX_E_DAMAGED, "cut at %lld: %d", (long long)cut, r);
	}
	snprintf(command, sizeof(command), "gzip -dc %s/one.tgz > %s/one.tar", scene.path, scene.path);
	cr_assert_eq(system(command), 0);
	cr_assert_eq(import_from("one.tar", NULL, NULL), 0);
	snprintf(command, sizeof(command), "sed -i s/longer/larger/ %s/one.tar", scene.path);
	cr_assert_eq(system(command), 0);
	cr_expect_eq(import_from("one.tar", NULL, NULL), ABOX_E_DAMAGED);
	snprintf(command, sizeof(command), "(cat %s/one.tgz; echo more) > %s/more.tgz", scene.path,
		scene.path);
	cr_assert_eq(system(command), 0);
	cr_expect_eq(import_from("more.tgz", NULL, NULL), ABOX_E_DAMAGED);
	snprintf(command, sizeof(command), "head -c 5000 /dev/urandom > %s/noise", scene.path);
	cr_assert_eq(system(command), 0);
	cr_expect_eq(extract_from("noise", NULL), ABOX_E_DAMAGED);
	snprintf(command, sizeof(command),
		"gzip -dc %s/one.tgz | xz -1 > %s/one.xz 2>/dev/null || printf '\\3757zXZ' > %s/one.xz",
		scene.path, scene.path, scene.path);
	cr_assert_eq(system(command), 0);
	cr_expect_eq(extract_from("one.xz", NULL), ABOX_E_UNSUPPORTED);
}

/* T17-4: a bundle that was tampered with is refused before it can be believed. */
Test(archive, tampered_exports_are_refused, .init = set_up, .fini = tear_down, .timeout = 60)
{
	static const char *const tampering[] = {
		"echo changed > tree/plain",
		"echo extra > tree/extra",
		"rm tree/plain",
		"chmod 0600 tree/plain",
		"sed -i 's/plain/other/' manifest.jsonl",
		"head -c 20000000 /dev/zero | tr '\\0' ' ' >> manifest.jsonl",
		"sed -i 1d manifest.jsonl",
		": > manifest.jsonl",
		"echo '{\"format\":2}' > agentbox-export",
		"mv tree/plain plain",
	};
	char command[1024], first[DIGEST_TEXT_BYTES];

	put(low, "plain", "text\n");
	put(low, "d/other", "text\n");
	cr_assert_eq(export_to("one.tgz", NULL), 0);
	strcpy(first, digest);
	for (size_t i = 0; i <= ELEMENTSOF(tampering); i++) {
		/* The last round changes nothing: the control. */
		snprintf(command, sizeof(command),
			"cd %s && rm -rf x && mkdir x && cd x && tar -xpf ../one.tgz && %s && "
			"tar --format=pax --numeric-owner --owner=%u --group=%u -cf ../bad.tar "
			"$(ls -d agentbox-export plain tree/d tree/plain tree/extra manifest.jsonl "
			"2>/dev/null | "
			"sort -s -k1,1 | grep -v manifest; echo manifest.jsonl)",
			scene.path, i < ELEMENTSOF(tampering) ? tampering[i] : "true", ids.inside_uid,
			ids.inside_gid);
		(void)!system(command);
		if (i < ELEMENTSOF(tampering))
			cr_expect_lt(import_from("bad.tar", NULL, NULL), 0, "%s", tampering[i]);
		else
			cr_expect_eq(import_from("bad.tar", NULL, NULL), 0, "%s: %s",
				abox_error_get_place(error), abox_error_get_message(error));
	}
	cr_assert_eq(import_from("one.tgz", first, NULL), 0, "%s", abox_error_get_message(error));
	first[0] = first[0] == '0' ? '1' : '0';
	cr_expect_eq(import_from("one.tgz", first, NULL), ABOX_E_MISMATCH);
}

/* T2-10: what grows without end stops at the bound, in bytes as in files. */
Test(archive, bombs_stop_at_the_bound, .init = set_up, .fini = tear_down, .timeout = 60)
{
	struct archive_bounds bytes = {.bytes = 1 << 20}, files = {.files = 100};
	static char zeros[65536];
	gzFile gz;
	char path[128];
	int fd;

	raw_begin();
	raw_header('0', "big", "", 0644, (size_t)7 << 30);
	close(raw_fd);
	snprintf(path, sizeof(path), "%s/bomb.tgz", scene.path);
	fd = open_file("bomb.tgz", O_WRONLY | O_CREAT);
	gz = gzdopen(fd, "wb9");
	{
		char header[512];
		int raw = open_file("raw.tar", O_RDONLY);

		cr_assert_eq(read(raw, header, 512), 512);
		close(raw);
		gzwrite(gz, header, 512);
	}
	for (int i = 0; i < 1000; i++)
		gzwrite(gz, zeros, sizeof(zeros));
	gzclose(gz);
	cr_expect_eq(extract_from("bomb.tgz", &bytes), ABOX_E_LIMIT);
	raw_begin();
	for (int i = 0; i < 200; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		raw_entry('0', name, "", 0644, "");
	}
	raw_end();
	cr_expect_eq(extract_from("raw.tar", &files), ABOX_E_LIMIT);
	cr_expect_eq(extract_from("raw.tar", NULL), 0);
}

/* T2-7, T2-8: 8 TiB of holes, a file of many names, a chain of 2,000 folders: packed and unpacked in bounded
 * time. */
Test(archive, extreme_trees_come_through, .init = set_up, .fini = tear_down, .timeout = 120)
{
	_cleanup_(freep) char *wanted = NULL, *got = NULL;
	int n_links = getenv("ABOX_TEST_LONG") ? 60000 : 3000;
	char name[16];
	struct stat st;
	int fd;

	put(top, "big", "");
	fd = openat(top, "big", O_WRONLY);
	cr_assert_eq(ftruncate(fd, (off_t)8 << 40), 0);
	cr_assert_eq(pwrite(fd, "x", 1, (off_t)5 << 40), 1);
	close(fd);
	put(top, "l/0", "many names");
	for (int i = 1; i < n_links; i++) {
		snprintf(name, sizeof(name), "l/%d", i);
		cr_assert_eq(linkat(top, "l/0", top, name, 0), 0, "%s", strerror(errno));
	}
	fd = openat(top, ".", O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < 2000; i++) {
		int next;

		mkdirat(fd, "dir", 0755);
		next = openat(fd, "dir", O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
	}
	put(fd, "end", "deep");
	close(fd);
	cr_assert_eq(export_to("one.tgz", NULL), 0, "%s", abox_error_get_message(error));
	cr_assert_eq(import_from("one.tgz", NULL, NULL), 0, "%s: %s", abox_error_get_place(error),
		abox_error_get_message(error));
	wanted = list_view(&view);
	got = list_tree(out);
	cr_expect_str_eq(got, wanted);
	fstatat(out, "l/0", &st, 0);
	cr_expect_eq((int)st.st_nlink, n_links);
}

/* The gate: a path of `never` or a secret anywhere, and not a byte is written; the value is never told. */
Test(scan, stops_secrets_and_never_paths, .init = set_up, .fini = tear_down, .timeout = 60)
{
	static const char *const never[] = {".env", "**/*.pem", NULL};
	const struct scan_secret secrets[] = {{"hunter2-hunter2", 15}};
	const struct scan_rules rules = {never, secrets, 1},
				short_rules = {NULL, &(struct scan_secret){"abc", 3}, 1};
	char *big = malloc(600000);
	struct stat st;

	put(low, "fine", "text");
	cr_assert_eq(export_to("ok.tgz", &rules), 0, "%s", abox_error_get_message(error));
	put(top, "d/key.pem", "x");
	cr_expect_eq(export_to("no.tgz", &rules), ABOX_E_DENIED);
	cr_expect_str_eq(abox_error_get_place(error), "d/key.pem");
	fstatat(scene.fd, "no.tgz", &st, 0);
	cr_expect_eq(st.st_size, 0);
	path_remove_tree(top, "d");
	/* across the edge of a chunk */
	memset(big, 'x', 600000);
	memcpy(big + 256 * 1024 - 7, "hunter2-hunter2", 15);
	big[599999] = 0;
	put(top, "log", big);
	cr_expect_eq(export_to("no.tgz", &rules), ABOX_E_DENIED);
	cr_expect_str_eq(abox_error_get_place(error), "log");
	cr_expect_not(strstr(abox_error_get_message(error), "hunter2"));
	put(top, "log", "clean");
	put_link(top, "l", "/hunter2-hunter2");
	cr_expect_eq(export_to("no.tgz", &rules), ABOX_E_DENIED);
	unlinkat(top, "l", 0);
	put_xattr(top, "log", "user.x", "hunter2-hunter2");
	cr_expect_eq(export_to("no.tgz", &rules), ABOX_E_DENIED);
	unlinkat(top, "log", 0);
	cr_expect_eq(export_to("ok.tgz", &rules), 0);
	cr_expect_eq(export_to("no.tgz", &short_rules), ABOX_E_INVALID);
	/* a snapshot looks at what is new only */
	put(low, "old", "hunter2-hunter2");
	cr_expect_eq(scan_view(&view, 1, &rules, &error), 0);
	cr_expect_eq(scan_view(&view, 0, &rules, &error), ABOX_E_DENIED);
	cr_expect_eq(scan_bytes("say hunter2-hunter2", 19, &rules, "tail", &error), ABOX_E_DENIED);
	free(big);
}
