/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdlib.h>
#include <string.h>

#include "machine/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Files of kernels: what is taken from one lies within it, and a release can be the name of a folder. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t room[65536];
	struct machine_image image;
	uint8_t *unpacked;
	size_t len;

	if (machine_image_parse(data, size, &image) == 0) {
		if (!image.release[0] || strchr(image.release, '/') || image.release[0] == '.')
			abort();
		if (image.payload_len > size || image.payload > size - image.payload_len)
			abort();
	}
	machine_image_has_entry(data, size);
	if (machine_lz4(data, size, room, sizeof(room)) > (ptrdiff_t)sizeof(room))
		abort();
	/* the length that a payload claims is bounded here, so that memory is not what is tested */
	if (size >= 8 && data[size - 1] == 0 && data[size - 2] < 16 && machine_image_unpack(data, size, &unpacked, &len) == 0)
		free(unpacked);
	return 0;
}
