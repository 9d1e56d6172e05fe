/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The recipe of the cell. AnyIP: a local route for all addresses makes each of them the box's own; rules by
 * destination port confine that to the ports that egress serves.
 *
 * Why so: the IPv4 route must be in table `local`, since the kernel looks there for the source of an answer,
 * or SYN-ACKs are dropped. So the rule that leads everything to that table (preference 0) is taken away, and
 * the real addresses of the box get a table of their own. IPv6 has no such check: its route has its own table
 * and rule 0 stays. Sources are named, or an IPv4 connection would come from the address it goes to.
 */
#include "network/cell.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <agentbox/error.h>

#include "base/fd.h"
#include "egress/wire.h"
#include "kernel/netlink.h"
#include "network/names.h"

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

#define LINK_NAME "eth0"
#define BACKLOG 1024
#define DNS_PORT 53

enum {
	TABLE_LOCAL = 255,
	TABLE_ANY6 = 100,
	TABLE_OWN4 = 101,
	TABLE_LINK = 100,
	TABLE_MAIN = 254,
	PREFERENCE_OWN = 1,
	PREFERENCE_PORT = 10,
	SCOPE_HOST = 254,
	ROUTE_UNICAST = 1,
	ROUTE_LOCAL = 2,
	ROUTE_ONLINK = 4,
	PROTOCOL_BOOT = 3,
	ACTION_TO_TABLE = 1,
	ADDRESS_PERMANENT = 0x80,
	ADDRESS_NODAD = 0x02,
	ADDRESS_NO_ROUTE = 0x200,
	GEN_MODE_NONE = 1,
};

static const char *const link_names[] = {
	[CELL_LINK_NONE] = "none",
	[CELL_LINK_DUMMY] = "dummy",
	[CELL_LINK_IFB] = "ifb",
	[CELL_LINK_BRIDGE] = "bridge",
};

const char *cell_link_name(uint32_t link)
{
	return link < ELEMENTSOF(link_names) ? link_names[link] : "?";
}

/* ::1 of the prefix that synthetic addresses are in. */
static const struct in6_addr own6 = { .s6_addr = NAMES_V6_PREFIX };

static struct in6_addr address6(void)
{
	struct in6_addr address = own6;

	address.s6_addr[15] = 1;
	return address;
}

static struct in_addr address4(void)
{
	struct in_addr address;

	inet_pton(AF_INET, CELL_ADDRESS4, &address);
	return address;
}

/* -- links and addresses -- */

static int set_flags(int fd, int index, uint32_t flags)
{
	const struct netlink_link head = { .index = index, .flags = flags, .change = flags };
	struct netlink_message message;

	netlink_begin(&message, NETLINK_NEWLINK, 0, &head, sizeof(head));
	return netlink_call(fd, &message);
}

/* Without an fe80 address: connects to link-local neighbours would hang, not fail. */
static int set_no_link_local(int fd, int index)
{
	const struct netlink_link head = { .index = index };
	const uint8_t mode = GEN_MODE_NONE;
	struct netlink_message message;
	size_t families, inet6;

	netlink_begin(&message, NETLINK_NEWLINK, 0, &head, sizeof(head));
	families = netlink_nest(&message, NETLINK_LINK_AF);
	inet6 = netlink_nest(&message, AF_INET6);
	netlink_add(&message, NETLINK_INET6_ADDR_GEN_MODE, &mode, sizeof(mode));
	netlink_end(&message, inet6);
	netlink_end(&message, families);
	return netlink_call(fd, &message);
}

static int make_link(int fd, uint32_t link)
{
	const struct netlink_link head = { 0 };
	struct netlink_message message;
	size_t info;

	netlink_begin(&message, NETLINK_NEWLINK, NETLINK_CREATE | NETLINK_EXCL, &head, sizeof(head));
	netlink_add(&message, NETLINK_LINK_NAME, LINK_NAME, sizeof(LINK_NAME));
	info = netlink_nest(&message, NETLINK_LINK_INFO);
	netlink_add(&message, NETLINK_INFO_KIND, link_names[link], strlen(link_names[link]));
	netlink_end(&message, info);
	return netlink_call(fd, &message);
}

static int add_address(int fd, int index, int family, const void *address, size_t len)
{
	const struct netlink_address head = { .family = (uint8_t)family,
		.bits = (uint8_t)(len * 8),
		.flags = ADDRESS_PERMANENT,
		.index = (uint32_t)index };
	struct netlink_message message;

	netlink_begin(&message, NETLINK_NEWADDR, NETLINK_CREATE | NETLINK_EXCL, &head, sizeof(head));
	netlink_add(&message, NETLINK_ADDR_LOCAL, address, len);
	netlink_add(&message, NETLINK_ADDR_ADDRESS, address, len);
	if (family == AF_INET6)
		netlink_add_u32(
			&message, NETLINK_ADDR_FLAGS, ADDRESS_PERMANENT | ADDRESS_NODAD | ADDRESS_NO_ROUTE);
	return netlink_call(fd, &message);
}

/* The link that the addresses of the cell are on; loopback where there is no other. */
static int make_links(int fd, const struct cell_shape *shape, int *retindex)
{
	int lo = (int)if_nametoindex("lo"), index = lo, r;

	if (lo <= 0)
		return -ENODEV;
	r = set_flags(fd, lo, IFF_UP);
	if (r < 0)
		return r;
	if (shape->link != CELL_LINK_NONE) {
		r = make_link(fd, shape->link);
		if (r < 0)
			return r;
		index = (int)if_nametoindex(LINK_NAME);
		if (shape->v6)
			r = set_no_link_local(fd, index);
		if (r == 0)
			r = set_flags(fd, index, IFF_UP | IFF_NOARP);
		if (r < 0)
			return r;
	}
	*retindex = index;
	return lo;
}

static int make_addresses(int fd, const struct cell_shape *shape, int index)
{
	const struct in6_addr v6 = address6();
	const struct in_addr v4 = address4();
	int r = add_address(fd, index, AF_INET, &v4, sizeof(v4));

	if (r == 0 && shape->v6)
		r = add_address(fd, index, AF_INET6, &v6, sizeof(v6));
	return r;
}

/* -- routes and rules -- */

/* A route that makes an address the box's own; bits 0: all of the family. */
static int add_local_route(
	int fd, int lo, int family, const void *address, uint8_t bits, uint32_t table, const void *source)
{
	const struct netlink_route head = { .family = (uint8_t)family,
		.dst_bits = bits,
		.table = (uint8_t)table,
		.protocol = PROTOCOL_BOOT,
		.scope = SCOPE_HOST,
		.type = ROUTE_LOCAL };
	size_t len = family == AF_INET ? sizeof(struct in_addr) : sizeof(struct in6_addr);
	struct netlink_message message;

	netlink_begin(&message, NETLINK_NEWROUTE, NETLINK_CREATE | NETLINK_EXCL, &head, sizeof(head));
	netlink_add_u32(&message, NETLINK_ROUTE_TABLE, table);
	if (bits)
		netlink_add(&message, NETLINK_ROUTE_DST, address, len);
	if (source)
		netlink_add(&message, NETLINK_ROUTE_PREFSRC, source, len);
	netlink_add_u32(&message, NETLINK_ROUTE_OIF, (uint32_t)lo);
	return netlink_call(fd, &message);
}

static void begin_rule(
	struct netlink_message *message, int family, uint16_t type, uint32_t table, uint32_t preference)
{
	const struct netlink_rule head = {
		.family = (uint8_t)family, .table = (uint8_t)table, .action = ACTION_TO_TABLE
	};

	netlink_begin(message, type, type == NETLINK_NEWRULE ? NETLINK_CREATE | NETLINK_EXCL : 0, &head,
		sizeof(head));
	netlink_add_u32(message, NETLINK_RULE_PRIORITY, preference);
	netlink_add_u32(message, NETLINK_RULE_TABLE, table);
}

static int add_port_rule(int fd, int family, uint32_t table, uint8_t protocol, uint16_t port)
{
	const uint16_t range[2] = { port, port };
	struct netlink_message message;

	begin_rule(&message, family, NETLINK_NEWRULE, table, PREFERENCE_PORT);
	netlink_add(&message, NETLINK_RULE_IP_PROTO, &protocol, sizeof(protocol));
	netlink_add(&message, NETLINK_RULE_DPORT_RANGE, range, sizeof(range));
	return netlink_call(fd, &message);
}

static uint32_t any_table(int family)
{
	return family == AF_INET ? TABLE_LOCAL : TABLE_ANY6;
}

static int move_own_addresses(int fd)
{
	struct netlink_message message;
	int r;

	begin_rule(&message, AF_INET, NETLINK_NEWRULE, TABLE_OWN4, PREFERENCE_OWN);
	r = netlink_call(fd, &message);
	if (r < 0)
		return r;
	begin_rule(&message, AF_INET, NETLINK_DELRULE, TABLE_LOCAL, 0);
	return netlink_call(fd, &message);
}

static int make_routes(int fd, const struct cell_shape *shape, int lo)
{
	const struct in_addr v4 = address4(), loopback = { htonl(0x7f000000) };
	const struct in6_addr v6 = address6();
	int r = 0;

	if (shape->port_rules)
		r = add_local_route(fd, lo, AF_INET, &loopback, 8, TABLE_OWN4, NULL);
	if (r == 0 && shape->port_rules)
		r = add_local_route(fd, lo, AF_INET, &v4, 32, TABLE_OWN4, NULL);
	if (r == 0)
		r = add_local_route(fd, lo, AF_INET, NULL, 0, TABLE_LOCAL, &v4);
	/* the kernel makes this one itself, but some time later: until then answers would leave by the link
	 */
	if (r == 0 && shape->v6)
		r = add_local_route(fd, lo, AF_INET6, &v6, 128, TABLE_LOCAL, NULL);
	if (r == 0 && shape->v6)
		r = add_local_route(
			fd, lo, AF_INET6, NULL, 0, shape->port_rules ? TABLE_ANY6 : TABLE_LOCAL, &v6);
	if (r == 0 && shape->port_rules)
		r = move_own_addresses(fd);
	return r;
}

static int make(int fd, const struct cell_shape *shape, struct fault *fault)
{
	const char *place = "links";
	int index, lo, r;

	lo = r = make_links(fd, shape, &index);
	if (r >= 0) {
		place = "addresses";
		r = make_addresses(fd, shape, index);
	}
	if (r >= 0) {
		place = "routes";
		r = make_routes(fd, shape, lo);
	}
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, place, "of the network cell cannot be made") : 0;
}

int cell_make(const struct cell_shape *shape, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = netlink_open();

	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -fd, "netlink", "cannot be opened");
	return make(fd, shape, fault);
}

static bool has_v6(void)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	fd_close(fd);
	return fd >= 0;
}

int cell_try(struct cell_shape *ret)
{
	_cleanup_(fd_closep) int fd = netlink_open();
	struct cell_shape shape = { .v6 = has_v6() };
	int index, lo = -ENODEV, r;

	if (fd < 0)
		return fd;
	for (uint32_t link = CELL_LINK_DUMMY; lo < 0 && link < ELEMENTSOF(link_names); link++) {
		shape.link = link;
		lo = make_links(fd, &shape, &index);
	}
	if (lo < 0) {
		shape.link = CELL_LINK_NONE;
		lo = make_links(fd, &shape, &index);
	}
	r = lo < 0 ? lo : make_addresses(fd, &shape, index);
	if (r < 0)
		return r;
	shape.port_rules = add_port_rule(fd, AF_INET, any_table(AF_INET), IPPROTO_TCP, 1) == 0 &&
			   (!shape.v6 || add_port_rule(fd, AF_INET6, any_table(AF_INET6), IPPROTO_TCP, 1) == 0);
	r = make_routes(fd, &shape, lo);
	*ret = shape;
	return r;
}

/* -- listeners -- */

static int set_on(int fd, int level, int option)
{
	const int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on)) < 0 ? -errno : 0;
}

/* Bound to every address of one family. A name server must answer from the address that was asked, which IPv6
 * lets it only with FREEBIND. */
static int bind_one(int family, int type, uint16_t port, int *retfd)
{
	_cleanup_(fd_closep) int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in any4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	bool v6 = family == AF_INET6;
	int r = fd < 0 ? -errno : 0;

	if (r == 0 && v6)
		r = set_on(fd, IPPROTO_IPV6, IPV6_V6ONLY);
	if (r == 0 && type == SOCK_DGRAM)
		r = v6 ? set_on(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO) : set_on(fd, IPPROTO_IP, IP_PKTINFO);
	if (r == 0 && type == SOCK_DGRAM && v6)
		r = set_on(fd, IPPROTO_IPV6, IPV6_FREEBIND);
	if (r == 0 && bind(fd, v6 ? (const void *)&any6 : (const void *)&any4,
			      v6 ? sizeof(any6) : sizeof(any4)) < 0)
		r = -errno;
	if (r == 0 && type == SOCK_STREAM && listen(fd, BACKLOG) < 0)
		r = -errno;
	if (r == 0)
		*retfd = steal_fd(fd);
	return r;
}

struct listeners {
	const struct cell_shape *shape;
	struct cell_listener *list;
	size_t n;
	int netlink_fd;
};

static int open_pair(struct listeners *listeners, uint32_t kind, int type, uint16_t port, struct fault *fault)
{
	static const int families[] = { AF_INET, AF_INET6 };
	uint8_t protocol = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;

	for (size_t i = 0; i < (listeners->shape->v6 ? 2 : 1); i++) {
		int fd = -EBADF, r = bind_one(families[i], type, port, &fd);

		if (r == -EADDRINUSE)
			return fault_set(fault, ABOX_E_EXISTS, 0, "network",
				"a program of the box listens at port %u already", port);
		if (r < 0)
			return fault_set(fault, ABOX_E_SYSTEM, -r, "network",
				"port %u of the cell cannot be bound", port);
		listeners->list[listeners->n++] = (struct cell_listener){ kind, port, fd };
		if (listeners->shape->port_rules)
			r = add_port_rule(listeners->netlink_fd, families[i], any_table(families[i]), protocol, port);
		if (r < 0 && r != -EEXIST)
			return fault_set(fault, ABOX_E_SYSTEM, -r, "network",
				"port %u cannot be led into the cell", port);
	}
	return 0;
}

static int open_all(
	struct listeners *listeners, const uint16_t *ports, size_t n_ports, bool dns, struct fault *fault)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n_ports; i++)
		r = open_pair(listeners, EGRESS_LISTENER_TCP, SOCK_STREAM, ports[i], fault);
	if (r == 0 && dns)
		r = open_pair(listeners, EGRESS_LISTENER_DNS_UDP, SOCK_DGRAM, DNS_PORT, fault);
	if (r == 0 && dns)
		r = open_pair(listeners, EGRESS_LISTENER_DNS_TCP, SOCK_STREAM, DNS_PORT, fault);
	return r;
}

int cell_listen(const struct cell_shape *shape, const uint16_t *ports, size_t n_ports, bool dns,
	struct cell_listener *ret, size_t *retn, struct fault *fault)
{
	struct listeners listeners = { .shape = shape, .list = ret };
	_cleanup_(fd_closep) int fd = netlink_open();
	int r;

	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -fd, "netlink", "cannot be opened");
	listeners.netlink_fd = fd;
	r = open_all(&listeners, ports, n_ports, dns, fault);
	if (r < 0) {
		for (size_t i = 0; i < listeners.n; i++)
			fd_close(ret[i].fd);
		return r;
	}
	*retn = listeners.n;
	return 0;
}

/* -- the link of a machine -- */

/* All of the family goes out there. The gateway is no neighbour by address, since then all of its network would be, and
 * a connect to what is not there would hang. */
static int add_link_route(int fd, int index, int family, uint32_t table, const char *gateway)
{
	const struct netlink_route head = { .family = (uint8_t)family,
		.table = (uint8_t)table,
		.protocol = PROTOCOL_BOOT,
		.type = ROUTE_UNICAST,
		.flags = ROUTE_ONLINK };
	struct netlink_message message;
	uint8_t address[16];

	inet_pton(family, gateway, address);
	netlink_begin(&message, NETLINK_NEWROUTE, NETLINK_CREATE | NETLINK_EXCL, &head, sizeof(head));
	netlink_add_u32(&message, NETLINK_ROUTE_TABLE, table);
	netlink_add(&message, NETLINK_ROUTE_GATEWAY, address, family == AF_INET ? 4 : 16);
	netlink_add_u32(&message, NETLINK_ROUTE_OIF, (uint32_t)index);
	return netlink_call(fd, &message);
}

static int make_link_family(int fd, int index, int family)
{
	bool v4 = family == AF_INET, rules;
	uint8_t address[16];
	int r;

	inet_pton(family, v4 ? CELL_ADDRESS4 : CELL_LINK_ADDRESS6, address);
	r = add_address(fd, index, family, address, v4 ? 4 : 16);
	if (r < 0)
		return r;
	rules = add_port_rule(fd, family, TABLE_LINK, IPPROTO_UDP, DNS_PORT) == 0;
	return add_link_route(fd, index, family, rules ? TABLE_LINK : TABLE_MAIN, v4 ? CELL_LINK_GATEWAY4 : CELL_LINK_GATEWAY6);
}

int cell_link_make(bool v6, struct fault *fault)
{
	_cleanup_(fd_closep) int fd = netlink_open();
	int index = (int)if_nametoindex(LINK_NAME), r;

	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -fd, "netlink", "cannot be opened");
	if (index <= 0)
		return fault_set(fault, ABOX_E_SYSTEM, errno, LINK_NAME, "the machine has no such link");
	r = set_flags(fd, (int)if_nametoindex("lo"), IFF_UP);
	if (r == 0 && v6)
		r = set_no_link_local(fd, index);
	if (r == 0)
		r = set_flags(fd, index, IFF_UP);
	if (r == 0)
		r = make_link_family(fd, index, AF_INET);
	if (r == 0 && v6)
		r = make_link_family(fd, index, AF_INET6);
	return r < 0 ? fault_set(fault, ABOX_E_SYSTEM, -r, LINK_NAME, "cannot be set up") : 0;
}

int cell_link_ports(bool v6, const uint16_t *ports, size_t n_ports, bool dns, struct fault *fault)
{
	static const int families[] = { AF_INET, AF_INET6 };
	_cleanup_(fd_closep) int fd = netlink_open();

	if (fd < 0)
		return fault_set(fault, ABOX_E_SYSTEM, -fd, "netlink", "cannot be opened");
	for (size_t i = 0; i < n_ports + dns; i++) {
		for (size_t k = 0; k < (v6 ? 2 : 1); k++) {
			int r = add_port_rule(fd, families[k], TABLE_LINK, IPPROTO_TCP, i < n_ports ? ports[i] : DNS_PORT);

			/* without rules at all everything is led there already */
			if (r < 0 && r != -EEXIST && r != -EOPNOTSUPP)
				return fault_set(fault, ABOX_E_SYSTEM, -r, LINK_NAME, "no rule for a port");
		}
	}
	return 0;
}
