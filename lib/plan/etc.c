/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The box's /etc: written new where it is about identity and names, the host's own where it is public
 * configuration that programs need, by an allow-list. Small files are copied into the plan, which freezes
 * them and spares a mount; folders are bound. Nothing that may hold a secret (shadow, ssh, npmrc, gitconfig,
 * pip.conf, apt's auth) is on the list.
 */
#include "plan/builder.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define COPY_MAX 32768	/* larger ones are bound instead: copied, they pass through the plan, its digest and three processes */

static const char *const public_files[] = {
	"ld.so.cache",
	"ld.so.conf",
	"localtime",
	"timezone",
	"os-release",
	"debian_version",
	"lsb-release",
	"redhat-release",
	"alpine-release",
	"services",
	"protocols",
	"rpc",
	"networks",
	"host.conf",
	"gai.conf",
	"mime.types",
	"magic",
	"magic.mime",
	"inputrc",
	"bash.bashrc",
	"bashrc",
	"profile",
	"shells",
	"login.defs",
	"locale.alias",
	"locale.conf",
	"nanorc",
	"ld-musl-x86_64.path",
	"ld-musl-aarch64.path",
	"mke2fs.conf",
	"netconfig",
};
/* Each is a mount of every box, so only those without which programs do not work. */
static const char *const public_folders[] = {
	"alternatives",
	"ssl/certs",
	"pki/tls/certs",
	"pki/ca-trust/extracted",
	"crypto-policies",
	"fonts",
	"maven",
	"chromium",
	"chromium.d",
	"terminfo",
	"texmf",
	"xml",
	"sgml",
	"mono",
	"dotnet",
	"R",
	"ghc",
};
/* Folders whose names may carry a version, such as java-17-openjdk. */
static const char *const public_prefixes[] = { "java", "php" };

static void add_folder(struct plan_builder *builder, const char *name)
{
	char host[PATH_MAX];
	const char *path = builder_text(builder, "/etc/%s", name);
	struct stat st;

	if (!realpath(path, host) || stat(host, &st) < 0 || !S_ISDIR(st.st_mode))
		return;
	builder_bind(builder,
		builder_source(builder, &(struct flat_source){
			.path = builder_text(builder, "%s", host), .kind = FLAT_DIRECTORY, .optional = 1 }),
		path, FLAT_ATTR_RDONLY);
}

static void add_file(struct plan_builder *builder, const char *name)
{
	_cleanup_(freep) char *content = NULL;
	char host[PATH_MAX];
	const char *path = builder_text(builder, "/etc/%s", name);
	struct stat st;
	size_t len;
	int r;

	/* Only what every user may read: a box of root gets nothing that a stranger on the host would not
	 * get. */
	if (!realpath(path, host) || stat(host, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH))
		return;
	r = st.st_size <= COPY_MAX ? file_read_text(AT_FDCWD, host, COPY_MAX, &content, &len) : -EFBIG;
	if (r == -ENOMEM)
		builder->failed = true;
	if (r == 0) {
		builder_file(builder, path, 0644, builder_bytes(builder, content, len), len);
		return;
	}
	builder_bind(builder,
		builder_source(builder, &(struct flat_source){
			.path = builder_text(builder, "%s", host), .kind = FLAT_FILE, .optional = 1 }),
		path, FLAT_ATTR_RDONLY);
}

/* Chromium's folder holds the policy by which it trusts the box's CA: network.c makes it then. */
static bool is_made_elsewhere(const struct plan_builder *builder, const char *name)
{
	return plan_has_network(builder) && strcmp(name, "chromium") == 0;
}

static bool listed(const char *name)
{
	for (size_t i = 0; i < ELEMENTSOF(public_folders); i++)
		if (strcmp(public_folders[i], name) == 0)
			return true;
	return false;
}

static void add_versioned_folders(struct plan_builder *builder)
{
	DIR *dir = opendir("/etc");
	struct dirent *entry;

	if (!dir && errno == ENOMEM)
		builder->failed = true;
	while (dir && (entry = readdir(dir)))
		for (size_t i = 0; i < ELEMENTSOF(public_prefixes); i++)
			if (string_starts_with(entry->d_name, public_prefixes[i]) && !listed(entry->d_name)) {
				add_folder(builder, entry->d_name);
				break;
			}
	if (dir)
		closedir(dir);
}

static void add_text(struct plan_builder *builder, const char *name, const char *text)
{
	builder_file(builder, builder_text(builder, "/etc/%s", name), 0644, text, strlen(text));
}

/* Every id that a command can have here has a name: ssh, whoami and os.userInfo() refuse to work without. */
static void add_users(struct plan_builder *builder)
{
	const struct flat_plan *flat = &builder->flat;
	const char *shell = "/bin/sh", *passwd = "", *group = "";
	bool single = flat->map == FLAT_MAP_SINGLE;

	if (!single || flat->inside_uid == 0) {
		passwd = builder_text(builder, "root:x:0:0:root:/root:%s\n", shell);
		group = "root:x:0:\n";
	}
	if (flat->inside_uid != 0) {
		passwd = builder_text(builder, "%sagent:x:%u:%u:agent:%s:%s\n", passwd, flat->inside_uid,
			flat->inside_gid, flat->home, shell);
		group = builder_text(builder, "%sagent:x:%u:\n", group, flat->inside_gid);
	}
	if (!single && flat->inside_uid != SPEC_UID_AGENT) {
		const char *name = flat->inside_uid == 0 ? "agent" : "agent1000";

		passwd = builder_text(builder, "%s%s:x:%u:%u:agent:/tmp:%s\n", passwd, name, SPEC_UID_AGENT,
			SPEC_UID_AGENT, shell);
		group = builder_text(builder, "%s%s:x:%u:\n", group, name, SPEC_UID_AGENT);
	}
	add_text(builder, "passwd",
		builder_text(
			builder, "%snobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", passwd));
	add_text(builder, "group", builder_text(builder, "%stty:x:5:\nnogroup:x:65534:\n", group));
}

static void add_names(struct plan_builder *builder)
{
	const char *hostname = builder->flat.hostname;

	add_text(builder, "hostname", builder_text(builder, "%s\n", hostname));
	add_text(builder, "hosts",
		builder_text(builder, "127.0.0.1\tlocalhost %s\n::1\tlocalhost ip6-localhost\n", hostname));
	add_text(builder, "resolv.conf",
		plan_has_network(builder) ? "nameserver " CELL_NAMESERVER "\noptions timeout:1 attempts:2\n"
					  : "# no network in this box\n");
	add_text(builder, "nsswitch.conf",
		builder_text(builder,
			"passwd: files\ngroup: files\nshadow: files\nhosts: files%s\nservices: files\nprotocols: files\n"
			"networks: files\n",
			plan_has_network(builder) ? " dns" : ""));
}

int plan_build_etc(struct plan_builder *builder, abox_error **reterr)
{
	add_users(builder);
	add_names(builder);
	builder_symlink(builder, "/etc/mtab", "/proc/self/mounts");
	if (builder->flat.root_source >= 0)
		return 0;	/* a root folder brings its own configuration */
	for (size_t i = 0; i < ELEMENTSOF(public_files); i++)
		add_file(builder, public_files[i]);
	for (size_t i = 0; i < ELEMENTSOF(public_folders); i++)
		if (!is_made_elsewhere(builder, public_folders[i]))
			add_folder(builder, public_folders[i]);
	add_versioned_folders(builder);
	return 0;
}
