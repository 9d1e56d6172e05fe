/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The commit boundary: a workspace change set and two held-back effects, published in order after one record; two harnesses, cancel from a third.
 *
 * Step 0 applies the workspace (idempotent: it can be redone from the record), steps 1 and 2 are opaque effects with their own DISPATCHED and outcome.
 * The journal is a vector of marks, appended one at a time under the lock, durable with the next sync (a sync covers all before it).
 *
 * Holds: B1 nothing is visible before the boundary record is durable; B2 step n+1 never starts before step n is committed;
 *        B3 each effect happens at most once; B4 an acknowledged cancel means that nothing is ever published, and none is
 *        acknowledged after the boundary; B5 once durable the boundary stays, and the last harness has published all, or names what is unknown.
 * Mistakes (-D): BOUNDARY_UNSYNCED CANCEL_AFTER BOUNDARY_UNFENCED SKIP_UNKNOWN REDO_EFFECTS CANCEL_UNSYNCED BOUNDARY_BEFORE_BLOBS
 */
#define NONE 0
#define DISP 1
#define COMM 2
#define UNK 3
typedef fold { bool bound, cancel, blobs; byte epoch; byte st[3]; byte by[3] }
fold J, D;
byte happened[3];
bool cancel_acked, dead[2], on[2], exec[2], bdur;
byte losses, kills;

inline copy(to, from) {
	to.bound = from.bound; to.cancel = from.cancel; to.blobs = from.blobs; to.epoch = from.epoch;
	to.st[0] = from.st[0]; to.st[1] = from.st[1]; to.st[2] = from.st[2];
	to.by[0] = from.by[0]; to.by[1] = from.by[1]; to.by[2] = from.by[2]
}
inline sync() { d_step { copy(D, J) } }

proctype Harness(byte i) {
	byte n, my;
	{
		atomic { on[i] = 1; J.epoch++; my = J.epoch };
		sync();
		if
		:: J.bound
		:: !J.bound ->
#ifdef BOUNDARY_BEFORE_BLOBS
			atomic { J.epoch == my && !J.cancel && !J.bound -> J.bound = 1 };
			sync();
			J.blobs = 1		/* change set and artifacts are written afterwards */
#else
			J.blobs = 1; sync();
#ifdef BOUNDARY_UNFENCED
			!J.cancel; atomic { J.bound = 1 };
#else
			if
			:: atomic { J.epoch == my && !J.cancel && !J.bound -> J.bound = 1 }
			:: J.epoch != my || J.cancel -> goto out
			:: J.bound
			fi;
#endif
#endif
#ifndef BOUNDARY_UNSYNCED
			sync()
#endif
		fi;
#ifndef BOUNDARY_UNSYNCED
		sync();							/* believe only what is durable */
#endif
		n = 0;
		do
		:: n < 3 ->
			if
			:: atomic { J.epoch == my && J.st[n] == NONE -> exec[i] = 1; J.st[n] = DISP; J.by[n] = i };
				if :: n > 0 -> sync() :: else fi;		/* the workspace can be redone: no sync of its own */
				atomic {
					happened[n]++;
					assert(D.bound);				/* B1 */
					assert(D.blobs);
					assert(n == 0 || J.st[n - 1] == COMM);		/* B2 */
					assert(n == 0 || happened[n] <= 1);		/* B3 */
					assert(!cancel_acked)				/* B4 */
				};
				atomic { J.st[n] == DISP || J.st[n] == UNK -> J.st[n] = COMM; exec[i] = 0 };
				sync(); n++
			:: J.st[n] == COMM -> n++
			:: atomic { J.epoch == my && J.st[n] == DISP && !exec[J.by[n]] -> J.st[n] = (n == 0 -> NONE : UNK) }; sync()
#ifdef REDO_EFFECTS
			:: atomic { J.epoch == my && J.st[n] == UNK -> J.st[n] = NONE }
#endif
#ifdef SKIP_UNKNOWN
			:: J.st[n] == UNK -> n++
#else
			:: J.st[n] == UNK -> break				/* stops here: committing, a decision is due */
#endif
			:: J.epoch != my -> break
			fi
		:: else -> break
		od;
		assert(J.epoch != my || (J.bound && (n == 3 || J.st[n] == UNK)));	/* B5 */
out:		exec[i] = 0
	} unless { dead[i] }
}

active proctype Canceler() {
	if
#ifdef CANCEL_AFTER
	:: atomic { !J.cancel -> J.cancel = 1 };
#else
	:: atomic { !J.bound -> J.cancel = 1 };				/* else ABOX_E_ALREADY */
#endif
#ifndef CANCEL_UNSYNCED
		sync();
#endif
		atomic { if :: D.cancel || J.cancel -> cancel_acked = 1 :: else fi }
	:: skip
	fi
}

active proctype Fate() {
	byte k;
end:	do
	:: atomic { kills < 1 && on[0] -> kills++; dead[0] = 1; exec[0] = 0 }
	:: atomic { losses < 1 && !on[1] -> losses++;
		if :: on[0] -> dead[0] = 1; exec[0] = 0 :: else fi;
		bdur = D.bound; copy(J, D); assert(!bdur || J.bound) }
	od
}

init { atomic { run Harness(0); run Harness(1) } }
