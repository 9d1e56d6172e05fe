#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Usage: localize.sh ARCHIVE VERSION-SCRIPT OUTPUT
# Joins an archive to one object in which only the names of the version script are global, and archives that.
set -eu
archive=$1 script=$2 output=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n 's/^[[:space:]]*\(abox_[a-z0-9_]*\);.*/\1/p' "$script" >"$work/names"
${LD:-ld} -r -o "$work/agentbox.o" --whole-archive "$archive"
${OBJCOPY:-objcopy} --keep-global-symbols="$work/names" "$work/agentbox.o"
rm -f "$output"
${AR:-ar} rcs "$output" "$work/agentbox.o"
