/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Machines that go on from a template: a machine that was stopped when its guest waited for the setup, before it knew
 * anything of a box. Its memory and the state of its devices are one file on the host, which is only read here: each
 * machine gets a copy of the memory, of its own, so that no box can reach what the next one starts from.
 *
 * Promises that a template of another boot of the host, of another size, or with a damaged byte is told and not used; and
 * that the monitor by which a machine is stopped and gone on with is closed before the machine is told anything.
 *
 * What two machines of one template have in common is what their kernel has chosen before: where it lies in memory, and
 * the secrets of its tables. Whatever a program gets as random comes from the pool, which the setup seeds (guest/main.c).
 */
#include "backend/microvm/microvm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <agentbox/error.h>
#include <agentbox/sandbox.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfd.h"
#include "guest/guest.h"
#include "kernel/pidfd.h"

#define PAGE 4096U
#define CHUNK (1U << 20)
#define STATE_MAX (16U << 20)

/* A template: the head in a page of its own, the state, and from memory_at the memory, with holes where it is empty. */
struct head {
	char magic[16], boot_id[40];
	uint64_t memory_bytes, state_bytes, memory_at, sum;
};
static const char magic[16] = "agentbox-tmpl-1";

/* Against damage, not against somebody: nobody else can write where templates are kept. */
struct sum {
	uint64_t lanes[4];
};

static void sum_add(struct sum *sum, const uint64_t *words, size_t n)
{
	static const uint64_t factor = 0x9E3779B97F4A7C15ULL;

	for (size_t i = 0; i + 3 < n; i += 4) {
		for (size_t lane = 0; lane < 4; lane++)
			sum->lanes[lane] = ((sum->lanes[lane] << 7 | sum->lanes[lane] >> 57) ^ words[i + lane]) * factor;
	}
}

static uint64_t sum_end(const struct sum *sum)
{
	uint64_t all = 0;

	for (size_t lane = 0; lane < 4; lane++)
		all = (all ^ sum->lanes[lane]) * 0x9E3779B97F4A7C15ULL;
	return all;
}

static bool is_empty(const uint64_t *words)
{
	uint64_t all = 0;

	for (size_t i = 0; i < PAGE / sizeof(*words); i++)
		all |= words[i];
	return all == 0;
}

static void tell(uint32_t level, const char *what, const char *why)
{
	uint8_t buffer[512];
	struct pack_writer writer = PACK_WRITER_FIXED(buffer, sizeof(buffer));
	char line[300];

	snprintf(line, sizeof(line), "%s%s%s", what, why[0] ? ": " : "", why);
	guest_message_begin(&writer, GUEST_LOG, 0);
	pack_u32(&writer, level);
	pack_string(&writer, line);
	guest_message_send(GUEST_FD_CHANNEL, &writer, NULL, 0);
}

/* -- memory -- */

static int make_memory(uint64_t bytes, struct fault *fault)
{
	int fd = memfd_begin("agentbox-memory", 0600);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
		fd_close(fd);
		return fault_set(fault, ABOX_E_SYSTEM, errno, "memory", "of the machine cannot be made");
	}
	return fd;
}

/*
 * Copies the pages in which something is, from one place of a file to another one of another, and adds them up with where
 * they are. Empty ones are left out, also where they are no hole. 0 or -errno.
 */
static int copy_chunk(const uint8_t *data, size_t len, uint64_t offset, int to_fd, uint64_t to, struct sum *sum)
{
	size_t begin = 0, at = 0;
	int r = 0;

	for (; r == 0 && at < len; at += PAGE) {
		const uint64_t *page = (const void *)(data + at);

		if (!is_empty(page)) {
			sum_add(sum, (const uint64_t[]){ offset + at, 0, 0, 0 }, 4);
			sum_add(sum, page, PAGE / sizeof(*page));
			continue;
		}
		if (at > begin)
			r = fd_pwrite_all(to_fd, data + begin, at - begin, to + begin);
		begin = at + PAGE;
	}
	return r == 0 && at > begin ? fd_pwrite_all(to_fd, data + begin, at - begin, to + begin) : r;
}

static int copy_memory(int from_fd, uint64_t from, int to_fd, uint64_t to, uint64_t bytes, struct sum *sum)
{
	uint64_t at = 0;
	int r = 0;

	while (r == 0 && at < bytes) {
		off_t data = lseek(from_fd, (off_t)(from + at), SEEK_DATA);
		size_t len;
		void *map;

		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		at = ((uint64_t)data - from) & ~(uint64_t)(PAGE - 1);
		if (at >= bytes)
			return 0;
		len = (size_t)MIN(bytes - at, CHUNK);
		map = mmap(NULL, len, PROT_READ, MAP_SHARED | MAP_POPULATE, from_fd, (off_t)(from + at));
		if (map == MAP_FAILED)
			return -errno;
		r = copy_chunk(map, len, at, to_fd, to + at, sum);
		munmap(map, len);
		at += len;
	}
	return r;
}

/* -- the monitor -- */

#define GO_ON "{\"execute\":\"cont\"}\n"

struct monitor {
	int fd;
	uint64_t deadline_usec;
	size_t len;
	char text[8192];
};

/* The next line, ended by NUL. */
static int monitor_line(struct monitor *monitor, char *ret, size_t size, struct fault *fault)
{
	for (;;) {
		struct pollfd entry = { .fd = monitor->fd, .events = POLLIN };
		char *newline = memchr(monitor->text, '\n', monitor->len);
		ssize_t n;

		if (newline) {
			size_t len = (size_t)(newline - monitor->text);

			snprintf(ret, size, "%.*s", (int)len, monitor->text);
			monitor->len -= len + 1;
			memmove(monitor->text, newline + 1, monitor->len);
			return 0;
		}
		if (monitor->len == sizeof(monitor->text))
			return fault_set(fault, ABOX_E_PROTOCOL, 0, "qemu", "its monitor talks too much");
		if (poll(&entry, 1, clock_poll_msec(clock_monotonic_usec(), monitor->deadline_usec)) < 0 && errno != EINTR)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "qemu", "its monitor cannot be waited for");
		if (clock_monotonic_usec() >= monitor->deadline_usec)
			return fault_set(fault, ABOX_E_TIMEOUT, 0, "qemu", "its monitor does not answer");
		n = entry.revents ? read(monitor->fd, monitor->text + monitor->len, sizeof(monitor->text) - monitor->len) : 0;
		if (entry.revents && n <= 0)
			return fault_set(fault, ABOX_E_GONE, n < 0 ? errno : 0, "qemu", "it has closed its monitor");
		monitor->len += (size_t)n;
	}
}

static int monitor_ask(struct monitor *monitor, const char *command, struct fault *fault)
{
	char line[2048];
	int r = fd_write_all(monitor->fd, command, strlen(command));

	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "qemu", "it has closed its monitor");
	for (;;) {
		r = monitor_line(monitor, line, sizeof(line), fault);
		if (r < 0)
			return r;
		if (strncmp(line, "{\"return\"", 9) == 0)
			return 0;
		if (strncmp(line, "{\"error\"", 8) == 0)
			return fault_set(fault, ABOX_E_SYSTEM, 0, "qemu", "%.160s", line);
	}
}

static int monitor_wait(struct monitor *monitor, const char *good, const char *bad, struct fault *fault)
{
	char line[2048];
	int r;

	for (;;) {
		r = monitor_line(monitor, line, sizeof(line), fault);
		if (r < 0)
			return r;
		if (strstr(line, good))
			return 0;
		if (strstr(line, bad))
			return fault_set(fault, ABOX_E_SYSTEM, 0, "qemu", "%.160s", line);
	}
}

static int monitor_meet(struct monitor *monitor, int listen_fd, struct fault *fault)
{
	static const char *const commands[] = {
		"{\"execute\":\"qmp_capabilities\"}\n",
		"{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":["
		"{\"capability\":\"x-ignore-shared\",\"state\":true},{\"capability\":\"events\",\"state\":true}]}}\n",
	};
	int r = 0;

	monitor->fd = microvm_accept(listen_fd, monitor->deadline_usec, "qemu", fault);
	if (monitor->fd < 0)
		return monitor->fd;
	for (size_t i = 0; r == 0 && i < ELEMENTSOF(commands); i++)
		r = monitor_ask(monitor, commands[i], fault);
	return r;
}

/* -- a machine that is started -- */

static int spawn(const struct microvm_template *template, const char *const *more, const char *const *most, int memory_fd,
	struct bridge_pipes *pipes, struct fault *fault)
{
	const char *words[MICROVM_WORDS];
	const char *const *lists[] = { template->machine, more, most };
	struct bridge *bridge = template->bridge;
	size_t n = 0;

	for (size_t i = 0; i < ELEMENTSOF(lists); i++)
		for (size_t k = 0; lists[i] && lists[i][k] && n + 1 < MICROVM_WORDS; k++)
			words[n++] = lists[i][k];
	words[n] = NULL;
	bridge->pid = bridge_spawn(words, pipes->in_fd, pipes->out_fd, pipes->err_fd, memory_fd);
	pipes->in_fd = fd_close(pipes->in_fd);
	pipes->out_fd = fd_close(pipes->out_fd);
	return bridge->pid < 0 ? fault_set(fault, ABOX_E_SYSTEM, -bridge->pid, bridge->name, "cannot start a process") : 0;
}

static int wait_for_byte(const struct bridge *bridge, char wanted, uint64_t deadline_usec, struct fault *fault)
{
	struct pollfd entry = { .fd = bridge->in_fd, .events = POLLIN };
	char byte;
	ssize_t n;

	do {
		if (poll(&entry, 1, clock_poll_msec(clock_monotonic_usec(), deadline_usec)) < 0 && errno != EINTR)
			return fault_set(fault, ABOX_E_SYSTEM, errno, "guest", "cannot be waited for");
		n = read(bridge->in_fd, &byte, 1);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR) && clock_monotonic_usec() < deadline_usec);
	if (n < 0)
		return fault_set(fault, ABOX_E_TIMEOUT, 0, "guest", "it does not answer");
	if (n == 0)
		return fault_set(fault, ABOX_E_GONE, 0, "qemu", "it has ended");
	return byte == wanted ? 0 : fault_set(fault, ABOX_E_PROTOCOL, 0, "guest", "what came from inside is no answer");
}

static int let_go(const struct bridge *bridge, uint64_t deadline_usec, struct fault *fault)
{
	static const char go = SETUP_GO;
	int r = fd_write_all(bridge->out_fd, &go, 1);

	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "qemu", "it has ended");
	return wait_for_byte(bridge, SETUP_GOING, deadline_usec, fault);
}

/* -- going on -- */

static int read_boot_id(char *ret, size_t size)
{
	_cleanup_(fd_closep) int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	memset(ret, 0, size);
	if (fd < 0)
		return -errno;
	n = fd_read_all(fd, ret, size - 1);
	return n < 0 ? (int)n : n == 0 ? -EIO : 0;
}

/* 1: there is one and it may be used; 0: there is none; else it is told why not, as -1. */
static int open_template(uint64_t memory_bytes, struct head *head, int *retfd)
{
	_cleanup_(fd_closep) int fd = open(FLAT_TEMPLATE, O_RDONLY | O_CLOEXEC);
	const char *why = NULL;
	char boot_id[sizeof(head->boot_id)];
	struct stat st;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0 || fd_pread_all(fd, head, sizeof(*head), 0) != sizeof(*head) ||
		memcmp(head->magic, magic, sizeof(magic)) != 0)
		why = "it is no template of this build";
	else if (read_boot_id(boot_id, sizeof(boot_id)) < 0 || memcmp(boot_id, head->boot_id, sizeof(boot_id)) != 0)
		why = "it is of another boot of this host";
	else if (head->memory_bytes != memory_bytes || head->state_bytes == 0 || head->state_bytes > STATE_MAX ||
		head->memory_at % PAGE || head->memory_at < PAGE + head->state_bytes || head->memory_at > 2 * STATE_MAX ||
		(uint64_t)st.st_size != head->memory_at + memory_bytes)
		why = "it is not whole";
	if (why) {
		tell(ABOX_LOG_WARNING, "the template of the machine is not used", why);
		return -1;
	}
	*retfd = steal_fd(fd);
	return 1;
}

static int read_state(int fd, const struct head *head, uint64_t **retstate, struct sum *sum, struct fault *fault)
{
	size_t size = ((size_t)head->state_bytes + PAGE) & ~(size_t)(PAGE - 1);
	uint64_t *state = calloc(1, size);

	if (!state)
		return fault_set(fault, ABOX_E_MEMORY, 0, "template", "no memory for its state");
	*retstate = state;
	if (fd_pread_all(fd, state, (size_t)head->state_bytes, PAGE) != (ssize_t)head->state_bytes)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "template", "cannot be read");
	sum_add(sum, state, size / sizeof(*state));
	return 0;
}

/* QEMU listens for the state. */
static int hand_state(struct monitor *monitor, const void *state, size_t len, struct fault *fault)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = MICROVM_STATE };
	_cleanup_(fd_closep) int fd = -EBADF;
	int r = monitor_ask(monitor, "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"unix:" MICROVM_STATE "\"}}\n", fault);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, "qemu", "it does not take a state");
	r = fd_write_all(fd, state, len);
	if (r < 0)
		return fault_set(fault, ABOX_E_GONE, -r, "qemu", "it does not take the state");
	fd = fd_close(fd);
	r = monitor_wait(monitor, "\"status\": \"completed\"", "\"status\": \"failed\"", fault);
	return r < 0 ? r : monitor_ask(monitor, GO_ON, fault);	/* it was stopped when its state was taken */
}

/* QEMU starts while the memory is copied. */
static int go_on(const struct microvm_template *template, int template_fd, const struct head *head, int memory_fd,
	struct bridge_pipes *pipes, struct fault *fault)
{
	/* it takes a fraction of a second; there must be time for another way */
	uint64_t deadline = clock_deadline(clock_monotonic_usec(), template->bridge->ready_usec / 3);
	_cleanup_(fd_closep) int listen_fd = microvm_listen(MICROVM_CONTROL, fault);
	_cleanup_(freep) uint64_t *state = NULL;
	static struct monitor monitor;
	struct sum sum = { 0 };
	int r = listen_fd;

	monitor = (struct monitor){ .fd = -EBADF, .deadline_usec = deadline };
	if (r >= 0)
		r = spawn(template, template->control, template->go_on, memory_fd, pipes, fault);
	if (r == 0)
		r = read_state(template_fd, head, &state, &sum, fault);
	if (r == 0) {
		r = copy_memory(template_fd, head->memory_at, memory_fd, 0, head->memory_bytes, &sum);
		if (r < 0)
			r = fault_set(fault, ABOX_E_SYSTEM, -r, "template", "its memory cannot be copied");
		else if (sum_end(&sum) != head->sum)
			r = fault_set(fault, ABOX_E_DAMAGED, 0, "template", "it is damaged");
	}
	if (r == 0)
		r = monitor_meet(&monitor, listen_fd, fault);
	if (r == 0)
		r = hand_state(&monitor, state, (size_t)head->state_bytes, fault);
	fd_close(monitor.fd);
	unlink(MICROVM_CONTROL);
	unlink(MICROVM_STATE);
	return r == 0 ? let_go(template->bridge, deadline, fault) : r;
}

/* -- a new template -- */

static int take_state(int listen_fd, uint64_t deadline_usec, int image_fd, uint64_t *retlen, struct sum *sum, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = microvm_accept(listen_fd, deadline_usec, "qemu", fault);
	_cleanup_(freep) uint64_t *state = NULL;
	ssize_t n;
	int r;

	if (fd < 0)
		return fd;
	state = calloc(1, STATE_MAX + PAGE);
	if (!state)
		return fault_set(fault, ABOX_E_MEMORY, 0, "template", "no memory for its state");
	n = fd_read_all(fd, state, STATE_MAX);
	if (n <= 0 || n == STATE_MAX)
		return fault_set(fault, ABOX_E_SYSTEM, n < 0 ? (int)-n : 0, "qemu", "its state has no sound size");
	r = fd_pwrite_all(image_fd, state, (size_t)n, PAGE);
	if (r < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -r, "template", "cannot be written");
	*retlen = (uint64_t)n;
	sum_add(sum, state, (((size_t)n + PAGE) & ~(size_t)(PAGE - 1)) / sizeof(*state));
	return 0;
}

static int write_image(const struct microvm_template *template, int memory_fd, int image_fd, struct head *head, struct sum *sum,
	struct fault *fault)
{
	int r = read_boot_id(head->boot_id, sizeof(head->boot_id));

	memcpy(head->magic, magic, sizeof(magic));
	head->memory_bytes = template->memory_bytes;
	head->memory_at = (PAGE + head->state_bytes + CHUNK) & ~(uint64_t)(CHUNK - 1);
	if (r == 0 && ftruncate(image_fd, (off_t)(head->memory_at + head->memory_bytes)) < 0)
		r = -errno;
	if (r == 0)
		r = copy_memory(memory_fd, 0, image_fd, head->memory_at, head->memory_bytes, sum);
	head->sum = sum_end(sum);
	if (r == 0)
		r = fd_pwrite_all(image_fd, head, sizeof(*head), 0);
	if (r == 0)
		r = memfd_seal(image_fd, 0400);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, "template", "cannot be written") : 0;
}

static int cut(const struct microvm_template *template, struct monitor *monitor, int memory_fd, int image_fd, struct fault *fault)
{
	_cleanup_(fd_closep) int listen_fd = microvm_listen(MICROVM_STATE, fault);
	struct head head = { .sum = 0 };
	struct sum sum = { 0 };
	int r = listen_fd;

	if (r >= 0)
		r = monitor_ask(monitor, "{\"execute\":\"stop\"}\n", fault);
	if (r == 0)
		r = monitor_ask(monitor, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"unix:" MICROVM_STATE "\"}}\n", fault);
	if (r == 0)
		r = take_state(listen_fd, monitor->deadline_usec, image_fd, &head.state_bytes, &sum, fault);
	if (r == 0)
		r = monitor_wait(monitor, "\"status\": \"completed\"", "\"status\": \"failed\"", fault);
	if (r == 0)
		r = write_image(template, memory_fd, image_fd, &head, &sum, fault);
	unlink(MICROVM_STATE);
	return r;
}

/* The machine goes on afterwards, whether that went well or not; only where it does not is that the end of it. */
static void make_template(const struct microvm_template *template, int listen_fd, int memory_fd, uint64_t deadline_usec)
{
	_cleanup_(fd_closep) int image_fd = memfd_begin("agentbox-template", 0600);
	static struct monitor monitor;
	struct pack_writer writer;
	uint8_t buffer[16];
	struct fault fault, second;
	int r;

	fault_init(&fault, ABOX_STAGE_START);
	fault_init(&second, ABOX_STAGE_START);
	monitor = (struct monitor){ .fd = -EBADF, .deadline_usec = deadline_usec };
	r = image_fd < 0 ? fault_set(&fault, ABOX_E_SYSTEM, -image_fd, "template", "no memory for it")
			 : monitor_meet(&monitor, listen_fd, &fault);
	if (r == 0)
		r = cut(template, &monitor, memory_fd, image_fd, &fault);
	if (monitor.fd >= 0 && monitor_ask(&monitor, GO_ON, &second) < 0)
		tell(ABOX_LOG_WARNING, "the machine may not go on from where its template was made", second.message);
	fd_close(monitor.fd);
	if (r < 0) {
		tell(ABOX_LOG_WARNING, "no template of the machine was made", fault.message);
		return;
	}
	writer = (struct pack_writer)PACK_WRITER_FIXED(buffer, sizeof(buffer));
	guest_message_begin(&writer, GUEST_TEMPLATE, 0);
	guest_message_send(GUEST_FD_CHANNEL, &writer, &image_fd, 1);
}

/* -- from its kernel -- */

/* A machine that does not come up is watched by the bridge, for the rest of the time: it has the words for what is wrong. */
static int start_cold(const struct microvm_template *template, bool wanted, int memory_fd, uint64_t deadline, struct bridge_pipes *pipes,
	struct fault *fault)
{
	struct bridge *bridge = template->bridge;
	_cleanup_(fd_closep) int listen_fd = wanted ? microvm_listen(MICROVM_CONTROL, fault) : -EBADF;
	struct fault ignored;
	int r;

	if (wanted && listen_fd < 0)
		return listen_fd;
	r = spawn(template, wanted ? template->control : NULL, NULL, memory_fd, pipes, fault);
	if (r < 0)
		return r;
	fault_init(&ignored, fault->stage);
	r = wait_for_byte(bridge, SETUP_HERE, deadline, &ignored);
	if (r == 0 && wanted)
		make_template(template, listen_fd, memory_fd, deadline);
	if (r == 0)
		let_go(bridge, deadline, &ignored);
	unlink(MICROVM_CONTROL);
	return 0;
}

/* What QEMU gave up is done in another way. When somebody has killed it the wall went down, and the bridge tells that. */
static bool was_killed(const struct bridge *bridge)
{
	_cleanup_(fd_closep) int fd = bridge->pid > 0 ? pidfd_new(bridge->pid) : -EBADF;
	siginfo_t info = { .si_code = 0 };

	if (fd < 0 || pidfd_wait(fd, clock_deadline(clock_monotonic_usec(), USEC_PER_SEC)) <= 0)
		return false;
	return waitid(P_PID, (id_t)bridge->pid, &info, WEXITED | WNOWAIT) == 0 && info.si_code != CLD_EXITED;
}

/* What went on from a template and failed leaves nothing that is used again. */
static int start_anew(const struct microvm_template *template, struct bridge_pipes *pipes, int *memory_fd, struct fault *fault)
{
	struct bridge *bridge = template->bridge;
	struct bridge_pipes fresh;

	if (bridge->pid > 0) {
		kill(bridge->pid, SIGKILL);
		while (waitpid(bridge->pid, NULL, 0) < 0 && errno == EINTR)
			;
		bridge->pid = 0;
	}
	fd_close(pipes->in_fd);
	fd_close(pipes->out_fd);
	fd_close(bridge->in_fd);
	fd_close(bridge->out_fd);
	if (bridge_make_channel(bridge, &fresh, fault) < 0)
		return fault->code;
	pipes->in_fd = fresh.in_fd;
	pipes->out_fd = fresh.out_fd;
	fd_close(*memory_fd);
	*memory_fd = make_memory(template->memory_bytes, fault);
	return *memory_fd < 0 ? *memory_fd : 0;
}

int microvm_template_start(const struct flat_plan *plan, struct microvm_template *template, struct bridge_pipes *pipes_taken,
	struct fault *fault)
{
	struct bridge_pipes *pipes = pipes_taken;
	_cleanup_(fd_closep) int template_fd = -EBADF, memory_fd = make_memory(template->memory_bytes, fault);
	/* what has not come up by then the bridge tells, and has some time for it */
	uint64_t begin = clock_monotonic_usec(), end = clock_deadline(begin, template->bridge->ready_usec),
		 deadline = end - MIN(template->bridge->ready_usec / 4, 2 * USEC_PER_SEC), now;
	struct fault failed;
	struct head head;
	int found, r = 0;

	if (memory_fd < 0)
		return memory_fd;
	found = open_template(template->memory_bytes, &head, &template_fd);
	if (found > 0) {
		fault_init(&failed, fault->stage);
		r = go_on(template, template_fd, &head, memory_fd, pipes, &failed);
		if (r < 0 && was_killed(template->bridge)) {
			template->bridge->stage = "template";
			r = 0;
		} else if (r < 0) {
			tell(ABOX_LOG_WARNING, "the machine cannot go on from its template and is started from its kernel", failed.message);
			r = start_anew(template, pipes, &memory_fd, fault);
			found = -1;
		} else {
			template->bridge->stage = "setup";
			tell(ABOX_LOG_INFO, "the machine has gone on from its template", "");
		}
	}
	if (r == 0 && found <= 0)
		r = start_cold(template, plan->template_wanted, memory_fd, deadline, pipes, fault);
	now = clock_monotonic_usec();
	template->bridge->ready_usec = end > now ? end - now : 1;
	pipes->err_fd = fd_close(pipes->err_fd);
	return r;
}
