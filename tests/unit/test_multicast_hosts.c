/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reliable multicast in one process and in virtual time: real engines around real switches. Broadcasts and Allgathers are exact whatever is lost, doubled
 * or reordered on any link, and where nothing is lost nothing is fetched, however late a rank is.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/multicast/multicast_internal.h"
#include "wire/broadcast.h"
#include "reference/random.h"
#include "rig/leaf_spine.h"
#include "tests/unit/ring_switch.h"
#include "tests/unit/suites.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MOST_RANKS 16
#define MOST_REQUESTS 6
#define OVERWRITTEN 0x55
#define WINDOW 64

struct trial {
	uint64_t seed;
	uint16_t n_ranks;
	uint16_t n_leaves;
	uint32_t chains;
	double faults;
	bool scattered;     /* ranks are at the leaves in turn, else at one after the other */
	bool racks_unknown; /* hosts are not told which leaves the ranks are at */
	uint32_t up_mbit; /* of links between leaves and spines; 0: of no switch's ports any rate */
	uint16_t payload_bytes; /* 0: as much as fits */
};

/* What a test does with a frame that has come to a rank. Returns true if it is lost. */
typedef bool (*loses_fn)(uint16_t rank, const struct fanin_hdr *hdr);

/* A host's transport, of which some frames are lost. */
struct lossy {
	struct fanin_transport transport;
	struct fanin_transport *inner;
	uint16_t rank;
	bool is_full; /* has no room for anything to be sent */
};

struct member {
	struct fanin_endpoint *engine;
	struct lossy lossy;
	struct fanin_request requests[MOST_REQUESTS];
	uint8_t *buffers[MOST_REQUESTS]; /* of the whole vector */
	bool posted[MOST_REQUESTS];
	bool taken[MOST_REQUESTS];
	bool is_away; /* does not poll */
};

static struct {
	struct trial trial;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job job;
	uint32_t places[MOST_RANKS]; /* the ranks' hosts */
	uint16_t spine;
	uint32_t n_requests;
	struct member members[MOST_RANKS];
	loses_fn loses;
	uint64_t n_lost;
	uint16_t payload_bytes;
} world;

static const struct fanin_protocol *
protocol(void)
{
	char reason[256];

	return fanin_protocol_of("broadcast", reason, sizeof(reason));
}

/* ------------------------------------------------------------------ world */

static uint32_t
place_of(uint16_t rank)
{
	const uint16_t n_leaves = world.trial.n_leaves;

	return world.trial.scattered
		       ? rank % n_leaves * (world.trial.n_ranks / n_leaves) + rank / n_leaves
		       : rank;
}

static struct rig_host *
host_of(uint16_t rank)
{
	return world.network.hosts[place_of(rank)];
}

static unsigned int
lossy_rx_burst(struct fanin_transport *transport, struct fanin_frame *frames, unsigned int max)
{
	struct lossy *lossy = (struct lossy *)transport;
	unsigned int n = lossy->inner->ops->rx_burst(lossy->inner, frames, max);
	unsigned int kept = 0;

	for (unsigned int i = 0; i < n; i++) {
		const struct fanin_headers *headers = frames[i].data;

		if (world.loses != NULL && world.loses(lossy->rank, &headers->fanin)) {
			world.n_lost++;
			lossy->inner->ops->rx_release(lossy->inner, &frames[i], 1);
		} else {
			frames[kept++] = frames[i];
		}
	}
	return kept;
}

static void
lossy_rx_release(struct fanin_transport *transport, const struct fanin_frame *frames, unsigned int n)
{
	struct lossy *lossy = (struct lossy *)transport;

	lossy->inner->ops->rx_release(lossy->inner, frames, n);
}

static void *
lossy_tx_reserve(struct fanin_transport *transport, uint32_t len)
{
	struct lossy *lossy = (struct lossy *)transport;

	return lossy->is_full ? NULL : lossy->inner->ops->tx_reserve(lossy->inner, len);
}

static void
lossy_tx_commit(struct fanin_transport *transport, uint32_t len)
{
	struct lossy *lossy = (struct lossy *)transport;

	lossy->inner->ops->tx_commit(lossy->inner, len);
}

static int
lossy_tx_flush(struct fanin_transport *transport)
{
	struct lossy *lossy = (struct lossy *)transport;

	return lossy->inner->ops->tx_flush(lossy->inner);
}

static const struct fanin_transport_ops lossy_ops = {
	.name = "lossy",
	.tx_reserve = lossy_tx_reserve,
	.tx_commit = lossy_tx_commit,
	.tx_flush = lossy_tx_flush,
	.rx_burst = lossy_rx_burst,
	.rx_release = lossy_rx_release,
};

/* Byte i of a rank's part of a request. */
static uint8_t
byte_of(uint32_t r, uint16_t rank, uint64_t i)
{
	return (uint8_t)(i * 7 + i / 251 + rank * 31u + r * 101u + 1);
}

static void
take(struct member *member, uint16_t rank, uint32_t r)
{
	const struct fanin_request *request = &member->requests[r];
	const uint64_t part = request->part_bytes;

	for (uint64_t i = 0; i < request->total_bytes; i++) {
		const bool is_broadcast = request->collective == FANIN_COLLECTIVE_BROADCAST;
		const uint16_t root = is_broadcast ? request->root : (uint16_t)(i / part);
		const uint8_t expected = byte_of(r, root, is_broadcast ? i : i % part);

		ck_assert_msg(member->buffers[r][i] == expected,
			      "seed %lu, rank %u, request %u: byte %lu is %u, expected %u",
			      (unsigned long)world.trial.seed, rank, r, (unsigned long)i,
			      member->buffers[r][i], expected);
	}
	/* The application uses it for something else at once. */
	memset(member->buffers[r], OVERWRITTEN, request->total_bytes);
	member->taken[r] = true;
}

static void
member_poll(struct rig_host *host, void *user)
{
	const uint16_t rank = (uint16_t)(uintptr_t)user;
	struct member *member = &world.members[rank];
	uint64_t idle_ns;

	if (member->is_away)
		return;
	protocol()->poll(member->engine);
	for (uint32_t r = 0; r < world.n_requests; r++) {
		if (member->posted[r] && !member->taken[r] && member->requests[r].status == FANIN_OK)
			take(member, rank, r);
	}
	idle_ns = protocol()->idle_ns(member->engine);
	if (idle_ns != UINT64_MAX)
		rig_host_wake(host, rig_now_ns(world.rig) + RTE_MIN(RTE_MAX(idle_ns, 1u), 50 * MS));
}

static void
engine_open(uint16_t rank)
{
	struct fanin_peer hosts[MOST_RANKS];
	struct fanin_protocol_config config = { .timeout_ns = 5 * SECOND, .recover = true };
	struct member *member = &world.members[rank];
	struct fanin_error error = { 0 };

	for (uint16_t r = 0; r < world.trial.n_ranks; r++) {
		const uint32_t place = place_of(r);

		hosts[r] = (struct fanin_peer){
			.ip_be = rig_host_ip_be(&world.network, place),
			.switch_ip_be = rig_leaf_ip_be(
				(uint16_t)(place / (world.trial.n_ranks / world.trial.n_leaves))),
		};
	}
	rig_protocol_config(&world.job, rank, &config);
	world.payload_bytes = config.payload_bytes;
	member->lossy = (struct lossy){
		.transport = { .ops = &lossy_ops },
		.inner = rig_host_transport(host_of(rank)),
		.rank = rank,
	};
	config.hosts = world.trial.racks_unknown ? NULL : hosts;
	config.parameters[FANIN_BROADCAST_CHAINS] = world.trial.chains;
	config.transport = &member->lossy.transport;
	ck_assert_int_eq(fanin_engine_open(&fanin_protocol_multicast, &config, &member->engine,
					   &error),
			 FANIN_OK);
	rig_host_set_poll(host_of(rank), member_poll, (void *)(uintptr_t)rank);
}

/* Makes the job, on the spine of now, and has all ranks join. */
static void
run_join(void)
{
	const struct job_spec spec = { .handler = "broadcast",
				       .id = world.job.id,
				       .slots = 2 * WINDOW,
				       .payload_bytes = world.trial.payload_bytes };
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		world.places[rank] = place_of(rank);
	ret = rig_job_create_on(&world.network, &spec, world.places, world.trial.n_ranks,
				world.spine, &world.job, error);
	ck_assert_msg(ret == 0, "%s", error);
	ck_assert_int_eq(rig_job_join(&world.job, 600 * SECOND), 0);
}

static void
open_world(const struct trial *trial)
{
	const struct rig_options rig_options = { .seed = trial->seed, .n_packets = 32767, .mtu = 1500 };
	/* Ports of switches have a rate if they have a queue. */
	const uint32_t queue_bytes = trial->up_mbit != 0 ? 1 << 22 : 0;
	const struct rig_end end = {
		.egress = { .rate_mbit = 10000, .bucket_bytes = 3000, .queue_bytes = queue_bytes },
		.delay_ns = 2000,
	};
	const struct rig_end up_end = {
		.egress = { .rate_mbit = trial->up_mbit,
			    .bucket_bytes = 3000,
			    .queue_bytes = queue_bytes },
		.delay_ns = 2000,
	};
	const struct rig_leaf_spine_options options = {
		.n_leaves = trial->n_leaves,
		.hosts_per_leaf = trial->n_ranks / trial->n_leaves,
		.n_spines = trial->n_leaves == 1 ? 0 : 2,
		.host_end = end,
		.up_end = up_end,
		.faults = { .drop = trial->faults,
			    .duplicate = trial->faults,
			    .reorder = trial->faults,
			    .seed = trial->seed },
		.max_jobs = 1,
		.slots = 2 * WINDOW,
	};
	static bool eal_is_there;
	char error[PIPELINE_ERROR_LEN] = "";
	int ret;

	if (!eal_is_there)
		ring_switch_eal_of(256);
	eal_is_there = true;
	memset(&world, 0, sizeof(world));
	world.trial = *trial;
	world.rig = rig_create(&rig_options, error);
	ck_assert_msg(world.rig != NULL, "%s", error);
	ret = rig_leaf_spine_build(world.rig, &options, &world.network, error);
	ck_assert_msg(ret == 0, "%s", error);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, NULL, NULL);
	run_join();
	for (uint16_t rank = 0; rank < trial->n_ranks; rank++)
		engine_open(rank);
}

static void
close_world(void)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		fanin_engine_close(world.members[rank].engine);
		for (uint32_t r = 0; r < world.n_requests; r++)
			free(world.members[rank].buffers[r]);
	}
	rig_job_destroy(&world.job);
	rig_leaf_spine_free(&world.network);
	ck_assert_uint_eq(rig_destroy(world.rig), 0);
}

/* The tree is no more. What is on its way reaches hosts, until they join over the other spine. */
static void
lose_tree(uint64_t late_ns)
{
	uint32_t first_block;

	rig_job_destroy(&world.job);
	rig_run(world.rig, rig_now_ns(world.rig) + late_ns, NULL, NULL);
	first_block = fanin_engine_progress(world.members[0].engine);
	for (uint16_t rank = 1; rank < world.trial.n_ranks; rank++)
		first_block = RTE_MIN(first_block, fanin_engine_progress(world.members[rank].engine));
	if (world.trial.n_leaves > 1)
		world.spine = 1 - world.spine;
	run_join();
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct member *member = &world.members[rank];
		const struct rig_joining *joining = &world.job.joining[rank];

		member->lossy.inner = rig_host_transport(host_of(rank));
		rig_host_set_poll(host_of(rank), member_poll, (void *)(uintptr_t)rank);
		fanin_engine_move(member->engine, &member->lossy.transport);
		ck_assert_msg(fanin_engine_resume(member->engine, joining->headers.fanin.epoch,
						  joining->ack.instance, first_block) == FANIN_OK,
			      "seed %lu, rank %u: %s", (unsigned long)world.trial.seed, rank,
			      fanin_engine_error(member->engine)->text);
		rig_host_wake(host_of(rank), rig_now_ns(world.rig));
	}
}

/* ------------------------------------------------------------------ requests */

/* bytes: of a broadcast, or of each rank's part of an Allgather. */
static void
post(uint16_t rank, uint32_t r, uint8_t collective, uint64_t bytes, uint16_t root)
{
	struct member *member = &world.members[rank];
	const bool is_broadcast = collective == FANIN_COLLECTIVE_BROADCAST;
	const uint64_t total = is_broadcast ? bytes : bytes * world.trial.n_ranks;
	uint8_t *buffer = malloc(total + 1);
	uint8_t *own = is_broadcast ? buffer : buffer + bytes * rank;

	world.n_requests = RTE_MAX(world.n_requests, r + 1);
	memset(buffer, OVERWRITTEN, total + 1);
	for (uint64_t i = 0; i < bytes && (!is_broadcast || rank == root); i++)
		own[i] = byte_of(r, rank, i);
	member->buffers[r] = buffer;
	member->requests[r] = (struct fanin_request){
		.send = own,
		.recv = buffer,
		.collective = collective,
		.dtype = FANIN_U8,
		.root = root,
	};
	member->posted[r] = true;
	ck_assert_int_eq(protocol()->post(member->engine, &member->requests[r], bytes), FANIN_OK);
	rig_host_wake(host_of(rank), rig_now_ns(world.rig));
}

static void
post_all(uint32_t r, uint8_t collective, uint64_t bytes, uint16_t root)
{
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++)
		post(rank, r, collective, bytes, root);
}

static bool
is_done(const struct member *member)
{
	for (uint32_t r = 0; r < world.n_requests; r++) {
		if (!member->posted[r] || (!member->taken[r] && member->requests[r].status >= 0))
			return false;
	}
	return true;
}

static bool
all_done(void *user)
{
	(void)user;
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		if (!is_done(&world.members[rank]))
			return false;
	}
	return true;
}

/* Until all are done, and rightly so. */
static void
run_all(void)
{
	rig_run(world.rig, rig_now_ns(world.rig) + 600 * SECOND, all_done, NULL);
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		for (uint32_t r = 0; r < world.n_requests; r++)
			ck_assert_msg(world.members[rank].taken[r],
				      "seed %lu, rank %u, request %u: %s",
				      (unsigned long)world.trial.seed, rank, r,
				      fanin_engine_error(world.members[rank].engine)->text);
	}
}

static struct fanin_multicast_stats
totals(void)
{
	struct fanin_multicast_stats sum = { 0 };

	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		const struct fanin_multicast_stats *stats =
			fanin_multicast_stats(world.members[rank].engine);

		sum.packets += stats->packets;
		sum.packets_sent += stats->packets_sent;
		sum.fetched += stats->fetched;
		sum.late += stats->late;
		sum.fetches += stats->fetches;
		sum.duplicates += stats->duplicates;
		sum.closed += stats->closed;
	}
	return sum;
}

/* ------------------------------------------------------------------ tests */

static const uint16_t sizes_of_jobs[] = { 2, 3, 8, 16 };

/* The total sizes that are tried: by the packets' payload. */
static uint64_t
bytes_of(unsigned int i)
{
	const uint64_t payload = world.payload_bytes;
	const uint64_t bytes[] = { 0, 1, payload - 1, payload + 1, (1 << 20) + 3 };

	return bytes[i];
}
#define N_BYTES 5

static struct trial
trial_of(int i, double faults)
{
	return (struct trial){
		.seed = (uint64_t)i + 1,
		.n_ranks = sizes_of_jobs[i % 4],
		.n_leaves = sizes_of_jobs[i % 4] == 3 || i / 4 % 2 == 0 ? 1 : 2,
		.chains = (uint32_t)i / 8,
		.faults = faults,
		.scattered = i / 8 % 2 == 1,
	};
}

/* Runs Broadcasts and Allgathers of all sizes, several at once. */
static void
run_sizes(void)
{
	const uint16_t last = world.trial.n_ranks - 1;

	for (unsigned int i = 0; i < N_BYTES; i++)
		post_all(i, i % 2 == 0 ? FANIN_COLLECTIVE_BROADCAST : FANIN_COLLECTIVE_ALLGATHER,
			 i % 2 == 0 ? bytes_of(i) : bytes_of(i) / world.trial.n_ranks + 1, 0);
	run_all();
	for (uint16_t rank = 0; rank < world.trial.n_ranks; rank++) {
		struct member *member = &world.members[rank];

		for (uint32_t r = 0; r < world.n_requests; r++) {
			free(member->buffers[r]);
			member->taken[r] = false;
			member->posted[r] = false;
		}
	}
	world.n_requests = 0;
	for (unsigned int i = 0; i < N_BYTES; i++)
		post_all(i, i % 2 == 1 ? FANIN_COLLECTIVE_BROADCAST : FANIN_COLLECTIVE_ALLGATHER,
			 i % 2 == 1 ? bytes_of(i) : bytes_of(i) / world.trial.n_ranks, last);
	run_all();
}

START_TEST(all_sizes_are_exact_and_nothing_is_fetched_without_loss)
{
	struct trial trial = trial_of(_i, 0);
	struct fanin_multicast_stats stats;

	/* More senders at once than the links take fill queues until marks slow them down. */
	trial.chains %= 3;
	open_world(&trial);
	run_sizes();
	stats = totals();
	ck_assert_uint_eq(stats.fetched, 0);
	ck_assert_uint_eq(stats.fetches, 0);
	ck_assert_uint_eq(stats.duplicates, 0);
	ck_assert_uint_eq(stats.closed, 0);
	/* Each packet was sent once, and came to all others. */
	ck_assert_uint_eq(stats.packets, stats.packets_sent * (trial.n_ranks - 1u));
	close_world();
}
END_TEST

/* Returns how long an Allgather of 8 MiB takes. */
static uint64_t
time_of_allgather(const struct trial *trial)
{
	uint64_t begin_ns, ns;

	open_world(trial);
	begin_ns = rig_now_ns(world.rig);
	post_all(0, FANIN_COLLECTIVE_ALLGATHER, (8 << 20) / trial->n_ranks, 0);
	run_all();
	ns = rig_now_ns(world.rig) - begin_ns;
	close_world();
	return ns;
}

/* Between leaves links have half the rate of hosts', and ranks are at the leaves in turn: two chains by rank would always be behind the same leaf. */
START_TEST(chains_stay_in_their_racks)
{
	struct trial trial = {
		.seed = 1, .n_ranks = 8, .n_leaves = 2, .chains = 2, .scattered = true, .up_mbit = 5000
	};
	const uint64_t by_rack = time_of_allgather(&trial);
	uint64_t by_rank, unscattered;

	trial.racks_unknown = true;
	by_rank = time_of_allgather(&trial);
	trial.scattered = false;
	unscattered = time_of_allgather(&trial);
	ck_assert_msg(by_rack * 3 < by_rank * 2 && by_rack < unscattered + unscattered / 10,
		      "found %lu us by rack, %lu by rank, %lu with neighboring ranks",
		      (unsigned long)by_rack / 1000, (unsigned long)by_rank / 1000,
		      (unsigned long)unscattered / 1000);
}
END_TEST

START_TEST(all_sizes_are_exact_when_packets_are_lost_doubled_and_reordered)
{
	const struct trial trial = trial_of(_i, 0.05);
	struct fanin_multicast_stats stats;

	open_world(&trial);
	run_sizes();
	stats = totals();
	ck_assert_uint_gt(stats.fetched, 0);
	ck_assert_uint_gt(stats.duplicates, 0);
	close_world();
}
END_TEST

/* By _i: the payload. Vectors of more packets than a FETCH that is as long as they are has bits, and losses in several chains. */
START_TEST(packets_that_ask_are_no_longer_than_the_jobs_packets)
{
	static const uint16_t payloads[] = { 64, 128, 192, 256, 320, 0 };
	const struct trial trial = { .seed = (uint64_t)_i + 1,
				     .n_ranks = 4,
				     .n_leaves = 2,
				     .chains = 4,
				     .faults = 0.02,
				     .payload_bytes = payloads[_i] };
	uint64_t bytes;

	open_world(&trial);
	if (payloads[_i] != 0)
		ck_assert_uint_eq(world.payload_bytes, payloads[_i]);
	bytes = 2400u * (payloads[_i] == 0 ? 256u : payloads[_i]);
	post_all(0, FANIN_COLLECTIVE_ALLGATHER, bytes / trial.n_ranks + 1, 0);
	post_all(1, FANIN_COLLECTIVE_BROADCAST, bytes, 1);
	run_all();
	ck_assert_uint_gt(totals().fetched, 0);
	close_world();
}
END_TEST

static bool
loses_all_data(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 3 && hdr->type == FANIN_TYPE_DELIVERY && hdr->block % 300 == 7;
}

/* What one rank lacks is far apart: each packet needs a FETCH of its own where a bitmap of a packet's length does not reach the next one. */
START_TEST(what_one_bitmap_does_not_cover_is_asked_for_by_several)
{
	const struct trial trial = {
		.seed = 1, .n_ranks = 4, .n_leaves = 2, .chains = 4, .payload_bytes = 64
	};

	open_world(&trial);
	world.loses = loses_all_data;
	post_all(0, FANIN_COLLECTIVE_ALLGATHER, 64u * 2400u / trial.n_ranks, 0);
	run_all();
	ck_assert_uint_eq(world.n_lost, 6);
	ck_assert_uint_eq(totals().fetched, 6);
	ck_assert_uint_eq(totals().duplicates, 0);
	close_world();
}
END_TEST

/* The packet that the tests below lose, whenever it comes by multicast. */
static uint32_t lost_packet;

static bool
loses_at_all(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_DELIVERY && hdr->block == lost_packet;
}

static bool
loses_at_neighbors(uint16_t rank, const struct fanin_hdr *hdr)
{
	return (rank == 3 || rank == 4) && loses_at_all(rank, hdr);
}

/* By _i: a middle packet of a message with a partial last one, or the last one. */
START_TEST(what_neighbors_lack_goes_around_the_ring_once)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
	struct fanin_multicast_stats stats;

	open_world(&trial);
	lost_packet = _i == 0 ? 5 : 10;
	world.loses = loses_at_neighbors;
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 10u * world.payload_bytes + 17, 0);
	run_all();
	stats = totals();
	ck_assert_uint_eq(world.n_lost, 2);
	ck_assert_uint_eq(stats.fetched, 2);
	ck_assert_uint_eq(stats.duplicates, 0);
	close_world();
}
END_TEST

START_TEST(what_all_lack_comes_from_its_root)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
	struct fanin_multicast_stats stats;
	uint64_t begin_ns;

	open_world(&trial);
	lost_packet = 7;
	world.loses = loses_at_all;
	begin_ns = rig_now_ns(world.rig);
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 40u * world.payload_bytes, 3);
	run_all();
	stats = totals();
	ck_assert_uint_eq(world.n_lost, 7);
	ck_assert_uint_eq(stats.fetched, 7);
	ck_assert_uint_eq(stats.duplicates, 0);
	ck_assert_uint_lt(rig_now_ns(world.rig) - begin_ns, 50 * MS);
	close_world();
}
END_TEST

static bool
loses_activation(uint16_t rank, const struct fanin_hdr *hdr)
{
	(void)rank;
	return hdr->type == FANIN_TYPE_UNICAST_DELIVERY && hdr->number == FANIN_MULTICAST_ACTIVATE;
}

START_TEST(a_lost_activation_costs_nothing)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 1, .chains = 1 };

	open_world(&trial);
	world.loses = loses_activation;
	post_all(0, FANIN_COLLECTIVE_ALLGATHER, 20000, 0);
	run_all();
	ck_assert_uint_eq(world.n_lost, 7);
	ck_assert_uint_eq(totals().fetched, 0);
	close_world();
}
END_TEST

/* By _i: the root, or another rank. */
START_TEST(a_rank_that_posts_late_is_waited_for)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
	const uint16_t late = _i == 0 ? 0 : 5;

	open_world(&trial);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		if (rank != late)
			post(rank, 0, FANIN_COLLECTIVE_BROADCAST, 1 << 20, 0);
	}
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	post(late, 0, FANIN_COLLECTIVE_BROADCAST, 1 << 20, 0);
	run_all();
	ck_assert_uint_eq(totals().fetched, 0);
	ck_assert_uint_eq(totals().packets_sent * 7, totals().packets);
	close_world();
}
END_TEST

static bool
has_begun(void *user)
{
	(void)user;
	return totals().packets_sent > 100;
}

/* By _i: for how long. Ranks that are late are waited for however long it takes. */
START_TEST(a_root_without_a_core_is_waited_for_and_nothing_is_fetched)
{
	static const uint64_t away_ns[] = { 1 * SECOND, 20 * SECOND };
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };

	open_world(&trial);
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 4 << 20, 2);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, has_begun, NULL));
	world.members[2].is_away = true;
	rig_run(world.rig, rig_now_ns(world.rig) + away_ns[_i], NULL, NULL);
	ck_assert(!all_done(NULL));
	world.members[2].is_away = false;
	rig_host_wake(host_of(2), rig_now_ns(world.rig));
	run_all();
	ck_assert_uint_eq(totals().fetched, 0);
	/* What is learned of it is not the pause: 4 MiB in 200 ms and the time that they take. */
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		if (rank != 2)
			ck_assert_double_gt(fanin_multicast_of(
						    fanin_engine_of(world.members[rank].engine))
						    ->bytes_per_ns,
					    0.007);
	}
	close_world();
}
END_TEST

/* Some ranks' memory is used for something else already when others still lack packets. */
START_TEST(a_tree_may_be_lost_at_any_moment)
{
	struct trial trial = trial_of(_i, _i % 3 == 0 ? 0 : 0.03);
	struct random random = random_seed((uint64_t)_i + 1);

	open_world(&trial);
	for (uint32_t r = 0; r < 4; r++)
		post_all(r, r % 2 == 0 ? FANIN_COLLECTIVE_ALLGATHER : FANIN_COLLECTIVE_BROADCAST,
			 (r % 2 == 0 ? 100000 : 1000000) / (trial.n_ranks * (r + 1)), 1);
	for (int losses = 1 + _i % 3; losses > 0; losses--) {
		rig_run(world.rig, rig_now_ns(world.rig) + random_below(&random, 1000000), all_done,
			NULL);
		lose_tree(random_below(&random, 20000));
	}
	run_all();
	close_world();
}
END_TEST

/* The rank that loses data of packet 5, by whichever way. */
static uint16_t told_rank;

static bool
loses_data_of_told(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == told_rank && hdr->block == 5 && hdr->number == FANIN_MULTICAST_DATA &&
	       (hdr->type == FANIN_TYPE_DELIVERY || hdr->type == FANIN_TYPE_UNICAST_DELIVERY);
}

static bool
lacks_packet_5_only(void *user)
{
	const struct fanin_multicast_op *op =
		fanin_multicast_of(fanin_engine_of(world.members[told_rank].engine))->ops;

	(void)user;
	return op != NULL && op->n_lacking == 1;
}

/* A rank that could not ask has asked for nothing: what comes by multicast after all is not late. */
START_TEST(what_could_not_be_asked_for_counts_as_neither_lost_nor_late)
{
	const struct trial trial = { .seed = 1, .n_ranks = 2, .n_leaves = 1 };
	const struct fanin_multicast_op *op;

	open_world(&trial);
	told_rank = 1;
	world.loses = loses_data_of_told;
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 10u * world.payload_bytes, 0);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, lacks_packet_5_only, NULL));
	world.members[1].lossy.is_full = true;
	rig_run(world.rig, rig_now_ns(world.rig) + 100 * MS, NULL, NULL);
	op = fanin_multicast_of(fanin_engine_of(world.members[1].engine))->ops;
	ck_assert_uint_eq(op->n_lacking, 1);
	ck_assert(!fanin_bit(op->asked, 5));
	ck_assert_uint_eq(op->n_lost, 0);
	ck_assert_uint_eq(totals().fetches, 0);
	world.members[1].lossy.is_full = false;
	world.loses = NULL;
	rig_host_wake(host_of(1), rig_now_ns(world.rig));
	run_all();
	ck_assert_uint_eq(totals().fetched, 1);
	ck_assert_uint_eq(totals().late, 0);
	close_world();
}
END_TEST

static bool
is_told(void *user)
{
	const struct fanin_multicast_op *op =
		fanin_multicast_of(fanin_engine_of(world.members[told_rank].engine))->ops;

	(void)user;
	return op != NULL && op->has_ns != 0;
}

/* All that comes to rank 1 of packet 5 is lost, and then its only neighbor is late: it tells nothing more, and has sent a packet that never came. */
START_TEST(a_rank_that_is_late_after_a_loss_is_waited_for)
{
	const struct trial trial = { .seed = 1, .n_ranks = 2, .n_leaves = 1 };

	open_world(&trial);
	told_rank = 1;
	world.loses = loses_data_of_told;
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 10u * world.payload_bytes, 0);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, is_told, NULL));
	world.loses = NULL;
	world.members[0].is_away = true;
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	ck_assert_msg(world.members[1].requests[0].status == FANIN_IN_PROGRESS, "%s",
		      fanin_engine_error(world.members[1].engine)->text);
	world.members[0].is_away = false;
	rig_host_wake(host_of(0), rig_now_ns(world.rig));
	run_all();
	close_world();
}
END_TEST

/* Small packets pass, and data of packet 5 does not. */
START_TEST(data_that_never_passes_ends_the_run_in_time)
{
	const struct trial trial = { .seed = 1, .n_ranks = 2, .n_leaves = 1 };
	uint64_t begin_ns;

	open_world(&trial);
	told_rank = 1;
	world.loses = loses_data_of_told;
	begin_ns = rig_now_ns(world.rig);
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 10u * world.payload_bytes, 0);
	while (world.members[1].requests[0].status == FANIN_IN_PROGRESS) {
		ck_assert_uint_le(rig_now_ns(world.rig) - begin_ns, 6 * SECOND);
		rig_run(world.rig, rig_now_ns(world.rig) + 10 * MS, NULL, NULL);
	}
	ck_assert_msg(strstr(fanin_engine_error(world.members[1].engine)->text,
			     "rank 0 has sent packet 5 of operation 0, and it never came") != NULL,
		      "%s", fanin_engine_error(world.members[1].engine)->text);
	close_world();
}
END_TEST

START_TEST(what_neighbors_told_in_a_lost_run_fails_nobody_in_the_next_one)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };

	open_world(&trial);
	told_rank = 3;
	world.loses = loses_data_of_told;
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 10u * world.payload_bytes, 0);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, is_told, NULL));
	lose_tree(SECOND);
	world.loses = NULL;
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
		world.members[rank].is_away = rank != 3;
	rig_run(world.rig, rig_now_ns(world.rig) + 20 * SECOND, NULL, NULL);
	ck_assert_msg(world.members[3].requests[0].status == FANIN_IN_PROGRESS, "%s",
		      fanin_engine_error(world.members[3].engine)->text);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		world.members[rank].is_away = false;
		rig_host_wake(host_of(rank), rig_now_ns(world.rig));
	}
	run_all();
	close_world();
}
END_TEST

static struct fanin_multicast_op *
op_of(uint16_t rank)
{
	return fanin_multicast_of(fanin_engine_of(world.members[rank].engine))->ops;
}

static void
forge(uint16_t from, uint16_t to, enum fanin_multicast_kind kind, uint32_t packet,
      const void *payload, uint32_t len)
{
	struct fanin_multicast *mc = fanin_multicast_of(fanin_engine_of(world.members[from].engine));

	ck_assert(fanin_multicast_send_to(mc, op_of(from), to, kind, packet, payload, len));
	world.members[from].lossy.inner->ops->tx_flush(world.members[from].lossy.inner);
	rig_host_wake(host_of(to), rig_now_ns(world.rig));
}

/* All that would come to one rank. */
static bool
loses_deliveries(uint16_t rank, const struct fanin_hdr *hdr)
{
	return rank == 3 && (hdr->type == FANIN_TYPE_DELIVERY || hdr->members != 5) &&
	       hdr->type != FANIN_TYPE_RESULT && hdr->type != FANIN_TYPE_ANSWER;
}

/* A member's packets that it was not asked for, and that are not its own. */
START_TEST(what_was_not_asked_for_is_taken_from_its_root_only)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
	uint8_t *junk;

	open_world(&trial);
	junk = calloc(1, world.payload_bytes);
	for (uint16_t rank = 1; rank < trial.n_ranks; rank++)
		post(rank, 0, FANIN_COLLECTIVE_BROADCAST, 10u * world.payload_bytes, 0);
	forge(5, 3, FANIN_MULTICAST_DATA, 5, junk, world.payload_bytes);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	ck_assert_uint_eq(fanin_engine_stats(world.members[3].engine)->invalid, 1);
	post(0, 0, FANIN_COLLECTIVE_BROADCAST, 10u * world.payload_bytes, 0);
	run_all();
	free(junk);
	close_world();
}
END_TEST

static bool
has_asked_for_60(void *user)
{
	const struct fanin_multicast_op *op = op_of(3);

	(void)user;
	return op != NULL && fanin_bit(op->asked, 60);
}

/* In silence a rank asks for what its root has not sent yet, and gets it from another: what is missing before it is late, and no gap. */
START_TEST(what_a_neighbor_sends_overtakes_nothing)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
	uint8_t *elements;

	open_world(&trial);
	elements = malloc(world.payload_bytes);
	for (uint32_t i = 0; i < world.payload_bytes; i++)
		elements[i] = byte_of(0, 0, 60u * world.payload_bytes + i);
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 100u * world.payload_bytes, 0);
	world.loses = loses_deliveries;
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, has_asked_for_60, NULL));
	forge(5, 3, FANIN_MULTICAST_DATA, 60, elements, world.payload_bytes);
	rig_run(world.rig, rig_now_ns(world.rig) + 50 * MS, NULL, NULL);
	ck_assert(fanin_bit(op_of(3)->have, 60));
	ck_assert_uint_eq(op_of(3)->chains[0].gaps.checked, 0);
	world.loses = NULL;
	run_all();
	free(elements);
	close_world();
}
END_TEST

/* While a root is late, a member says again and again that it has sent a packet, and sends FETCHes and others that make no sense. */
START_TEST(what_a_member_makes_up_fails_nobody)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
	const struct fanin_multicast_tell tell = { .has = 1, .packet = 5 };
	struct random random = random_seed(1);
	uint64_t words[40];

	open_world(&trial);
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 100u * world.payload_bytes, 0);
	world.members[0].is_away = true;
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	for (unsigned int i = 0; i < 2000; i++) {
		for (size_t w = 0; w < RTE_DIM(words); w++)
			words[w] = (uint64_t)random_u32(&random) << 32 | random_u32(&random);
		forge(5, 3, FANIN_MULTICAST_TELL, 0, &tell, sizeof(tell));
		forge(5, 3, FANIN_MULTICAST_FETCH, random_below(&random, 200), words,
		      random_below(&random, sizeof(words) / 8 + 1) * 8);
		/* Neither data that was asked for, which it may have, nor a turn. */
		forge(5, 3, random_below(&random, 2) == 0 ? 0 : 5 + random_below(&random, 250),
		      random_u32(&random), words, random_below(&random, 100));
		rig_run(world.rig, rig_now_ns(world.rig) + 10 * MS, NULL, NULL);
	}
	ck_assert_msg(world.members[3].requests[0].status == FANIN_IN_PROGRESS, "%s",
		      fanin_engine_error(world.members[3].engine)->text);
	world.members[0].is_away = false;
	rig_host_wake(host_of(0), rig_now_ns(world.rig));
	run_all();
	close_world();
}
END_TEST

START_TEST(a_turn_comes_from_the_root_before_only)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 1, .chains = 1 };

	open_world(&trial);
	world.members[0].is_away = true;
	post_all(0, FANIN_COLLECTIVE_ALLGATHER, 20000, 0);
	for (uint16_t from = 4; from < 6; from++)
		forge(from, 3, FANIN_MULTICAST_ACTIVATE, op_of(3)->own_first, NULL, 0);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	ck_assert(!op_of(3)->is_active);
	forge(2, 3, FANIN_MULTICAST_ACTIVATE, op_of(3)->own_first, NULL, 0);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	ck_assert(op_of(3)->is_active);
	world.members[0].is_away = false;
	rig_host_wake(host_of(0), rig_now_ns(world.rig));
	run_all();
	close_world();
}
END_TEST

static bool
has_packet_0(void *user)
{
	(void)user;
	return fanin_bit(op_of(1)->have, 0);
}

/* What a network doubles says nothing about congestion that is there now. */
START_TEST(a_mark_on_a_duplicate_is_no_loss)
{
	const struct trial trial = { .seed = 1, .n_ranks = 3, .n_leaves = 1 };
	const struct fanin_multicast_stats *stats;
	struct fanin_endpoint *engine;
	struct fanin_headers headers;
	const struct fanin_frame frame = { .data = &headers, .len = sizeof(headers) };
	uint64_t n_lost;

	open_world(&trial);
	engine = world.members[1].engine;
	stats = fanin_multicast_stats(engine);
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 4 << 20, 0);
	ck_assert(rig_run(world.rig, rig_now_ns(world.rig) + SECOND, has_packet_0, NULL));
	n_lost = op_of(1)->n_lost;
	fanin_wire_encode_l4(&headers, &fanin_engine_of(engine)->config.flow, world.payload_bytes);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_DELIVERY,
				 fanin_engine_of(engine)->config.job,
				 fanin_engine_of(engine)->config.epoch,
				 fanin_engine_of(engine)->config.keys.down);
	headers.ip.tos = 3; /* CE */
	headers.fanin.number = FANIN_MULTICAST_DATA;
	fanin_multicast_receive(fanin_engine_of(engine), &frame, 0);
	ck_assert_uint_eq(stats->duplicates, 1);
	ck_assert_uint_eq(stats->marks, 0);
	ck_assert_uint_eq(op_of(1)->n_lost, n_lost);
	run_all();
	close_world();
}
END_TEST

/* By _i: ranks 2 and 5 are silent, both have ended, or rank 2 has. */
START_TEST(only_ranks_that_have_ended_are_said_to_have_ended)
{
	static const char *const texts[] = {
		"waits for ranks 2, 5 (of 8), which does not answer",
		"waits for ranks 2, 5 (of 8), which has ended",
		"waits for ranks 2, 5 (of 8), of which rank 2 has ended, and nobody else answers",
	};
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 2 };
	struct fanin_answer_ranks ranks = { 0 };
	struct fanin_endpoint *engine;

	open_world(&trial);
	engine = world.members[0].engine;
	post(0, 0, FANIN_COLLECTIVE_BROADCAST, 5000, 0);
	rig_run(world.rig, rig_now_ns(world.rig) + MS, NULL, NULL);
	fanin_ranks_add(_i == 0 ? &ranks.silent : &ranks.ended, 2);
	fanin_ranks_add(_i == 1 ? &ranks.ended : &ranks.silent, 5);
	fanin_multicast_on_answer(fanin_engine_of(engine),
				  fanin_multicast_of(fanin_engine_of(engine))->live.block, &ranks);
	ck_assert(fanin_multicast_time_out(fanin_engine_of(engine)));
	ck_assert_msg(strstr(fanin_engine_error(engine)->text, texts[_i]) != NULL, "%s",
		      fanin_engine_error(engine)->text);
	close_world();
}
END_TEST

START_TEST(ranks_that_disagree_are_refused)
{
	const struct trial trial = { .seed = 1, .n_ranks = 3, .n_leaves = 1 };

	open_world(&trial);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++)
		post(rank, 0, FANIN_COLLECTIVE_BROADCAST, 5000, rank == 2);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_done, NULL);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		ck_assert_int_eq(world.members[rank].requests[0].status, FANIN_ERR_REFUSED);
		ck_assert_ptr_nonnull(
			strstr(fanin_engine_error(world.members[rank].engine)->text, "disagree"));
	}
	close_world();
}
END_TEST

/* They would have different numbers of control blocks, and take one's end for another one's credit. */
START_TEST(ranks_that_count_credits_otherwise_are_refused)
{
	const struct trial trial = { .seed = 1, .n_ranks = 8, .n_leaves = 1 };

	open_world(&trial);
	fanin_multicast_of(fanin_engine_of(world.members[5].engine))->credit /= 2;
	post_all(0, FANIN_COLLECTIVE_BROADCAST, 1 << 20, 0);
	rig_run(world.rig, rig_now_ns(world.rig) + SECOND, all_done, NULL);
	for (uint16_t rank = 0; rank < trial.n_ranks; rank++) {
		ck_assert_int_eq(world.members[rank].requests[0].status, FANIN_ERR_REFUSED);
		ck_assert_ptr_nonnull(
			strstr(fanin_engine_error(world.members[rank].engine)->text, "disagree"));
	}
	close_world();
}
END_TEST

Suite *
suite_multicast_hosts(void)
{
	Suite *suite = suite_create("multicast_hosts");
	TCase *tcase = tcase_create("exact");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, all_sizes_are_exact_and_nothing_is_fetched_without_loss, 0, 48);
	tcase_add_loop_test(tcase, all_sizes_are_exact_when_packets_are_lost_doubled_and_reordered,
			    0, 48);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("lost");
	tcase_add_test(tcase, chains_stay_in_their_racks);
	tcase_add_loop_test(tcase, packets_that_ask_are_no_longer_than_the_jobs_packets, 0, 6);
	tcase_add_test(tcase, what_one_bitmap_does_not_cover_is_asked_for_by_several);
	tcase_add_loop_test(tcase, what_neighbors_lack_goes_around_the_ring_once, 0, 2);
	tcase_add_test(tcase, what_all_lack_comes_from_its_root);
	tcase_add_test(tcase, a_lost_activation_costs_nothing);
	tcase_add_test(tcase, a_mark_on_a_duplicate_is_no_loss);
	tcase_add_test(tcase, what_could_not_be_asked_for_counts_as_neither_lost_nor_late);
	tcase_add_test(tcase, what_was_not_asked_for_is_taken_from_its_root_only);
	tcase_add_test(tcase, what_a_neighbor_sends_overtakes_nothing);
	tcase_add_test(tcase, what_a_member_makes_up_fails_nobody);
	tcase_add_test(tcase, a_turn_comes_from_the_root_before_only);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("runs");
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, a_tree_may_be_lost_at_any_moment, 0, 48);
	tcase_add_test(tcase, a_rank_that_is_late_after_a_loss_is_waited_for);
	tcase_add_test(tcase, data_that_never_passes_ends_the_run_in_time);
	tcase_add_test(tcase, what_neighbors_told_in_a_lost_run_fails_nobody_in_the_next_one);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("late");
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_rank_that_posts_late_is_waited_for, 0, 2);
	tcase_add_loop_test(tcase, a_root_without_a_core_is_waited_for_and_nothing_is_fetched, 0, 2);
	tcase_add_loop_test(tcase, only_ranks_that_have_ended_are_said_to_have_ended, 0, 3);
	tcase_add_test(tcase, ranks_that_disagree_are_refused);
	tcase_add_test(tcase, ranks_that_count_credits_otherwise_are_refused);
	suite_add_tcase(suite, tcase);
	return suite;
}
