/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Progress: one line on stderr for what takes more than a second, and only on a terminal that is ours. It is wiped
 * again, so that a log of the terminal holds what the command wrote and nothing else.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "terminal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;
static pthread_t thread;
static const char *text;
static bool running, ending, shown;

static void *show_after_a_second(void *unused)
{
	struct timespec when;
	int r = 0;

	(void)unused;
	clock_gettime(CLOCK_MONOTONIC, &when);
	when.tv_sec += 1;
	pthread_mutex_lock(&lock);
	while (!ending && r == 0)
		r = pthread_cond_timedwait(&ended, &lock, &when);
	if (!ending && terminal_is_ours(STDERR_FILENO)) {
		dprintf(STDERR_FILENO, "agentbox: %s ...", text);
		shown = true;
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

void progress_begin(const char *what)
{
	pthread_condattr_t attributes;

	if (running || !terminal_is_ours(STDERR_FILENO))
		return;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&ended, &attributes);
	pthread_condattr_destroy(&attributes);
	text = what;
	ending = shown = false;
	running = pthread_create(&thread, NULL, show_after_a_second, NULL) == 0;
}

void progress_end(void)
{
	if (!running)
		return;
	pthread_mutex_lock(&lock);
	ending = true;
	pthread_cond_signal(&ended);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	running = false;
	if (shown && terminal_is_ours(STDERR_FILENO))
		dprintf(STDERR_FILENO, "\r\033[K");
}

static volatile sig_atomic_t interrupted;
static bool counted;

static void interrupt(int number)
{
	interrupted = number;
}

/* Once; the second one is the usual end. */
void progress_interruptible(void)
{
	struct sigaction action = { .sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int progress_count(void *userdata, uint64_t entries, uint64_t bytes)
{
	static struct timespec begin;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!begin.tv_sec)
		begin = now;
	if (interrupted)
		return -1;
	if (now.tv_sec - begin.tv_sec < 2 || !terminal_is_ours(STDERR_FILENO))
		return 0;
	dprintf(STDERR_FILENO, "\r\033[Kagentbox: %s %llu files, %llu MiB", (const char *)userdata,
		(unsigned long long)entries, (unsigned long long)(bytes >> 20));
	counted = true;
	return 0;
}

void progress_wipe(void)
{
	if (counted && terminal_is_ours(STDERR_FILENO))
		dprintf(STDERR_FILENO, "\r\033[K");
	counted = false;
}
