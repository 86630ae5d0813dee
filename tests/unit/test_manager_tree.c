/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the manager's reduction trees: leaf-spine, three levels, a line, unconnected graphs; and
 * random graphs, where each tree is compared with distances that are computed in another way.
 */
#include <errno.h>
#include <string.h>

#include <check.h>

#include "manager/tree.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

/* A graph that a test builds. */
struct world {
	struct tree_switch switches[TREE_MAX_NODES];
	struct tree_link links[TREE_MAX_BRANCHES];
	struct tree_graph graph;
};

static struct world world;
static struct tree tree;

static void
start(uint16_t n_switches)
{
	memset(&world, 0, sizeof(world));
	world.graph.switches = world.switches;
	world.graph.links = world.links;
	world.graph.n_switches = n_switches;
	for (uint16_t i = 0; i < n_switches; i++)
		world.switches[i].usable = true;
}

static void
connect_switches(uint16_t a, uint16_t b)
{
	world.links[world.graph.n_links++] = (struct tree_link){ .a = a, .b = b, .usable = true };
}

/* Makes leaves 0 to n_leaves - 1, then spines, all connected. */
static void
make_leaf_spine(uint16_t n_leaves, uint16_t n_spines)
{
	start(n_leaves + n_spines);
	for (uint16_t leaf = 0; leaf < n_leaves; leaf++) {
		for (uint16_t spine = 0; spine < n_spines; spine++)
			connect_switches(leaf, n_leaves + spine);
	}
}

/* Connects a server to a switch; no switches may be added afterwards. */
static void
connect_server(uint16_t at)
{
	const uint16_t server = world.graph.n_switches++;

	world.graph.n_servers++;
	world.switches[server].usable = true;
	connect_switches(server, at);
}

/* Builds a tree of hosts with one link each. */
static int
try_to_build(const uint16_t *switches, uint16_t n_ranks)
{
	struct tree_place places[TREE_MAX_RANKS];

	for (uint16_t i = 0; i < n_ranks; i++)
		places[i] = (struct tree_place){ .switches = { switches[i] }, .n_switches = 1 };
	return tree_build(&world.graph, places, n_ranks, &tree);
}

static void
build(const uint16_t *switches, uint16_t n_ranks)
{
	ck_assert_int_eq(try_to_build(switches, n_ranks), 0);
}

static struct tree_place
both(uint16_t first, uint16_t second)
{
	return (struct tree_place){ .switches = { first, second }, .n_switches = 2 };
}

/* Counts the tree's jobs in the graph, as the manager does after installing one. */
static void
install(void)
{
	for (uint16_t i = 0; i < tree.n_nodes; i++) {
		world.switches[tree.nodes[i].switch_index].jobs++;
		if (i > 0)
			world.links[tree.nodes[i].link].jobs++;
	}
}

/* Counts a tree of the job that is being planned: its jobs, and the job's own trees. */
static void
install_own(void)
{
	install();
	for (uint16_t i = 0; i < tree.n_nodes; i++) {
		world.switches[tree.nodes[i].switch_index].own++;
		if (i > 0)
			world.links[tree.nodes[i].link].own++;
	}
}

static const struct tree_node *
node_at(uint16_t switch_index)
{
	for (uint16_t i = 0; i < tree.n_nodes; i++) {
		if (tree.nodes[i].switch_index == switch_index)
			return &tree.nodes[i];
	}
	return NULL;
}

START_TEST(hosts_of_one_switch_need_no_other)
{
	make_leaf_spine(3, 2);
	build((uint16_t[]){ 1, 1, 1, 1 }, 4);
	ck_assert_uint_eq(tree.n_nodes, 1);
	ck_assert_uint_eq(tree.depth, 0);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 1);
	ck_assert_uint_eq(tree.nodes[0].parent, TREE_NO_PARENT);
	ck_assert_uint_eq(tree.nodes[0].local.words[0], 0xf);
	ck_assert_uint_eq(tree.nodes[0].ranks.words[0], 0xf);
}
END_TEST

START_TEST(leaves_meet_at_a_spine_with_their_ranks_behind_them)
{
	make_leaf_spine(3, 2);
	build((uint16_t[]){ 0, 2, 0, 2, 0 }, 5);
	ck_assert_uint_eq(tree.n_nodes, 3);
	ck_assert_uint_eq(tree.depth, 1);
	ck_assert_uint_ge(tree.nodes[0].switch_index, 3);
	ck_assert_uint_eq(tree.nodes[0].local.words[0], 0);
	ck_assert_uint_eq(tree.nodes[0].ranks.words[0], 0x1f);
	ck_assert_ptr_null(node_at(1));
	ck_assert_uint_eq(node_at(0)->ranks.words[0], 0x15);
	ck_assert_uint_eq(node_at(2)->ranks.words[0], 0x0a);
	ck_assert_uint_eq(node_at(0)->parent, 0);
	ck_assert_uint_eq(world.links[node_at(2)->link].a, 2);
	ck_assert_uint_eq(world.links[node_at(2)->link].b, tree.nodes[0].switch_index);
}
END_TEST

START_TEST(jobs_spread_evenly_over_the_spines)
{
	make_leaf_spine(4, 3);
	for (unsigned int i = 0; i < 30; i++) {
		build((uint16_t[]){ 0, 1, 2, 3 }, 4);
		install();
	}
	for (uint16_t spine = 4; spine < 7; spine++)
		ck_assert_uint_eq(world.switches[spine].jobs, 10);
}
END_TEST

START_TEST(parallel_links_share_the_jobs)
{
	start(2);
	connect_switches(0, 1);
	connect_switches(1, 0);
	for (unsigned int i = 0; i < 10; i++) {
		build((uint16_t[]){ 0, 1 }, 2);
		install();
	}
	ck_assert_uint_eq(world.links[0].jobs, 5);
	ck_assert_uint_eq(world.links[1].jobs, 5);
}
END_TEST

START_TEST(trees_of_one_job_have_a_spine_each_whatever_others_have)
{
	const uint16_t n_spines = 4;
	uint16_t seen = 0;

	make_leaf_spine(3, n_spines);
	/* All spines but one have so many jobs that trees would all take the remaining one. */
	for (uint16_t i = 1; i < n_spines; i++)
		world.switches[3 + i].jobs = 100;
	for (uint16_t i = 0; i < n_spines; i++) {
		build((uint16_t[]){ 0, 1, 2, 0 }, 4);
		ck_assert_uint_eq(tree.shared, 0);
		seen |= (uint16_t)(1u << tree.nodes[0].switch_index);
		install_own();
	}
	ck_assert_uint_eq(seen, 0x78);
	/* There is no fifth spine, and of the others the one with the fewest jobs comes first. */
	build((uint16_t[]){ 0, 1, 2, 0 }, 4);
	ck_assert_uint_eq(tree.shared, 3);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 3);
}
END_TEST

START_TEST(trees_of_one_job_take_parallel_links_when_there_are_no_more_spines)
{
	make_leaf_spine(2, 1);
	connect_switches(0, 2);
	connect_switches(1, 2);
	world.links[2].jobs = 100;
	world.links[3].jobs = 100;
	for (uint16_t i = 0; i < 2; i++) {
		build((uint16_t[]){ 0, 1 }, 2);
		ck_assert_uint_eq(tree.shared, 0);
		install_own();
	}
	build((uint16_t[]){ 0, 1 }, 2);
	ck_assert_uint_eq(tree.shared, 2);
}
END_TEST

START_TEST(trees_of_one_job_keep_apart_below_the_root_too)
{
	/*
	 * Leaves 0 and 1 are each below a switch of both planes: 2 and 4, 3 and 5. Cores 6 and 7
	 * are in one plane, 8 in the other.
	 */
	start(9);
	for (uint16_t leaf = 0; leaf < 2; leaf++) {
		connect_switches(leaf, 2 + 2 * leaf);
		connect_switches(leaf, 3 + 2 * leaf);
		connect_switches(2 + 2 * leaf, 6);
		connect_switches(2 + 2 * leaf, 7);
		connect_switches(3 + 2 * leaf, 8);
	}
	world.switches[8].jobs = 100;
	build((uint16_t[]){ 0, 1 }, 2);
	ck_assert_uint_eq(tree.n_nodes, 5);
	ck_assert_ptr_nonnull(node_at(2));
	install_own();
	/* The other core of the same plane has fewer jobs, but the same links below. */
	build((uint16_t[]){ 0, 1 }, 2);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 8);
	ck_assert_uint_eq(tree.shared, 0);
}
END_TEST

START_TEST(trees_of_one_job_share_what_they_must_and_no_more)
{
	/*
	 * Leaf 0 has one link up, leaves 1 and 2 have two: the second tree shares one of its three
	 * links.
	 */
	start(5);
	connect_switches(0, 3);
	connect_switches(1, 3);
	connect_switches(2, 3);
	connect_switches(1, 3);
	connect_switches(2, 4);
	connect_switches(2, 3);
	build((uint16_t[]){ 0, 1, 2 }, 3);
	install_own();
	build((uint16_t[]){ 0, 1, 2 }, 3);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 3);
	ck_assert_uint_eq(tree.shared, 1);
}
END_TEST

START_TEST(switches_and_links_that_are_not_usable_are_avoided)
{
	make_leaf_spine(2, 2);
	world.switches[2].usable = false;
	build((uint16_t[]){ 0, 1 }, 2);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 3);
	world.switches[2].usable = true;
	world.links[3].usable = false; /* leaf 1 to spine 3 */
	build((uint16_t[]){ 0, 1 }, 2);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 2);
	world.switches[2].usable = false;
	ck_assert_int_eq(try_to_build((uint16_t[]){ 0, 1 }, 2), -EHOSTUNREACH);
	world.switches[0].usable = false;
	ck_assert_int_eq(try_to_build((uint16_t[]){ 0, 1 }, 2), -ENOENT);
}
END_TEST

/*
 * Two pods of two leaves and two aggregation switches; two cores, each over one aggregation switch
 * of every pod.
 */
static void
make_three_levels(void)
{
	start(10);
	for (uint16_t pod = 0; pod < 2; pod++) {
		uint16_t leaf = pod * 2, aggregation = 4 + pod * 2;

		connect_switches(leaf, aggregation);
		connect_switches(leaf, aggregation + 1);
		connect_switches(leaf + 1, aggregation);
		connect_switches(leaf + 1, aggregation + 1);
		connect_switches(aggregation, 8);
		connect_switches(aggregation + 1, 9);
	}
}

START_TEST(a_pod_keeps_to_itself_and_two_pods_meet_at_a_core)
{
	make_three_levels();
	build((uint16_t[]){ 2, 3 }, 2);
	ck_assert_uint_eq(tree.depth, 1);
	ck_assert(tree.nodes[0].switch_index == 6 || tree.nodes[0].switch_index == 7);
	build((uint16_t[]){ 0, 1, 2, 3 }, 4);
	ck_assert_uint_eq(tree.depth, 2);
	ck_assert_uint_ge(tree.nodes[0].switch_index, 8);
	/* Each pod goes through one aggregation switch, not two. */
	ck_assert_uint_eq(tree.n_nodes, 7);
	ck_assert_uint_eq(node_at(0)->parent, node_at(1)->parent);
	ck_assert_uint_eq(tree.nodes[node_at(2)->parent].ranks.words[0], 0xc);
}
END_TEST

START_TEST(the_root_of_a_line_is_its_middle)
{
	start(7);
	for (uint16_t i = 0; i < 6; i++)
		connect_switches(i, i + 1);
	build((uint16_t[]){ 0, 6, 3 }, 3);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 3);
	ck_assert_uint_eq(tree.depth, 3);
	ck_assert_uint_eq(tree.n_nodes, 7);
	ck_assert_uint_eq(tree.nodes[0].local.words[0], 4);
	build((uint16_t[]){ 1, 2 }, 2);
	ck_assert_uint_eq(tree.n_nodes, 2);
}
END_TEST

START_TEST(unconnected_hosts_have_no_tree)
{
	start(4);
	connect_switches(0, 1);
	connect_switches(2, 3);
	connect_switches(1, 1);
	ck_assert_int_eq(try_to_build((uint16_t[]){ 0, 3 }, 2), -EHOSTUNREACH);
	build((uint16_t[]){ 2, 3 }, 2);
}
END_TEST

START_TEST(numbers_out_of_range_are_refused)
{
	struct tree_place places[TREE_MAX_RANKS + 1];

	for (unsigned int i = 0; i < TREE_MAX_RANKS + 1; i++)
		places[i] = both(0, 1);
	start(2);
	ck_assert_int_eq(tree_build(&world.graph, places, 0, &tree), -EINVAL);
	ck_assert_int_eq(tree_build(&world.graph, places, TREE_MAX_RANKS + 1, &tree), -EINVAL);
	ck_assert_int_eq(try_to_build((uint16_t[]){ 2 }, 1), -EINVAL);
	places[0] = both(0, 2);
	ck_assert_int_eq(tree_build(&world.graph, places, 1, &tree), -EINVAL);
	places[0].n_switches = 0;
	ck_assert_int_eq(tree_build(&world.graph, places, 1, &tree), -EINVAL);
	places[0].n_switches = TREE_MAX_CHOICES + 1;
	ck_assert_int_eq(tree_build(&world.graph, places, 1, &tree), -EINVAL);
	places[0] = both(0, 1);
	connect_switches(0, 2);
	ck_assert_int_eq(tree_build(&world.graph, places, 1, &tree), -EINVAL);
}
END_TEST

/* Four leaves in pairs, 0 and 1, 2 and 3, below two spines; two hosts at each pair. */
static const struct tree_place *
make_pairs(void)
{
	static struct tree_place places[4];

	make_leaf_spine(4, 2);
	for (unsigned int i = 0; i < 4; i++)
		places[i] = both(i < 2 ? 0 : 2, i < 2 ? 1 : 3);
	return places;
}

START_TEST(hosts_with_two_leaves_use_the_same_one)
{
	const struct tree_place *places = make_pairs();

	ck_assert_int_eq(tree_build(&world.graph, places, 4, &tree), 0);
	ck_assert_uint_eq(tree.n_nodes, 3);
	ck_assert_uint_eq(node_at(0)->local.words[0], 0x3);
	ck_assert_uint_eq(node_at(2)->local.words[0], 0xc);
	for (unsigned int i = 0; i < 4; i++)
		ck_assert_uint_eq(tree.chosen[i], 0);
	/* The next job uses the other leaves, which have no job yet. */
	install();
	ck_assert_int_eq(tree_build(&world.graph, places, 4, &tree), 0);
	ck_assert_uint_eq(node_at(1)->local.words[0], 0x3);
	ck_assert_uint_eq(node_at(3)->local.words[0], 0xc);
	for (unsigned int i = 0; i < 4; i++)
		ck_assert_uint_eq(tree.chosen[i], 1);
	/* If a leaf of each pair is gone, the job uses the rest. */
	world.switches[1].usable = false;
	world.switches[2].usable = false;
	ck_assert_int_eq(tree_build(&world.graph, places, 4, &tree), 0);
	ck_assert_uint_eq(tree.n_nodes, 3);
	ck_assert_uint_eq(node_at(0)->local.words[0], 0x3);
	ck_assert_uint_eq(node_at(3)->local.words[0], 0xc);
	world.switches[0].usable = false;
	ck_assert_int_eq(tree_build(&world.graph, places, 4, &tree), -ENOENT);
}
END_TEST

START_TEST(a_host_with_a_choice_follows_those_without)
{
	struct tree_place places[3];

	make_leaf_spine(3, 1);
	places[0] = both(0, 1);
	places[1] = (struct tree_place){ .switches = { 1 }, .n_switches = 1 };
	places[2] = both(2, 1);
	ck_assert_int_eq(tree_build(&world.graph, places, 3, &tree), 0);
	ck_assert_uint_eq(tree.n_nodes, 1);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 1);
	ck_assert_uint_eq(tree.nodes[0].local.words[0], 0x7);
	ck_assert_uint_eq(tree.chosen[0], 1);
	ck_assert_uint_eq(tree.chosen[1], 0);
	ck_assert_uint_eq(tree.chosen[2], 1);
}
END_TEST

START_TEST(the_switch_that_most_hosts_can_use_is_taken)
{
	struct tree_place places[3];

	/* A star, with 3 in the middle. */
	make_leaf_spine(3, 1);
	places[0] = both(0, 1);
	places[1] = both(2, 1);
	places[2] = both(0, 1);
	world.switches[1].jobs = 5;
	ck_assert_int_eq(tree_build(&world.graph, places, 3, &tree), 0);
	ck_assert_uint_eq(tree.n_nodes, 1);
	ck_assert_uint_eq(node_at(1)->local.words[0], 0x7);
}
END_TEST

START_TEST(a_deeper_place_is_not_taken)
{
	struct tree_place places[2];

	/* A line 0 - 1 - 2 - 3. */
	start(4);
	for (uint16_t i = 0; i < 3; i++)
		connect_switches(i, i + 1);
	places[0] = both(0, 2);
	places[1] = (struct tree_place){ .switches = { 3 }, .n_switches = 1 };
	world.switches[2].jobs = 9;
	ck_assert_int_eq(tree_build(&world.graph, places, 2, &tree), 0);
	ck_assert_uint_eq(tree.depth, 1);
	ck_assert_uint_eq(tree.n_nodes, 2);
	ck_assert_uint_eq(tree.chosen[0], 1);
}
END_TEST

START_TEST(a_server_is_the_root_above_the_switch_that_it_is_at)
{
	/* Leaves 0 to 2, spines 3 and 4. */
	make_leaf_spine(3, 2);
	connect_server(1);
	build((uint16_t[]){ 0, 1, 2, 0 }, 4);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 5);
	ck_assert(fanin_ranks_is_empty(&tree.nodes[0].local));
	ck_assert_uint_eq(tree.nodes[0].ranks.words[0], 0xf);
	ck_assert_uint_eq(tree.nodes[1].switch_index, 1);
	ck_assert_uint_eq(tree.nodes[1].parent, 0);
	ck_assert_uint_eq(tree.nodes[1].link, 6);
	ck_assert_uint_eq(tree.nodes[1].ranks.words[0], 0xf);
	ck_assert_uint_eq(tree.n_nodes, 5);
	ck_assert_uint_eq(tree.depth, 3);
	/* A switch that aggregates alone has no other switch below it. */
	build((uint16_t[]){ 1, 1 }, 2);
	ck_assert_uint_eq(tree.n_nodes, 2);
	/* No path goes through a server. */
	world.links[2].usable = world.links[3].usable = false;
	connect_server(1);
	ck_assert_int_eq(try_to_build((uint16_t[]){ 0, 1 }, 2), -EHOSTUNREACH);
}
END_TEST

START_TEST(the_server_with_the_fewest_jobs_is_taken_however_far_it_is)
{
	make_leaf_spine(3, 2);
	connect_server(0);
	connect_server(1);
	connect_server(2);
	for (unsigned int i = 0; i < 9; i++) {
		build((uint16_t[]){ 0, 0 }, 2);
		install();
	}
	for (uint16_t server = 5; server < 8; server++)
		ck_assert_uint_eq(world.switches[server].jobs, 3);
	/* Of servers with equally many jobs the nearest one is used. */
	build((uint16_t[]){ 2, 2 }, 2);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 7);
	/* A link that is down, or a switch or a server that is missing. */
	world.switches[5].jobs = world.switches[6].jobs = world.switches[7].jobs = 0;
	world.switches[7].usable = false;
	world.links[6].usable = false;
	build((uint16_t[]){ 2, 2 }, 2);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 6);
	world.switches[1].usable = false;
	ck_assert_int_eq(try_to_build((uint16_t[]){ 2, 2 }, 2), -EHOSTUNREACH);
}
END_TEST

START_TEST(trees_of_one_job_have_a_server_each_whatever_others_have)
{
	unsigned int roots = 0;

	make_leaf_spine(2, 2);
	connect_server(0);
	connect_server(0);
	connect_server(1);
	world.switches[4].jobs = 7;
	world.switches[6].jobs = 3;
	for (unsigned int i = 0; i < 3; i++) {
		build((uint16_t[]){ 0, 1 }, 2);
		ck_assert_uint_eq(world.switches[tree.nodes[0].switch_index].own, 0);
		roots |= 1u << tree.nodes[0].switch_index;
		install_own();
	}
	ck_assert_uint_eq(roots, 0x70);
	/* Then comes a server that it uses already. */
	build((uint16_t[]){ 0, 1 }, 2);
	ck_assert_uint_eq(world.switches[tree.nodes[0].switch_index].own, 1);
	ck_assert_uint_eq(tree.nodes[0].switch_index, 5);
}
END_TEST

/* Computes the shortest distances between all usable switches, by relaxation. */
static void
measure_all(uint16_t distances[][40])
{
	const uint16_t n = world.graph.n_switches;

	for (uint16_t i = 0; i < n; i++) {
		for (uint16_t j = 0; j < n; j++)
			distances[i][j] = i == j && world.switches[i].usable ? 0 : 1000;
	}
	for (uint16_t i = 0; i < world.graph.n_links; i++) {
		const struct tree_link *link = &world.links[i];

		if (link->a != link->b && link->usable && world.switches[link->a].usable &&
		    world.switches[link->b].usable)
			distances[link->a][link->b] = distances[link->b][link->a] = 1;
	}
	for (uint16_t k = 0; k < n; k++) {
		for (uint16_t i = 0; i < n; i++) {
			for (uint16_t j = 0; j < n; j++) {
				uint16_t over = distances[i][k] + distances[k][j];

				if (over < distances[i][j])
					distances[i][j] = over;
			}
		}
	}
}

static void
check_tree(const struct tree_place *places, uint16_t n_ranks)
{
	struct fanin_ranks local = { 0 };
	unsigned int elsewhere = 0;

	for (uint16_t i = 0; i < tree.n_nodes; i++) {
		const struct tree_node *node = &tree.nodes[i];
		const struct tree_link *link = &world.links[node->link];
		struct fanin_ranks ranks = node->local;

		ck_assert(world.switches[node->switch_index].usable);
		ck_assert_ptr_eq(node_at(node->switch_index), node);
		ck_assert(!fanin_ranks_meet(&local, &node->local));
		fanin_ranks_merge(&local, &node->local);
		for (uint16_t k = 0; k < tree.n_nodes; k++) {
			if (tree.nodes[k].parent == i)
				fanin_ranks_merge(&ranks, &tree.nodes[k].ranks);
		}
		ck_assert(fanin_ranks_equal(&ranks, &node->ranks));
		ck_assert(!fanin_ranks_is_empty(&ranks));
		if (i == 0) {
			ck_assert_uint_eq(node->parent, TREE_NO_PARENT);
			continue;
		}
		ck_assert_uint_lt(node->parent, i);
		ck_assert(link->usable);
		ck_assert((link->a == node->switch_index &&
			   link->b == tree.nodes[node->parent].switch_index) ||
			  (link->b == node->switch_index &&
			   link->a == tree.nodes[node->parent].switch_index));
	}
	for (uint16_t i = 0; i < n_ranks; i++) {
		const struct tree_node *node = NULL;

		if (tree.chosen[i] < places[i].n_switches)
			node = node_at(places[i].switches[tree.chosen[i]]);
		elsewhere += node == NULL || !fanin_ranks_has(&node->local, i);
	}
	ck_assert_uint_eq(elsewhere, 0);
}

/* Maximum of ranks in a job of one switch. */
#define SOME_RANKS 64

/* Returns the smallest distance from a root to one of a place's switches. */
static uint16_t
nearest(uint16_t distances[][40], uint16_t root, const struct tree_place *place)
{
	uint16_t least = 1000;

	for (uint8_t k = 0; k < place->n_switches; k++) {
		if (distances[root][place->switches[k]] < least)
			least = distances[root][place->switches[k]];
	}
	return least;
}

START_TEST(random_graphs_have_valid_trees_of_the_least_depth)
{
	static uint16_t distances[40][40];
	struct random random = random_seed((uint64_t)_i);
	unsigned int reached = 0;

	for (unsigned int round = 0; round < 50; round++) {
		uint16_t n = (uint16_t)(1 + random_below(&random, 40));
		uint16_t n_links = (uint16_t)(random_below(&random, 2 * n + 1u));
		uint16_t n_ranks = (uint16_t)(1 + random_below(&random, SOME_RANKS));
		struct tree_place places[SOME_RANKS];
		uint16_t least = 1000;
		int ret;

		start(n);
		for (uint16_t i = 0; i < n; i++) {
			world.switches[i].usable = random_below(&random, 20) != 0;
			world.switches[i].jobs = random_below(&random, 5);
		}
		for (uint16_t i = 0; i < n_links; i++) {
			connect_switches((uint16_t)(random_below(&random, n)),
					 (uint16_t)(random_below(&random, n)));
			world.links[i].usable = random_below(&random, 10) != 0;
		}
		if (random_below(&random, 2) == 0)
			n_ranks = 1 + n_ranks % 3;
		for (uint16_t i = 0; i < n_ranks; i++) {
			places[i].n_switches =
				(uint8_t)(1 +
					  (round % 2) * random_below(&random, TREE_MAX_CHOICES));
			for (uint8_t k = 0; k < places[i].n_switches; k++)
				places[i].switches[k] = (uint16_t)(random_below(&random, n));
		}
		measure_all(distances);
		for (uint16_t root = 0; root < n; root++) {
			uint16_t depth = 0;

			for (uint16_t i = 0; i < n_ranks; i++) {
				if (nearest(distances, root, &places[i]) > depth)
					depth = nearest(distances, root, &places[i]);
			}
			if (depth < least)
				least = depth;
		}
		ret = tree_build(&world.graph, places, n_ranks, &tree);
		if (least == 1000) {
			ck_assert(ret == -EHOSTUNREACH || ret == -ENOENT);
			continue;
		}
		ck_assert_int_eq(ret, 0);
		ck_assert_uint_eq(tree.depth, least);
		check_tree(places, n_ranks);
		reached++;
	}
	ck_assert_uint_gt(reached, 5);
}
END_TEST

START_TEST(random_graphs_with_servers_have_valid_trees_below_the_least_loaded)
{
	static uint16_t distances[40][40];
	struct random random = random_seed((uint64_t)_i + 1000);
	unsigned int reached = 0;

	for (unsigned int round = 0; round < 50; round++) {
		uint16_t n = (uint16_t)(2 + random_below(&random, 20));
		uint16_t n_servers = (uint16_t)(1 + random_below(&random, 6));
		uint16_t n_ranks = (uint16_t)(1 + random_below(&random, 8));
		struct tree_place places[8];
		uint64_t least = UINT64_MAX;
		int ret;

		start(n);
		for (uint16_t i = 0; i < 2 * n; i++)
			connect_switches((uint16_t)(random_below(&random, n)),
					 (uint16_t)(random_below(&random, n)));
		for (uint16_t i = 0; i < n_servers; i++)
			connect_server((uint16_t)(random_below(&random, n)));
		for (uint16_t i = 0; i < n + n_servers; i++) {
			world.switches[i].usable = random_below(&random, 12) != 0;
			world.switches[i].jobs = random_below(&random, 4);
			world.switches[i].own = random_below(&random, 2);
		}
		for (uint16_t i = 0; i < world.graph.n_links; i++)
			world.links[i].usable = random_below(&random, 12) != 0;
		for (uint16_t i = 0; i < n_ranks; i++)
			places[i] = (struct tree_place){
				.switches = { (uint16_t)(random_below(&random, n)) },
				.n_switches = 1
			};
		measure_all(distances);
		for (uint16_t root = n; root < n + n_servers; root++) {
			uint64_t cost;
			uint16_t depth = 0;

			for (uint16_t i = 0; i < n_ranks; i++) {
				if (nearest(distances, root, &places[i]) > depth)
					depth = nearest(distances, root, &places[i]);
			}
			cost = (uint64_t)world.switches[root].own << 40 |
			       (uint64_t)world.switches[root].jobs << 20 | depth;
			if (depth < 1000 && cost < least)
				least = cost;
		}
		ret = tree_build(&world.graph, places, n_ranks, &tree);
		if (least == UINT64_MAX) {
			ck_assert(ret == -EHOSTUNREACH || ret == -ENOENT);
			continue;
		}
		ck_assert_int_eq(ret, 0);
		check_tree(places, n_ranks);
		ck_assert_uint_eq((uint64_t)world.switches[tree.nodes[0].switch_index].own << 40 |
					  (uint64_t)world.switches[tree.nodes[0].switch_index].jobs
						  << 20 |
					  tree.depth,
				  least);
		for (uint16_t i = 0; i < tree.n_nodes; i++) {
			ck_assert_int_eq(tree.nodes[i].switch_index >= n, i == 0);
			ck_assert_int_eq(tree.nodes[i].parent == 0, i == 1);
		}
		reached++;
	}
	ck_assert_uint_gt(reached, 5);
}
END_TEST

START_TEST(the_largest_network_has_a_tree_over_a_single_spine)
{
	struct tree_place places[SOME_RANKS];

	make_leaf_spine(248, 8);
	/* Parallel links, as many as there is room for. */
	while (world.graph.n_links < TREE_MAX_LINKS)
		connect_switches(world.graph.n_links % 248, 255);
	for (uint16_t i = 0; i < SOME_RANKS; i++)
		places[i] = (struct tree_place){ .switches = { (uint16_t)(i * 3 + 58) },
						 .n_switches = 1 };
	ck_assert_int_eq(tree_build(&world.graph, places, SOME_RANKS, &tree), 0);
	ck_assert_uint_eq(tree.depth, 1);
	ck_assert_uint_eq(tree.n_nodes, SOME_RANKS + 1);
	check_tree(places, SOME_RANKS);
}
END_TEST

/*
 * The maximum of ranks, each leaf with the maximum of children, under spines with the maximum of
 * children.
 */
START_TEST(as_many_ranks_as_can_be_have_a_tree_of_full_switches)
{
	static struct tree_place places[TREE_MAX_RANKS];
	unsigned int children[TREE_MAX_SWITCHES] = { 0 };

	make_leaf_spine(TREE_MAX_RANKS / 64, 8);
	for (uint16_t i = 0; i < TREE_MAX_RANKS; i++)
		places[i] = (struct tree_place){ .switches = { i / 64 }, .n_switches = 1 };
	ck_assert_int_eq(tree_build(&world.graph, places, TREE_MAX_RANKS, &tree), 0);
	ck_assert_uint_eq(tree.depth, 1);
	ck_assert_uint_eq(tree.n_nodes, TREE_MAX_RANKS / 64 + 1);
	check_tree(places, TREE_MAX_RANKS);
	for (uint16_t i = 0; i < tree.n_nodes; i++) {
		children[i] += fanin_ranks_count(&tree.nodes[i].local);
		if (i != 0)
			children[tree.nodes[i].parent]++;
	}
	for (uint16_t i = 0; i < tree.n_nodes; i++)
		ck_assert_uint_eq(children[i], 64);
}
END_TEST

Suite *
suite_manager_tree(void)
{
	Suite *suite = suite_create("manager_tree");
	TCase *tcase = tcase_create("trees");

	tcase_add_test(tcase, hosts_of_one_switch_need_no_other);
	tcase_add_test(tcase, leaves_meet_at_a_spine_with_their_ranks_behind_them);
	tcase_add_test(tcase, jobs_spread_evenly_over_the_spines);
	tcase_add_test(tcase, parallel_links_share_the_jobs);
	tcase_add_test(tcase, trees_of_one_job_have_a_spine_each_whatever_others_have);
	tcase_add_test(tcase, trees_of_one_job_take_parallel_links_when_there_are_no_more_spines);
	tcase_add_test(tcase, trees_of_one_job_keep_apart_below_the_root_too);
	tcase_add_test(tcase, trees_of_one_job_share_what_they_must_and_no_more);
	tcase_add_test(tcase, switches_and_links_that_are_not_usable_are_avoided);
	tcase_add_test(tcase, a_pod_keeps_to_itself_and_two_pods_meet_at_a_core);
	tcase_add_test(tcase, the_root_of_a_line_is_its_middle);
	tcase_add_test(tcase, unconnected_hosts_have_no_tree);
	tcase_add_test(tcase, numbers_out_of_range_are_refused);
	tcase_add_test(tcase, hosts_with_two_leaves_use_the_same_one);
	tcase_add_test(tcase, a_host_with_a_choice_follows_those_without);
	tcase_add_test(tcase, the_switch_that_most_hosts_can_use_is_taken);
	tcase_add_test(tcase, a_deeper_place_is_not_taken);
	tcase_add_test(tcase, the_largest_network_has_a_tree_over_a_single_spine);
	tcase_add_test(tcase, as_many_ranks_as_can_be_have_a_tree_of_full_switches);
	tcase_add_test(tcase, a_server_is_the_root_above_the_switch_that_it_is_at);
	tcase_add_test(tcase, the_server_with_the_fewest_jobs_is_taken_however_far_it_is);
	tcase_add_test(tcase, trees_of_one_job_have_a_server_each_whatever_others_have);
	tcase_add_loop_test(tcase, random_graphs_have_valid_trees_of_the_least_depth, 0, 10);
	tcase_add_loop_test(tcase,
			    random_graphs_with_servers_have_valid_trees_below_the_least_loaded, 0,
			    10);
	suite_add_tcase(suite, tcase);
	return suite;
}
