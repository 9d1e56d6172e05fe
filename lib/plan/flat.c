/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packing and unpacking of the flat plan. One list of fields for both directions (see struct flat_io), so
 * that they cannot drift apart. Promises that an unpacked plan holds no index, enum or length that leads
 * outside of it; whether the plan makes sense is the library's business.
 */
#include "plan/flat.h"

#include <stdlib.h>
#include <string.h>

#include <agentbox/error.h>

/* Bounds on what a plan may ask the keeper to allocate: far above any real plan. */
#define FLAT_MAX_ITEMS 65536

/* Exactly one of the two is set; each field is named once and goes the way that is set. */
struct flat_io {
	struct pack_writer *writer;
	struct pack_reader *reader;
	bool no_memory;
};

/* Only what is read is checked: the writer is the library itself. */
static void io_fail(struct flat_io *io)
{
	if (io->reader)
		io->reader->failed = true;
}

static void io_u8(struct flat_io *io, uint8_t *value)
{
	if (io->writer)
		pack_u8(io->writer, *value);
	else
		*value = unpack_u8(io->reader);
}

static void io_flag(struct flat_io *io, uint8_t *value)
{
	io_u8(io, value);
	if (io->reader && *value > 1)
		io_fail(io);
}

static void io_u32(struct flat_io *io, uint32_t *value)
{
	if (io->writer)
		pack_u32(io->writer, *value);
	else
		*value = unpack_u32(io->reader);
}

static void io_enum(struct flat_io *io, uint32_t *value, uint32_t max)
{
	io_u32(io, value);
	if (io->reader && *value > max)
		io_fail(io);
}

static void io_i32(struct flat_io *io, int32_t *value)
{
	if (io->writer)
		pack_i32(io->writer, *value);
	else
		*value = unpack_i32(io->reader);
}

static void io_u64(struct flat_io *io, uint64_t *value)
{
	if (io->writer)
		pack_u64(io->writer, *value);
	else
		*value = unpack_u64(io->reader);
}

static void io_string(struct flat_io *io, const char **value)
{
	if (io->writer)
		pack_string(io->writer, *value);
	else
		*value = unpack_string(io->reader);
}

static void io_bytes(struct flat_io *io, const void **value, size_t *len)
{
	if (io->writer)
		pack_bytes(io->writer, *value, *len);
	else
		*value = unpack_bytes(io->reader, len);
}

/* The count of an array and, on the way in, its memory. false when there is nothing to go through. */
static bool io_array(struct flat_io *io, void **array, uint32_t *n, size_t item_size, size_t min_packed)
{
	uint32_t count;

	if (io->writer) {
		pack_u32(io->writer, *n);
		return *n > 0;
	}
	*array = NULL;
	*n = 0;
	count = unpack_count(io->reader, min_packed);
	if (io->reader->failed || count > FLAT_MAX_ITEMS) {
		io_fail(io);
		return false;
	}
	if (!count)
		return false;
	*array = calloc(count, item_size);
	if (!*array) {
		io->no_memory = true;
		io_fail(io);
		return false;
	}
	*n = count;
	return true;
}

static void io_strings(struct flat_io *io, const char *const **strings)
{
	const char **list = NULL;
	uint32_t n = 0;

	if (io->writer) {
		pack_strings(io->writer, *strings);
		return;
	}
	n = unpack_count(io->reader, sizeof(uint32_t) + 1);
	if (io->reader->failed || n > FLAT_MAX_ITEMS) {
		io_fail(io);
		return;
	}
	list = calloc((size_t)n + 1, sizeof(*list));
	if (!list) {
		io->no_memory = true;
		io_fail(io);
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		list[i] = unpack_string(io->reader);
	*strings = list;
}

/* Inside paths are resolved by the guest under the root of the box, but a relative one is a broken plan. */
static void io_target(struct flat_io *io, const char **target)
{
	io_string(io, target);
	if (io->reader && (*target)[0] != '/')
		io_fail(io);
}

static void io_source(struct flat_io *io, struct flat_source *source)
{
	io_string(io, &source->path);
	io_enum(io, &source->kind, FLAT_WORKSPACE);
	if (io->reader && source->path[0] != '/' && source->kind != FLAT_WORKSPACE)
		io_fail(io);
	io_u32(io, &source->device_major);
	io_u32(io, &source->device_minor);
	io_flag(io, &source->optional);
	io_flag(io, &source->idmap);
	io_u32(io, &source->owner_uid);
	io_u32(io, &source->owner_gid);
}

/* A name in the scratch tmpfs is one component, so that no step reaches another one's folder; '#' is the
 * guest's own. */
static bool name_is_plain(const char *name)
{
	return name[0] && name[0] != '#' && !strchr(name, '/') && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

static bool step_is_sound(const struct flat_step *step, uint32_t n_sources)
{
	bool needs_source = step->op == FLAT_OP_BIND || step->op == FLAT_OP_OVERLAY;
	bool needs_name = step->op == FLAT_OP_SCRATCH || step->op == FLAT_OP_OVERLAY;

	if (step->op < FLAT_OP_DIRECTORY || step->op > FLAT_OP_OVER)
		return false;
	if (step->source < -1 || step->source >= (int64_t)n_sources)
		return false;
	if (needs_source && step->source < 0)
		return false;
	if (needs_name && !name_is_plain(step->name))
		return false;
	if (step->op == FLAT_OP_PROTECT &&
		(step->size_bytes >= strlen(step->target) || step->target[step->size_bytes] != '/'))
		return false;
	if (step->op == FLAT_OP_OVER && step->name[0] != '/')
		return false;
	if (step->op == FLAT_OP_TMPFS && (!step->size_bytes || !step->inodes))
		return false;
	return (step->mode & ~07777U) == 0;
}

static void io_step(struct flat_io *io, struct flat_step *step, uint32_t n_sources)
{
	io_u32(io, &step->op);
	io_u32(io, &step->attr);
	io_u32(io, &step->mode);
	io_i32(io, &step->source);
	io_u64(io, &step->size_bytes);
	io_u64(io, &step->inodes);
	io_target(io, &step->target);
	io_string(io, &step->name);
	io_bytes(io, &step->content, &step->content_len);
	if (io->reader && !io->reader->failed && !step_is_sound(step, n_sources))
		io_fail(io);
}

static void io_limits(struct flat_io *io, struct flat_limits *limits)
{
	io_u64(io, &limits->wall_usec);
	io_u64(io, &limits->idle_usec);
	io_u64(io, &limits->grace_usec);
	io_u64(io, &limits->output_bytes);
	io_u64(io, &limits->disk_bytes);
	io_u64(io, &limits->inodes);
	io_u64(io, &limits->memory_bytes);
	io_u64(io, &limits->pids);
	io_u32(io, &limits->open_files);
	io_flag(io, &limits->pids_by_rlimit);
	io_flag(io, &limits->own_by_rlimit);
	io_flag(io, &limits->output_written);
}

static void io_ids(struct flat_io *io, struct flat_plan *plan)
{
	io_flag(io, &plan->host_is_root);
	io_enum(io, &plan->map, FLAT_MAP_HELPERS);
	io_u32(io, &plan->base_uid);
	io_u32(io, &plan->base_gid);
	io_u32(io, &plan->map_count);
	io_u32(io, &plan->outside_uid);
	io_u32(io, &plan->outside_gid);
	io_u32(io, &plan->inside_uid);
	io_u32(io, &plan->inside_gid);
}

static void io_life(struct flat_io *io, struct flat_plan *plan)
{
	io_flag(io, &plan->detach);
	io_u64(io, &plan->owner_grace_usec);
	io_u64(io, &plan->ttl_usec);
	io_enum(io, &plan->kill, FLAT_KILL_PIDNS);
	io_u32(io, &plan->landlock_abi);
	io_flag(io, &plan->landlock_scope);
	io_limits(io, &plan->limits);
	io_flag(io, &plan->use_cgroup);
	if (io->writer)
		cgroup_layout_pack(io->writer, &plan->cgroup);
	else
		cgroup_layout_unpack(io->reader, &plan->cgroup);
	io_u64(io, &plan->cgroup_limits.memory_bytes);
	io_u64(io, &plan->cgroup_limits.pids);
	io_u64(io, &plan->cgroup_limits.cpu_millis);
}

static void io_lists(struct flat_io *io, struct flat_plan *plan)
{
	void *array = plan->sources;

	if (io_array(io, &array, &plan->n_sources, sizeof(*plan->sources), 32)) {
		plan->sources = array;
		for (uint32_t i = 0; i < plan->n_sources; i++)
			io_source(io, &plan->sources[i]);
	}
	array = plan->steps;
	if (io_array(io, &array, &plan->n_steps, sizeof(*plan->steps), 47)) {
		plan->steps = array;
		for (uint32_t i = 0; i < plan->n_steps; i++)
			io_step(io, &plan->steps[i], plan->n_sources);
	}
	array = plan->landlock;
	if (io_array(io, &array, &plan->n_landlock, sizeof(*plan->landlock), 9)) {
		plan->landlock = array;
		for (uint32_t i = 0; i < plan->n_landlock; i++) {
			io_target(io, &plan->landlock[i].path);
			io_u32(io, &plan->landlock[i].access);
		}
	}
	io_bytes(io, &plan->filter, &plan->filter_len);
	if (io->reader && plan->filter_len % 8 != 0)	/* sizeof(struct sock_filter) */
		io_fail(io);
}

static void io_port(struct flat_io *io, uint32_t *port, uint32_t min)
{
	io_u32(io, port);
	if (io->reader && (*port < min || *port > 65535))
		io_fail(io);
}

static void io_network(struct flat_io *io, struct flat_network *network)
{
	void *array = network->ports;

	io_enum(io, &network->mode, FLAT_NETWORK_OPEN);
	io_enum(io, &network->cell.link, CELL_LINK_BRIDGE);
	io_flag(io, &network->cell.port_rules);
	io_flag(io, &network->cell.v6);
	io_flag(io, &network->stop_on_loss);
	if (io_array(io, &array, &network->n_ports, sizeof(*network->ports), 4)) {
		network->ports = array;
		for (uint32_t i = 0; i < network->n_ports; i++)
			io_port(io, &network->ports[i], 1);
	}
	array = network->publish;
	if (io_array(io, &array, &network->n_publish, sizeof(*network->publish), 14)) {
		network->publish = array;
		for (uint32_t i = 0; i < network->n_publish; i++) {
			io_port(io, &network->publish[i].port, 1);
			io_port(io, &network->publish[i].host_port, 0);
			io_string(io, &network->publish[i].address);
			io_flag(io, &network->publish[i].token);
		}
	}
	io_bytes(io, &network->rules, &network->rules_len);
	if (io->reader && network->n_ports > CELL_PORTS_MAX)
		io_fail(io);
}

static void io_plan(struct flat_io *io, struct flat_plan *plan)
{
	io_u32(io, &plan->version);
	if (io->reader && plan->version != FLAT_VERSION) {
		io_fail(io);
		return;
	}
	io_string(io, &plan->digest);
	io_string(io, &plan->backend);
	io_string(io, &plan->name);
	io_string(io, &plan->hostname);
	io_ids(io, plan);
	io_flag(io, &plan->userxattr);
	io_strings(io, &plan->env);
	io_strings(io, &plan->program);
	io_target(io, &plan->cwd);
	io_string(io, &plan->home);
	io_i32(io, &plan->root_source);
	io_u64(io, &plan->root_size_bytes);
	io_flag(io, &plan->clear_groups);
	io_flag(io, &plan->lo_up);
	io_life(io, plan);
	io_lists(io, plan);
	io_network(io, &plan->network);
	if (io->reader && (plan->root_source < -1 || plan->root_source >= (int64_t)plan->n_sources))
		io_fail(io);
}

bool flat_pack(const struct flat_plan *plan, struct pack_writer *writer)
{
	struct flat_io io = { .writer = writer };
	struct flat_plan copy =
		*plan; /* writing changes nothing; the fields are just not const for both directions */

	copy.version = FLAT_VERSION;
	io_plan(&io, &copy);
	return !writer->failed;
}

int flat_unpack(const void *data, size_t len, struct flat_plan *plan, struct fault *fault)
{
	struct pack_reader reader = PACK_READER(data, len);
	struct flat_io io = { .reader = &reader };

	memset(plan, 0, sizeof(*plan));
	io_plan(&io, plan);
	if (unpack_done(&reader) && plan->map_count > 0)
		return 0;
	flat_clear(plan);
	if (io.no_memory)
		return fault_set(fault, ABOX_E_MEMORY, 0, "plan", "no memory for the plan");
	return fault_set(fault, ABOX_E_PROTOCOL, 0, "plan", "not a plan of version %d", FLAT_VERSION);
}

void flat_clear(struct flat_plan *plan)
{
	free((void *)plan->env);
	free((void *)plan->program);
	free(plan->sources);
	free(plan->steps);
	free(plan->landlock);
	free(plan->network.ports);
	free(plan->network.publish);
	memset(plan, 0, sizeof(*plan));
}
