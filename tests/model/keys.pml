/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Derived keys under an agent that is not deterministic. Two wishes, A and B, aim at one target with different payloads; a wish may come out
 * reworded (other bytes, same wish) in a later attempt, calls come in any order, a tool may repeat a call inside an attempt, attempt 1 may end anywhere.
 *
 * Holds: K1 a wish happens at most once, unless somebody said `new`; K2 what is answered as done was done for that wish.
 *   Rule: key = (target, fingerprint); equal payload in a task = the same effect. In a later attempt an unknown key on a target that still has unclaimed
 *   effects of earlier attempts is not run but answered AMBIGUOUS; a person or the harness says `claim` or `new`.
 * Mistakes (-D): POSITION (ordinal of the call in the attempt) ORDINAL (ordinal among equal fingerprints) NO_AMBIGUOUS CLAIM_ONCE
 */
#define V 2			/* wordings of a wish */
byte claimed[4];			/* per payload (wish * V + wording): 0 not, else the attempt that claimed it last */
bool pos_used[6]; byte pos_wish[6];
byte word[2];
byte happened[2];		/* per wish */
byte again[4];			/* calls of this payload in this attempt */
byte made[4];			/* effects of this payload so far */

#ifdef CLAIM_ONCE		/* claiming answers once, and does not bind the new payload to the old effect */
#define bind(p) skip
#else
#define bind(p) claimed[p] = attempt
#endif

proctype Agent() {
	byte attempt, calls, w, p, pos, q; bool amb;
	attempt = 1;
	do
	:: attempt <= 2 ->
		calls = 0; pos = 0;
		if :: attempt > 1 -> word[0] = 1 :: true fi;	/* reworded by a later attempt; a repeat inside one is equal */
		if :: attempt > 1 -> word[1] = 1 :: true fi;
		d_step { again[0] = 0; again[1] = 0; again[2] = 0; again[3] = 0 };
		do
		:: calls < 3 ->
			atomic {
			select(w : 0 .. 1);				/* any order, and again */
			p = w * V + word[w];
			calls++;
#ifdef POSITION
			if
			:: pos_used[pos] -> assert(pos_wish[pos] == w)		/* K2: replayed */
			:: else -> pos_used[pos] = 1; pos_wish[pos] = w; happened[w]++
			fi;
			pos++;
#else
#ifdef ORDINAL
			again[p]++;
			if
			:: again[p] <= made[p]					/* replayed */
			:: else -> made[p]++; happened[w]++
			fi;
#else
			if
			:: claimed[p] > 0 -> claimed[p] = attempt			/* replayed, claimed */
			:: else ->
				amb = 0;
#ifndef NO_AMBIGUOUS
				q = 0;
				do :: q < 4 -> amb = amb || (claimed[q] > 0 && claimed[q] < attempt); q++ :: else -> break od; q = 0;
#endif
				if
				:: amb -> 					/* asked: claims the right one, here */
					if
					:: claimed[w * V] > 0 -> claimed[w * V] = attempt; bind(p)
					:: else -> claimed[p] = attempt; happened[w]++	/* `new`, with a name on it */
					fi
				:: else -> claimed[p] = attempt; happened[w]++
				fi
			fi;
#endif
#endif
			assert(happened[0] <= 1 && happened[1] <= 1)		/* K1 */
			}
		:: break						/* attempt ends, or dies */
		od;
		attempt++
	:: else -> break
	od
}
init { run Agent() }
