/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining where programs have different versions (docs/protocol.md, "Versions"): HOSTS hosts, a
 * switch and its parent. HOST_OLD, a bit for each host, SWITCH_OLD and PARENT_OLD say who has the
 * version before. README.md says which step stands for which rule; run.sh gives the sizes, and sees
 * to it that every MUTANT_ is caught.
 *
 * A packet that was sent is on its way until it is delivered, in any order. At most LOSSES vanish,
 * DUPLICATES are delivered and stay, and hosts repeat themselves PREMATURE times while something is
 * on its way. From some moment on nothing is lost any more: each host then knows within BOUND
 * repetitions whether it takes part in the run, or why not.
 */
#define BOUND 10

/* Packets up: a JOIN of version 2 or 3, with a cookie or without. */
#define J2 0
#define J2C 1
#define J3 2
#define J3C 3
#define UP 4
/* Packets down, of version 2 or 3: CHALLENGE, waiting, active; REFUSED, with the version that
 * its `contributions` names. */
#define C2 0
#define W2 1
#define A2 2
#define R2 3
#define R2_3 4
#define C3 5
#define W3 6
#define A3 7
#define R3_2 8
#define DOWN 9

#define LINK (UP + DOWN)
#define N_PACKETS (LINK * (HOSTS + 1)) /* the last link is that between switch and parent */
bit net[N_PACKETS];
#define send_up(link, kind) net[(link) * LINK + (kind)] = 1
#define send_down(link, kind) net[(link) * LINK + UP + (kind)] = 1

#define is_old(h) (HOST_OLD >> (h) & 1)
#define all_old (SWITCH_OLD && PARENT_OLD)
#define all_new (!SWITCH_OLD && !PARENT_OLD)

/* Hosts. */
#define JOINING 0
#define JOINED 1
#define TOLD 2
byte state[HOSTS];
bit has_cookie[HOSTS];
bit unanswered[HOSTS]; /* its last JOIN */
byte tries[HOSTS];     /* since nothing is lost any more */

/* The switch. */
bit joined[HOSTS];
bit runs;
bit asked;    /* the parent, at all */
bit is_odd;   /* so many JOINs has it not answered */
bit known;    /* it has answered in version 3 */
bit up_cookie;
bit in_vain[HOSTS]; /* it waits, and the parent is older */
bit refused; /* by an older switch, what the parent has said */

/* The parent. */
bit parent_joined;

byte losses = LOSSES, duplicates = DUPLICATES, premature = PREMATURE;
bit perfect;
byte i, h, kind;
bit never_mixed = 1, right_refusal = 1, both_versions = 1, nobody_waits = 1;

#if HOSTS == 2
#define all_joined (joined[0] && joined[1])
#define stays_away(x, y) (state[x] == JOINING && state[y] == TOLD && is_old(x) != is_old(y))
#define all_know \
	((state[0] != JOINING && state[1] != JOINING) || \
	(perfect && (stays_away(0, 1) || stays_away(1, 0))))
#define tell_all in_vain[0] = joined[0]; in_vain[1] = joined[1]
#else
#define all_joined joined[0]
#define all_know (state[0] != JOINING)
#define tell_all in_vain[0] = joined[0]
#endif

inline look_for_packets()
{
	i = 0;
	do
	:: i < N_PACKETS && !net[i] -> i++
	:: else -> break
	od
}

/* ---- hosts */

/* A timer: the host repeats its JOIN, and asks whether the switch is older if it had no answer. */
inline say()
{
	if
	:: is_old(h) && has_cookie[h] -> send_up(h, J2C)
	:: is_old(h) && !has_cookie[h] -> send_up(h, J2)
	:: !is_old(h) ->
		if
		:: has_cookie[h] -> send_up(h, J3C)
		:: else -> send_up(h, J3)
		fi;
#ifndef MUTANT_HOST_ASKS_NOTHING
		if
#ifdef MUTANT_ASKS_WITH_COOKIE
		:: unanswered[h] && has_cookie[h] -> send_up(h, J2C)
		:: unanswered[h] && !has_cookie[h] -> send_up(h, J2)
#else
		:: unanswered[h] -> send_up(h, J2)
#endif
		:: else
		fi
#endif
	fi;
	unanswered[h] = 1
}

inline is_told(really, with_both)
{
	right_refusal = really;
	assert(right_refusal);
	both_versions = with_both;
	assert(both_versions);
	state[h] = TOLD;
	/* Its process may say LEAVE, or just end. */
	if
	:: joined[h] = 0
	:: skip
	fi
}

inline joins()
{
	never_mixed = (is_old(h) && all_old) || (!is_old(h) && all_new);
	assert(never_mixed);
	state[h] = JOINED
}

inline hear()
{
	if
	:: state[h] != JOINING
	:: state[h] == JOINING && is_old(h) && kind == C2 ->
		unanswered[h] = 0;
		has_cookie[h] = 1;
		send_up(h, J2C)
	:: state[h] == JOINING && is_old(h) && kind == W2 -> unanswered[h] = 0
	:: state[h] == JOINING && is_old(h) && kind == A2 -> joins()
	:: state[h] == JOINING && is_old(h) && (kind == R2 || kind == R2_3) ->
		/* A switch of the version before passes on what a newer parent has said,
		 * without its version. */
		is_told(!SWITCH_OLD || !PARENT_OLD, kind == R2_3 || SWITCH_OLD)
	:: state[h] == JOINING && is_old(h) && kind >= C3
	:: state[h] == JOINING && !is_old(h) && kind == C3 ->
		unanswered[h] = 0;
		has_cookie[h] = 1;
		send_up(h, J3C)
	:: state[h] == JOINING && !is_old(h) && kind == W3 -> unanswered[h] = 0
	:: state[h] == JOINING && !is_old(h) && kind == A3 -> joins()
	:: state[h] == JOINING && !is_old(h) && kind == R3_2 -> is_told(!SWITCH_OLD && PARENT_OLD, 1)
#ifdef MUTANT_ASKS_WITH_COOKIE
	:: state[h] == JOINING && !is_old(h) && kind == C2 -> has_cookie[h] = 1
	:: state[h] == JOINING && !is_old(h) && kind == W2 -> unanswered[h] = 0
	:: state[h] == JOINING && !is_old(h) && kind == A2 -> joins()
	:: state[h] == JOINING && !is_old(h) && kind == R2 -> is_told(SWITCH_OLD, 1)
#else
	:: state[h] == JOINING && !is_old(h) && kind <= R2 -> is_told(SWITCH_OLD, 1)
#endif
#ifdef MUTANT_TAKES_ANY
	:: state[h] == JOINING && !is_old(h) && kind == R2_3 -> is_told(SWITCH_OLD, 1)
#else
	:: state[h] == JOINING && !is_old(h) && kind == R2_3
#endif
	fi
}

/* The host waits for another one, whom its own version keeps away. */
#if HOSTS == 2
#define waits_for_other stays_away(h, 1 - h)
#else
#define waits_for_other 0
#endif

inline repeat()
{
	if
	:: state[h] == JOINING ->
		say();
		if
		:: perfect && !waits_for_other -> tries[h]++
		:: else
		fi;
		nobody_waits = tries[h] <= BOUND;
		assert(nobody_waits)
	:: else
	fi
}

/* ---- the switch */

inline ask_parent()
{
#if SWITCH_OLD
	if
	:: up_cookie -> send_up(HOSTS, J2C)
	:: else -> send_up(HOSTS, J2)
	fi
#else
	if
#ifndef MUTANT_SWITCH_ASKS_NOTHING
	:: !known && is_odd -> send_up(HOSTS, J2)
#else
	:: !known && is_odd -> send_up(HOSTS, J3)
#endif
	:: (known || !is_odd) && up_cookie -> send_up(HOSTS, J3C)
	:: (known || !is_odd) && !up_cookie -> send_up(HOSTS, J3)
	fi;
	is_odd = !is_odd
#endif
	asked = 1
}

/* Host h has joined, and is told how things are. A switch of the version before tells once what its
 * parent has said, and to who asks next. */
inline answer_member()
{
	if
	:: runs -> send_down(h, (SWITCH_OLD -> A2 : A3))
	:: !runs && !SWITCH_OLD && in_vain[h] ->
		if
		:: all_joined -> ask_parent()
		:: else
		fi;
#ifdef MUTANT_TOLD_ONCE
		in_vain[h] = 0;
#endif
		send_down(h, R3_2)
	:: !runs && SWITCH_OLD && refused && all_joined ->
		refused = 0;
		send_down(h, R2)
	:: !runs && !(SWITCH_OLD && refused && all_joined) && !(!SWITCH_OLD && in_vain[h]) ->
		if
		:: all_joined -> ask_parent()
		:: else
		fi;
		send_down(h, (SWITCH_OLD -> W2 : W3))
	fi
}

inline switch_hears()
{
#if SWITCH_OLD
	if
	:: (kind == J2 && joined[h]) || kind == J2C ->
		if
		:: !joined[h] -> joined[h] = 1; in_vain[h] = 0
		:: else
		fi;
		answer_member()
	:: kind == J2 && !joined[h] -> send_down(h, C2)
	:: kind == J3 || kind == J3C /* dropped without a word */
	fi
#else
	if
	:: (kind == J3 && joined[h]) || kind == J3C ->
		if
		:: !joined[h] -> joined[h] = 1; in_vain[h] = 0
		:: else
		fi;
		answer_member()
	:: kind == J3 && !joined[h] -> send_down(h, C3)
#ifdef MUTANT_SWITCH_IS_SILENT
	:: kind == J2 || kind == J2C
#elif defined(MUTANT_TELLS_NO_VERSION)
	:: kind == J2 || kind == J2C -> send_down(h, R2)
#else
	:: kind == J2 || kind == J2C -> send_down(h, R2_3)
#endif
	fi
#endif
}

inline switch_hears_parent()
{
#if SWITCH_OLD
	if
	:: kind == C2 ->
		if
		:: !up_cookie -> up_cookie = 1; send_up(HOSTS, J2C)
		:: else
		fi
	:: kind == A2 -> runs = all_joined
	:: kind == W2 || kind >= C3
	:: (kind == R2 || kind == R2_3) -> refused = 1
	fi
#else
	if
	:: kind == C3 ->
		known = 1;
		is_odd = 0;
		if
		:: !up_cookie -> up_cookie = 1; send_up(HOSTS, J3C)
		:: else
		fi
	:: kind == A3 -> known = 1; runs = all_joined
	:: kind == W3 || kind == R3_2 -> known = 1
	:: kind == R2_3 ->
#ifdef MUTANT_SWITCH_TAKES_ANY
		tell_all
#else
		known = 1
#endif
	:: kind <= R2 && !known -> is_odd = 0; tell_all
	:: kind <= R2 && known
	fi
#endif
}

/* ---- the parent, which has no other child */

inline parent_hears()
{
#if PARENT_OLD
	if
	:: kind == J2C -> parent_joined = 1; send_down(HOSTS, A2)
	:: kind == J2 -> send_down(HOSTS, (parent_joined -> A2 : C2))
	:: kind == J3 || kind == J3C
	fi
#else
	if
	:: kind == J3C -> parent_joined = 1; send_down(HOSTS, A3)
	:: kind == J3 -> send_down(HOSTS, (parent_joined -> A3 : C3))
	:: kind == J2 || kind == J2C -> send_down(HOSTS, R2_3)
	fi
#endif
}

/* ---- all of it */

inline deliver()
{
	h = i / LINK;
	kind = i % LINK;
	if
	:: h == HOSTS && kind < UP -> parent_hears()
	:: h == HOSTS && kind >= UP -> kind = kind - UP; switch_hears_parent()
	:: h < HOSTS && kind < UP -> switch_hears()
	:: h < HOSTS && kind >= UP -> kind = kind - UP; hear()
	fi
}

/* Sets i to any packet that is on its way, N_PACKETS: there is none. */
inline choose_packet()
{
	look_for_packets();
	do
	:: i < N_PACKETS -> break
	:: i < N_PACKETS ->
		h = i;
		i++;
		do
		:: i < N_PACKETS && !net[i] -> i++
		:: else -> break
		od;
		if
		:: i == N_PACKETS -> i = h; break
		:: else
		fi
	:: i == N_PACKETS -> break
	od
}

init
{
	do
	:: !all_know ->
		atomic {
			choose_packet();
			if
			:: i < N_PACKETS -> net[i] = 0; deliver()
			:: i < N_PACKETS && losses > 0 && !perfect -> losses--; net[i] = 0
			:: i < N_PACKETS && duplicates > 0 && !perfect -> duplicates--; deliver()
			:: i < N_PACKETS && premature > 0 ->
				premature--;
				h = 0;
#if HOSTS == 2
				if
				:: h = 0
				:: h = 1
				fi;
#endif
				repeat()
			:: i == N_PACKETS ->
				h = 0;
				repeat();
#if HOSTS == 2
				h = 1;
				repeat()
#endif
			:: !perfect -> perfect = 1
			fi;
			i = 0;
			h = 0;
			kind = 0
		}
	:: all_know -> break
	od
}
