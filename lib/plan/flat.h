/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The plan as the keeper gets it: flat, without pointers, complete. All choices have been made by the
 * library; keeper and guest only carry them out, step by step, and stop at the first that fails.
 *
 * Both sides compile this file and flat.c (helper code: no library but libc). The structs are views: texts
 * point into the buffer that was unpacked, arrays are allocated once by flat_unpack(), before anything is
 * cloned.
 */
#ifndef PLAN_FLAT_H
#define PLAN_FLAT_H

#include "base/fault.h"
#include "base/macro.h"
#include "base/pack.h"
#include "kernel/cgroup.h"
#include "network/cell.h"

#define FLAT_VERSION 2

/* Where the ids of the box lead outside. */
enum flat_map {
	FLAT_MAP_SINGLE = 0, /* one id: inside_uid <-> the caller's own (plain user) */
	FLAT_MAP_RANGE = 1, /* 0..count-1 inside <-> base_uid.. outside (root) */
	FLAT_MAP_HELPERS = 2, /* newuidmap/newgidmap: inside_uid <-> the caller's own, every other id of
			       * 0..count-1 inside <-> subordinate ids from base */
};

/* How the whole tree of a command is killed, best first. */
enum flat_kill {
	FLAT_KILL_CGROUP2 = 0,	/* a group per command, cgroup.kill */
	FLAT_KILL_SCOPE = 1,	/* a shepherd in a Landlock signal scope, kill(-1) */
	FLAT_KILL_PIDNS = 2,	/* a pid namespace per command */
};

/* A thing of the host that goes into the box. Opened anew at start and looked at again. */
enum flat_kind {
	FLAT_ANY = 0,
	FLAT_DIRECTORY = 1,
	FLAT_FILE = 2,
	FLAT_DEVICE = 3,	/* character device with exactly device_major:device_minor */
	FLAT_WORKSPACE = 4,	/* not at path: what the recorder has opened, see flat_plan.workspace */
};
struct flat_source {
	const char *path;	/* canonical: no link in it when it was compiled, none is followed at start */
	uint32_t kind;
	uint32_t device_major;
	uint32_t device_minor;
	uint8_t optional;	/* gone since compile: steps that use it are left out */
	uint8_t idmap;		/* mounted so that owner_uid:owner_gid appear as the box's user (root only) */
	uint32_t owner_uid;
	uint32_t owner_gid;
};

/* The tree of the box, built in order below its root. Targets are absolute inside; parents exist already. */
enum flat_op {
	FLAT_OP_DIRECTORY = 1, /* target, mode, owner */
	FLAT_OP_SYMLINK = 2, /* target, content = where it points */
	FLAT_OP_FILE = 3, /* target, mode, owner, content; replaces what is there */
	FLAT_OP_BIND = 4, /* source at target (made as empty file or directory when missing), attributes */
	FLAT_OP_SCRATCH =
		5, /* folder `name` of the scratch tmpfs, bound at target; mode, owner, attributes */
	FLAT_OP_TMPFS = 6, /* a tmpfs of its own: size_bytes, inodes, mode, owner, attributes */
	FLAT_OP_PROC = 7,
	FLAT_OP_DEVPTS = 8,
	FLAT_OP_MQUEUE = 9,
	FLAT_OP_OVERLAY = 10, /* source below, upper and work in scratch folder `name`, at target; mode, owner
				 of the upper */
	FLAT_OP_MASK =
		11, /* an empty read-only file or folder over target; nothing when target is not there */
	FLAT_OP_READONLY =
		12, /* the mount at target becomes read-only (bound onto itself first when it is none) */
	FLAT_OP_PROTECT =
		13, /* what is at target is held there, read-only, and every folder above it as far as the
		       place, which is the first size_bytes of target; content = of a file that is made */
	FLAT_OP_OVER =
		14, /* the file of the box that `name` is the path of, read-only over target; nothing when target
		       is not there */
};
enum {
	FLAT_ATTR_RDONLY = 1 << 0,
	FLAT_ATTR_NOEXEC = 1 << 1,
	FLAT_ATTR_RECURSIVE = 1 << 2, /* BIND: with what is mounted below */
	FLAT_ATTR_OWNER_BOX = 1 << 3, /* owned by the plan's user (inside_uid), not by 0 (or, where 0 is not
					 mapped, likewise) */
	FLAT_ATTR_OPTIONAL = 1 << 4, /* a failure of this step is logged and does not end the start */
	FLAT_ATTR_MAKE = 1 << 5, /* PROTECT: made where it is missing, in the lowest layer of an overlay */
	FLAT_ATTR_FOLDER = 1 << 6, /* PROTECT: as a folder */
	FLAT_ATTR_INNER = 1 << 12, /* mounted by the guest, whose kernel is its own; of a DIRECTORY: what that kernel has there */
	FLAT_ATTR_OUTER = 1 << 7, /* the target is in the outer root, where the program of the wall runs */
	FLAT_ATTR_TRUST_PEM = 1 << 8, /* FILE: behind the content the certificate of the box's own CA, as PEM */
	FLAT_ATTR_TRUST_JSON = 1 << 9, /* FILE: the same in base64, then `"]}` */
	FLAT_ATTR_HOLD = 1 << 10, /* PROTECT: in a folder of the host; see keeper/placeholder.c */
	FLAT_ATTR_PLACEHOLDER = 1 << 11, /* PROTECT: made there where it is missing, and removed at the end */
	FLAT_ATTR_TRUST_JAVA = 1 << 13, /* FILE: the same as the last entry of a store (network/keystore.h) */
}; /* nosuid and nodev are on everything but binds of FLAT_DEVICE sources, always */
struct flat_step {
	uint32_t op;
	uint32_t attr;
	uint32_t mode;
	int32_t source;		/* index into sources, -1 for none */
	uint64_t size_bytes;
	uint64_t inodes;
	const char *target;
	const char *name;
	const void *content;
	size_t content_len;
};

/*
 * A workspace of the store, as the recorder has opened it for this start: its layers change from start to start, so they
 * are no part of the frozen plan, and are not packed. Either one mount, ready to be attached (root), or the paths of the
 * layers, from which the guest makes it in a mount namespace of its own. What is found at a path must be the same folder.
 */
struct flat_layer {
	const char *path;
	uint64_t device, inode;
};
struct flat_workspace {
	int mount_fd;			/* -EBADF: by paths */
	int lock_fd;			/* the lock of the workspace; the guest keeps it too: -EBADF for none */
	struct flat_layer top, work;	/* work.path NULL: `top` is the whole tree, nothing is laid over it */
	struct flat_layer *lowers;	/* uppermost first */
	uint32_t n_lowers;
};

/* Landlock rules for commands (never for the guest). */
struct flat_landlock {
	const char *path;	/* inside the box */
	uint32_t access;	/* LANDLOCK_RO, LANDLOCK_RW ... of kernel/landlock.h */
};

struct flat_limits {		/* 0: none */
	uint64_t wall_usec;
	uint64_t idle_usec;
	uint64_t grace_usec;
	uint64_t output_bytes;
	uint64_t disk_bytes;	/* size of the scratch tmpfs */
	uint64_t inodes;
	uint64_t memory_bytes;	/* 0 where it is not enforced; by the group, see cgroup_limits */
	uint64_t pids;		/* by the group; also RLIMIT_NPROC of every command when pids_by_rlimit */
	uint32_t open_files;
	uint8_t pids_by_rlimit;
	uint8_t own_by_rlimit;	/* a command's own memory and pids are RLIMIT_AS and RLIMIT_NPROC of its processes */
	uint8_t output_written;
};

#define FLAT_BOX "/box"
#define FLAT_TEMPLATE "/template"	/* in the outer root: a template of the machine, where one is kept on the host */
enum flat_network_mode {
	FLAT_NETWORK_NONE = 0,
	FLAT_NETWORK_ALLOW = 1,
	FLAT_NETWORK_OPEN = 2,
};
struct flat_publish {
	uint32_t port;		/* in the box */
	uint32_t host_port;	/* 0: any */
	const char *address;
	uint8_t token;		/* only with the bearer token of the box */
};
/* The keeper hands listeners to the egress of the box; rules are the egress's own and stand here for the digest. */
struct flat_network {
	uint32_t mode;		/* enum flat_network_mode; without one nothing else here means anything */
	struct cell_shape cell;
	uint8_t stop_on_loss;	/* the box ends when its egress has */
	uint32_t *ports;	/* for which connections reach egress, ascending */
	uint32_t n_ports;
	struct flat_publish *publish;
	uint32_t n_publish;
	const void *rules;	/* network/rule.h */
	size_t rules_len;
};

struct flat_plan {
	uint32_t version;
	const char *digest;	/* 64 hexadecimal digits */
	const char *backend;
	const char *name;	/* "" for none */
	const char *hostname;
	uint8_t host_is_root;
	uint32_t map;		/* enum flat_map */
	uint32_t base_uid, base_gid, map_count;
	uint32_t outside_uid, outside_gid;	/* the caller's */
	uint32_t inside_uid, inside_gid;	/* of the plan's user: default for commands */
	uint8_t userxattr;	/* overlays keep their marks in user.* attributes (plain user) */
	const char *const *env;	/* NULL-ended */
	const char *cwd;
	const char *home;
	int32_t root_source; /* -1: the root is an empty tmpfs; else an overlay (scratch folder "root") above
				it */
	uint64_t root_size_bytes;	/* of that tmpfs */
	uint8_t clear_groups;	/* setgroups(0) must succeed in the guest */
	uint8_t lo_up;		/* bring the loopback interface up */
	uint8_t detach;		/* on_owner_death keep */
	uint64_t owner_grace_usec;	/* how long a box without an owner is kept; UINT64_MAX for ever */
	uint64_t ttl_usec;	/* how long the record of a detached box stays */
	uint32_t kill;		/* enum flat_kill */
	uint32_t landlock_abi;	/* 0: none */
	uint8_t landlock_scope;	/* signals and abstract sockets confined to the command */
	struct flat_limits limits;
	uint8_t use_cgroup; /* a group "agentbox-ID" is made where the layout says, limited, and joined by the
			       guest */
	struct cgroup_layout cgroup;
	struct cgroup_limits cgroup_limits;

	struct flat_source *sources;
	uint32_t n_sources;
	struct flat_step *steps;
	uint32_t n_steps;
	const char *const *program;	/* what builds the wall, run in an outer root of its own that holds the box's root
					 * as FLAT_BOX: NULL-ended, empty where the kernel's namespaces are the wall */
	struct flat_landlock *landlock;
	uint32_t n_landlock;
	const void *filter;	/* array of struct sock_filter */
	size_t filter_len;	/* in bytes */

	const struct flat_workspace *workspace;	/* not packed; set by the keeper before the wall is prepared */
	struct flat_network network;

	/* not packed: set by the keeper when the egress of the box has made its CA */
	const char *trust_pem;
	size_t trust_pem_len;
	uint8_t template_wanted;	/* not packed: set by the keeper that may keep a template of the machine */
};

static inline bool flat_has_program(const struct flat_plan *plan)
{
	return plan->program && plan->program[0];
}

/* Library side. false when memory ran out. */
bool flat_pack(const struct flat_plan *plan, struct pack_writer *writer);
/* Keeper side: checks version and every length and index. 0, ABOX_E_PROTOCOL, ABOX_E_MEMORY. */
int flat_unpack(const void *data, size_t len, struct flat_plan *plan, struct fault *fault);
void flat_clear(struct flat_plan *plan);	/* frees the arrays that flat_unpack() made */

#endif
