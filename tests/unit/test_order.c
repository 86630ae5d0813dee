/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of ranks: the sum that switches make by wire/order.h is the one that docs/operators.md
 * defines exactly if the ranks behind each switch are a unit; in no other case could it be. Terms
 * are compared by hashes that neither associate nor commute.
 */
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "lab/reference/random.h"
#include "tests/unit/suites.h"
#include "wire/order.h"

#define RANKS_MAX 9 /* maximum for which all placements are tried */
#define FREE_MAX 5  /* maximum for which all terms are tried, in all placements */
#define TERMS_MAX 4096

static uint64_t
mix(uint64_t x)
{
	x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return x ^ x >> 32;
}

static uint64_t
add(uint64_t left, uint64_t right)
{
	return mix(mix(left) + 3 * right + 1);
}

static uint64_t
value_of(unsigned int rank)
{
	return mix(rank + 1);
}

/* Returns the sum of ranks [first, first + n) as defined; 0: none of them exists. */
static uint64_t
definition(unsigned int first, unsigned int n, unsigned int n_ranks)
{
	uint64_t left, right;

	if (first >= n_ranks)
		return 0;
	if (n == 1)
		return value_of(first);
	left = definition(first, n / 2, n_ranks);
	right = definition(first + n / 2, n / 2, n_ranks);
	return right == 0 ? left : add(left, right);
}

static uint64_t
definition_of_all(unsigned int n_ranks)
{
	unsigned int n = 1;

	while (n < n_ranks)
		n *= 2;
	return definition(0, n, n_ranks);
}

/* A child of a switch: the lowest rank behind it, and its sum. */
struct child {
	uint16_t first;
	uint64_t sum;
};

/*
 * Returns a switch's sum of its children, in this order of arrival. most: raised to the number of
 * sums that waited at the same time.
 */
static uint64_t
combine(const struct child *children, const uint8_t *arrivals, unsigned int n, unsigned int *most)
{
	uint64_t waiting[FANIN_WIRE_MAX_CHILDREN] = { 0 };
	uint16_t first[FANIN_WIRE_MAX_CHILDREN] = { 0 };
	struct fanin_order order;
	unsigned int n_waiting = 0;
	unsigned int allowed;

	for (unsigned int i = 0; i < n; i++)
		first[i] = children[i].first;
	allowed = fanin_order_build(&order, first, n);
	for (unsigned int i = 0; i < n; i++) {
		uint64_t sum = children[arrivals[i]].sum;
		uint8_t up = order.up_of_child[arrivals[i]];

		for (; up != 0; up = order.up_of_node[fanin_order_node(up)]) {
			uint64_t *other = &waiting[fanin_order_node(up)];

			if (*other == 0) {
				*other = sum;
				n_waiting++;
				break;
			}
			sum = fanin_order_is_right(up) ? add(*other, sum) : add(sum, *other);
			*other = 0;
			n_waiting--;
		}
		*most = n_waiting > *most ? n_waiting : *most;
		ck_assert_uint_le(n_waiting, allowed);
		if (up == 0) {
			ck_assert_uint_eq(i, n - 1);
			return sum;
		}
	}
	ck_abort_msg("%u children have come, and there is no sum", n);
}

static uint64_t
combine_in_a_row(const struct child *children, unsigned int n)
{
	uint8_t arrivals[FANIN_WIRE_MAX_CHILDREN];
	unsigned int most = 0;

	for (unsigned int i = 0; i < n; i++)
		arrivals[i] = (uint8_t)(n - 1 - i);
	return combine(children, arrivals, n, &most);
}

/* The switch of each rank; switches are numbered in the order of their lowest ranks. */
struct placement {
	uint8_t switch_of[RANKS_MAX];
	unsigned int n_ranks;
	unsigned int n_switches;
};

static void
begin(struct placement *at, unsigned int n_ranks)
{
	memset(at, 0, sizeof(*at));
	at->n_ranks = n_ranks;
	at->n_switches = 1;
}

/* Advances to the next placement. Returns false after the last one. */
static bool
next(struct placement *at)
{
	for (unsigned int i = at->n_ranks; i-- > 1;) {
		unsigned int most = 0;

		for (unsigned int k = 0; k < i; k++)
			most = at->switch_of[k] > most ? at->switch_of[k] : most;
		if (at->switch_of[i] > most)
			continue;
		at->switch_of[i]++;
		memset(at->switch_of + i + 1, 0, at->n_ranks - i - 1);
		at->n_switches = at->switch_of[i] > most ? at->switch_of[i] + 1u : most + 1;
		return true;
	}
	return false;
}

static struct fanin_ranks
ranks_at(const struct placement *at, unsigned int number)
{
	struct fanin_ranks ranks = { 0 };

	for (unsigned int rank = 0; rank < at->n_ranks; rank++) {
		if (at->switch_of[rank] == number)
			fanin_ranks_add(&ranks, rank);
	}
	return ranks;
}

static bool
has_units(const struct placement *at)
{
	for (unsigned int i = 0; i < at->n_switches; i++) {
		const struct fanin_ranks ranks = ranks_at(at, i);

		if (!fanin_order_is_unit(&ranks, at->n_ranks))
			return false;
	}
	return true;
}

/* Returns the root's sum over switches that sum up their hosts. */
static uint64_t
sum_of(const struct placement *at)
{
	struct child switches[RANKS_MAX];

	for (unsigned int i = 0; i < at->n_switches; i++) {
		const struct fanin_ranks ranks = ranks_at(at, i);
		struct child hosts[RANKS_MAX] = { 0 };
		unsigned int n = 0;
		unsigned int rank;

		FANIN_RANKS_EACH(rank, &ranks)
		hosts[n++] = (struct child){ (uint16_t)rank, value_of(rank) };
		switches[i] = (struct child){ hosts[0].first, combine_in_a_row(hosts, n) };
	}
	return combine_in_a_row(switches, at->n_switches);
}

START_TEST(the_written_order_comes_out_exactly_where_each_switch_has_a_unit)
{
	unsigned int kept = 0;
	struct placement at;

	for (unsigned int n_ranks = 1; n_ranks <= RANKS_MAX; n_ranks++) {
		const uint64_t expected = definition_of_all(n_ranks);

		begin(&at, n_ranks);
		do {
			ck_assert_int_eq(sum_of(&at) == expected, has_units(&at));
			kept += has_units(&at);
		} while (next(&at));
	}
	ck_assert_uint_gt(kept, RANKS_MAX);
}
END_TEST

/* All terms over children, by the set of children in them. */
struct terms {
	uint64_t *of[1 << FREE_MAX];
	unsigned int n[1 << FREE_MAX];
};

static void
append(struct terms *terms, unsigned int set, uint64_t term)
{
	if (terms->of[set] == NULL)
		terms->of[set] = malloc(TERMS_MAX * sizeof(uint64_t));
	ck_assert_ptr_nonnull(terms->of[set]);
	ck_assert_uint_lt(terms->n[set], TERMS_MAX);
	terms->of[set][terms->n[set]++] = term;
}

static void
list_terms(const uint64_t *values, unsigned int n, struct terms *terms)
{
	memset(terms, 0, sizeof(*terms));
	for (unsigned int set = 1; set < 1u << n; set++) {
		if ((set & (set - 1)) == 0)
			append(terms, set, values[__builtin_ctz(set)]);
		for (unsigned int left = (set - 1) & set; left != 0; left = (left - 1) & set) {
			for (unsigned int i = 0; i < terms->n[left]; i++) {
				for (unsigned int k = 0; k < terms->n[set ^ left]; k++)
					append(terms, set,
					       add(terms->of[left][i], terms->of[set ^ left][k]));
			}
		}
	}
}

static void
free_terms(struct terms *terms)
{
	for (unsigned int set = 0; set < 1u << FREE_MAX; set++)
		free(terms->of[set]);
}

/*
 * Returns true if the root can have the sum, with any term of each switch over its children. sums:
 * of the switches before this one.
 */
static bool
may_be(const struct placement *at, uint64_t expected, uint64_t *sums, unsigned int number)
{
	uint64_t values[FREE_MAX];
	unsigned int n = 0;
	struct terms terms;
	bool found = false;

	for (unsigned int rank = 0; rank < at->n_ranks; rank++) {
		if (number < at->n_switches && at->switch_of[rank] == number)
			values[n++] = value_of(rank);
	}
	if (number == at->n_switches) {
		list_terms(sums, number, &terms);
		for (unsigned int i = 0; i < terms.n[(1u << number) - 1]; i++)
			found = found || terms.of[(1u << number) - 1][i] == expected;
		free_terms(&terms);
		return found;
	}
	list_terms(values, n, &terms);
	for (unsigned int i = 0; i < terms.n[(1u << n) - 1] && !found; i++) {
		sums[number] = terms.of[(1u << n) - 1][i];
		found = may_be(at, expected, sums, number + 1);
	}
	free_terms(&terms);
	return found;
}

START_TEST(no_way_to_combine_has_the_order_where_a_switch_has_no_unit)
{
	struct placement at;

	for (unsigned int n_ranks = 1; n_ranks <= FREE_MAX; n_ranks++) {
		begin(&at, n_ranks);
		do {
			uint64_t sums[FREE_MAX];

			ck_assert_int_eq(may_be(&at, definition_of_all(n_ranks), sums, 0),
					 has_units(&at));
		} while (next(&at));
	}
}
END_TEST

/*
 * A switch has hosts and switches that have switches below them: one of its children has `inner`
 * ranks.
 */
START_TEST(the_order_comes_out_over_several_levels)
{
	for (unsigned int n_ranks = 1; n_ranks <= 40; n_ranks++) {
		for (unsigned int width = 2; width / 2 < n_ranks; width *= 2) {
			struct child units[FANIN_WIRE_MAX_CHILDREN];
			unsigned int n = 0;

			for (unsigned int first = 0; first < n_ranks; first += width) {
				struct child pairs[FANIN_WIRE_MAX_CHILDREN];
				unsigned int n_pairs = 0;

				for (unsigned int i = first; i < first + width && i < n_ranks;
				     i += 2) {
					struct child hosts[2] = { { (uint16_t)i, value_of(i) },
								  { (uint16_t)(i + 1),
								    value_of(i + 1) } };

					pairs[n_pairs++] = (struct child){
						(uint16_t)i,
						combine_in_a_row(hosts, i + 1 < n_ranks ? 2 : 1)
					};
				}
				units[n++] = (struct child){ (uint16_t)first,
							     combine_in_a_row(pairs, n_pairs) };
			}
			ck_assert(combine_in_a_row(units, n) == definition_of_all(n_ranks));
		}
	}
}
END_TEST

static void
swap(uint8_t *a, uint8_t *b)
{
	const uint8_t kept = *a;

	*a = *b;
	*b = kept;
}

/* Tries all orders of arrival, from position `at` on. */
static void
permute(const struct child *children, uint8_t *arrivals, unsigned int n, unsigned int at,
	uint64_t expected, unsigned int *most)
{
	if (at == n)
		ck_assert(combine(children, arrivals, n, most) == expected);
	for (unsigned int i = at; i < n; i++) {
		swap(&arrivals[at], &arrivals[i]);
		permute(children, arrivals, n, at + 1, expected, most);
		swap(&arrivals[at], &arrivals[i]);
	}
}

START_TEST(as_many_sums_wait_at_most_as_is_said)
{
	/* Ranks in a row; of very different sizes; interleaved. */
	static const uint16_t firsts[][6] = { { 0, 1, 2, 3, 4, 5 },
					      { 0, 1, 2, 4, 8, 16 },
					      { 9, 0, 64, 3, 2, 4000 } };

	for (size_t row = 0; row < sizeof(firsts) / sizeof(firsts[0]); row++) {
		for (unsigned int n = 1; n <= 6; n++) {
			struct child children[6];
			uint8_t arrivals[6];
			unsigned int most = 1;

			for (unsigned int i = 0; i < n; i++) {
				children[i] = (struct child){ firsts[row][i], value_of(i) };
				arrivals[i] = (uint8_t)i;
			}
			permute(children, arrivals, n, 0, combine_in_a_row(children, n), &most);
			ck_assert_uint_eq(most, fanin_order_build(NULL, firsts[row], n));
		}
	}
	ck_assert_uint_eq(fanin_order_build(NULL, firsts[0], 0), 1);
	ck_assert_uint_eq(fanin_order_build(NULL, firsts[1], 6), 5);
}
END_TEST

START_TEST(hosts_in_a_row_wait_in_pairs)
{
	uint16_t first[FANIN_WIRE_MAX_CHILDREN];

	for (uint16_t i = 0; i < FANIN_WIRE_MAX_CHILDREN; i++)
		first[i] = (uint16_t)(64 + i);
	for (unsigned int n = 1; n <= FANIN_WIRE_MAX_CHILDREN; n++)
		ck_assert_uint_eq(fanin_order_build(NULL, first, n), (n + 1) / 2);
}
END_TEST

START_TEST(a_unit_is_an_interval_of_the_halving)
{
	for (unsigned int n_ranks = 1; n_ranks <= 70; n_ranks++) {
		for (unsigned int first = 0; first < n_ranks; first++) {
			for (unsigned int n = 1; first + n <= n_ranks; n++) {
				struct fanin_ranks set = { 0 };
				bool expected = false;

				for (unsigned int i = first; i < first + n; i++)
					fanin_ranks_add(&set, i);
				for (unsigned int width = 1; width <= 128; width *= 2) {
					unsigned int end = first + width;

					end = end < n_ranks ? end : n_ranks;
					expected = expected ||
						   (first % width == 0 && end == first + n);
				}
				ck_assert_int_eq(fanin_order_is_unit(&set, n_ranks), expected);
				fanin_ranks_add(&set, first + n + 1);
				ck_assert(!fanin_order_is_unit(&set, n_ranks + 2 + n));
			}
		}
	}
	ck_assert(!fanin_order_is_unit_run(0, 0, 4));
	ck_assert(!fanin_order_is_unit_run(4, 2, 5));
}
END_TEST

START_TEST(ranks_are_named_by_runs)
{
	struct fanin_ranks set = { 0 };
	char text[64];

	ck_assert_str_eq(fanin_order_describe(&set, text, sizeof(text)), "");
	fanin_ranks_add(&set, 5);
	ck_assert_str_eq(fanin_order_describe(&set, text, sizeof(text)), "5");
	for (unsigned int rank = 0; rank < 3; rank++)
		fanin_ranks_add(&set, rank);
	ck_assert_str_eq(fanin_order_describe(&set, text, sizeof(text)), "0-2, 5");
	for (unsigned int rank = 1000; rank < 4096; rank += 2)
		fanin_ranks_add(&set, rank);
	ck_assert_str_eq(fanin_order_describe(&set, text, sizeof(text)),
			 "0-2, 5, 1000, 1002, 1004, 1006, 1008, 1010 and 1542 others");
	set = fanin_ranks_all(4096);
	ck_assert_str_eq(fanin_order_describe(&set, text, sizeof(text)), "0-4095");
}
END_TEST

Suite *
suite_order(void)
{
	Suite *suite = suite_create("order");
	TCase *tcase = tcase_create("order");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, the_written_order_comes_out_exactly_where_each_switch_has_a_unit);
	tcase_add_test(tcase, no_way_to_combine_has_the_order_where_a_switch_has_no_unit);
	tcase_add_test(tcase, the_order_comes_out_over_several_levels);
	tcase_add_test(tcase, as_many_sums_wait_at_most_as_is_said);
	tcase_add_test(tcase, hosts_in_a_row_wait_in_pairs);
	tcase_add_test(tcase, a_unit_is_an_interval_of_the_halving);
	tcase_add_test(tcase, ranks_are_named_by_runs);
	suite_add_tcase(suite, tcase);
	return suite;
}
