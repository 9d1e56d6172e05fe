#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# `agentbox journal`: what is appended is shown, verified, rotated and pruned; wrong calls and damage have their exit codes.
#	test-cli.sh AGENTBOX
set -eu
agentbox=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/abox-cli-XXXXXX")
trap 'rm -rf "$dir"' EXIT
export ABOX_JOURNAL="$dir/journal"
expect() {	# exit status, then the call
	want=$1; shift
	"$@" >"$dir/out" 2>"$dir/err" && got=0 || got=$?
	[ "$got" = "$want" ] || { echo "$*: expected $want, got $got"; cat "$dir/out" "$dir/err"; exit 1; }
}
expect 1 "$agentbox" journal append '{"a":1}'
expect 0 "$agentbox" journal append --create '{"a":1}'
expect 1 "$agentbox" journal append '{"a":'
expect 0 "$agentbox" journal append --task t1 --type tool.call '{"text":"\u001b[31m"}'
expect 0 "$agentbox" journal show --type tool.
grep -q 'tool.call' "$dir/out" && ! grep -q 'note' "$dir/out"
expect 0 "$agentbox" journal show --json --from 2 --to 2
grep -q '"body":{"a":1}' "$dir/out" && [ "$(wc -l <"$dir/out")" = 1 ]
expect 0 "$agentbox" journal rotate
expect 0 "$agentbox" journal prune --dry-run
expect 0 "$agentbox" journal export
[ "$(wc -l <"$dir/out")" = 5 ]
expect 0 "$agentbox" journal verify
expect 2 "$agentbox" journal repair
expect 1 "$agentbox" journal adopt --by test
expect 2 "$agentbox" journal nonsense
cp -a "$dir/journal" "$dir/copy"
expect 1 "$agentbox" journal append --journal "$dir/copy" '{}'
expect 0 "$agentbox" journal adopt --by test --journal "$dir/copy"
expect 0 "$agentbox" journal append --journal "$dir/copy" '{}'
printf X | dd of="$dir/journal/0000000001.log" bs=1 seek=500 conv=notrunc 2>/dev/null
expect 1 "$agentbox" journal verify
expect 1 "$agentbox" journal show
echo "agrees"
