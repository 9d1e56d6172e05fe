/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pruning: the old segment holds an effect's records and, later, its task's end. Dropping it is one unlink; what is carried over must be durable before.
 * Late duplicates of the effect come at any time.
 *
 * Holds: R1 the effect happens once: afterwards the task's end, carried over, refuses it; R2 while its task is open it is replayed, not refused.
 * Mistakes (-D): DROP_FIRST CARRY_UNSYNCED NO_TOMBSTONE PRUNE_OPEN
 */
bool rec = 1, end_ = 0;		/* old segment: the effect, the end of its task (both durable by then) */
bool dead;
bool tomb, dtomb;		/* new segment: the carried end, in the cache and on the disk */
bool ended;			/* ghost */
byte happened = 1, losses;

proctype Pruner() {
	{
	if
#ifdef PRUNE_OPEN
	:: true ->
#else
	:: end_ ->
#endif
#ifdef DROP_FIRST
		atomic { rec = 0; end_ = 0 };
#endif
#ifndef NO_TOMBSTONE
		tomb = 1;
#ifndef CARRY_UNSYNCED
		dtomb = tomb;			/* fdatasync */
#endif
#endif
		atomic { rec = 0; end_ = 0 }
	:: true
	fi
	} unless { dead }
}

proctype Duplicate() {
	byte n;
	do
	:: n < 3 -> n++;
		atomic {
			if
			:: rec || tomb || end_ -> assert(rec || ended)	/* R2: replayed; refused only when the task is over */
			:: else -> happened++; assert(happened <= 1)	/* looks like a new one */
			fi
		}
	:: else -> break
	od
}

active proctype Fate() {
end:	do
	:: atomic { losses < 1 -> losses++; tomb = dtomb; dead = 1 }
	od
}

proctype Finish() { end: atomic { rec -> end_ = 1; ended = 1 } }

init { atomic { run Pruner(); run Duplicate(); run Finish() } }
