#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# check.sh [MODEL...]: runs every model and every mistake, compares with the table below, prints one line each.
# Needs spin and a C compiler. Full run: about six minutes on two cores, 3 GiB of memory (log.pml needs most).
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
bad=0

one() {		# model, expected (ok|caught), spin flags
	model=$1 want=$2; shift 2
	rm -rf "$dir/x"; mkdir "$dir/x"; cd "$dir/x" || exit 1
	set_cc=-DSAFETY; set_run=
	case " $* " in *" -DLIVE "*) set_cc=; set_run='-a -f' ;; *"-DUNKNOWN_WHILE_SENDING "* | *"-DLOCK_OF_HARNESS "*) set_run=-E ;; esac
	spin -a "$@" "$here/$model.pml" >spin.log 2>&1 &&
	cc -O2 -w -DCOLLAPSE -DVECTORSZ=4096 $set_cc -o pan pan.c || { cat spin.log; bad=1; return; }
	./pan -m200000 -w24 $set_run >pan.log 2>&1
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
	why=$(sed -n 's/^pan:1: \(.*\)$/\1/p' pan.log | head -1)
	got=error
	grep -q 'errors: 0' pan.log && got=ok
	grep -q 'errors: [1-9]' pan.log && got=caught
	grep -qE 'max search depth too small|out of memory|Search not completed' pan.log && [ $got = ok ] && got=incomplete
	[ "$got" = "$want" ] && mark=' ' || { mark='!'; bad=1; }
	printf '%s %-9s %-40s %-7s %12s states  %s\n' "$mark" "$model" "$*" "$got" "$states" "$why"
}
each() { m=$1; shift; for d in "$@"; do one "$m" caught -D$d; done; }

for m in ${*:-log effect egress approval commit keys prune}; do
	case $m in
	log)	one log ok; one log ok -DLOSSES=2
		each log NO_SYNC RETRY_SYNC NO_POISON NO_SYNC_FLAG RELY_UNSYNCED RELY_LATER NO_MARK NO_TORN_REPAIR SYNC_UNLOCKED
		one log caught -DNO_CHAIN -DLOSSES=2 ;;
	effect)	one effect ok; one effect ok -DOPAQUE; one effect ok -DSTRICT_FENCE -DTAKEOVER_KILL; one effect ok -DLIVE
		one effect caught -DLIVE -DDEAF
		one effect caught -DSTRICT_FENCE		# what slips through a fence, see README
		each effect NO_SYNC_DISPATCH NO_SYNC_OUTCOME REPLAY_UNSYNCED CHECK_OUTSIDE_LOCK UNKNOWN_WHILE_ALIVE PID_LIVENESS \
			NO_SETTLE VERDICT_BLIND BREAK_LOCK WAIT_UNDER_LOCK EPOCH_NOT_IN_APPEND REFUSE_LATE_OUTCOME
		one effect caught -DOPAQUE -DOPAQUE_RETRY ;;
	egress)	one egress ok
		each egress LOCK_OF_KEEPER LOCK_OF_HARNESS UNKNOWN_WHILE_SENDING ANSWER_UNSYNCED GO_UNSYNCED EPOCH_IN_MEMORY \
			NO_SETTLE SEND_WITHOUT_KEEPER CONFIRM_UNDER_LOCK ;;
	approval) one approval ok; one approval ok -DGRANT_ANY_TIME
		each approval CONSUME_APART CONSUME_UNSYNCED CANCEL_UNSYNCED CANCEL_OUTSIDE_LOCK CHECK_OUTSIDE_LOCK DENY_LOSES WALL_CLOCK HIGH_WATER ;;
	commit)	one commit ok
		each commit BOUNDARY_UNSYNCED CANCEL_AFTER BOUNDARY_UNFENCED SKIP_UNKNOWN REDO_EFFECTS CANCEL_UNSYNCED BOUNDARY_BEFORE_BLOBS ;;
	keys)	one keys ok; each keys POSITION ORDINAL NO_AMBIGUOUS CLAIM_ONCE ;;
	prune)	one prune ok; each prune DROP_FIRST CARRY_UNSYNCED NO_TOMBSTONE PRUNE_OPEN ;;
	esac
done
exit $bad
