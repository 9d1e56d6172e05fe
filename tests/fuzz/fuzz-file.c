/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a file server may say to the library, and the other way round: the first byte chooses who hears it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <agentbox/file.h>

#include "file/files.h"
#include "file/serve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One call of the library, to which the bytes are the answers. */
static void call_library(uint8_t which, abox_files *files)
{
	struct abox_file_entry entry = ABOX_FILE_ENTRY_INIT;
	struct abox_copy_options options = ABOX_COPY_OPTIONS_INIT;
	abox_file_list *list = NULL;
	char *text = NULL, target[64];
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	options.max_bytes = 1 << 20;
	options.max_entries = 100;
	switch (which % 6) {
	case 0:
		abox_files_stat(files, "a", 0, &entry, NULL);
		break;
	case 1:
		if (abox_files_list(files, "a", &list, NULL) == 0)
			while (abox_file_list_next(list, &entry, NULL) > 0)
				;
		abox_file_list_free(list);
		break;
	case 2:
		if (abox_files_read(files, "a", 0, 1 << 20, &text, NULL, NULL) == 0)
			abox_free(text);
		break;
	case 3:
		abox_files_read_to(files, "a", 0, fd, &options, NULL);
		break;
	case 4:
		abox_files_write(files, "a", 0, 0644, "text", 4, NULL);
		abox_files_remove(files, "a", ABOX_FILE_RECURSIVE, &options, NULL);
		break;
	default:
		snprintf(target, sizeof(target), "/tmp/abox-fuzz-file-%d", (int)getpid());
		if (abox_files_download(files, "a", target, &options, &text, NULL) == 0) {
			char command[160];

			abox_free(text);
			snprintf(command, sizeof(command), "chmod -R u+rwX %s; rm -rf %s", target, target);
			if (system(command) != 0)
				abort();
		}
	}
	close(fd);
}

static void hear_server(const uint8_t *data, size_t size)
{
	abox_files *files = NULL;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	if (size > 60000 || write(pair[1], data + 1, size - 1) != (ssize_t)(size - 1))
		size = 1;
	shutdown(pair[1], SHUT_WR);
	if (files_new(pair[0], &files, NULL) == 0 && files_await_ready(files, NULL) == 0)
		call_library(data[0], files);
	abox_files_unref(files);
	close(pair[1]);
}

static void hear_library(const uint8_t *data, size_t size)
{
	char folder[] = "/dev/shm/abox-fuzz-XXXXXX", command[160];
	int pair[2], root_fd;

	if (!mkdtemp(folder) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	root_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (size <= 60000 && write(pair[1], data, size) == (ssize_t)size) {
		shutdown(pair[1], SHUT_WR);
		file_serve(pair[0], root_fd, true);
	}
	close(root_fd);
	close(pair[0]);
	close(pair[1]);
	/* what the bytes have closed, they must not keep */
	snprintf(command, sizeof(command), "chmod -R u+rwX %s; rm -rf %s", folder, folder);
	if (system(command) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] & 0x80)
		hear_library(data + 1, size - 1);
	else
		hear_server(data, size);
	return 0;
}
