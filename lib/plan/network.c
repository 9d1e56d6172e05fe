/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The network of a box: nothing at all, or a private cell whose every connection goes through an egress
 * process that judges it. Decides the ports of the cell, what the box needs to find names and to trust the
 * egress, and says what of it is enforced by what.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "network/keystore.h"
#include "network/rule.h"
#include "plan/builder.h"
#include "probe/cell.h"

#define BUNDLE_MAX (8U << 20)
#define CHROMIUM_FILE_MAX 65536

#define TRUST_FOLDER "/etc/agentbox"
#define TRUST_BUNDLE                                                                                         \
	TRUST_FOLDER "/bundle.pem" /* what the host trusts, the harness's additions, the box's own CA */
#define TRUST_JAVA TRUST_FOLDER "/cacerts"
#define TRUST_EXTRA TRUST_FOLDER "/extra.pem" /* the last two */

/* Where distributions keep the one file that programs read. */
static const char *const bundles[] = { "/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem" };

/* Variables that name a bundle to programs which do not read that file, or not only. */
static const struct builder_variable variables[] = {
	{ "SSL_CERT_FILE", TRUST_BUNDLE },
	{ "CURL_CA_BUNDLE", TRUST_BUNDLE },
	{ "GIT_SSL_CAINFO", TRUST_BUNDLE },
	{ "REQUESTS_CA_BUNDLE", TRUST_BUNDLE },
	{ "PIP_CERT", TRUST_BUNDLE },
	{ "NODE_EXTRA_CA_CERTS", TRUST_EXTRA },
};

bool plan_has_network(const struct plan_builder *builder)
{
	return spec_enum(builder->spec, "/network/mode") != SPEC_NETWORK_NONE;
}

const struct builder_variable *plan_network_variables(const struct plan_builder *builder, size_t *retn)
{
	*retn = plan_has_network(builder) ? ELEMENTSOF(variables) : 0;
	return variables;
}

/* -- rules and ports -- */

static int build_rules(struct plan_builder *builder, abox_error **reterr)
{
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;
	struct flat_network *network = &builder->flat.network;
	int r;

	r = rules_pack(builder->spec, &writer, reterr);
	if (r < 0)
		return r;
	if (writer.failed)
		return ABOX_E_MEMORY;
	network->rules = builder_bytes(builder, writer.data, writer.len);
	network->rules_len = writer.len;
	return 0;
}

/* Port 53 is the box's name server, and no rule makes it anything else. */
static int build_ports(struct plan_builder *builder, abox_error **reterr)
{
	struct flat_network *network = &builder->flat.network;
	_cleanup_(freep) uint16_t *ports = NULL;
	size_t n;
	int r;

	r = rules_ports(builder->spec, &ports, &n, reterr);
	if (r < 0)
		return r;
	if (n > CELL_PORTS_MAX)
		return spec_refuse(builder->spec, reterr, ABOX_E_LIMIT, ABOX_STAGE_PLAN, "/network/allow",
			"the rules name %zu different ports, and a box has at most %d", n, CELL_PORTS_MAX);
	network->ports = calloc(n + 1, sizeof(*network->ports));
	if (!network->ports)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < n; i++) {
		if (ports[i] == 53)
			return spec_refuse(builder->spec, reterr, ABOX_E_UNSUPPORTED, ABOX_STAGE_PLAN,
				"/network",
				"port 53 is the name server of the box itself and cannot be in a rule");
		/* a machine's own ports are none of the cell's */
		if (ports[i] >= 1024 && builder->wall != PLAN_MICROVM)
			builder_warn(builder,
				"a program of the box cannot listen at port %u, which its network rules name",
				ports[i]);
		network->ports[network->n_ports++] = ports[i];
	}
	return 0;
}

static int build_publish(struct plan_builder *builder)
{
	struct flat_network *network = &builder->flat.network;
	size_t n = spec_count(builder->spec, "/network/publish");

	network->publish = calloc(n + 1, sizeof(*network->publish));
	if (!network->publish)
		return ABOX_E_MEMORY;
	for (size_t i = 0; i < n; i++)
		network->publish[network->n_publish++] = (struct flat_publish){
			.port = (uint32_t)spec_u64(builder->spec, "/network/publish/%zu/port", i),
			.host_port = (uint32_t)spec_u64(builder->spec, "/network/publish/%zu/host_port", i),
			.address = spec_string(builder->spec, "/network/publish/%zu/address", i),
			.token = spec_boolean(builder->spec, "/network/publish/%zu/token", i),
		};
	return 0;
}

/* -- what enforces it -- */

static int build_cell(struct plan_builder *builder, abox_error **reterr)
{
	struct cell_shape *cell = &builder->flat.network.cell;
	int r = host_cell_read(cell);

	if (r == -ENOMEM)
		return ABOX_E_MEMORY;
	if (r < 0)
		return error_set_errno(reterr, ABOX_E_UNAVAILABLE, ABOX_STAGE_PLAN, "/network/mode", -r,
			"this host cannot make the network of a box");
	if (cell->link == CELL_LINK_NONE)
		builder_warn(builder,
			"this kernel has no link but loopback for a box (dummy, ifb, bridge): some "
			"programs believe to be offline");
	enforcement_add(builder,
		&(struct enforcement){ .name = "network.ports",
			.by = cell->port_rules ? "kernel: routing rules by port" : "nothing",
			.status = cell->port_rules ? ENFORCED : ENFORCEMENT_NONE,
			.detail =
				cell->port_rules
					? "every port that no rule names is unreachable"
					: "ports that no rule names lead to the box itself, whatever the address",
			.remedy = "use a kernel with IP_MULTIPLE_TABLES and IPV6_MULTIPLE_TABLES" });
	return 0;
}

/* The harness's proxy, as its other programs use it: lower case first, as curl does. */
static const char *proxy_of_host(void)
{
	static const char *const names[] = { "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY" };

	for (size_t i = 0; i < ELEMENTSOF(names); i++) {
		const char *value = getenv(names[i]);

		if (value && value[0])
			return value;
	}
	return NULL;
}

static void build_upstream(struct plan_builder *builder)
{
	const char *proxy = proxy_of_host(), *exceptions = getenv("no_proxy");

	if (!exceptions)
		exceptions = getenv("NO_PROXY");
	builder->proxy = builder_text(builder, "%s", proxy ? proxy : "");
	builder->no_proxy = builder_text(builder, "%s", proxy && exceptions ? exceptions : "");
	enforcement_add(builder,
		&(struct enforcement){ .name = "network.addresses",
			.by = proxy ? "the proxy of the host" : "egress",
			.status = proxy ? ENFORCEMENT_APPROXIMATED : ENFORCED,
			.detail =
				proxy ? "names are resolved by the proxy, so their addresses are not looked at"
				      : "what a name resolves to must be public, unless a rule names the addresses" });
}

static void build_caps(struct plan_builder *builder)
{
	enforcement_add(builder,
		&(struct enforcement){ .name = "network.caps",
			.by = "egress",
			.detail = builder_text(builder, "%llu connections at once, %llu new ones in a second",
				(unsigned long long)spec_u64(builder->spec, "/network/max_connections"),
				(unsigned long long)spec_u64(builder->spec, "/network/max_rate")) });
}

static void build_effects(struct plan_builder *builder)
{
	size_t n = 0;

	for (size_t i = 0; i < spec_count(builder->spec, "/network/allow"); i++)
		n += spec_written(builder->spec, "/network/allow/%zu/effect", i);
	if (n > 0)
		enforcement_add(builder,
			&(struct enforcement){ .name = "network.effects",
				.by = "egress, recorder",
				.pointer = "/network/allow",
				.required = true,
				.detail = builder_text(builder, "%zu rules: in the journal before they leave, under the task%s", n,
					spec_has(builder->spec, "/task") ? "" : " of the box") });
}

static int build_enforcement(struct plan_builder *builder)
{
	bool open = spec_enum(builder->spec, "/network/mode") == SPEC_NETWORK_OPEN, names = false;
	bool machine = builder->wall == PLAN_MICROVM;

	enforcement_add(builder, &(struct enforcement){ .name = "network",
					 .by = machine ? "kernel: network namespace around the machine, egress"
						       : "kernel: network namespace, egress",
					 .pointer = "/network/mode",
					 .required = true,
					 .detail = builder_text(builder, "%s; %zu rules allow, %zu deny%s",
						 open ? "open: public names on ports 80 and 443"
						      : "allow: what a rule names, nothing else",
						 spec_count(builder->spec, "/network/allow"),
						 spec_count(builder->spec, "/network/deny"),
						 machine ? "; all of 127.0.0.0/8 is the machine's own" : "") });
	build_effects(builder);
	for (size_t i = 0; i < spec_count(builder->spec, "/network/deny"); i++)
		names = names || spec_has(builder->spec, "/network/deny/%zu/host", i);
	if (open && names)
		enforcement_add(builder,
			&(struct enforcement){ .name = "network.deny",
				.by = "egress",
				.pointer = "/network/deny",
				.status = ENFORCEMENT_APPROXIMATED,
				.detail = "by name; addresses that no rule names are refused with it, but a server "
					  "that has another name too is reached by another name" });
	return 0;
}

int plan_build_network(struct plan_builder *builder, abox_error **reterr)
{
	struct flat_network *network = &builder->flat.network;
	int r;

	if (!plan_has_network(builder)) {
		enforcement_add(builder, &(struct enforcement){ .name = "network",
						 .by = "kernel: network namespace",
						 .pointer = "/network/mode",
						 .required = true,
						 .detail = "none: only the box's own loopback" });
		if (spec_count(builder->spec, "/network/publish") > 0)
			return error_remedy(reterr,
				spec_refuse(builder->spec, reterr, ABOX_E_INVALID, ABOX_STAGE_PLAN,
					"/network/publish", "a box without a network publishes no ports"),
				"write \"mode\": \"allow\"; without rules nothing can be reached from the box");
		return 0;
	}
	network->mode = spec_enum(builder->spec, "/network/mode") == SPEC_NETWORK_OPEN ? FLAT_NETWORK_OPEN
										       : FLAT_NETWORK_ALLOW;
	network->stop_on_loss = strcmp(spec_string(builder->spec, "/network/on_egress_loss"), "stop") == 0;
	r = build_enforcement(builder);
	if (r == 0)
		r = build_rules(builder, reterr);
	if (r == 0)
		r = build_ports(builder, reterr);
	if (r == 0)
		r = build_publish(builder);
	if (r == 0)
		r = build_cell(builder, reterr);
	if (r == 0)
		build_upstream(builder);
	if (r == 0)
		build_caps(builder);
	return r;
}

/* -- trust -- */

static void trust_step(
	struct plan_builder *builder, const char *target, uint32_t attr, const struct text *content)
{
	builder_parents(builder, target, false);
	builder_step(builder,
		&(struct flat_step){ .op = FLAT_OP_FILE,
			.target = target,
			.mode = 0444,
			.attr = attr,
			.content = builder_bytes(builder, content->data ? content->data : "", content->len),
			.content_len = content->len,
			.source = -1 });
}

/* Adds a file of certificates that whoever runs the library may read; nothing when there is none. */
static int add_certificates(struct plan_builder *builder, struct text *text, const char *path)
{
	_cleanup_(freep) char *content = NULL;
	size_t len;
	int r = file_read_text(AT_FDCWD, path, BUNDLE_MAX, &content, &len);

	if (r == -ENOMEM)
		return ABOX_E_MEMORY;
	if (r < 0) {
		builder_warn(builder, "certificates cannot be read: %s: %s", path, strerror(-r));
		return 0;
	}
	text_add_bytes(text, content, len);
	if (len && content[len - 1] != '\n')
		text_add(text, "\n");
	return text->failed ? ABOX_E_MEMORY : 0;
}

static const char *host_bundle(void)
{
	for (size_t i = 0; i < ELEMENTSOF(bundles); i++)
		if (access(bundles[i], R_OK) == 0)
			return bundles[i];
	return NULL;
}

/* What the harness itself trusts besides: the box's programs would meet the same servers. */
static int add_harness(struct plan_builder *builder, struct text *text, const char *variable)
{
	const char *path = getenv(variable);
	char real[PATH_MAX], of_bundle[PATH_MAX];

	if (!path || !realpath(path, real))
		return 0;
	for (size_t i = 0; i < ELEMENTSOF(bundles); i++)
		if (realpath(bundles[i], of_bundle) && strcmp(real, of_bundle) == 0)
			return 0;
	return add_certificates(builder, text, real);
}

/* node reads its own list and this file, never the host's bundle: where the harness has it read that, so does
 * the box. */
static bool node_reads_bundle(void)
{
	const char *path = getenv("NODE_EXTRA_CA_CERTS"), *bundle = host_bundle();
	char real[PATH_MAX], of_bundle[PATH_MAX];

	return path && bundle && realpath(path, real) && realpath(bundle, of_bundle) &&
	       strcmp(real, of_bundle) == 0;
}

static int build_bundles(struct plan_builder *builder)
{
	_cleanup_(text_clear) struct text whole = TEXT_INIT, extra = TEXT_INIT;
	const char *bundle = host_bundle();
	int r = 0;

	if (bundle)
		r = add_certificates(builder, &whole, bundle);
	else
		builder_warn(builder, "the host has no bundle of certificates: no server can be verified");
	if (r == 0)
		r = add_harness(builder, &extra, "SSL_CERT_FILE");
	if (r == 0)
		r = add_harness(builder, &extra, "NODE_EXTRA_CA_CERTS");
	if (r < 0)
		return r;
	text_add_bytes(&whole, extra.data ? extra.data : "", extra.len);
	if (whole.failed || extra.failed)
		return ABOX_E_MEMORY;
	builder->extra_roots = builder_text(builder, "%s", extra.data ? extra.data : "");
	builder->roots = builder_bytes(builder, whole.data ? whole.data : "", whole.len);
	builder->roots_len = whole.len;
	trust_step(builder, TRUST_BUNDLE, FLAT_ATTR_TRUST_PEM, &whole);
	trust_step(builder, TRUST_EXTRA, FLAT_ATTR_TRUST_PEM, node_reads_bundle() ? &whole : &extra);
	for (size_t i = 0; i < ELEMENTSOF(bundles); i++) {
		char real[PATH_MAX];
		/* behind a mount no link is followed, so the file itself is meant */
		const char *target =
			builder->flat.root_source < 0 && realpath(bundles[i], real) ? real : bundles[i];

		builder_step(builder, &(struct flat_step){ .op = FLAT_OP_OVER,
					      .target = builder_text(builder, "%s", target),
					      .name = TRUST_BUNDLE,
					      .source = -1 });
	}
	return 0;
}

#define CHROMIUM "/etc/chromium"
#define CHROMIUM_POLICIES CHROMIUM "/policies/managed"

static void copy_small_files(struct plan_builder *builder, const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		const char *path = builder_text(builder, "%s/%s", folder, entry->d_name);
		_cleanup_(freep) char *content = NULL;
		struct stat st;
		size_t len;

		if (stat(path, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH) ||
			file_read_text(AT_FDCWD, path, CHROMIUM_FILE_MAX, &content, &len) < 0)
			continue;
		builder_file(builder, path, 0644, builder_bytes(builder, content, len), len);
	}
	if (dir)
		closedir(dir);
}

/* PEM to what stands in JSON: each certificate as one text, which is base64 already, with a comma behind. */
static void add_certificates_json(struct text *text, const char *pem)
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----", end[] = "-----END CERTIFICATE-----";
	const char *last;

	while (pem && (pem = strstr(pem, begin)) && (last = strstr(pem, end))) {
		text_add(text, "\"");
		for (pem += strlen(begin); pem < last; pem++)
			if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=", *pem))
				text_add_bytes(text, pem, 1);
		text_add(text, "\",");
	}
}

/* Chromium has roots of its own and takes others by managed policy only; its folder is made anew around that.
 */
static void build_chromium(struct plan_builder *builder)
{
	_cleanup_(text_clear) struct text policy = TEXT_INIT;

	if (builder->flat.root_source >= 0 || access(CHROMIUM, F_OK) < 0)
		return;
	copy_small_files(builder, CHROMIUM);
	copy_small_files(builder, CHROMIUM_POLICIES);
	text_add(&policy, "{\"CACertificates\":[");
	add_certificates_json(&policy, builder->extra_roots);
	text_add(&policy, "\"");
	if (policy.failed)
		builder->failed = true;
	else
		trust_step(builder, CHROMIUM_POLICIES "/agentbox.json", FLAT_ATTR_TRUST_JSON, &policy);
}

/* Java reads a store of its own, by way of this file where the distribution has one. */
static int build_java(struct plan_builder *builder)
{
	static const char path[] = "/etc/ssl/certs/java/cacerts";
	_cleanup_(freep) char *content = NULL;
	struct text text = TEXT_INIT;
	size_t len;
	int r;

	if (builder->flat.root_source >= 0)
		return 0;
	r = file_read_text(AT_FDCWD, path, BUNDLE_MAX, &content, &len);
	if (r < 0)
		return r == -ENOMEM ? ABOX_E_MEMORY : 0;
	if (!keystore_open((uint8_t *)content, &len)) {
		builder_warn(builder,
			"%s is no store that a certificate can be added to: Java will not trust inspected hosts",
			path);
		return 0;
	}
	text.data = content;
	text.len = len;
	trust_step(builder, TRUST_JAVA, FLAT_ATTR_TRUST_JAVA, &text);
	builder_step(builder,
		&(struct flat_step){ .op = FLAT_OP_OVER, .target = path, .name = TRUST_JAVA, .source = -1 });
	return 0;
}

int plan_build_trust(struct plan_builder *builder, abox_error **reterr)
{
	int r;

	if (!plan_has_network(builder))
		return 0;
	r = build_bundles(builder);
	if (r == 0)
		r = build_java(builder);
	if (r == 0)
		build_chromium(builder);
	return r;
}
