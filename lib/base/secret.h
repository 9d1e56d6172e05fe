/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include "base/macro.h"

/*
 * Whether the value of a variable of this name is better not shown: plans and records leave it out. A guess by words that
 * are usual in such names (TOKEN, SECRET, PASSWORD, ...), in any case. It protects those who put a secret into the
 * environment of a box although nothing in the box should know one; it proves nothing.
 */
bool secret_name(const char *name, size_t len);

#endif
