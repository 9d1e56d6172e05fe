/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * API_TOKEN=... api_token https://HOST/PATH [COMMAND...]: calls an API from a box that never has the token. Without a command it is
 * `curl URL`. The box may ask HOST for anything; each of its requests gets the token on its way out, from this program.
 */
#include <agentbox/agentbox.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A real one would ask an issuer for a short-lived token here, by subject, resource, actions and the life that is left. */
static int mint(void *userdata, const struct abox_credential_question *question, abox_credential_answer *answer)
{
	const char *token = getenv("API_TOKEN");

	fprintf(stderr, "asked for %s: %s may %s %s\n", question->name, question->subject, question->actions[0], question->resource);
	if (!token)
		return abox_credential_answer_refuse(answer, "there is no API_TOKEN");
	return abox_credential_answer_value(answer, token, strlen(token), 5 * 60 * UINT64_C(1000000));
}

/* And tell the issuer here that the token is not wanted any more. */
static int revoke(void *userdata, const struct abox_credential_question *question, const void *value, size_t len, uint32_t why)
{
	fprintf(stderr, "taken back: %s, %zu bytes\n", question->name, len);
	return 0;
}

static void *serve(void *server)
{
	while (abox_credential_server_process(server, ABOX_FOREVER, NULL) >= 0)
		;
	return NULL;
}

static int run(const char *json, const char *const *argv, int *retexit, abox_error **reterr)
{
	const struct abox_credential_provider provider = { ABOX_CREDENTIAL_PROVIDER_INIT, .mint = mint, .revoke = revoke };
	struct abox_command_options options = { ABOX_COMMAND_OPTIONS_INIT, .argv = argv };
	abox_credential_server *server = NULL;
	abox_sandbox *box = NULL;
	abox_result *result = NULL;
	abox_spec *spec = NULL;
	abox_plan *plan = NULL;
	pthread_t thread;
	int r;

	if ((r = abox_spec_from_json(json, &spec, reterr)) >= 0 && (r = abox_plan_compile(spec, &plan, reterr)) >= 0 &&
	    (r = abox_sandbox_start(plan, NULL, &box, reterr)) >= 0 &&
	    (r = abox_credential_serve(box, &provider, &server, reterr)) >= 0 &&
	    pthread_create(&thread, NULL, serve, server) == 0) {
		r = abox_command_run(box, &options, &result, reterr);
		if (r >= 0) {
			const void *out;
			size_t len;

			for (int stream = 1; stream <= 2; stream++)
				if (abox_result_get_output(result, stream, &out, &len) == 0)
					fwrite(out, 1, len, stream == 1 ? stdout : stderr);
			*retexit = abox_result_get_exit_code(result);
		}
		abox_sandbox_stop(box, ABOX_STOP_SUCCESS, NULL, NULL); /* takes the token back */
		abox_credential_server_stop(server);
		pthread_join(thread, NULL);
	}
	abox_credential_server_unref(server);
	abox_result_unref(result);
	abox_sandbox_unref(box);
	abox_plan_unref(plan);
	abox_spec_unref(spec);
	return r;
}

int main(int argc, char **argv)
{
	const char *const curl[] = { "curl", "-sS", argc > 1 ? argv[1] : "", NULL };
	abox_error *error = NULL;
	char host[256], json[1024];
	int code = 1, r = ABOX_E_INVALID;

	if (argc > 1 && sscanf(argv[1], "https://%255[a-z0-9.-]", host) == 1) {
		snprintf(json, sizeof(json),
			"{\"version\": 1, \"network\": {\"mode\": \"allow\", \"allow\": [{\"host\": \"%s\", \"credential\": \"api\"}]},"
			" \"credentials\": [{\"name\": \"api\", \"provider\": {\"kind\": \"callback\"}, \"subject\": \"agent:7\","
			" \"resource\": \"%s\", \"scopes\": [\"read\"], \"ttl\": \"5m\"}]}", host, host);
		r = run(json, argc > 2 ? (const char *const *)argv + 2 : curl, &code, &error);
	}
	if (r < 0)
		fprintf(stderr, "%s: %s\n", abox_code_name(r), error ? abox_error_get_message(error) : "see the source");
	abox_error_free(error);
	return r < 0 ? 125 : code;
}
