/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One effect, three incarnations of a harness (0 may be paused for ever, 1 takes over, 2 comes last), and an outside world that counts.
 *
 * The journal is an array of records; `tail` is what the page cache holds, `dur` what the disk holds. Everything derived (state, try, epoch) is a fold over it.
 * A process can be killed at any step (lock and executor lock fall, cache stays); power loss kills all and keeps any prefix between dur and tail.
 * A request that left a process travels on its own: it arrives later, even when the sender is dead.
 *
 * Holds: E1 happened <= 1 + overrides; E2 a reported result is in the journal after any crash; E3 reported implies happened;
 *        E4 after an epoch was acknowledged nothing of an older one is sent, but for a try whose DISPATCHED came before
 *           the epoch record (-DSTRICT_FENCE: not even that; violated, unless -DTAKEOVER_KILL); E5 no deadlock;
 *        E6 when the last incarnation is through, the effect is final, UNKNOWN, or somebody else's;
 *        E7 an answer that reached its sender is not lost because the sender was fenced meanwhile.
 * Variants (-D): OPAQUE (default is checkable), SPLIT (steps under the lock one by one), LIVE (no crash; ltl completes).
 * Mistakes (-D): NO_SYNC_DISPATCH NO_SYNC_OUTCOME REPLAY_UNSYNCED CHECK_OUTSIDE_LOCK UNKNOWN_WHILE_ALIVE PID_LIVENESS NO_SETTLE
 *        VERDICT_BLIND OPAQUE_RETRY BREAK_LOCK WAIT_UNDER_LOCK EPOCH_NOT_IN_APPEND REFUSE_LATE_OUTCOME; DEAF (with LIVE)
 */
#ifdef LIVE
#define P 1
#define KILLS 0
#define LOSSES 0
#else
#define P 3
#ifndef KILLS
#define KILLS 1
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#endif
#define K 12			/* records */
#define T 3			/* tries 1..T-1 */
#define FREE 9

#define EPOCH 1			/* record kinds; also states: NONE 0, DISP, COMM, UNK, ABS */
#define DISP 2
#define COMM 3
#define UNK 4
#define ABS 5			/* verdict ABSENT or an override: may run again */
#define NONE 0

byte kind[K], rtry[K], rby[K];
byte tail, dur;
byte st, try, by, epoch;	/* fold over 0..tail */
byte dpos[T + 2], epos[P + 2];	/* ghost: where a DISPATCHED and an epoch stand */

byte lock = FREE;
bool dead[3], on[3], fin[3];
bool exec[3];			/* executor lock held */
bool net[T + 2], ans[T + 2], shut[T + 2];	/* request under way, answer there, sender gave up */
byte happened, overrides, acked;	/* acked: highest acknowledged epoch */
bool reported;
byte f;

inline apply(p) {
	if
	:: kind[p] == EPOCH -> epoch++; epos[epoch] = p
	:: kind[p] == DISP -> st = DISP; try = rtry[p]; by = rby[p]; dpos[try] = p
	:: else -> st = kind[p]
	fi
}
inline append(k, t) {
	d_step { assert(tail < K); kind[tail] = k; rtry[tail] = t; rby[tail] = i; apply(tail); tail++ }
}
inline refold() {
	st = 0; try = 0; by = 0; epoch = 0; f = 0;
	do :: f < tail -> apply(f); f++ :: else -> break od;
	do :: f < K -> kind[f] = 0; rtry[f] = 0; rby[f] = 0; f++ :: else -> break od; f = 0
}
inline take() {
#ifdef BREAK_LOCK
	atomic { lock == FREE || (i > 0 && lock < i) -> lock = i }	/* "the holder looks stuck" */
#else
	atomic { lock == FREE -> lock = i }
#endif
}
inline release() { atomic { if :: lock == i -> lock = FREE :: else fi } }
inline sync() { dur = (tail > dur -> tail : dur) }

#ifdef PID_LIVENESS
#define ALIVE(x) (exec[x] && x == i)		/* a pid of another pid namespace looks dead */
#else
#define ALIVE(x) exec[x]
#endif

#define MAY_START (st == NONE || st == ABS)
#ifdef EPOCH_NOT_IN_APPEND
#define FENCED false
#else
#define FENCED (epoch != my)
#endif

#ifdef UNKNOWN_WHILE_ALIVE
#define CALL_IT_UNKNOWN (by != i)			/* "its owner was fenced" */
#else
#define CALL_IT_UNKNOWN !ALIVE(by)
#endif
#ifdef VERDICT_BLIND
#define VERDICT_OK true
#else
#define VERDICT_OK (st == UNK && try == t && !FENCED)
#endif
#if defined(SPLIT) || defined(BREAK_LOCK) || defined(WAIT_UNDER_LOCK)
#define LOCKED						/* every step under the lock on its own */
#else
#define LOCKED atomic					/* sound: nobody else moves under the lock */
#endif
#define IDLE 0						/* what to do next, once the lock is free again */
#define OUT 1
#define SEND 2
#define REPORT 3
#define WAIT 4
#define RECONCILE 5

inline report() {
	atomic { assert(happened > 0); reported = 1 }
}

inline kill(p) {
	dead[p] = 1; exec[p] = 0;
	if :: lock == p -> lock = FREE :: else fi
}
inline kill_older() {
	f = 0; do :: f < i -> kill(f); f++ :: else -> break od; f = 0
}

inline dispatch() {
	if
	:: try + 1 < T -> exec[i] = 1; t = try + 1; append(DISP, t); act = SEND
	:: else -> act = OUT						/* retries are bounded */
	fi
}
inline first_byte() {
	atomic {
		if
#ifdef STRICT_FENCE
		:: acked > my -> assert(false)
#else
		:: acked > my -> assert(dpos[t] < epos[acked])		/* E4 */
#endif
		:: else
		fi;
		net[t] = 1
	}
}

proctype Harness(byte i) {
	byte my, t, act; bool seen;
	{
		atomic { (i < 2 || fin[0] || dead[0] || fin[1] || dead[1]) -> on[i] = 1 };
		LOCKED { take(); append(EPOCH, 0); my = epoch; release() };
		sync();
#ifdef TAKEOVER_KILL
		/* before the acknowledgement every older process is killed and seen dead: its executor lock falls */
		atomic { kill_older() };
#endif
		acked = (my > acked -> my : acked);
		do
		:: act = IDLE;
#ifdef CHECK_OUTSIDE_LOCK
			atomic { if :: !FENCED && MAY_START -> act = SEND :: else fi };
#endif
			LOCKED {
				take();
				if
				:: act == SEND -> dispatch()
				:: else ->
					if
					:: FENCED -> act = OUT
					:: !FENCED && MAY_START -> dispatch()
					:: !FENCED && st == COMM -> act = REPORT
					:: !FENCED && st == DISP && CALL_IT_UNKNOWN -> append(UNK, try)
					:: !FENCED && st == DISP && !(CALL_IT_UNKNOWN) -> act = WAIT
#ifdef WAIT_UNDER_LOCK
						; (!exec[by] || st != DISP)
#endif
					:: !FENCED && st == UNK -> act = RECONCILE; t = try
					fi
				fi;
				release()
			};
			if
			:: act == IDLE				/* state changed, look again */
			:: act == OUT -> break			/* FENCED, or out of tries */
			:: act == WAIT -> (!ALIVE(by) || st != DISP || FENCED)	/* IN_PROGRESS: waits without the lock */
			:: act == REPORT ->
#ifndef REPLAY_UNSYNCED
				sync();
#endif
				report(); break			/* replayed */
			:: act == SEND ->
#ifndef NO_SYNC_DISPATCH
				sync();
#endif
				first_byte();
				if
				:: ans[t]
				:: atomic { KILLS > 0 -> shut[t] = 1 }			/* the connection broke */
				fi;
				LOCKED {
					take();
					seen = 0;
					if
#ifdef REFUSE_LATE_OUTCOME
					:: FENCED -> skip
					:: !FENCED && try == t && st != COMM && st != ABS ->
#else
					:: try == t && st != COMM && st != ABS ->	/* this try is open: its outcome is welcome, fenced or not */
#endif
						if
						:: ans[t] -> append(COMM, t); seen = 1
						:: !ans[t] && st == DISP -> append(UNK, t)
						:: else
						fi
					:: else						/* late evidence, told apart */
					fi;
					assert(!ans[t] || st == COMM || st == ABS || try != t);	/* E7 */
					release()
				};
				exec[i] = 0;
				if
				:: seen ->
#ifndef NO_SYNC_OUTCOME
					sync();
#endif
					report(); break
				:: else
				fi
			:: act == RECONCILE ->
#ifdef OPAQUE
#ifdef OPAQUE_RETRY
				atomic { seen = 0 };
#else
				if
				:: overrides < 1 && i == P - 1 -> seen = 0		/* a person says: again */
				:: break						/* stays UNKNOWN */
				fi;
#endif
#else
				/* the callback asks the outside, without the lock */
				atomic {
					if
					:: happened > 0 -> seen = 1
#ifdef NO_SETTLE
					:: happened == 0 -> seen = 0
#else
					:: happened == 0 && !net[t] -> seen = 0	/* settled: nothing of it is under way */
#endif
					fi
				};
#endif
				LOCKED {
					take();
					if
#ifndef VERDICT_BLIND
					:: st != UNK || try != t || FENCED			/* overtaken */
#endif
					:: VERDICT_OK && seen -> append(COMM, t)
					:: VERDICT_OK && !seen -> append(ABS, t);
#if defined(OPAQUE) && !defined(OPAQUE_RETRY)
						overrides++
#endif
					fi;
					release()
				};
				t = 0
			fi;
			seen = 0
		od;
		atomic {
			assert(i < P - 1 || FENCED || st == COMM || st == UNK || st == ABS);	/* E6 */
			exec[i] = 0; fin[i] = 1
		}
	} unless { dead[i] }
}

inline arrive() {
	if
	:: happened++; assert(happened <= 1 + overrides);		/* E1 */
#ifndef DEAF
	   ans[t] = !shut[t]
#endif
	:: shut[t]							/* lost on the way */
	fi;
	net[t] = 0; t = 0
}

active proctype Net() {
	byte t;
end:	do
	:: atomic { net[1] -> t = 1; arrive() }
	:: atomic { net[2] -> t = 2; arrive() }
	od
}
active proctype Fate() {
	byte k, kills, losses;
end:	do
	:: atomic { kills < KILLS -> kills++;
		if :: kill(0) :: kill(1) fi }
	:: atomic { losses < LOSSES && !on[2] -> losses++;
		k = 0; do :: k < P -> if :: on[k] && k < 2 -> kill(k) :: else fi; k++ :: else -> break od;
		select(k : dur .. tail);
		tail = k; dur = tail; k = 0; refold();
		assert(!reported || st == COMM);				/* E2 */
		k = 0 }
	od
}

init { atomic { byte k; do :: k < P -> run Harness(k); k++ :: else -> break od } }

#ifdef LIVE
ltl completes { <> (fin[0] && reported) }
#endif
