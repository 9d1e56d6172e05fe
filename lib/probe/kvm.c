/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The trial of KVM. Promises an answer in time, and that nothing of the machine is left: it is killed when its guest has
 * said that it waits for its setup, when it has ended, or when its time is up; should this process end before, the
 * machine has little processor time, and a guest whose port closes ends it.
 */
#include "probe/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/helper.h"
#include "base/memfd.h"
#include "guest/boot.h"
#include "kernel/pidfd.h"
#include "kernel/spawn.h"
#include "probe/verdict.h"

#define NAME "kvm"
#define WORKS "works"
#define PANIC "Kernel panic"

/* -- what is kept -- */

static bool add_file(struct text *text, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return false;
	text_printf(text, " %s %llu:%llu %llu %lld.%09ld", path, (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
		(unsigned long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	return true;
}

/* This boot of the host, this user, kernel and QEMU as files. */
static bool make_key(const struct machine_host *machine, struct text *ret)
{
	_cleanup_(freep) char *boot = NULL;

	if (file_read_text(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL) < 0)
		return false;
	text_printf(ret, "1 %.36s %u", boot, geteuid());
	return add_file(ret, machine->qemu) && add_file(ret, machine->kernel.path) && !ret->failed && !strchr(ret->data, '\n');
}

static bool recall(const char *key, struct kvm_verdict *ret)
{
	char text[VERDICT_BYTES];
	size_t len = strlen(key), end;

	if (!verdict_read_file(NAME, text) || strncmp(text, key, len) != 0 || text[len] != '\n')
		return false;
	end = strcspn(text + len + 1, "\n");
	snprintf(ret->text, sizeof(ret->text), "%.*s", (int)end, text + len + 1);
	ret->works = strcmp(ret->text, WORKS) == 0;
	if (ret->works)
		ret->text[0] = 0;
	return true;
}

static void keep(const char *key, const struct kvm_verdict *verdict)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;

	text_printf(&text, "%s\n%s\n", key, verdict->works ? WORKS : verdict->text);
	if (!text.failed)
		verdict_write_file(NAME, text.data, text.len);
}

/* -- the machine -- */

static int first_filesystem(const struct machine_host *machine, int *retfd, abox_error **reterr)
{
	static const char *const names[] = { "virtio_mmio", "virtio_console", NULL };
	_cleanup_(text_clear) struct text archive = TEXT_INIT;
	_cleanup_(freep) void *guest = NULL;
	struct machine_modules modules;
	size_t len;
	int r;

	r = helper_read("guest", &guest, &len, reterr);
	if (r == 0)
		r = machine_modules_find(&machine->kernel, names, ABOX_STAGE_PROBE, &modules, reterr);
	if (r < 0)
		return r;
	machine_archive_file(&archive, MACHINE_GUEST, 0555, guest, len);
	r = machine_archive_modules(&archive, &machine->kernel, &modules, ABOX_STAGE_PROBE, reterr);
	machine_modules_clear(&modules);
	machine_archive_end(&archive);
	if (r == 0 && archive.failed)
		r = ABOX_E_MEMORY;
	if (r < 0)
		return r;
	r = memfd_new_sealed("initramfs", archive.data, archive.len, 0400, retfd);
	return r < 0 ? error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_PROBE, "initramfs", -r, "cannot be made") : 0;
}

/* As a box's machine but for the files; through a shell, since helpers have no output of their own. */
static int spawn(const char *qemu, const char *kernel, const int fds[3], int *retpidfd, abox_error **reterr)
{
	const char *const argv[] = { "sh", "-c", "ulimit -t 20; exec \"$0\" \"$@\" 2>&3", qemu, "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot", "-sandbox",
		"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny", "-M",
		"microvm,accel=kvm,isa-serial=on,x-option-roms=off", "-cpu", "max", "-global", "virtio-mmio.force-legacy=false",
		"-m", "128M", "-chardev", "file,id=console,path=/proc/self/fd/2", "-serial", "chardev:console", "-chardev",
		"socket,id=port,fd=5", "-device", "virtio-serial-device,max_ports=2", "-device",
		"virtserialport,chardev=port,name=agentbox,nr=1", "-kernel", kernel, "-initrd", "/proc/self/fd/4", "-append",
		"console=ttyS0 quiet reboot=t panic=-1 vport0p1", NULL };
	_cleanup_(fd_closep) int shell_fd = open("/bin/sh", O_PATH | O_CLOEXEC);

	if (shell_fd < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_PROBE, "/bin/sh", errno, "there is none");
	return spawn_helper(&(struct spawn_request){ .program_fd = shell_fd, .argv = argv, .fds = fds, .n_fds = 3,
		.stage = ABOX_STAGE_PROBE }, retpidfd, &(pid_t){ 0 }, reterr);
}

/* -- what it says -- */

static const char *last_stage(const char *text, char *ret, size_t size)
{
	snprintf(ret, size, "kernel");
	for (const char *at = strstr(text, BOOT_STAGE); at; at = strstr(at, BOOT_STAGE)) {
		at += strlen(BOOT_STAGE);
		snprintf(ret, size, "%.*s", (int)strspn(at, "abcdefghijklmnopqrstuvwxyz"), at);
	}
	return ret;
}

static void line_of(const char *at, char *ret, size_t size)
{
	size_t n = 0;

	for (; *at && *at != '\n' && *at != '\r' && n + 1 < size; at++)
		ret[n++] = (char)(*at >= ' ' && *at < 127 ? *at : '?');
	ret[n] = 0;
}

static void judge(const char *text, bool ended, struct kvm_verdict *ret)
{
	const char *panic = strstr(text, PANIC), *said = strstr(text, "qemu-system");
	char stage[32], line[96] = "";

	last_stage(text, stage, sizeof(stage));
	ret->works = strcmp(stage, "setup") == 0;
	ret->text[0] = 0;
	if (ret->works)
		return;
	if (panic || said)
		line_of(panic ? panic : said, line, sizeof(line));
	snprintf(ret->text, sizeof(ret->text), "%s at stage %s%s%s", ended ? "ends" : "hangs", stage, line[0] ? ": " : "", line);
}

static void watch(int fd, uint64_t bound_usec, struct kvm_verdict *ret)
{
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), bound_usec);
	char text[8192];
	size_t len = 0;
	bool ended = false;

	text[0] = 0;
	while (!ended && !strstr(text, BOOT_STAGE "setup") && len + 1 < sizeof(text)) {
		struct pollfd entry = { .fd = fd, .events = POLLIN };
		uint64_t now = clock_monotonic_usec();
		ssize_t n;

		if (now >= deadline)
			break;
		if (poll(&entry, 1, clock_poll_msec(now, deadline)) <= 0)
			continue;
		n = read(fd, text + len, sizeof(text) - 1 - len);
		ended = n <= 0;
		for (ssize_t i = 0; i < n; i++)
			if (!text[len + (size_t)i])
				text[len + (size_t)i] = ' ';
		len += (size_t)MAX(n, 0);
		text[len] = 0;
	}
	judge(text, ended, ret);
}

static int try(const struct machine_host *machine, const char *place, uint64_t bound_usec, struct kvm_verdict *ret, abox_error **reterr)
{
	_cleanup_(fd_closep) int archive_fd = -EBADF, pidfd = -EBADF;
	int said[2], port[2], r;

	r = first_filesystem(machine, &archive_fd, reterr);
	if (r < 0)
		return r;
	if (pipe2(said, O_CLOEXEC) < 0)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_PROBE, "kvm", errno, "no pipe for it");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, port) < 0) {
		fd_close(said[0]);
		fd_close(said[1]);
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_PROBE, "kvm", errno, "no socket for it");
	}
	r = spawn(machine->qemu, place, (const int[]){ said[1], archive_fd, port[1] }, &pidfd, reterr);
	fd_close(said[1]);
	fd_close(port[1]);
	if (r == 0) {
		watch(said[0], bound_usec, ret);
		pidfd_signal(pidfd, SIGKILL);
	}
	fd_close(said[0]);
	fd_close(port[0]);
	return r;
}

/* -- */

/* 1 when it is known, 0 when it is not. */
static int look(const struct machine_host *machine, struct text *key, struct kvm_verdict *ret)
{
	*ret = (struct kvm_verdict){ .works = false };
	if (machine->blocker[0] || machine->kvm_closed[0]) {
		snprintf(ret->text, sizeof(ret->text), "%s", machine->kvm_closed[0] ? machine->kvm_closed : "there is no machine");
		return 1;
	}
	return make_key(machine, key) && recall(key->data, ret);
}

void kvm_recall(const struct machine_host *machine, struct kvm_verdict *ret)
{
	_cleanup_(text_clear) struct text key = TEXT_INIT;

	if (!look(machine, &key, ret))
		snprintf(ret->text, sizeof(ret->text), "not tried (`agentbox doctor --try` does)");
}

int kvm_try(const struct machine_host *machine, uint64_t bound_usec, struct kvm_verdict *ret, abox_error **reterr)
{
	_cleanup_(text_clear) struct text key = TEXT_INIT;
	char place[PATH_MAX];
	int r;

	if (look(machine, &key, ret))
		return 0;
	r = machine_kernel_place(&machine->kernel, ABOX_STAGE_PROBE, place, reterr);
	if (r == 0)
		r = machine_kernel_make(&machine->kernel, place, ABOX_STAGE_PROBE, reterr);
	if (r == 0)
		r = try(machine, place, bound_usec, ret, reterr);
	if (r == 0 && !key.failed && key.len)
		keep(key.data, ret);
	return r;
}
