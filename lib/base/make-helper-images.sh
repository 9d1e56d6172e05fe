#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# make-helper-images.sh OUTPUT NAME=FILE...: an assembly source that carries the files as read-only data and lists
# them in helper_images[] (see helper.c). The digest in it makes the object new whenever a file is. It takes its name
# when it is whole: a compiler that runs at the same time, or after a run that was broken off, never reads a part of it.
set -e
out=$1
shift
new=$out.$$
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
{
	echo "	.section .data.rel.ro, \"aw\""
	echo "	.balign 8"
	echo "	.hidden helper_images, helper_images_end"
	echo "	.globl helper_images, helper_images_end"
	echo "helper_images:"
	for item; do
		name=${item%%=*}
		echo "	.quad .Lname_$name, .Lbegin_$name, .Lend_$name"
	done
	echo "helper_images_end:"
	echo "	.section .rodata, \"a\""
	for item; do
		name=${item%%=*}
		file=${item#*=}
		case $file in /*) ;; *) file=$PWD/$file ;; esac
		echo ".Lname_$name: .asciz \"$name\""
		echo "	.balign 64"
		digest=$(sha256sum <"$file")
		echo "	/* $digest */"
		echo ".Lbegin_$name: .incbin \"$file\""
		echo ".Lend_$name: .byte 0"
	done
	echo "	.section .note.GNU-stack, \"\", %progbits"
} >"$new"
mv -f "$new" "$out"
