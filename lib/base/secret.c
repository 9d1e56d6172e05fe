/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names that say "secret". Helper code: the keeper redacts by it what it has recorded.
 */
#include "base/secret.h"

#include <string.h>
#include <strings.h>

bool secret_name(const char *name, size_t len)
{
	static const char *const words[] = { "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY",
		"API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL", "AUTH", "COOKIE", "SESSION_KEY" };

	for (size_t w = 0; w < ELEMENTSOF(words); w++) {
		size_t n = strlen(words[w]);

		for (size_t i = 0; i + n <= len; i++)
			if (strncasecmp(name + i, words[w], n) == 0)
				return true;
	}
	return false;
}
