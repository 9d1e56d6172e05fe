/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Approvals, cancel and time: two effects of one payload, an approver and a canceler in other processes, a clock that may jump.
 *
 * The journal is folded into counters; each record is appended to the cache and becomes durable with the next sync of anybody (a sync covers
 * all before it). Power loss takes the fold back to the last sync, kills everybody, and the requester comes back once.
 * Two requesters (threads or processes of one owner) want the same payload; one approval, one use.
 *
 * Holds: A1 dispatched with this approval <= max uses, over all crashes; A2 nothing is dispatched unless the grant in force is durable or
 *        becomes so in the same sync; A3 not after its expiry in true time; A4 not after a deny or a cancel was acknowledged;
 *        A5 not after the task has ended, however late the grant; A6 an acknowledged cancel of an effect that never was dispatched
 *        means that it never happens.
 * Harmless (-D): GRANT_ANY_TIME, as DISPATCHED is what decides.
 * Mistakes (-D): CONSUME_APART CANCEL_UNSYNCED CANCEL_OUTSIDE_LOCK WALL_CLOCK HIGH_WATER DENY_LOSES CHECK_OUTSIDE_LOCK CONSUME_UNSYNCED
 */
#define R 2
#define MAX_USES 1
#define TTL 2

/* one fold of the journal: what is granted, used, denied, canceled; when it expires; state of each effect */
typedef fold {
	bool grant, deny, cancel;
	byte used, until, high, boot;	/* high: highest time seen in any record; boot: of the grant */
	bool disp[R];
}
fold J, D;				/* in the cache, on the disk */

byte truth = 1, wall = 1;		/* true time, and what the clock says */
bool cancel_acked, deny_acked;
byte sent;				/* effects that happened */
bool dead[5], on[5];			/* 0 1 requesters, 2 3 approvers, 4 canceler */
byte k;
byte losses, boot, real_until;

inline copy(to, from) {
	to.grant = from.grant; to.deny = from.deny; to.cancel = from.cancel; to.used = from.used; to.until = from.until; to.high = from.high; to.boot = from.boot;
	to.disp[0] = from.disp[0]; to.disp[1] = from.disp[1]
}
inline sync() { d_step { copy(D, J) } }
#ifdef WALL_CLOCK
#define NOW wall
#define SAME_BOOT true
#else
#ifdef HIGH_WATER
#define NOW (wall > J.high -> wall : J.high)	/* never earlier than a record */
#define SAME_BOOT true
#else
#define NOW truth				/* the boot clock, which nobody sets */
#define SAME_BOOT (J.boot == boot)
#endif
#endif
inline stamp() { J.high = (NOW > J.high -> NOW : J.high) }

#ifdef GRANT_ANY_TIME
#define OPEN true
#else
#define OPEN !J.cancel
#endif
#ifdef CANCEL_OUTSIDE_LOCK
#define ADMITTED true
#else
#define ADMITTED !J.cancel
#endif
#ifdef DENY_LOSES
#define ALLOWED J.grant
#else
#define ALLOWED (J.grant && !J.deny)
#endif
#define USABLE (ALLOWED && SAME_BOOT && J.used < MAX_USES && NOW < J.until)

inline fire() {
	atomic { sent++; assert(sent <= MAX_USES) }			/* A1 */
}
inline dispatch() {
	J.disp[i] = 1; stamp();
	assert(truth < real_until);					/* A3, at the append */
	assert(!deny_acked && !cancel_acked)				/* A4, A5, A6 */
}

proctype Requester(byte i) {
	{
		on[i] = 1;
#ifdef CONSUME_APART
end0:		atomic { USABLE && ADMITTED -> dispatch() };
		sync(); fire();
		J.used++;
		sync()
#else
#ifdef CHECK_OUTSIDE_LOCK
end1:		(USABLE && ADMITTED);
		atomic { J.used++; dispatch() };
#else
#ifdef CANCEL_OUTSIDE_LOCK
end2:		!J.cancel;
#endif
		/* one append under the lock: the checks, the use and DISPATCHED together */
end3:		atomic { USABLE && ADMITTED -> J.used++; dispatch() };
#endif
#ifndef CONSUME_UNSYNCED
		sync();
#endif
		fire()
#endif
	} unless { dead[i] }
}

/* Grants once, may revoke; asked again after a power loss. */
proctype Approver(byte i) {
	{
		on[i] = 1;
		if
		:: atomic { OPEN && !J.grant -> J.grant = 1; J.boot = boot; J.until = NOW + TTL; real_until = truth + TTL; stamp() };
			sync();
			if
			:: atomic { J.used == 0 -> J.deny = 1 }; sync(); deny_acked = 1	/* revoked in time */
			:: skip
			fi
		:: skip
		fi
	} unless { dead[i] }
}

proctype Canceler(byte i) {
	{
		on[i] = 1;
		if
		:: atomic { !J.cancel -> J.cancel = 1; stamp() };	/* the same append cancels what is INTENDED */
#ifndef CANCEL_UNSYNCED
			sync();
#endif
			cancel_acked = 1
		:: skip
		fi
	} unless { dead[i] }
}

/* True time only goes on; the clock goes with it, and is set back once. */
proctype Clock() {
	bool back;
end:	do
	:: atomic { truth < 5 -> truth++; wall++ }
	:: atomic { !back && wall > 1 -> back = 1; wall = 1 }
	od
}

active proctype Fate() {
end:	do
	:: atomic { losses < 1 -> losses++; boot++;
		copy(J, D);
		k = 0; do :: k < 5 -> if :: on[k] -> dead[k] = 1 :: else fi; k++ :: else -> break od; k = 0 }
	:: atomic { !dead[0] && on[0] -> dead[0] = 1 }
	od
}

init { atomic { run Requester(0); run Requester(1); run Approver(2); run Approver(3); run Canceler(4); run Clock() } }
