/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The log below everything: records in the page cache, records on the disk, and what may be promised.
 *
 * A segment is N prewritten (zeroed) slots. A write lands in the page cache; the kernel may write any dirty slot back at any time and in any order; a sync writes all of
 * them or fails, and a failed one leaves slots clean that never reached the disk. A process can be killed anywhere; power can go
 * at any time, then the cache is what the disk holds. Writers share one lock (append) and one sync lock with a flag beside it.
 *
 * Holds: P1 a record that was acknowledged or acted on is there after power loss, in its place of one chain;
 *        P2 no stale record from before a recovery joins the chain, and none is mistaken for damage; P3 no two records fuse.
 * Mistakes (-D): NO_SYNC RETRY_SYNC NO_POISON NO_SYNC_FLAG RELY_UNSYNCED RELY_LATER NO_CHAIN NO_MARK NO_TORN_REPAIR SYNC_UNLOCKED
 */
#define N 2
#define W 3			/* incarnations: 0 and 1 write, 2 opens late, reads, relies, writes */
#define R 4			/* record ids 1..R-1 */
#define TORN 255
#ifndef LOSSES
#define LOSSES 1
#endif
#define FREE 99
#ifdef NO_CHAIN			/* neither chain nor cleaning */
#define NO_ZERO_TAIL
#define CHAINED(p) true
#else
#define CHAINED(p) (prv[c[p]] == last)
#endif

byte c[N], d[N];		/* cache and disk: 0 zeros, TORN half a record, else a record id */
bool dirty[N];
byte prv[R];			/* the id a record was chained to when it was made */
byte mrk[R];			/* how many slots its writer knew to be durable */
byte known;			/* slots known durable; in the lock file */
byte born = 1;			/* next id */
bool acked[R];			/* ghost: somebody was promised this record */
bool dead[W], on[W];
byte lock = FREE, sync = FREE;
bool syncing, poison;		/* in the lock file: shared by live processes, gone with the power */
byte faults, kills, losses;
hidden byte it, last;			/* scratch */

inline take(l)    { atomic { l == FREE -> l = i } }
inline release(l) { l = FREE }

/* End of the valid chain in the cache. */
inline scan(ret) {
	d_step {
		ret = 0; last = 0;
		do
		:: ret < N && c[ret] != 0 && c[ret] != TORN && CHAINED(ret) -> last = c[ret]; ret++
		:: else -> break
		od
	}
}

inline check_promises() {
	d_step {
		scan_chain();
		it = 1;
		do
		:: it < R ->
			assert(!acked[it] || inchain[it]);	/* P1 */
			it++
		:: else -> break
		od; it = 0
	}
}
hidden byte inchain[R];
hidden byte q;
inline scan_chain() {
	it = 0; do :: it < R -> inchain[it] = 0; it++ :: else -> break od;
	q = 0; last = 0;
	do
	:: q < N && c[q] != 0 && c[q] != TORN && CHAINED(q) -> last = c[q]; inchain[last] = 1; q++
	:: else -> break
	od;
	q = 0
}

/* P2: what is left beyond the end of the chain is told as a torn tail, as there is no damage here; and the chain is one. */
inline check_alarm() {
	d_step {
		last = 0; q = 0;
		do
		:: q < N && c[q] != 0 && c[q] != TORN && CHAINED(q) -> assert(prv[c[q]] == last); last = c[q]; q++
		:: else -> break
		od;
		it = q;
		do
#ifdef NO_MARK
		:: it < N -> assert(c[it] == 0 || c[it] == TORN); it++
#else
		:: it < N -> assert(c[it] == 0 || c[it] == TORN || mrk[c[it]] <= q); it++
#endif
		:: else -> break
		od; it = 0; q = 0; last = 0
	}
}

/* One fdatasync. ok = 0 when it failed: the slots are clean now and only some were written. */
inline fdatasync_() {
	atomic {
		it = 0;
		if
		:: ok = 1
		:: faults < 1 -> faults++; ok = 0
		fi;
		do
		:: it < N && dirty[it] && ok -> d[it] = c[it]; dirty[it] = 0; it++
		:: it < N && dirty[it] && !ok -> dirty[it] = 0; it++
		:: it < N && dirty[it] && !ok -> d[it] = c[it]; dirty[it] = 0; it++
		:: it < N && !dirty[it] -> it++
		:: else -> break
		od; it = 0
	}
}

/* Make everything written so far durable; good = 0 when that cannot be said. */
inline make_durable() {
#ifndef SYNC_UNLOCKED
	take(sync);
#endif
	if
#ifndef NO_POISON
	:: poison -> good = 0
#endif
#ifndef NO_SYNC_FLAG
	:: !poison && syncing -> poison = 1; good = 0	/* its syncer died in the middle: same as failed */
#endif
	:: else ->
#ifndef NO_SYNC_FLAG
		syncing = 1;
#endif
		scan(upto);		/* a sync speaks for what was there before it began */
		fdatasync_();
		if
		:: ok -> good = 1; atomic { known = (upto > known -> upto : known) }
		:: else ->
#ifdef RETRY_SYNC
			fdatasync_(); good = ok
#else
#ifndef NO_POISON
			poison = 1;
#endif
			good = 0
#endif
		fi;
		syncing = 0
	fi;
#ifndef SYNC_UNLOCKED
	release(sync)
#endif
}

/* Append one record under the lock: half of it, then all of it. */
inline append() {
	atomic {
		lock == FREE -> lock = i;
		if
		:: poison -> lock = FREE; goto out
		:: else
		fi;
		scan(pos);
		if
		:: pos >= N -> lock = FREE; goto out
		:: else
		fi;
#ifdef NO_TORN_REPAIR
		fused = (c[pos] == TORN);
#endif
		assert(born < R);
		mine = born; born++; prv[mine] = last; mrk[mine] = known;
		c[pos] = TORN; dirty[pos] = 1; pos_ = pos; pos = 0
	};
	atomic { c[pos_] = (fused -> TORN : mine); dirty[pos_] = 1; lock = FREE; pos_ = 0 }
}

proctype Proc(byte i; bool late) {
	byte pos, pos_, mine, n; byte upto; bool ok, good, fused;
	{
		on[i] = 1;
		/* open: under both locks, what is in the cache is made durable before it is believed */
		atomic {
		lock == FREE;
		scan(pos);
#ifndef NO_ZERO_TAIL
		it = pos; do :: it < N -> if :: c[it] != 0 -> c[it] = 0; dirty[it] = 1 :: else fi; it++ :: else -> break od; it = 0;
#endif
		pos = 0 };
#ifndef RELY_UNSYNCED
		make_durable();
		if :: !good -> goto out :: else fi;
#endif
#ifdef RELY_LATER
		scan(upto);		/* what came in after the sync began is believed too */
#endif
#ifdef RELY_UNSYNCED
		scan(upto);
#endif
		atomic {	/* now it acts on the records it may believe */
			it = 0;
			do
			:: late && it < upto -> if :: c[it] != TORN -> acked[c[it]] = 1 :: else fi; it++
			:: else -> break
			od; it = 0
		};
		n = 0;
		do
		:: n < 1 ->
			append();
#ifdef NO_SYNC
			good = 1;
#else
			make_durable();
#endif
			if
			:: good -> atomic { acked[mine] = 1; check_promises(); upto = 0; mine = 0 }	/* P3: a fused record is not in the chain */
			:: else -> break
			fi;
			n++
		:: else -> break
		od;
out:		skip
	} unless { dead[i] }
}

inline kill(p) {
	dead[p] = 1;
	if :: lock == p -> lock = FREE :: else fi;
	if :: sync == p -> sync = FREE :: else fi
}

/* Write-back by the kernel, kill -9, power loss. */
active proctype Fate() {
	byte k;
end:	do
	:: atomic { dirty[0] -> d[0] = c[0]; dirty[0] = 0 }
	:: atomic { dirty[1] -> d[1] = c[1]; dirty[1] = 0 }
	:: atomic { kills < 1 -> kills++; select(k : 0 .. 1); kill(k); k = 0 }
	:: atomic { losses < LOSSES -> losses++;
		k = 0; do :: k < W -> if :: on[k] -> kill(k) :: else fi; k++ :: else -> break od;
		k = 0; do :: k < N -> c[k] = d[k]; dirty[k] = 0; k++ :: else -> break od; k = 0;
		syncing = 0; poison = 0; known = 0;
		check_promises(); check_alarm() }
	od
}
init { atomic { run Proc(0, 0); run Proc(1, 0); run Proc(2, 1) } }
