/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file of a kernel: a bzImage (a small loader with the packed kernel in it) or an ELF file. Promises that nothing in
 * such a file leads outside of it.
 */
#include "machine/machine.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define UNPACKED_MAX (512U << 20)
#define NOTE_PVH 18	/* XEN_ELFNOTE_PHYS32_ENTRY */

/* Offsets of the setup header (Documentation/arch/x86/boot.rst of the kernel). */
enum {
	SETUP_SECTORS = 0x1f1,
	SETUP_MAGIC = 0x202,
	SETUP_VERSION = 0x206,
	SETUP_RELEASE = 0x20e,
	SETUP_PAYLOAD = 0x248,
	SETUP_PAYLOAD_LEN = 0x24c,
	SETUP_END = 0x250,
};

static uint32_t get_u16(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get_u32(const uint8_t *p)
{
	return get_u16(p) | get_u16(p + 2) << 16;
}

/* Up to the first blank. It becomes a name of a folder: nothing but what releases are made of. */
static int take_release(const uint8_t *data, size_t len, char *ret, size_t size)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+~-";
	size_t n = 0;

	while (n < len && n + 1 < size && data[n] && strchr(allowed, data[n]))
		n++;
	if (n == 0 || n == len || (data[n] != ' ' && data[n] != 0) || data[0] == '.')
		return ABOX_E_INVALID;
	memcpy(ret, data, n);
	ret[n] = 0;
	return 0;
}

static int parse_elf(const uint8_t *data, size_t len, struct machine_image *ret)
{
	static const char banner[] = "Linux version ";
	const uint8_t *found = data;

	/* the words are in messages of the kernel as well; the banner is where a release follows */
	while ((found = memmem(found, len - (size_t)(found - data), banner, sizeof(banner) - 1))) {
		found += sizeof(banner) - 1;
		if (take_release(found, len - (size_t)(found - data), ret->release, sizeof(ret->release)) == 0)
			return 0;
	}
	return ABOX_E_INVALID;
}

int machine_image_parse(const uint8_t *data, size_t len, struct machine_image *ret)
{
	size_t sectors, release, payload, payload_len;

	memset(ret, 0, sizeof(*ret));
	if (len >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0)
		return parse_elf(data, len, ret);
	if (len < SETUP_END || memcmp(data + SETUP_MAGIC, "HdrS", 4) != 0 || get_u16(data + SETUP_VERSION) < 0x208)
		return ABOX_E_INVALID;
	sectors = data[SETUP_SECTORS] ? data[SETUP_SECTORS] : 4;
	release = get_u16(data + SETUP_RELEASE) + 0x200U;
	payload = (sectors + 1) * 512 + get_u32(data + SETUP_PAYLOAD);
	payload_len = get_u32(data + SETUP_PAYLOAD_LEN);
	if (release >= len || payload >= len || payload_len > len - payload || payload_len < 8)
		return ABOX_E_INVALID;
	ret->payload = payload;
	ret->payload_len = payload_len;
	return take_release(data + release, len - release, ret->release, sizeof(ret->release));
}

static int unpack_gzip(const uint8_t *payload, size_t len, uint8_t *data, size_t size)
{
	z_stream stream = { .next_in = (Bytef *)(uintptr_t)payload, .avail_in = (uInt)len, .next_out = data,
		.avail_out = (uInt)size };
	int r;

	if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK)
		return ABOX_E_MEMORY;
	r = inflate(&stream, Z_FINISH);
	inflateEnd(&stream);
	return r == Z_STREAM_END && stream.avail_out == 0 ? 0 : ABOX_E_INVALID;
}

int machine_image_unpack(const uint8_t *payload, size_t len, uint8_t **retdata, size_t *retlen)
{
	static const uint8_t gzip[] = { 0x1f, 0x8b }, lz4[] = { 0x02, 0x21, 0x4c, 0x18 };
	_cleanup_(freep) uint8_t *data = NULL;
	size_t size;
	int r;

	if (len < 8)
		return ABOX_E_INVALID;
	if (memcmp(payload, gzip, sizeof(gzip)) != 0 && memcmp(payload, lz4, sizeof(lz4)) != 0)
		return ABOX_E_UNSUPPORTED;
	/* the build of the kernel appends the length; gzip has it there anyhow */
	size = get_u32(payload + len - 4);
	if (size == 0 || size > UNPACKED_MAX)
		return ABOX_E_INVALID;
	data = malloc(size);
	if (!data)
		return ABOX_E_MEMORY;
	if (payload[0] == gzip[0])
		r = unpack_gzip(payload, len, data, size);
	else
		r = machine_lz4(payload, len - 4, data, size) == (ptrdiff_t)size ? 0 : ABOX_E_INVALID;
	if (r < 0)
		return r;
	*retdata = steal_ptr(data);
	*retlen = size;
	return 0;
}

/* A segment of notes: name and value, each padded to four bytes. */
static bool notes_have_entry(const uint8_t *data, size_t len)
{
	size_t at = 0;

	while (len - at >= sizeof(Elf64_Nhdr)) {
		size_t name = get_u32(data + at), value = get_u32(data + at + 4), type = get_u32(data + at + 8);
		size_t padded_name = (name + 3) & ~(size_t)3, padded_value = (value + 3) & ~(size_t)3;

		at += sizeof(Elf64_Nhdr);
		if (padded_name > len - at || padded_value > len - at - padded_name)
			return false;
		if (type == NOTE_PVH && name == 4 && memcmp(data + at, "Xen", 4) == 0)
			return true;
		at += padded_name + padded_value;
	}
	return false;
}

bool machine_image_has_entry(const uint8_t *data, size_t len)
{
	Elf64_Ehdr header;

	if (len < sizeof(header))
		return false;
	memcpy(&header, data, sizeof(header));
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
		header.e_phentsize != sizeof(Elf64_Phdr))
		return false;
	for (size_t i = 0; i < header.e_phnum; i++) {
		size_t at = i * sizeof(Elf64_Phdr);
		Elf64_Phdr segment;

		if (header.e_phoff > len || len - header.e_phoff < at + sizeof(segment))
			return false;
		memcpy(&segment, data + header.e_phoff + at, sizeof(segment));
		if (segment.p_type == PT_NOTE && segment.p_offset <= len && segment.p_filesz <= len - segment.p_offset &&
			notes_have_entry(data + segment.p_offset, segment.p_filesz))
			return true;
	}
	return false;
}
