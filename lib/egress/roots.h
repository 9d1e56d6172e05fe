/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef EGRESS_ROOTS_H
#define EGRESS_ROOTS_H

#include <openssl/x509.h>

#include "base/macro.h"

/* The store trusts these certificates (PEM, copied) from here on, and stays until the program ends. 0 or
 * -ENOMEM. What is none is passed over; an unreadable one ends the list. */
int roots_trust(X509_STORE *store, const char *pem, size_t len);

#endif
