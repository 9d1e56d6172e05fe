/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Providers in the harness: the test plays the minter. Which threads callbacks run on, that they run at the same time, and that none is
 * answered after a stop. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/socket.h"
#include "credential/slot.h"
#include "credential/wire.h"
#include "sandbox/credential.h"

#define BOUND (20 * USEC_PER_SEC)

struct scene {
	int fd; /* the minter's end */
	abox_credential_server *server;
	atomic_int n_minted, n_destroyed;
	sem_t inside, go; /* a callback that waits */
	bool waits;
	int (*answer)(abox_credential_answer *answer);
};

static int mint(void *userdata, const struct abox_credential_question *question, abox_credential_answer *answer)
{
	struct scene *scene = userdata;

	cr_assert_eq(question->size, sizeof(*question));
	cr_expect_str_eq(question->name, "forge");
	cr_expect_str_eq(question->subject, "user:1");
	cr_expect_str_eq(question->resource, "org/repo");
	cr_expect_str_eq(question->audience, "aud");
	cr_expect_eq(question->n_actions, 2);
	cr_expect_str_eq(question->actions[1], "write");
	cr_expect_null(question->actions[2]);
	cr_expect_eq(question->ttl_usec, 600 * USEC_PER_SEC);
	cr_expect_eq(question->left_usec, 7);
	atomic_fetch_add(&scene->n_minted, 1);
	if (scene->waits) {
		sem_post(&scene->inside);
		sem_wait(&scene->go);
	}
	return scene->answer ? scene->answer(answer) : abox_credential_answer_value(answer, "VALUE", 5, 1000);
}

static int sign(void *userdata, const struct abox_credential_question *question,
	const struct abox_credential_request *request, abox_credential_answer *answer)
{
	cr_expect_str_eq(request->method, "POST");
	cr_expect_str_eq(request->host, "a.test:444");
	cr_expect_eq(request->port, 444);
	cr_expect_eq(request->tls, 1);
	cr_expect_str_eq(request->path, "/x");
	cr_expect_str_eq(request->query, "q=1");
	cr_expect_eq(request->n_fields, 1);
	cr_expect_str_eq(request->names[0], "Date");
	cr_expect_str_eq(request->values[0], "now");
	cr_expect_eq(request->body_bytes, 5);
	cr_expect_eq(request->body_sha256[31], 9);
	cr_expect_eq(abox_credential_answer_value(answer, "x", 1, 0), ABOX_E_INVALID);
	cr_expect_eq(abox_credential_answer_field(answer, "A B", "x"), ABOX_E_INVALID);
	cr_expect_eq(abox_credential_answer_field(answer, "A", "x\r\nB: y"), ABOX_E_INVALID);
	for (int i = 0; i < 16; i++)
		cr_expect_eq(abox_credential_answer_field(answer, "X-Sign", "mac"), 0);
	cr_expect_eq(abox_credential_answer_field(answer, "X-Sign", "mac"), ABOX_E_LIMIT);
	return 0;
}

static int take_back(void *userdata, const struct abox_credential_question *question, const void *value, size_t len, uint32_t why)
{
	return len == 5 && memcmp(value, "VALUE", 5) == 0 && why == ABOX_CREDENTIAL_RENEWED ? 0 : -1;
}

static void destroy(void *userdata)
{
	atomic_fetch_add(&((struct scene *)userdata)->n_destroyed, 1);
}

static void scene_open(struct scene *scene)
{
	const struct abox_credential_provider provider = { ABOX_CREDENTIAL_PROVIDER_INIT, mint, sign, take_back, scene, destroy };
	int pair[2];

	memset(scene, 0, sizeof(*scene));
	sem_init(&scene->inside, 0, 0);
	sem_init(&scene->go, 0, 0);
	cr_assert_eq(socket_pair(pair), 0);
	scene->fd = pair[0];
	cr_assert_eq(credential_server_new(pair[1], &provider, &scene->server), 0);
}

static void scene_close(struct scene *scene)
{
	scene->server = abox_credential_server_unref(scene->server);
	cr_expect_eq(atomic_load(&scene->n_destroyed), 1);
	close(scene->fd);
}

static void put(struct scene *scene, uint32_t type, uint32_t serial)
{
	static const char *const scopes[] = { "read", "write", NULL };
	static const uint8_t digest[32] = { [31] = 9 };
	struct slot slot = { .name = "forge", .subject = "user:1", .resource = "org/repo", .audience = "aud", .scopes = scopes,
		.ttl_usec = 600 * USEC_PER_SEC };
	_cleanup_(pack_writer_clearp) struct pack_writer writer = PACK_WRITER_INIT;

	pack_u32(&writer, type);
	pack_u32(&writer, serial);
	pack_u64(&writer, 7);
	slot_pack_questions(&slot, &writer);
	if (type == PROVIDER_SIGN) {
		pack_string(&writer, "POST");
		pack_string(&writer, "a.test:444");
		pack_u32(&writer, 444);
		pack_u8(&writer, 1);
		pack_string(&writer, "/x");
		pack_string(&writer, "q=1");
		pack_u32(&writer, 1);
		pack_string(&writer, "Date");
		pack_string(&writer, "now");
		pack_u64(&writer, 5);
		pack_bytes(&writer, digest, sizeof(digest));
	} else if (type == PROVIDER_REVOKE) {
		pack_u32(&writer, ABOX_CREDENTIAL_RENEWED);
		pack_string(&writer, "VALUE");
	}
	cr_assert_eq(socket_send(scene->fd, writer.data, writer.len, NULL, 0), 0);
}

/* The next answer: its type, its serial, and where its fields begin. */
static uint32_t get(struct scene *scene, uint32_t *retserial, struct pack_reader *reader)
{
	static uint8_t packet[MINTER_PACKET_MAX];
	ssize_t n = socket_recv_until(scene->fd, packet, sizeof(packet), NULL, NULL, clock_deadline(clock_monotonic_usec(), BOUND));
	uint32_t type;

	cr_assert_gt(n, 0);
	*reader = PACK_READER(packet, (size_t)n);
	type = unpack_u32(reader);
	*retserial = unpack_u32(reader);
	return type;
}

Test(serve, each_question_is_answered)
{
	struct pack_reader reader;
	struct scene scene;
	uint32_t serial;
	size_t len;

	scene_open(&scene);
	cr_expect_eq(abox_credential_server_process(scene.server, 0, NULL), 0);
	put(&scene, PROVIDER_MINT, 1);
	put(&scene, PROVIDER_SIGN, 2);
	put(&scene, PROVIDER_REVOKE, 3);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(abox_credential_server_process(scene.server, BOUND, NULL), 1);
	cr_expect_eq(get(&scene, &serial, &reader), PROVIDER_VALUE);
	cr_expect_eq(serial, 1);
	cr_expect_eq(unpack_u64(&reader), 1000);
	cr_expect_eq(memcmp(unpack_bytes(&reader, &len), "VALUE", 5), 0);
	cr_expect(unpack_done(&reader));
	cr_expect_eq(get(&scene, &serial, &reader), PROVIDER_FIELDS);
	cr_expect_eq(unpack_u32(&reader), 16);
	cr_expect_str_eq(unpack_string(&reader), "X-Sign");
	cr_expect_eq(get(&scene, &serial, &reader), PROVIDER_REVOKED);
	cr_expect_eq(serial, 3);
	scene_close(&scene);
}

static int nothing(abox_credential_answer *answer)
{
	return 0;
}
static int fails(abox_credential_answer *answer)
{
	abox_credential_answer_value(answer, "SECRET", 6, 0);
	return -5;
}
static int says_why(abox_credential_answer *answer)
{
	abox_credential_answer_value(answer, "SECRET", 6, 0);
	return abox_credential_answer_refuse(answer, "not today");
}
static int bad_values(abox_credential_answer *answer)
{
	static char large[9000];

	memset(large, 'x', sizeof(large));
	cr_expect_eq(abox_credential_answer_value(answer, "a\r\nb", 4, 0), ABOX_E_INVALID);
	cr_expect_eq(abox_credential_answer_value(answer, "", 0, 0), ABOX_E_INVALID);
	cr_expect_eq(abox_credential_answer_value(answer, large, sizeof(large), 0), ABOX_E_INVALID);
	return 0;
}

/* T13-3: whatever goes wrong in a callback, there is no value, and a reason. */
Test(serve, failures_are_refusals)
{
	static const struct {
		int (*answer)(abox_credential_answer *answer);
		const char *why;
	} rows[] = { { nothing, "gave none" }, { fails, "gave none" }, { says_why, "not today" }, { bad_values, "gave none" } };
	struct pack_reader reader;
	struct scene scene;
	uint32_t serial;
	const char *why;

	scene_open(&scene);
	for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
		scene.answer = rows[i].answer;
		put(&scene, PROVIDER_MINT, 1);
		cr_assert_eq(abox_credential_server_process(scene.server, BOUND, NULL), 1);
		cr_expect_eq(get(&scene, &serial, &reader), PROVIDER_REFUSED);
		why = unpack_string(&reader);
		cr_expect(strstr(why, rows[i].why), "%s", why);
		cr_expect_null(strstr(why, "SECRET"));
	}
	cr_assert_eq(socket_send(scene.fd, "nonsense", 8, NULL, 0), 0);
	cr_expect_eq(abox_credential_server_process(scene.server, BOUND, NULL), ABOX_E_PROTOCOL);
	scene_close(&scene);
}

static void *process_all(void *userdata)
{
	abox_credential_server *server = userdata;
	int r;

	do
		r = abox_credential_server_process(server, ABOX_FOREVER, NULL);
	while (r > 0);
	abox_credential_server_unref(server);
	return (void *)(intptr_t)r;
}

/* T13-3: called on two threads at once; each answer has the serial of its question. */
Test(serve, callbacks_run_at_the_same_time, .timeout = 60)
{
	struct pack_reader reader;
	pthread_t threads[2];
	struct scene scene;
	uint32_t seen = 0;
	void *r;

	scene_open(&scene);
	scene.waits = true;
	for (int i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, process_all, abox_credential_server_ref(scene.server)), 0);
	put(&scene, PROVIDER_MINT, 1);
	put(&scene, PROVIDER_MINT, 2);
	sem_wait(&scene.inside);
	sem_wait(&scene.inside); /* both are in it */
	sem_post(&scene.go);
	sem_post(&scene.go);
	for (int i = 0; i < 2; i++) {
		uint32_t serial;

		cr_expect_eq(get(&scene, &serial, &reader), PROVIDER_VALUE);
		seen |= serial;
	}
	cr_expect_eq(seen, 3);
	abox_credential_server_stop(scene.server);
	abox_credential_server_stop(scene.server);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &r);
		cr_expect_eq((intptr_t)r, ABOX_E_GONE);
	}
	scene_close(&scene);
}

/* A callback that is running is not interrupted; what it answers after a stop goes nowhere. */
Test(serve, a_stop_while_a_callback_runs, .timeout = 60)
{
	struct scene scene;
	pthread_t thread;
	uint8_t byte;
	void *r;

	scene_open(&scene);
	scene.waits = true;
	cr_assert_eq(pthread_create(&thread, NULL, process_all, abox_credential_server_ref(scene.server)), 0);
	put(&scene, PROVIDER_MINT, 1);
	sem_wait(&scene.inside);
	abox_credential_server_stop(scene.server);
	sem_post(&scene.go);
	pthread_join(thread, &r);
	cr_expect_eq((intptr_t)r, ABOX_E_GONE);
	cr_expect_eq(socket_recv_until(scene.fd, &byte, 1, NULL, NULL, clock_deadline(clock_monotonic_usec(), BOUND)), 0);
	cr_expect_eq(atomic_load(&scene.n_minted), 1);
	scene_close(&scene);
}

Test(serve, the_minter_ends)
{
	struct scene scene;

	scene_open(&scene);
	cr_expect_geq(abox_credential_server_get_fd(scene.server), 0);
	shutdown(scene.fd, SHUT_RDWR);
	cr_expect_eq(abox_credential_server_process(scene.server, ABOX_FOREVER, NULL), ABOX_E_GONE);
	scene_close(&scene);
}

/* What must not happen with a box is in the tests of boxes; here only that arguments are looked at. */
Test(serve, arguments)
{
	struct abox_credential_provider provider = { ABOX_CREDENTIAL_PROVIDER_INIT };
	struct scene scene = { 0 };
	abox_credential_server *server = NULL;

	provider.destroy = destroy;
	provider.userdata = &scene;
	cr_expect_eq(abox_credential_serve(NULL, &provider, &server, NULL), ABOX_E_INVALID);
	cr_expect_eq(atomic_load(&scene.n_destroyed), 1);
	cr_expect_eq(abox_credential_revoke(NULL, NULL, 0, NULL, NULL), ABOX_E_INVALID);
	cr_expect_eq(abox_credential_server_process(NULL, 0, NULL), ABOX_E_INVALID);
	cr_expect_null(abox_credential_server_ref(NULL));
	cr_expect_null(abox_credential_server_unref(NULL));
	abox_credential_server_stop(NULL);
}
