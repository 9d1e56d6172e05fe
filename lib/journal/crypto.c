/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libcrypto, when it is needed. Most programs that run something in a box sign nothing, and loading it costs them as
 * much as a good part of a box.
 */
#include "journal/crypto.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"

#define LIBRARY "libcrypto.so.3"

static struct crypto crypto;
static int loaded;

static int load(abox_error **reterr)
{
#define CRYPTO_NAME(name) { #name, offsetof(struct crypto, name) },
	static const struct {
		const char *name;
		size_t offset;
	} functions[] = { CRYPTO_FUNCTIONS(CRYPTO_NAME) };
#undef CRYPTO_NAME
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	int r;

	for (size_t i = 0; library && i < ELEMENTSOF(functions); i++) {
		void *function = dlsym(library, functions[i].name);

		if (!function)
			library = NULL;
		/* every thread that comes here at the same time writes the same */
		else
			memcpy((char *)&crypto + functions[i].offset, &function, sizeof(function));
	}
	if (library)
		return 0;
	r = error_set(reterr, ABOX_E_UNAVAILABLE, ABOX_STAGE_JOURNAL, LIBRARY, "signatures need it, and it is not there");
	return error_remedy(reterr, r, "install OpenSSL 3 (Debian: libssl3)");
}

const struct crypto *crypto_load(abox_error **reterr)
{
	if (!__atomic_load_n(&loaded, __ATOMIC_ACQUIRE)) {
		if (load(reterr) < 0)
			return NULL;
		__atomic_store_n(&loaded, 1, __ATOMIC_RELEASE);
	}
	return &crypto;
}
