/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file of trusted certificates of Java (JKS, version 2): opened for more by the plan, which takes its digest off, and
 * finished when the box's own CA is there. Helper code: no allocation.
 */
#ifndef NETWORK_KEYSTORE_H
#define NETWORK_KEYSTORE_H

#include "base/macro.h"

#define KEYSTORE_DIGEST 20

/* Makes room for one more certificate: counts it and takes the digest off (*len shrinks). false: not such a file. */
bool keystore_open(uint8_t *data, size_t *len);

/* Behind these bytes, which are in fd already: the certificate of the PEM text and the digest. 0, -errno, -EINVAL (no
 * certificate, or one that is too long). */
int keystore_finish(int fd, const void *data, size_t len, const char *pem, size_t pem_len);

#endif
