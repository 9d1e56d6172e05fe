/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "forge.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t server = -1;

static int read_all(int fd, char *buffer, size_t size, const char *until)
{
	size_t len = 0;
	ssize_t n;

	buffer[0] = 0;
	while (len + 1 < size && (n = read(fd, buffer + len, size - 1 - len)) > 0) {
		len += (size_t)n;
		buffer[len] = 0;
		if (until && strstr(buffer, until))
			break;
	}
	return (int)len;
}

static void serve(int listener)
{
	static char heads[1000][64];
	int n_heads = 0;

	for (;;) {
		int fd = accept(listener, NULL, NULL), count = 0, number = 0;
		char request[4096], method[8] = "", head[64] = "", answer[256];

		if (fd < 0)
			continue;
		read_all(fd, request, sizeof(request), "\r\n\r\n");
		if (sscanf(request, "%7s /pulls?head=%63[^ ]", method, head) == 2) {
			if (!strcmp(method, "POST") && n_heads < 1000)
				strcpy(heads[n_heads++], head);
			for (int i = 0; i < n_heads; i++)
				if (!strcmp(heads[i], head)) {
					count++;
					number = i + 1;
				}
			dprintf(fd, "HTTP/1.1 %d OK\r\nConnection: close\r\n\r\n{\"count\":%d,\"number\":%d}",
				!strcmp(method, "POST") ? 201 : 200, count, number);
		} else {
			snprintf(answer, sizeof(answer), "HTTP/1.1 400 Bad Request\r\n\r\n");
			if (write(fd, answer, strlen(answer)) < 0)
				perror("forge");
		}
		close(fd);
	}
}

int forge_start(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&address, len) < 0 ||
		listen(listener, 16) < 0 || getsockname(listener, (struct sockaddr *)&address, &len) < 0)
		return -1;
	server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGPIPE, SIG_IGN);
		serve(listener);
	}
	close(listener);
	return server < 0 ? -1 : ntohs(address.sin_port);
}

void forge_stop(void)
{
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
}

int forge_ask(int port, const char *method, const char *head, char *answer, unsigned int size)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char buffer[4096];
	const char *body;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status = 0;

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		goto out;
	dprintf(fd, "%s /pulls?head=%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", method, head);
	if (!answer) /* the caller crashes here: sent, and nobody reads the answer */
		goto out;
	read_all(fd, buffer, sizeof(buffer), NULL);
	body = strstr(buffer, "\r\n\r\n");
	if (body && sscanf(buffer, "HTTP/1.1 %d", &status) == 1)
		snprintf(answer, size, "%s", body + 4);
out:
	if (fd >= 0)
		close(fd);
	return status;
}
