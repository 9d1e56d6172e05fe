/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* An effect that a box makes through egress. The keeper writes the journal, egress only sends; both outlive the harness.
 *
 * harness 0 starts the box and may die; harness 1 opens later. Boxes ask egress; egress asks the keeper; the keeper appends DISPATCHED (epoch checked in the
 * same append), syncs, says go. Keeper and egress hold one executor lock through a shared open description: it is free only when neither lives.
 *
 * Holds: G1 happened <= 1 (nobody overrides here); G2 the box is told done only when that survives power loss; G3 told done means it happened;
 *        G4 harness 1 comes through, and leaves no DISPATCHED behind whose executor is dead; G5 no deadlock; G6 after harness 1 was acknowledged no
 *        request of the old box starts but one whose DISPATCHED was there before.
 * Mistakes (-D): LOCK_OF_KEEPER LOCK_OF_HARNESS UNKNOWN_WHILE_SENDING ANSWER_UNSYNCED GO_UNSYNCED EPOCH_IN_MEMORY NO_SETTLE SEND_WITHOUT_KEEPER CONFIRM_UNDER_LOCK
 */
#define NONE 0
#define DISP 1
#define COMM 2
#define UNK 3
#define ABS 4
#define B 2				/* boxes: 0 of the old harness, 1 of the new one */

byte st, dst;				/* cache, disk */
byte epoch, depoch;
byte by, dby;				/* which box's helpers execute it */
bool settled[B];			/* ghost: DISPATCHED came before the epoch record */
bool kdead[B], edead[B], hdead;
bool started[B];
byte net[B];				/* a request of box b under way */
bool shut[B], ans[B], told[B], refused[B];
byte happened, acked;
bool lock;				/* journal lock held by the opener (0 free): else appends are one step */
chan ask[B] = [1] of { bit };		/* egress to keeper: may I */
chan go[B] = [1] of { bit };		/* keeper to egress */
chan res[B] = [1] of { byte };		/* egress to keeper: outcome */
bool opened, confirm_ask, confirm_ok;

#ifdef LOCK_OF_KEEPER
#define EXEC(b) (!kdead[b])
#else
#ifdef LOCK_OF_HARNESS
#define EXEC(b) (b == 1 || !hdead)
#else
#define EXEC(b) (!kdead[b] || !edead[b])
#endif
#endif

inline sync() { d_step { dst = st; depoch = epoch; dby = by } }

inline tell() {
	atomic { assert(happened > 0); told[b] = 1 }			/* G3 */
}
inline tell_any() { told[b] = 1 }

proctype Keeper(byte b) {
	byte r, my; bit x;
	{
		my = b + 1;
end:		do
		:: ask[b] ? x ->
			atomic { !lock ->
				if
#ifdef EPOCH_IN_MEMORY
				:: (st == NONE || st == ABS) && true ->
#else
				:: (st == NONE || st == ABS) && epoch == my ->
#endif
					st = DISP; by = b; settled[b] = (epoch <= my); r = 1
				:: st == COMM -> r = 2				/* replay */
				:: else -> r = 0				/* 409: fenced, live elsewhere or unknown */
				fi
			};
			if
			:: r == 1 ->
#ifndef GO_UNSYNCED
				sync();
#endif
				go[b] ! 1
			:: r == 2 -> sync(); tell()
			:: else -> go[b] ! 0
			fi;
			r = 0; x = 0
		:: res[b] ? r ->
#ifdef ANSWER_UNSYNCED
			if :: r == COMM -> tell_any() :: else fi;
#endif
			atomic { !lock ->
				if
				:: (st == DISP || st == UNK) && by == b && r == COMM -> st = COMM
				:: st == DISP && by == b && r == UNK -> st = UNK
				:: else -> r = 0
				fi
			};
			sync();
			if :: r == COMM -> tell() :: else fi;
			r = 0
		:: atomic { !lock && edead[b] && st == DISP && by == b -> st = UNK }; sync()	/* egress died */
		:: confirm_ask && b == 0 && !confirm_ok -> confirm_ok = 1	/* the new epoch is known here */
		od
	} unless { kdead[b] }
}
proctype Egress(byte b) {
	bit x;
	{
		skip;
end0:		(started[b]);
		ask[b] ! 1;
		if
		:: go[b] ? x
#ifdef SEND_WITHOUT_KEEPER
		:: kdead[b] -> x = 1
#else
		:: kdead[b] -> goto out						/* keeper gone: nothing new starts */
#endif
		:: told[b] -> goto out
		fi;
		if
		:: x -> atomic { net[b] = 1; assert(acked <= b + 1 || settled[b]) }	/* G6 */
		:: else -> refused[b] = 1; goto out
		fi;
		if
		:: ans[b] -> res[b] ! COMM
		:: atomic { shut[b] = 1 }; res[b] ! UNK				/* broke after the first byte */
		fi;
out:		skip
	} unless { edead[b] };
end:	atomic { kdead[b] -> edead[b] = 1 }		/* no keeper: egress ends too and its half of the lock falls */
}

proctype Harness1() {
	opened = 1;
	atomic { !lock -> epoch = 2 };
	sync();
#ifdef CONFIRM_UNDER_LOCK
	lock = 1;
#endif
	/* what is no append (exec, mint, publish) is fenced by the keeper itself: wait for its word, or for its death */
	confirm_ask = 1;
	if
	:: confirm_ok
	:: kdead[0]
	fi;
	acked = 2;
	lock = 0;
	do
#ifdef UNKNOWN_WHILE_SENDING
	:: atomic { st == DISP && by == 0 -> st = UNK }; sync()
#else
	:: atomic { st == DISP && !EXEC(by) -> st = UNK }; sync()
#endif
	:: atomic { st == UNK && happened > 0 -> st = COMM }; sync()
#ifdef NO_SETTLE
	:: atomic { st == UNK && happened == 0 && !started[1] -> st = ABS }; sync()
#else
	:: atomic { st == UNK && happened == 0 && !net[0] && !net[1] && !started[1] -> st = ABS }; sync()
#endif
	:: atomic { (st == NONE || st == ABS) && !started[1] -> started[1] = 1 }
	:: st == COMM -> break
	:: atomic { started[1] && st != COMM && (kdead[1] || edead[1] || refused[1] || st == UNK) && !(st == DISP && !EXEC(by)) -> break }
	od;
	skip
}

inline arrive(b) {
	if
	:: happened++; assert(happened <= 1); ans[b] = !shut[b]		/* G1 */
	:: shut[b] || edead[b]							/* lost on the way */
	fi;
	net[b] = 0
}
active proctype Net() {
end:	do
	:: atomic { net[0] -> arrive(0) }
	:: atomic { net[1] -> arrive(1) }
	od
}

active proctype Fate() {
	byte kills, losses;
end:	do
	:: atomic { kills < 2 -> kills++;
		if :: kdead[0] = 1 :: edead[0] = 1 :: hdead = 1 :: kdead[1] = 1 fi }
	:: atomic { losses < 1 && !opened -> losses++;
		kdead[0] = 1; edead[0] = 1; hdead = 1;
		st = dst; epoch = depoch; by = dby;
		assert(!told[0] || st == COMM) }				/* G2 */
	od
}

init { atomic { epoch = 1; depoch = 1; started[0] = 1; run Keeper(0); run Keeper(1); run Egress(0); run Egress(1); run Harness1() } }
