/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Boxes in virtual machines: what is different there from other walls. The rows of the contract run there as well.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <agentbox/probe.h>

#include "support/support.h"

#define MACHINE "{\"version\":1,\"backend\":\"microvm\"}"

/* The word behind "PPid:" or the like of a process. */
static bool status_of(pid_t pid, const char *name, char *ret, size_t size)
{
	char path[64], line[256];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	while (file && !found && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, strlen(name)) != 0)
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(ret, size, "%s", line + strlen(name) + strspn(line + strlen(name), "\t "));
		found = true;
	}
	if (file)
		fclose(file);
	return found;
}

/* A program of the wall: below PID 1 of the outer namespaces, which is below the keeper. */
static pid_t find_program(abox_sandbox *box, const char *name)
{
	pid_t keeper = keeper_pid(abox_sandbox_get_id(box)), found = 0;
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && !found && (entry = readdir(proc))) {
		pid_t pid = atoi(entry->d_name);
		char text[128];

		if (pid <= 0 || !status_of(pid, "Name:", text, sizeof(text)) || strncmp(text, name, strlen(name)) != 0)
			continue;
		if (status_of(pid, "PPid:", text, sizeof(text)) && status_of(atoi(text), "PPid:", text, sizeof(text)) &&
			atoi(text) == keeper)
			found = pid;
	}
	if (proc)
		closedir(proc);
	return found;
}

/* One machine serves many questions: its own kernel, the time, terminals, what is read-only, and what holds QEMU. */
Test(machine, is_a_machine_of_its_own, .timeout = 300)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box;
	abox_result *result;
	char text[256];
	long long now;
	pid_t qemu;

	needs_wall("microvm");
	box = box_of(MACHINE);
	result = run_words(box, "sh", "-c", "uname -r; cat /proc/1/comm; date +%s; id -u; ls /proc | grep -c '^[0-9]'");
	cr_assert_eq(abox_result_get_exit_code(result), 0, "%s", output_of(result, 2));
	cr_assert(strstr(output_of(result, 1), "cloud") || strstr(output_of(result, 1), "."), "%s", output_of(result, 1));
	cr_assert(strstr(output_of(result, 1), "agentbox-shep"), "%s", output_of(result, 1));
	cr_assert_eq(sscanf(strstr(output_of(result, 1), "agentbox-shep"), "agentbox-shep %lld", &now), 1);
	cr_expect(llabs(now - (long long)time(NULL)) < 30, "its clock says %lld", now);
	abox_result_unref(result);
	/* a file is dated by the host, and is not of tomorrow: builds look at that */
	result = run_words(box, "python3", "-c", "import os, time\nopen('/workspace/now', 'w').close()\nprint(os.stat('/workspace/now').st_mtime <= time.time())");
	cr_expect_str_eq(output_of(result, 1), "True\n");
	abox_result_unref(result);
	/* what is read-only the host holds; what is writable is the box's */
	result = run_words(box, "sh", "-c",
		"echo ok >/workspace/f && cat /workspace/f; for f in /usr/x /etc/x /proc/sys/kernel/core_pattern; do (echo x >$f) 2>&1; done; "
		"grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; tty; test -c /dev/null && echo x >/dev/null && echo null");
	cr_expect(strstr(output_of(result, 1), "ok\n"), "%s", output_of(result, 1));
	cr_expect(strstr(output_of(result, 1), "/usr/x"), "%s", output_of(result, 1));
	cr_expect(strstr(output_of(result, 1), "core_pattern"), "%s", output_of(result, 1));
	cr_expect(strstr(output_of(result, 1), "CapEff:\t0000000000000000"), "%s", output_of(result, 1));
	cr_expect(strstr(output_of(result, 1), "CapBnd:\t0000000000000000"), "%s", output_of(result, 1));
	cr_expect(strstr(output_of(result, 1), "NoNewPrivs:\t1"), "%s", output_of(result, 1));
	cr_expect(strstr(output_of(result, 1), "Seccomp:\t2"), "%s", output_of(result, 1));
	cr_expect(strstr(output_of(result, 1), "null\n"), "%s", output_of(result, 1));
	abox_result_unref(result);
	/* T10-3: there is no way to the host besides the channel */
	result = run_words(box, "python3", "-c",
		"import socket\n"
		"try:\n socket.socket(40, socket.SOCK_STREAM)\n print('vsock')\n"
		"except OSError as e:\n print('denied', e.errno)\n");
	cr_expect(strstr(output_of(result, 1), "denied"), "%s%s", output_of(result, 1), output_of(result, 2));
	abox_result_unref(result);
	/* QEMU has no rights, a filter of its own, and no file of the host's but what its root has */
	qemu = find_program(box, "qemu");
	cr_assert_gt(qemu, 0);
	cr_expect(status_of(qemu, "CapEff:", text, sizeof(text)) && !strcmp(text, "0000000000000000"), "%s", text);
	cr_expect(status_of(qemu, "CapBnd:", text, sizeof(text)) && !strcmp(text, "0000000000000000"), "%s", text);
	cr_expect(status_of(qemu, "NoNewPrivs:", text, sizeof(text)) && !strcmp(text, "1"), "%s", text);
	cr_expect(status_of(qemu, "Seccomp:", text, sizeof(text)) && !strcmp(text, "2"), "%s", text);
	cr_expect(status_of(find_program(box, "virtiofsd"), "Seccomp:", text, sizeof(text)) && !strcmp(text, "2"), "%s", text);
	stop_box(box);
	assert_no_leaks(before);
}

/* The machine's own kernel keeps the limits, and what it tells is the cause. */
Test(machine, limits_are_kept_and_told, .timeout = 300)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box;
	abox_result *result;

	needs_wall("microvm");
	box = box_of("{\"version\":1,\"backend\":\"microvm\",\"limits\":{\"memory\":\"96MiB\",\"pids\":40,\"disk\":\"16MiB\",\"cpus\":1}}");
	result = run_words(box, "python3", "-c", "b = bytearray(400 << 20); print(sum(b[::4096]))");
	cr_expect_eq(abox_result_get_cause(result), ABOX_CAUSE_MEMORY, "%s", abox_result_get_evidence(result));
	cr_expect(abox_result_get_limits_struck(result) & ABOX_LIMIT_MEMORY);
	abox_result_unref(result);
	result = run_words(box, "python3", "-c", "b = bytearray(20 << 20); print(len(b))");
	cr_expect_eq(abox_result_get_exit_code(result), 0, "%s", output_of(result, 2));
	cr_expect_not(abox_result_get_limits_struck(result) & ABOX_LIMIT_MEMORY);
	abox_result_unref(result);
	result = run_words(box, PROBE_IN_BOX, "forks", "200");
	cr_expect(strstr(output_of(result, 1), "EAGAIN"), "%s", output_of(result, 1));
	cr_expect(abox_result_get_limits_struck(result) & ABOX_LIMIT_PIDS);
	abox_result_unref(result);
	result = run_words(box, PROBE_IN_BOX, "fill", "/tmp/f", "67108864");
	cr_expect(strstr(output_of(result, 1), "ENOSPC"), "%s", output_of(result, 1));
	abox_result_unref(result);
	result = run_words(box, "nproc");
	cr_expect_str_eq(output_of(result, 1), "1\n");
	abox_result_unref(result);
	stop_box(box);
	assert_no_leaks(before);
}

static void kill_and_look(const char *program)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box = box_of(MACHINE);
	abox_command *command = start_words(box, "sleep", "1000");
	abox_result *result = NULL;
	pid_t pid = find_program(box, program);

	cr_assert_gt(pid, 0, "%s is not there", program);
	cr_assert_eq(kill(pid, SIGKILL), 0);
	cr_assert_eq(abox_command_wait(command, 60000000, &result, NULL), 1);
	cr_expect_eq(abox_result_get_cause(result), ABOX_CAUSE_WALL_LOST);
	cr_expect(strstr(abox_result_get_evidence(result), program), "%s", abox_result_get_evidence(result));
	abox_result_unref(result);
	abox_command_unref(command);
	abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL);
	abox_sandbox_unref(box);
	assert_no_leaks(before);
}

/* Each program of the wall may die at any time: it is told which, and nothing stays. */
Test(machine, lost_wall_is_told, .timeout = 300)
{
	needs_wall("microvm");
	kill_and_look("qemu");
	kill_and_look("virtiofsd");
}

/* Nor does anything stay when the keeper dies. */
Test(machine, goes_with_its_keeper, .timeout = 300)
{
	struct leaks *before = leaks_take();
	abox_sandbox *box;
	pid_t qemu;

	needs_wall("microvm");
	box = box_of(MACHINE);
	qemu = find_program(box, "qemu");
	cr_assert_gt(qemu, 0);
	cr_assert_eq(kill(keeper_pid(abox_sandbox_get_id(box)), SIGKILL), 0);
	for (int i = 0; i < 1000 && !pid_is_gone(qemu); i++)
		pause_msec(10);
	cr_expect(pid_is_gone(qemu));
	abox_sandbox_stop(box, ABOX_STOP_CANCEL, NULL, NULL);
	abox_sandbox_unref(box);
	abox_sandbox_gc(NULL, NULL);
	assert_no_leaks(before);
}

static char said[4096];

static void note(int level, const char *message, void *userdata)
{
	size_t len = strlen(said);

	snprintf(said + len, sizeof(said) - len, "%s\n", message);
}

/* A box that works, and in `said` how its machine came up. */
static abox_sandbox *box_that_tells(const char *spec)
{
	struct abox_start_options options = { ABOX_START_OPTIONS_INIT, .log = note };
	abox_plan *plan = plan_of(spec);
	abox_error *error = NULL;
	abox_sandbox *box = NULL;
	abox_result *result;

	said[0] = 0;
	cr_assert_eq(abox_sandbox_start(plan, &options, &box, &error), 0, "%s: %s", abox_error_get_place(error), abox_error_get_message(error));
	abox_plan_unref(plan);
	result = run_words(box, "sh", "-c", "ls /usr/bin/env && echo x >/workspace/f && cat /workspace/f");
	cr_expect_str_eq(output_of(result, 1), "/usr/bin/env\nx\n", "%s%s", output_of(result, 1), output_of(result, 2));
	abox_result_unref(result);
	return box;
}

#define GONE_ON "has gone on from its template"
#define KEPT "a template of the machine is kept"

/* Machines have nothing random in common, though they went on from one template; and each has the time of now. */
Test(machine, boots_share_no_entropy, .timeout = 600)
{
	static const char *const specs[] = { MACHINE, MACHINE, MACHINE, "{\"version\":1,\"backend\":\"microvm\",\"files\":\"live\"}" };
	char bytes[4][64], ids[4][64];
	long long now;

	needs_wall("microvm");
	for (size_t i = 0; i < 4; i++) {
		abox_sandbox *box = box_that_tells(specs[i]);
		abox_result *result = run_words(box, "sh", "-c",
			"head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo; cat /proc/sys/kernel/random/boot_id; date +%s");

		/* the mark: the first may have made what the others come from */
		cr_expect((strstr(said, GONE_ON) != NULL) == (i == 1 || i == 2 || (i == 0 && !strstr(said, KEPT))), "%zu: %s", i, said);
		cr_assert_eq(sscanf(output_of(result, 1), "%63s %63s %lld", bytes[i], ids[i], &now), 3, "%s", output_of(result, 2));
		cr_expect(llabs(now - (long long)time(NULL)) < 30, "its clock says %lld", now);
		cr_expect_eq(strlen(bytes[i]), 32);
		for (size_t k = 0; k < i; k++) {
			cr_expect_str_neq(bytes[i], bytes[k]);
			cr_expect_str_neq(ids[i], ids[k]);
		}
		abox_result_unref(result);
		stop_box(box);
	}
}

/* The only file in the folder of templates. */
static int open_template(const char *home)
{
	char path[600];
	struct dirent *entry;
	DIR *folder;
	int fd = -1;

	snprintf(path, sizeof(path), "%s/cache/templates", home);
	folder = opendir(path);
	cr_assert(folder);
	while ((entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		cr_assert_lt(fd, 0, "there are two");
		cr_assert_eq(fchmodat(dirfd(folder), entry->d_name, 0644, 0), 0);
		fd = openat(dirfd(folder), entry->d_name, O_RDWR | O_CLOEXEC);
	}
	closedir(folder);
	cr_assert_geq(fd, 0, "no template was kept: %s", said);
	return fd;
}

static void flip(int fd, off_t at)
{
	char byte;

	cr_assert_eq(pread(fd, &byte, 1, at), 1);
	byte = (char)(byte ^ 0x20);
	cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
}

/* A template that is damaged, not whole or of another boot is named, and made anew; what can have none has none. */
Test(machine, template_that_is_not_sound_is_not_used, .timeout = 1200)
{
	static const char *const why[] = { NULL, "it is damaged", "it is of another boot", "it is not whole" };
	char home[256], command[300];
	int fd;

	needs_wall("microvm");
	if (!is_long() && geteuid() != 0)
		cr_skip_test("for a plain user in the long form only");
	snprintf(home, sizeof(home), "%s/home-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert(mkdtemp(home));
	setenv("ABOX_HOME", home, 1);
	stop_box(box_that_tells("{\"version\":1,\"backend\":\"microvm\",\"files\":\"live\"}"));
	cr_expect_not(strstr(said, "template"), "%s", said);
	for (size_t i = 0; i < 4; i++) {
		stop_box(box_that_tells(MACHINE));
		cr_expect(strstr(said, KEPT), "%zu: %s", i, said);
		cr_expect(!why[i] || strstr(said, why[i]), "%zu: %s", i, said);
		if (i == 3)
			break;
		stop_box(box_that_tells(MACHINE));
		cr_expect(strstr(said, GONE_ON), "%zu: %s", i, said);
		fd = open_template(home);
		if (i == 0)	/* far inside of the memory */
			flip(fd, lseek(fd, 24 << 20, SEEK_DATA));
		else if (i == 1)
			flip(fd, 16);
		else
			cr_assert_eq(ftruncate(fd, 1 << 20), 0);
		close(fd);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", home);
	cr_assert_eq(system(command), 0);
}

/* A kernel by name, modules and shape, that writes a text to the console and then stands still or resets the machine. */
static void write_kernel(const char *path, const char *release, const char *text, bool stands)
{
	/* cld; mov $text, %esi; mov $0x3f8, %dx; 1: lods; test %al, %al; jz 2f; out %al, %dx; jmp 1b; 2: jmp . or ud2 */
	static const uint8_t code[] = { 0xfc, 0xbe, 0x00, 0x01, 0x10, 0x00, 0x66, 0xba, 0xf8, 0x03, 0xac, 0x84, 0xc0, 0x74, 0x03,
		0xee, 0xeb, 0xf8 };
	static const uint8_t loop[] = { 0xeb, 0xfe }, none[] = { 0x0f, 0x0b };
	Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT }, .e_type = ET_EXEC,
		.e_machine = EM_X86_64, .e_version = EV_CURRENT, .e_entry = 0x100000, .e_phoff = sizeof(header),
		.e_ehsize = sizeof(header), .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 2 };
	Elf64_Phdr segments[] = {
		{ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = 4096, .p_vaddr = 0x100000, .p_paddr = 0x100000,
			.p_filesz = 4096, .p_memsz = 4096, .p_align = 4096 },
		{ .p_type = PT_NOTE, .p_offset = 256, .p_filesz = 24, .p_memsz = 24, .p_align = 4 },
	};
	uint32_t notes[] = { 4, 8, 18, 0x006e6558 /* "Xen" */, 0x100000, 0 };
	static uint8_t image[8192];
	FILE *file = fopen(path, "we");

	memset(image, 0, sizeof(image));
	memcpy(image, &header, sizeof(header));
	memcpy(image + sizeof(header), segments, sizeof(segments));
	memcpy(image + 256, notes, sizeof(notes));
	snprintf((char *)image + 512, 256, "Linux version %s (none)", release);
	memcpy(image + 4096, code, sizeof(code));
	memcpy(image + 4096 + sizeof(code), stands ? loop : none, 2);
	snprintf((char *)image + 4096 + 256, 256, "%s", text);
	cr_assert(file);
	cr_assert_eq(fwrite(image, sizeof(image), 1, file), 1);
	fclose(file);
}

/* Where the modules of that release are, as seen from a kernel in folder/boot. */
static void link_modules(const char *folder, const char *release)
{
	const char *kernel = getenv("ABOX_KERNEL");
	char from[4600], to[4600];

	if (!kernel)
		return;
	snprintf(to, sizeof(to), "%s/lib", folder);
	cr_assert_eq(mkdir(to, 0755), 0);
	snprintf(to, sizeof(to), "%s/lib/modules", folder);
	cr_assert_eq(mkdir(to, 0755), 0);
	snprintf(to, sizeof(to), "%s/lib/modules/%s", folder, release);
	snprintf(from, sizeof(from), "%.*s/../lib/modules/%s", (int)(strrchr(kernel, '/') - kernel), kernel, release);
	cr_assert_eq(symlink(from, to), 0);
}

struct dead_start {
	const char *text;	/* what the kernel writes */
	bool stands;
	const char *told;	/* what the error says */
	bool rare;		/* at full length only; those that stand are that for a plain user */
};

static const struct dead_start dead_starts[] = {
	{ "", false, "reset or switched off before the guest answered, at stage kernel", false },
	{ "Kernel panic - not syncing: no root\n", false,
		"kernel panicked before the guest answered, at stage kernel: Kernel panic - not syncing: no root", false },
	{ "agentbox-guest at modules\nagentbox-guest: no module\n", false, "at stage modules: agentbox-guest: no module", false },
	{ "", true, "at stage kernel the machine's kernel does not come to its first program", false },
	{ "agentbox-guest at port\n", true, "at stage port the guest hangs", true },
	{ "agentbox-guest at modules\nagentbox-guest at setup\n", true, "at stage setup the guest is silent", false },
};

static void expect_dead(const char *kernel, const char *told, bool stands)
{
	struct abox_start_options options = { ABOX_START_OPTIONS_INIT, .timeout_usec = stands ? 8000000 : 0 };
	abox_error *error = NULL;
	abox_sandbox *box = NULL;
	abox_plan *plan;
	char spec[600];

	snprintf(spec, sizeof(spec), "{\"version\":1,\"backend\":\"microvm\",\"kernel\":\"%s\"}", kernel);
	plan = plan_of(spec);
	cr_expect_eq(abox_sandbox_start(plan, &options, &box, &error), stands ? ABOX_E_TIMEOUT : ABOX_E_UNAVAILABLE);
	cr_expect_str_eq(abox_error_get_place(error), "qemu");
	cr_expect(strstr(abox_error_get_message(error), told), "%s, and not: %s", abox_error_get_message(error), told);
	abox_error_free(error);
	abox_plan_unref(plan);
}

static void find_release(char release[128])
{
	abox_host *host = NULL;

	cr_assert_eq(abox_probe(&host, NULL), 0);
	cr_assert_eq(sscanf(abox_host_backend_version(host, 2), "Linux %127s", release), 1);
	abox_host_unref(host);
}

/* T19-3: a machine that does not come up is told with the stage it has come to, and whether it hangs, is silent, has panicked
 * or was reset; and leaves nothing. */
Test(machine, start_that_fails_names_its_stage, .timeout = 300)
{
	char folder[256], path[300], command[600], release[128];
	struct leaks *before = leaks_take();

	needs_wall("microvm");
	find_release(release);
	snprintf(folder, sizeof(folder), "%s/kernel-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/boot", folder);
	cr_assert_eq(mkdir(path, 0755), 0);
	link_modules(folder, release);
	snprintf(path, sizeof(path), "%s/boot/vmlinuz", folder);
	for (size_t i = 0; i < sizeof(dead_starts) / sizeof(*dead_starts); i++) {
		const struct dead_start *dead = &dead_starts[i];

		if ((dead->rare || (dead->stands && geteuid() != 0)) && !is_long())
			continue;
		write_kernel(path, release, dead->text, dead->stands);
		expect_dead(path, dead->told, dead->stands);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	cr_assert_eq(system(command), 0);
	assert_no_leaks(before);
}

/* The same for a kernel that is one, whose first program cannot go on. */
Test(machine, start_without_a_module_names_its_stage, .timeout = 300)
{
	char folder[256], path[300], command[4096], release[128], kernel[1024];
	struct leaks *before = leaks_take();

	needs_wall("microvm");
	find_release(release);
	snprintf(kernel, sizeof(kernel), "%s", getenv("ABOX_KERNEL") ? getenv("ABOX_KERNEL") : "");
	if (!kernel[0])
		snprintf(kernel, sizeof(kernel), "/boot/vmlinuz-%s", release);
	snprintf(folder, sizeof(folder), "%s/kernel-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/boot/vmlinuz", folder);
	snprintf(command, sizeof(command),
		"set -e; mkdir -p '%s/boot' '%s/lib/modules/%s'; cp '%s' '%s/boot/vmlinuz'; to='%s/lib/modules/%s'; "
		"cd \"$(dirname '%s')/../lib/modules/%s\" 2>/dev/null || cd /lib/modules/%s; "
		"cp --parents $(find . -name 'modules.*' -o -name '*.ko*' -path '*virtio*' -o -name '*.ko*' -path '*fuse*') \"$to\"; "
		"cd \"$to\"; broken=$(find . -name 'fuse.ko*'); echo none >$broken",
		folder, folder, release, kernel, folder, folder, release, kernel, release, release);
	cr_assert_eq(system(command), 0);
	expect_dead(path, "panicked before the guest answered, at stage modules: agentbox-guest: /modules/", false);
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	cr_assert_eq(system(command), 0);
	assert_no_leaks(before);
}

static void write_in(const char *folder, const char *name, const char *text)
{
	char path[600];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "we");
	cr_assert(file);
	fputs(text, file);
	cr_assert_eq(fclose(file), 0);
}

/* A folder that both may write shows each what the other has written. */
Test(machine, writable_folder_is_live, .timeout = 300)
{
	char folder[256], spec[600];
	abox_sandbox *box;
	abox_result *result;

	needs("plain");
	needs_wall("microvm");
	snprintf(folder, sizeof(folder), "%s/live-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert(mkdtemp(folder));
	write_in(folder, "f", "first\n");
	snprintf(spec, sizeof(spec), "{\"version\":1,\"backend\":\"microvm\",\"workspace\":{\"mode\":\"direct\",\"source\":{\"kind\":\"dir\","
		"\"path\":\"%s\"}}}", folder);
	box = box_of(spec);
	result = run_words(box, "sh", "-c", "cat /workspace/f; echo box >/workspace/g");
	cr_expect_str_eq(output_of(result, 1), "first\n");
	abox_result_unref(result);
	write_in(folder, "f", "second\n");
	write_in(folder, "h", "new\n");
	/* attributes are believed for a second */
	result = run_words(box, "sh", "-c", "for i in $(seq 50); do cat /workspace/f /workspace/h 2>/dev/null | grep -q new && "
		"grep -q second /workspace/f && break; sleep 0.1; done; cat /workspace/f /workspace/h");
	cr_expect_str_eq(output_of(result, 1), "second\nnew\n");
	abox_result_unref(result);
	snprintf(spec, sizeof(spec), "%s/g", folder);
	cr_expect_eq(access(spec, R_OK), 0);
	stop_box(box);
	snprintf(spec, sizeof(spec), "rm -rf '%s'", folder);
	cr_assert_eq(system(spec), 0);
}

/* Boots in a row: none hangs, nothing stays. */
Test(machine, boots_in_a_row, .timeout = 3600)
{
	struct leaks *before = leaks_take();

	needs_wall("microvm");
	for (int i = 0; i < (is_long() ? 30 : 2); i++) {
		abox_sandbox *box = box_of(MACHINE);
		abox_result *result = run_words(box, "true");

		cr_assert_eq(abox_result_get_exit_code(result), 0);
		abox_result_unref(result);
		stop_box(box);
	}
	assert_no_leaks(before);
}
