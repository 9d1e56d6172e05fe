/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* For tests: the spec on standard input, its slots as packed bytes on standard output. */
#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"
#include "credential/slot.h"

int main(void)
{
	static char text[1 << 16];
	struct pack_writer writer = PACK_WRITER_INIT;
	abox_error *error = NULL;
	abox_spec *spec = NULL;
	bool written;

	text[fread(text, 1, sizeof(text) - 1, stdin)] = 0;
	if (abox_spec_from_json(text, &spec, &error) < 0 || slots_pack(spec, &writer) < 0) {
		fprintf(stderr, "%s\n", abox_error_get_message(error));
		return 1;
	}
	written = fwrite(writer.data, 1, writer.len, stdout) == writer.len;
	pack_writer_clear(&writer);
	abox_spec_unref(spec);
	return !written;
}
