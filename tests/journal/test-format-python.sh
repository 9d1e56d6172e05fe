#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The documented format is the real one: a verifier that shares no code with the library agrees with it, on good journals
# and on damaged ones.
#	test-format-python.sh JOURNAL-WRITER VERIFIER
set -eu
writer=$1 verifier=$2
dir=$(mktemp -d "${TMPDIR:-/tmp}/abox-format-XXXXXX")
trap 'rm -rf "$dir"' EXIT
verdict() {
	python3 "$verifier" "$dir/journal" >"$dir/said" && got=0 || got=$?
	[ "$got" = "$1" ] || { echo "$2: expected $1, got $got: $(cat "$dir/said")"; exit 1; }
}
"$writer" "$dir/journal" 1000
verdict 0 "many segments"
last=$(ls "$dir/journal" | grep '^[0-9]*\.log$' | tail -1)
printf '{"seq":' >"$dir/half"
end=$(tr -d '\0' <"$dir/journal/$last" | wc -c)
cp "$dir/journal/$last" "$dir/good"
dd if="$dir/half" of="$dir/journal/$last" bs=1 seek="$end" conv=notrunc 2>/dev/null
verdict 2 "half a line"
cp "$dir/good" "$dir/journal/$last"
printf 'X' | dd of="$dir/journal/0000000001.log" bs=1 seek=5000 conv=notrunc 2>/dev/null
verdict 1 "a flip in an old segment"
echo "agrees"
