/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <string.h>

#include "base/fault.h"
#include "guest/message.h"
#include "keeper/wish.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte chooses a reader of what comes from another process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pack_reader reader;
	struct guest_order order;
	struct wish wish = { 0 };
	struct fault fault;

	if (size == 0)
		return 0;
	reader = PACK_READER(data + 1, size - 1);
	switch (data[0] % 3) {
	case 0:
		if (guest_order_unpack(data + 1, size - 1, &order) == 0)
			guest_order_clear(&order);
		break;
	case 1:
		fault_init(&fault, 0);
		wish_read(&wish, data + 1, size - 1, &fault);
		wish_clear(&wish);
		break;
	default:
		fault_init(&fault, 0);
		fault_unpack(&fault, &reader);
	}
	return 0;
}
