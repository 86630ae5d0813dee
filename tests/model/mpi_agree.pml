/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of MPI programs when the network fails (docs/mpi.md): RANKS ranks make the same CALLS
 * calls, each at its own pace, on one communicator or two. README.md says which step stands for
 * which rule; run.sh gives the sizes, and sees to it that every MUTANT_ is caught.
 *
 * Bits for each call say what it is. NONBLOCKING: it is queued, and up to DEPTH queued ones of a
 * communicator are posted at a time; the others wait for the queue first and return when they are
 * done. SECOND: of the second communicator. SMALL: behind it the program makes a blocking
 * collective that is never for the network, on the first communicator itself. FREES: behind it the
 * program frees the second communicator. A rank may wait for all its requests at any time, or not.
 * At the end all finalize.
 *
 * The network is done with a call once all ranks have posted it, and tells each rank so at any
 * time. At any moment it may fail, for one communicator or both: from then on, or once a rank has
 * left the job, ranks that wait for a result may get an error instead, each at its own time, or
 * never if the result comes first. REFUSALS posts fail at one rank only.
 */
#define END 250
#define AGREEMENT 251 /* what the ranks do on the shadow communicator, beside calls */
#define BARRIER 252
#define NOTHING 255
#define FINALIZE (2 * CALLS) /* the place behind the last call */

#define is_nonblocking(call) (NONBLOCKING >> (call) & 1)
#if DEPTH > 2
#error "results of the oldest call and of the one behind it come in any order, but not of further ones"
#endif
#define has_small(call) (SMALL >> (call) & 1)
#define has_free(call) (FREES >> (call) & 1)
#if SECOND
#define COMMS 2
#else
#define COMMS 1
#endif

/* The program's thread of each rank. */
byte place[RANKS]; /* 2 c: call c is next or under way; 2 c + 1: behind it; FINALIZE; END */
bit called[RANKS]; /* a blocking call is under way */
bit waits[RANKS];  /* for its requests */
bit in_small[RANKS];
byte n_small[RANKS];

/* What each rank has for each communicator; calls are counted from 0 for each. */
#define MEMBERS (RANKS * COMMS)
#define member(rank, comm) ((comm) * RANKS + (rank))
#define first_of(x) ((x) / RANKS * RANKS)
#define second_of(x) (first_of(x) + 1)
#define last_of(x) (first_of(x) + RANKS - 1)
#define by_all(does, x) (does(first_of(x)) && does(second_of(x)) && does(last_of(x)))
#define by_any(does, x) (does(first_of(x)) || does(second_of(x)) || does(last_of(x)))
byte made[MEMBERS];
byte begun[MEMBERS];
byte done[MEMBERS];
byte n_posted[MEMBERS]; /* to the network */
byte arrived[MEMBERS];  /* bits: calls that are not done yet, whose results have come */
byte by_network[MEMBERS], by_shadow[MEMBERS]; /* bits: calls that have succeeded */
byte errors[MEMBERS];
bit left[MEMBERS];        /* the job, after a failure */
bit contributed[MEMBERS]; /* to the agreement */
byte meet[COMMS];         /* from this call on all use the shadow communicator */

/* The n-th collective of the shadow communicators, and how many each rank has begun. */
#define DEEP (CALLS + 2)
byte on_shadow[COMMS * DEEP];
byte n_shadow[MEMBERS];

bit broken[COMMS], stays_whole; /* the network */
byte refusals = REFUSALS;
byte r, x, c, i;
bit same_on_shadow = 1, same_on_comm = 1, sum_is_exact = 1, one_way = 1,
	errors_are_few = 1, everybody_ends = 1;

#ifdef MUTANT_DIRECT
byte on_comm[2 * CALLS]; /* and how many each rank has begun is n_small */
#endif
#ifdef MUTANT_POSTS_ON
byte skipped[MEMBERS]; /* calls that were not posted */
#endif
#ifdef MUTANT_OWN_NEXT
byte next[MEMBERS];
#endif
#ifdef MUTANT_BARRIER_AT_END
bit in_barrier[MEMBERS];
#endif

#define has_left(y) left[y]
#define has_contributed(y) contributed[y]

/* ---- communicators: what a rank does as its n-th collective must be what the others
 * do as theirs */

inline enter_shadow(what)
{
	i = x / RANKS * DEEP + n_shadow[x];
#ifndef WITHOUT_SHADOW_CHECK
	same_on_shadow = on_shadow[i] == NOTHING || on_shadow[i] == what;
	assert(same_on_shadow);
#endif
	on_shadow[i] = what;
	n_shadow[x]++
}

#define all_in_shadow(y) \
	(n_shadow[first_of(y)] >= n_shadow[y] && n_shadow[second_of(y)] >= n_shadow[y] && \
	n_shadow[last_of(y)] >= n_shadow[y])

/* ... on the first communicator itself. */
inline enter_comm(what)
{
#ifdef MUTANT_DIRECT
	same_on_comm = on_comm[n_small[r]] == NOTHING || on_comm[n_small[r]] == what;
	assert(same_on_comm);
	on_comm[n_small[r]] = what;
#endif
	n_small[r]++
}

#define all_in_small(y) (n_small[0] >= n_small[y] && n_small[1] >= n_small[y] && \
	n_small[RANKS - 1] >= n_small[y])

/* ---- the agreement */

/* The rank tells the others once, without waiting, which call is the first that it has not begun
 * in the network. */
inline contribute(first)
{
	enter_shadow(AGREEMENT);
	contributed[x] = 1;
#ifdef MUTANT_OWN_NEXT
	next[x] = first;
#endif
	if
#ifdef MUTANT_MINIMUM
	:: n_shadow[first_of(x)] + n_shadow[second_of(x)] + n_shadow[last_of(x)] == 1 ||
		first < meet[x / RANKS] ->
		meet[x / RANKS] = first
#else
	:: first > meet[x / RANKS] -> meet[x / RANKS] = first
#endif
	:: else
	fi
}

#ifdef MUTANT_OWN_NEXT
#define shadow_begins(y) next[y]
#define knows(y) contributed[y]
#else
#define shadow_begins(y) meet[(y) / RANKS]
#define knows(y) by_all(has_contributed, y)
#endif

/* ---- calls in the network */

inline count_error()
{
	errors[x]++;
	errors_are_few = errors[x] <= 2 * DEPTH;
	assert(errors_are_few)
}

/* All that the rank has begun is done, in the network or not at all. It posts nothing any more. */
inline fail()
{
	left[x] = 1;
#ifndef MUTANT_AGREES_LATE
#if defined(MUTANT_FIRST_ERROR)
	contribute(done[x] + 1);
#elif defined(MUTANT_GIVES_UP)
	contribute(CALLS);
#else
	contribute(begun[x]);
#endif
#endif
	do
	:: done[x] < begun[x] ->
		if
		:: arrived[x] >> done[x] & 1 -> by_network[x] = by_network[x] | 1 << done[x]
		:: else -> count_error()
		fi;
		done[x]++
	:: else -> break
	od;
	arrived[x] = 0;
	printf("member %d: has failed, next is call %d\n", x, begun[x])
}

#define is_due(y) (begun[y] < made[y])
#define can_post(y) (!left[y] && is_due(y) && begun[y] - done[y] < DEPTH)
#define can_be_refused(y) (refusals > 0 && can_post(y))
#define lacks_result(y, call) (!left[y] && (call) < begun[y] && !(arrived[y] >> (call) & 1))
#define all_have_posted(y, nth) \
	(n_posted[first_of(y)] > (nth) && n_posted[second_of(y)] > (nth) && \
	n_posted[last_of(y)] > (nth))
#if defined(MUTANT_EARLY_ROOT)
#define can_arrive(y, call) (lacks_result(y, call) && ((y) == 0 || all_have_posted(y, call)))
#elif defined(MUTANT_POSTS_ON)
#define can_arrive(y, call) (lacks_result(y, call) && all_have_posted(y, (call) - skipped[y]))
#else
#define can_arrive(y, call) (lacks_result(y, call) && all_have_posted(y, call))
#endif
#define can_fail(y) (!left[y] && done[y] < begun[y] && (broken[(y) / RANKS] || by_any(has_left, y)))

/* Results come in any order; calls are done in theirs. */
inline end_arrived()
{
	do
	:: done[x] < begun[x] && arrived[x] >> done[x] & 1 ->
		arrived[x] = arrived[x] & ~(1 << done[x]);
		by_network[x] = by_network[x] | 1 << done[x];
		done[x]++
	:: else -> break
	od
}

inline post()
{
	begun[x]++;
	n_posted[x]++
}

inline refuse()
{
	refusals--;
	begun[x]++;
#ifdef MUTANT_POSTS_ON
	skipped[x]++;
	arrived[x] = arrived[x] | 1 << (begun[x] - 1);
	end_arrived()
#else
	fail()
#endif
}

inline arrive(call)
{
#ifdef MUTANT_POSTS_ON
	sum_is_exact = skipped[first_of(x)] == skipped[x] && skipped[second_of(x)] == skipped[x] &&
		skipped[last_of(x)] == skipped[x];
	assert(sum_is_exact);
#endif
	arrived[x] = arrived[x] | 1 << call;
	end_arrived()
}

/* ---- calls of a rank that has left the job, when their turns have come */

#define has_turn(y) (left[y] && is_due(y) && begun[y] == done[y])
#ifdef MUTANT_AGREES_LATE
#define can_contribute(y) (has_turn(y) && !contributed[y])
#else
#define can_contribute(y) false
#endif
#define can_take_turn(y) (has_turn(y) && contributed[y] && knows(y))
#define can_end_shadow(y) (left[y] && begun[y] > done[y] && all_in_shadow(y))

inline take_turn()
{
	if
	:: begun[x] < shadow_begins(x) ->
		begun[x]++;
		done[x]++;
		count_error()
	:: else ->
		enter_shadow(begun[x]);
		begun[x]++
	fi
}

inline end_shadow()
{
	by_shadow[x] = by_shadow[x] | 1 << done[x];
	done[x]++
}

/* ---- the program's thread */

#define call_of(rank) (place[rank] / 2)
#define callee_of(rank) member(rank, (SECOND >> call_of(rank) & 1))
#define is_drained(y) (done[y] == made[y])
#define are_drained(rank) (is_drained(rank) && is_drained(member(rank, COMMS - 1)))
#define moves(rank) (!waits[rank] && !in_small[rank])
#define at_call(rank) (place[rank] < FINALIZE && !(place[rank] & 1))
#define behind_call(rank) (place[rank] < FINALIZE && place[rank] & 1)
#define can_make(rank) (moves(rank) && at_call(rank) && !called[rank] && \
	(is_nonblocking(call_of(rank)) || is_drained(callee_of(rank))))
#define can_return(rank) (called[rank] && is_drained(callee_of(rank)))
#define can_enter_small(rank) (moves(rank) && behind_call(rank) && has_small(call_of(rank)))
#define can_leave_small(rank) (in_small[rank] && all_in_small(rank))
#define can_wait(rank) (moves(rank) && !called[rank] && place[rank] < FINALIZE && !are_drained(rank))
#define can_have_waited(rank) (waits[rank] && are_drained(rank))

inline go_on()
{
	place[r] = place[r] + (has_small(call_of(r)) || has_free(call_of(r)) -> 1 : 2)
}

inline make()
{
	x = callee_of(r);
	made[x]++;
	if
#ifdef MUTANT_DIRECT
	:: n_shadow[x] > 1 && is_nonblocking(call_of(r)) ->
		begun[x]++;
		done[x]++;
		enter_comm(call_of(r));
		go_on()
	:: !(n_shadow[x] > 1) && is_nonblocking(call_of(r)) -> go_on()
#else
	:: is_nonblocking(call_of(r)) -> go_on()
#endif
	:: else -> called[r] = 1
	fi
}

inline return_from_call()
{
	called[r] = 0;
	go_on()
}

inline enter_small()
{
	enter_comm(CALLS + call_of(r));
	in_small[r] = 1
}

inline leave_small()
{
	in_small[r] = 0;
	place[r]++
}

/* MPI_Comm_free of the second communicator behind a call, MPI_Finalize of all that are left. */
#define is_freed(rank, comm) (behind_call(rank) && has_free(call_of(rank)) && (comm) == 1 && \
	is_drained(member(rank, 1)))
#define is_finalized(rank) (place[rank] == FINALIZE && are_drained(rank))
#if defined(MUTANT_LEAVES_ALONE)
#define can_begin_end(rank, comm) false
#define has_ended(rank, comm) (!left[member(rank, comm)] || \
	by_all(has_contributed, member(rank, comm)))
#elif defined(MUTANT_BARRIER_AT_END)
#define can_begin_end(rank, comm) (moves(rank) && !in_barrier[member(rank, comm)] && \
	(is_freed(rank, comm) || is_finalized(rank)))
#define has_ended(rank, comm) (in_barrier[member(rank, comm)] && all_in_shadow(member(rank, comm)))
#elif defined(MUTANT_ONE_BY_ONE)
#define can_begin_end(rank, comm) (moves(rank) && !contributed[member(rank, comm)] && \
	(is_freed(rank, comm) || \
	 is_finalized(rank) && ((comm) == ((rank) & 1) || has_ended(rank, (rank) & 1))))
#define has_ended(rank, comm) by_all(has_contributed, member(rank, comm))
#else
#define can_begin_end(rank, comm) (moves(rank) && !contributed[member(rank, comm)] && \
	(is_freed(rank, comm) || is_finalized(rank)))
#define has_ended(rank, comm) by_all(has_contributed, member(rank, comm))
#endif
#define can_end_free(rank) (moves(rank) && is_freed(rank, 1) && has_ended(rank, 1))
#define can_end(rank) (is_finalized(rank) && has_ended(rank, 0) && has_ended(rank, COMMS - 1))

inline begin_end()
{
#ifdef MUTANT_BARRIER_AT_END
	enter_shadow(BARRIER);
	in_barrier[x] = 1
#else
	if
	:: !contributed[x] -> contribute(begun[x])
	:: else
	fi
#endif
}

/* Who succeeds in the network does so in a call that nobody makes on the shadow communicator, where
 * in the end all or none have. */
inline check_ways(first, second, last)
{
	one_way = !((by_network[first] | by_network[second] | by_network[last]) &
		(by_shadow[first] | by_shadow[second] | by_shadow[last]));
	assert(one_way);
	if
	:: done[first] == made[first] && done[second] == made[first] && done[last] == made[first] ->
		one_way = by_shadow[first] == by_shadow[second] &&
			by_shadow[second] == by_shadow[last]
	:: else
	fi;
	assert(one_way)
}

inline step_end()
{
	check_ways(first_of(x), second_of(x), last_of(x));
	r = 0;
	x = 0;
	i = 0
}

/* ---- the search */

#define STEPS(rank) \
	:: d_step { can_make(rank); r = rank; make(); step_end() } \
	:: d_step { can_return(rank); r = rank; return_from_call(); step_end() } \
	:: d_step { can_enter_small(rank); r = rank; enter_small(); step_end() } \
	:: d_step { can_leave_small(rank); r = rank; leave_small(); step_end() } \
	:: d_step { can_wait(rank); waits[rank] = 1 } \
	:: d_step { can_have_waited(rank); waits[rank] = 0 } \
	:: d_step { can_end(rank); place[rank] = END }

#define MEMBER_STEPS(rank, comm) \
	:: d_step { can_post(member(rank, comm)); x = member(rank, comm); post(); step_end() } \
	:: d_step { can_be_refused(member(rank, comm)); x = member(rank, comm); refuse(); step_end() } \
	:: d_step { can_arrive(member(rank, comm), done[member(rank, comm)]); \
		x = member(rank, comm); arrive(done[x]); step_end() } \
	:: d_step { DEPTH > 1 && can_arrive(member(rank, comm), done[member(rank, comm)] + 1); \
		x = member(rank, comm); arrive((done[x] + 1)); step_end() } \
	:: d_step { can_fail(member(rank, comm)); x = member(rank, comm); fail(); step_end() } \
	:: d_step { can_contribute(member(rank, comm)); \
		x = member(rank, comm); contribute(begun[x]); step_end() } \
	:: d_step { can_take_turn(member(rank, comm)); x = member(rank, comm); take_turn(); step_end() } \
	:: d_step { can_end_shadow(member(rank, comm)); \
		x = member(rank, comm); end_shadow(); step_end() } \
	:: d_step { can_begin_end(rank, comm); x = member(rank, comm); begin_end(); step_end() }

active proctype ranks()
{
	d_step {
		for (i : 0 .. COMMS * DEEP - 1) {
			on_shadow[i] = NOTHING
		}
#ifdef MUTANT_DIRECT
		for (i : 0 .. 2 * CALLS - 1) {
			on_comm[i] = NOTHING
		}
#endif
		i = 0
	}
	if
	:: stays_whole = 1
	:: stays_whole = 0
	fi;
	do
	STEPS(0)
	STEPS(1)
	MEMBER_STEPS(0, 0)
	MEMBER_STEPS(1, 0)
#if RANKS > 2
	STEPS(2)
	MEMBER_STEPS(2, 0)
#endif
#if COMMS > 1
	MEMBER_STEPS(0, 1)
	MEMBER_STEPS(1, 1)
	:: d_step { can_end_free(0); place[0]++ }
	:: d_step { can_end_free(1); place[1]++ }
	:: d_step { !broken[1] && !stays_whole -> broken[1] = 1 }
#if RANKS > 2
	MEMBER_STEPS(2, 1)
	:: d_step { can_end_free(2); place[2]++ }
#endif
#endif
	:: d_step { !broken[0] && !stays_whole -> broken[0] = 1 }
	:: else ->
#ifndef WITHOUT_END_CHECK
		everybody_ends = place[0] == END && place[1] == END && place[RANKS - 1] == END;
		assert(everybody_ends);
#endif
		break
	od
}
