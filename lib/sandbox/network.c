/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network of a box from outside: its egress is started here and handed to the keeper; rules, published
 * ports and events are asked of the keeper and read from the box's folder.
 */
#include "sandbox/network.h"

#include <agentbox/network.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memfd.h"
#include "base/pack.h"
#include "base/socket.h"
#include "egress/wire.h"
#include "keeper/wire.h"
#include "network/rule.h"
#include "sandbox/credential.h"
#include "sandbox/peer.h"
#include "sandbox/sandbox.h"
#include "spec/spec.h"

#define PLAN_MAX (16 << 20)
#define EVENTS_MAX (1U << 20) /* bytes of one answer */

void network_helper_clear(struct network_helper *helper)
{
	helper->fd = fd_close(helper->fd);
	helper->pidfd = fd_close(helper->pidfd);
}

static const struct peer egress = { .name = "egress",
	.reach = "an egress",
	.program = "agentbox-egress",
	.ok = EGRESS_OK,
	.fault = EGRESS_FAULT };

static int open_egress(
	int fd, const struct plan_view *view, const char *id, uint64_t deadline_usec, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int minter_fd = -EBADF;
	int fds[3] = { view->rules_fd, view->roots_fd }, r;

	r = credential_start(view, deadline_usec, &minter_fd, reterr);
	if (r < 0)
		return r;
	fds[2] = minter_fd;

	pack_u32(&writer, EGRESS_OPEN);
	pack_u32(&writer, 1);
	pack_u32(&writer, EGRESS_VERSION);
	pack_string(&writer, id);
	pack_string(&writer, view->proxy);
	pack_string(&writer, view->no_proxy);
	pack_u32(&writer, view->max_connections);
	pack_u32(&writer, view->max_half_open);
	pack_u32(&writer, view->max_rate);
	pack_u32(&writer, view->egress_uid);
	pack_u32(&writer, view->egress_gid);
	if (writer.failed)
		return ABOX_E_MEMORY;
	r = socket_send_until(fd, writer.data, writer.len, fds, minter_fd >= 0 ? 3 : 2,
		deadline_usec);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_GONE, ABOX_STAGE_START, "egress", -r, "it cannot be reached");
	return peer_answer(&egress, fd, deadline_usec, reterr);
}

int network_start(const struct plan_view *view, const char *id, uint64_t deadline_usec,
	struct network_helper *ret, abox_error **reterr)
{
	_cleanup_(network_helper_clear) struct network_helper helper = NETWORK_HELPER_INIT;
	_cleanup_(fd_closep) int fd = -EBADF;
	int r;

	if (view->egress_fd < 0)
		return 0;
	r = peer_start(&egress, view->egress_fd, &fd, &helper.fd, &helper.pidfd, reterr);
	if (r < 0)
		return r;
	r = open_egress(fd, view, id, deadline_usec, reterr);
	if (r < 0)
		return r;
	*ret = helper;
	helper = (struct network_helper)NETWORK_HELPER_INIT;
	return 0;
}

/* -- looking -- */

int abox_network_info(abox_sandbox *box, char **retjson, abox_error **reterr)
{
	struct pack_writer writer;
	struct pack_reader reader;
	const char *json;
	int r;

	if (!box || !retjson)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "box and retjson are required");
	client_begin(&box->client, &writer, WIRE_NET_INFO);
	r = client_call(&box->client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0) {
		json = unpack_string(&reader);
		*retjson = reader.failed ? NULL : strdup(json);
		r = reader.failed ? ABOX_E_PROTOCOL : *retjson ? 0 : ABOX_E_MEMORY;
	}
	client_end(&box->client, &writer);
	return r;
}

int abox_network_events(
	abox_sandbox *box, uint64_t cursor, char **retlines, uint64_t *retnext, abox_error **reterr)
{
	_cleanup_(fd_closep) int fd = -EBADF;
	char *lines, *end;
	ssize_t n;

	if (!box || !retlines || !retnext)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL,
			"box, retlines and retnext are required");
	fd = openat(box->box_fd, STATE_NETWORK_LOG, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno != ENOENT)
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, STATE_NETWORK_LOG, errno,
			"the events of the box cannot be read");
	lines = malloc(EVENTS_MAX + 1);
	if (!lines)
		return ABOX_E_MEMORY;
	n = fd < 0 ? 0 : fd_pread_all(fd, lines, EVENTS_MAX, cursor);
	if (n < 0) {
		free(lines);
		return error_set_errno(reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, STATE_NETWORK_LOG, (int)-n,
			"the events of the box cannot be read");
	}
	/* a line that is being written is for the next time */
	lines[n] = 0;
	end = n ? memrchr(lines, '\n', (size_t)n) : NULL;
	n = end ? end + 1 - lines : 0;
	lines[n] = 0;
	*retlines = lines;
	*retnext = cursor + (uint64_t)n;
	return n > 0;
}

/* -- changing -- */

/* What a box has from its start to its end, and its rules may need: a change of rules never brings another. */
static const char *const fixed[] = { "credentials", "journal", "task" };

/* 1, 0 where there is no such file, or a code. */
static int read_json(abox_sandbox *box, const char *name, struct json **ret, abox_error **reterr)
{
	struct json_bounds bounds = { .max_bytes = PLAN_MAX, .max_depth = 32, .stage = ABOX_STAGE_OPEN };
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r = file_read_text(box->box_fd, name, PLAN_MAX, &text, &len);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, name, -r, "cannot read the rules of the box");
	r = json_parse(text, len, &bounds, ret, reterr);
	return r < 0 ? r : 1;
}

static int read_plan(abox_sandbox *box, struct json **ret, abox_error **reterr)
{
	int r = read_json(box, STATE_PLAN, ret, reterr);

	return r == 0 ? error_set(reterr, ABOX_E_GONE, ABOX_STAGE_OPEN, STATE_PLAN, "the box has no plan any more") : r;
}

/* The network of the plan, as long as nobody has changed it. */
int abox_network_get_rules(abox_sandbox *box, char **retjson, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *plan = NULL, *changed = NULL;
	_cleanup_(text_clear) struct text answer = TEXT_INIT;
	const struct json *spec, *network;
	int r;

	if (!box || !retjson)
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "box and retjson are required");
	r = read_plan(box, &plan, reterr);
	if (r >= 0)
		r = read_json(box, STATE_NETWORK, &changed, reterr);
	if (r < 0)
		return r;
	spec = json_member(plan, "spec");
	network = json_member(changed ? changed : spec, "network");
	text_add(&answer, "{\"network\":");
	if (network)
		json_print(&answer, network);
	else
		text_add(&answer, "{\"mode\":\"none\"}");
	for (size_t i = 0; i < ELEMENTSOF(fixed); i++) {
		const struct json *value = json_member(spec, fixed[i]);

		if (!value)
			continue;
		text_printf(&answer, ",\"%s\":", fixed[i]);
		json_print(&answer, value);
	}
	text_add(&answer, "}");
	return text_take(&answer, retjson);
}

static int fix(abox_spec *spec, const char *name, const struct json *value, abox_error **reterr)
{
	_cleanup_(freep) char *text = NULL;
	char pointer[32];
	int r;

	snprintf(pointer, sizeof(pointer), "/%s", name);
	if (!value)
		return abox_spec_clear(spec, pointer, reterr);
	r = json_print_new(value, &text);
	return r < 0 ? r : abox_spec_set_json(spec, pointer, text, reterr);
}

static bool started_with_effects(const struct json *started)
{
	const struct json *rules = json_member(json_member(started, "network"), "allow");

	for (size_t i = 0; i < json_count(rules); i++)
		if (json_member(json_element(rules, i), "effect"))
			return true;
	return false;
}

static bool has_credential(const abox_spec *spec, const char *name)
{
	for (size_t i = 0; i < spec_count(spec, "/credentials"); i++)
		if (strcmp(spec_string(spec, "/credentials/%zu/name", i), name) == 0)
			return true;
	return false;
}

/* Nobody would mint it, or write it down: each request would be refused, and whoever changed the rules not told. */
static int check_started(const abox_spec *spec, bool effects, abox_error **reterr)
{
	for (size_t i = 0; i < spec_count(spec, "/network/allow"); i++) {
		const char *credential = spec_string(spec, "/network/allow/%zu/credential", i);
		bool no_credential = credential && !has_credential(spec, credential);
		char pointer[64];

		if (!no_credential && (effects || !spec_written(spec, "/network/allow/%zu/effect", i)))
			continue;
		snprintf(pointer, sizeof(pointer), "/network/allow/%zu/%s", i, no_credential ? "credential" : "effect");
		spec_refuse(spec, reterr, ABOX_E_STATE, ABOX_STAGE_OPEN, pointer, "the box was started without %s",
			no_credential ? "this credential" : "effects");
		return error_remedy(reterr, ABOX_E_STATE, "start a box whose spec has it");
	}
	return 0;
}

/* A spec of the rules that are wished and of what the box was started with, checked. */
static int spec_for_box(abox_sandbox *box, const abox_spec *wish, abox_spec **ret, abox_error **reterr)
{
	_cleanup_(json_unrefp) struct json *plan = NULL;
	_cleanup_(spec_unrefp) abox_spec *spec = NULL;
	const struct json *started;
	int r;

	r = read_plan(box, &plan, reterr);
	if (r >= 0)
		r = abox_spec_copy(wish, &spec);
	started = r < 0 ? NULL : json_member(plan, "spec");
	for (size_t i = 0; r >= 0 && i < ELEMENTSOF(fixed); i++)
		r = fix(spec, fixed[i], json_member(started, fixed[i]), reterr);
	if (r >= 0)
		r = check_started(spec, started_with_effects(started), reterr);
	if (r >= 0)
		r = abox_spec_check(spec, reterr);
	if (r < 0)
		return r;
	*ret = steal_ptr(spec);
	return 0;
}

/* The network of a spec alone, as JSON in a sealed memory file. */
static int keep_json(const abox_spec *spec, int *retfd, abox_error **reterr)
{
	_cleanup_(text_clear) struct text text = TEXT_INIT;
	const struct json *network = json_member(spec_tree(spec), "network");
	int r;

	text_add(&text, "{\"network\":");
	if (network)
		json_print(&text, network);
	else
		text_add(&text, "{\"mode\":\"none\"}");
	text_add(&text, "}");
	if (text.failed)
		return ABOX_E_MEMORY;
	r = memfd_new_sealed("agentbox-network", text.data, text.len, 0400, retfd);
	return r < 0 ? error_set_errno(
			       reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, "memfd", -r, "cannot keep the rules")
		     : 0;
}

int abox_network_set_rules(abox_sandbox *box, const abox_spec *spec, uint32_t flags, abox_error **reterr)
{
	_cleanup_(spec_unrefp) abox_spec *full = NULL;
	_cleanup_(pack_writer_clearp) struct pack_writer rules = PACK_WRITER_INIT;
	_cleanup_(fd_closep) int fd = -EBADF, json_fd = -EBADF;
	_cleanup_(freep) uint16_t *ports = NULL;
	struct pack_writer writer;
	struct pack_reader reader;
	size_t n_ports;
	int r;

	if (!box || !spec || (flags & ~(uint32_t)ABOX_NETWORK_CUT))
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "box and spec are required");
	r = spec_for_box(box, spec, &full, reterr);
	if (r == 0)
		r = rules_pack(full, &rules, reterr);
	if (r == 0)
		r = rules_ports(full, &ports, &n_ports, reterr);
	if (r < 0 || rules.failed)
		return r < 0 ? r : ABOX_E_MEMORY;
	r = memfd_new_sealed("agentbox-rules", rules.data, rules.len, 0400, &fd);
	if (r < 0)
		return error_set_errno(
			reterr, ABOX_E_SYSTEM, ABOX_STAGE_OPEN, "memfd", -r, "cannot keep the rules");
	r = keep_json(spec, &json_fd, reterr);
	if (r < 0)
		return r;
	client_begin(&box->client, &writer, WIRE_NET_RULES);
	pack_u64(&writer, box->epoch);
	pack_u8(&writer, flags & ABOX_NETWORK_CUT);
	pack_u32(&writer, (uint32_t)n_ports);
	for (size_t i = 0; i < n_ports; i++)
		pack_u32(&writer, ports[i]);
	r = client_call(&box->client, &writer, (const int[]){ fd, json_fd }, 2, UINT64_MAX, &reader, reterr);
	client_end(&box->client, &writer);
	return r;
}

int abox_network_publish(
	abox_sandbox *box, const struct abox_publish *wish, struct abox_published *ret, abox_error **reterr)
{
	struct abox_publish full = { .size = sizeof(full) };
	struct pack_writer writer;
	struct pack_reader reader;
	const char *token;
	int r;

	if (!box || !wish || !ret || wish->size < sizeof(size_t) || ret->size != sizeof(*ret))
		return error_set(
			reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "box, wish and ret are required");
	memcpy(&full, wish, MIN(wish->size, sizeof(full)));
	client_begin(&box->client, &writer, WIRE_NET_PUBLISH);
	pack_u64(&writer, box->epoch);
	pack_u32(&writer, full.port);
	pack_u32(&writer, full.host_port);
	pack_string(&writer, full.address ? full.address : "127.0.0.1");
	pack_u8(&writer, full.token != 0);
	r = client_call(&box->client, &writer, NULL, 0, UINT64_MAX, &reader, reterr);
	if (r == 0) {
		ret->id = unpack_u32(&reader);
		ret->host_port = unpack_u32(&reader);
		token = unpack_string(&reader);
		if (reader.failed || strlen(token) >= sizeof(ret->token))
			r = ABOX_E_PROTOCOL;
		else
			strcpy(ret->token, token);
	}
	client_end(&box->client, &writer);
	return r;
}

int abox_network_unpublish(abox_sandbox *box, uint32_t id, abox_error **reterr)
{
	struct pack_writer writer;

	if (!box)
		return error_set(reterr, ABOX_E_INVALID, ABOX_STAGE_OPEN, NULL, "box is required");
	client_begin(&box->client, &writer, WIRE_NET_UNPUBLISH);
	pack_u64(&writer, box->epoch);
	pack_u32(&writer, id);
	return client_simple(&box->client, &writer, reterr);
}
