/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how long it takes to make jobs of many ranks: the network manager's tree over a
 * leaf-spine network, the job on each of its switches, the ranks' joining, and a first collective
 * of one element. Switches and hosts are those of rig/, in one process: links take virtual time,
 * and the time that one core takes for all of them is printed beside it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/measure/machine.h"
#include "lab/bench/virtual.h"
#include "manager/tree.h"
#include "lab/rig/leaf_spine.h"
#include "hostlib/src/cc/cc.h"
#include "hostlib/src/engine/engine.h"
#include "protocols/dense/host/window.h"

#define MAX_SPINES 8
#define ROUNDS 21

static struct {
	struct tree_switch switches[TREE_MAX_SWITCHES];
	struct tree_link links[TREE_MAX_LINKS];
	struct tree_place places[TREE_MAX_RANKS];
	struct tree tree;
} graph;

/* One rank of the job. */
struct member {
	struct rig *rig;
	struct fanin_endpoint *engine;
	struct fanin_request request;
	int32_t send;
	int32_t recv;
};

static struct member members[FANIN_WIRE_MAX_RANKS];
static uint16_t n_members;

static uint64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static int
compare(const void *a, const void *b)
{
	const uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return first < second ? -1 : first > second;
}

/*
 * Measures the manager's tree: each leaf is linked to each spine, and ranks fill one leaf after the
 * other.
 */
static void
measure_tree(uint16_t n_leaves, uint16_t n_spines, uint16_t n_ranks)
{
	struct tree_graph given = { .switches = graph.switches,
				    .links = graph.links,
				    .n_switches = (uint16_t)(n_leaves + n_spines) };
	uint64_t times[ROUNDS];

	for (uint16_t i = 0; i < given.n_switches; i++)
		graph.switches[i] = (struct tree_switch){ .usable = true };
	for (uint16_t leaf = 0; leaf < n_leaves; leaf++) {
		for (uint16_t s = 0; s < n_spines; s++)
			graph.links[given.n_links++] = (struct tree_link){
				.a = leaf, .b = (uint16_t)(n_leaves + s), .usable = true
			};
	}
	for (uint16_t i = 0; i < n_ranks; i++)
		graph.places[i] = (struct tree_place){
			.switches = { (uint16_t)((uint32_t)i * n_leaves / n_ranks) },
			.n_switches = 1
		};
	for (int round = 0; round < ROUNDS; round++) {
		const uint64_t began_ns = now_ns();

		if (tree_build(&given, graph.places, n_ranks, &graph.tree) != 0)
			virtual_die("the tree", "there is none");
		times[round] = now_ns() - began_ns;
	}
	qsort(times, ROUNDS, sizeof(times[0]), compare);
	printf("  tree of %4u ranks over %3u of %3u switches                %10.3f ms\n", n_ranks,
	       graph.tree.n_nodes, given.n_switches, (double)times[ROUNDS / 2] / 1e6);
}

static void
member_poll(struct rig_host *host, void *user)
{
	struct member *member = user;

	fanin_engine_poll(member->engine);
	if (member->request.status == FANIN_IN_PROGRESS)
		rig_host_wake(host, rig_now_ns(member->rig) +
					    RTE_MAX(fanin_engine_idle_ns(member->engine), 1u));
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < n_members; rank++) {
		if (members[rank].request.status == FANIN_IN_PROGRESS)
			return false;
	}
	return true;
}

/* Runs an allreduce in which each rank contributes 1. Returns its virtual time. */
static uint64_t
allreduce(struct rig_leaf_spine *network)
{
	const uint64_t began_ns = rig_now_ns(network->rig);

	for (uint16_t rank = 0; rank < n_members; rank++) {
		struct member *member = &members[rank];

		member->send = 1;
		member->recv = 0;
		member->request = (struct fanin_request){ .send = (const uint8_t *)&member->send,
							  .recv = (uint8_t *)&member->recv,
							  .dtype = FANIN_WIRE_I32,
							  .op = FANIN_WIRE_SUM };
		if (fanin_engine_post(member->engine, &member->request, 1) != FANIN_OK)
			virtual_die("a collective", fanin_engine_error(member->engine)->text);
		rig_host_wake(network->hosts[rank], began_ns);
	}
	if (!rig_run(network->rig, began_ns + 60 * SECOND_NS, all_done, NULL))
		virtual_die("a collective", "it does not end");
	for (uint16_t rank = 0; rank < n_members; rank++) {
		if (members[rank].request.status != FANIN_OK || members[rank].recv != n_members)
			virtual_die("a collective", "the sum is wrong");
	}
	return rig_now_ns(network->rig) - began_ns;
}

static void
engines_open(struct rig_job *job)
{
	n_members = job->n_ranks;
	for (uint16_t rank = 0; rank < n_members; rank++) {
		struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND_NS,
							.cc = &fanin_cc_fixed };
		struct member *member = &members[rank];
		struct fanin_error why = { 0 };

		member->rig = job->network->rig;
		rig_protocol_config(job, rank, &config);
		if (fanin_engine_open(&fanin_protocol_window, &config, &member->engine, &why) !=
		    FANIN_OK)
			virtual_die("an engine", why.text);
		rig_host_set_poll(job->network->hosts[rank], member_poll, member);
	}
}

/* Measures a job of n_leaves full leaves of 64 ranks under one spine. */
static void
measure_job(uint16_t n_leaves)
{
	const struct rig_leaf_spine_options options = {
		.n_leaves = n_leaves,
		.hosts_per_leaf = FANIN_WIRE_MAX_CHILDREN,
		.hosts_per_port = 2,
		.n_spines = 1,
		.host_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 1000 },
		.up_end = { .egress = { .rate_mbit = 10000 }, .delay_ns = 2000 },
		.max_jobs = 1,
		.slots = 8,
	};
	const struct rig_options rig_options = { .seed = 1, .n_packets = 65535, .mtu = 1500 };
	const struct job_spec spec = { .handler = "single" };
	const uint16_t n_ranks = (uint16_t)(n_leaves * FANIN_WIRE_MAX_CHILDREN);
	struct rig_leaf_spine network;
	char error[PIPELINE_ERROR_LEN] = "";
	struct rig_job job;
	uint64_t began_ns, made_ns, virtual_ns;

	network.rig = rig_create(&rig_options, error);
	if (network.rig == NULL ||
	    rig_leaf_spine_build(network.rig, &options, &network, error) != 0)
		virtual_die("the network", error);
	rig_run(network.rig, rig_now_ns(network.rig) + SECOND_NS, NULL, NULL);
	began_ns = now_ns();
	if (rig_job_create(&network, &spec, n_ranks, 0, &job, error) != 0)
		virtual_die("the job", error);
	made_ns = now_ns();
	printf("  job of %4u ranks made on %2u switches                      %10.3f ms\n", n_ranks,
	       n_leaves + (n_leaves > 1 ? 1u : 0u), (double)(made_ns - began_ns) / 1e6);
	virtual_ns = rig_now_ns(network.rig);
	if (rig_job_join(&job, 60 * SECOND_NS) != 0)
		virtual_die("joining", "it does not end");
	printf("  all of them joined: in the network %10.3f ms, one core %10.3f ms\n",
	       (double)(rig_now_ns(network.rig) - virtual_ns) / 1e6,
	       (double)(now_ns() - made_ns) / 1e6);
	engines_open(&job);
	began_ns = now_ns();
	virtual_ns = allreduce(&network);
	printf("  allreduce of 4 bytes: in the network %8.3f ms, one core %10.3f ms\n",
	       (double)virtual_ns / 1e6, (double)(now_ns() - began_ns) / 1e6);
	for (uint16_t rank = 0; rank < n_members; rank++)
		fanin_engine_close(members[rank].engine);
	free(job.joining);
	rig_leaf_spine_free(&network);
	rig_destroy(network.rig);
}

int
main(void)
{
	virtual_eal(384);
	printf("jobs of many ranks, on %s:\n", machine_cpu());
	measure_tree(16, 1, 1024);
	measure_tree(64, MAX_SPINES, 4096);
	measure_tree(248, MAX_SPINES, 1024);
	measure_tree(248, MAX_SPINES, 4096);
	measure_job(1);
	measure_job(4);
	measure_job(16);
	measure_job(64);
	return 0;
}
