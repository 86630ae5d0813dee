/* SPDX-License-Identifier: BSD-3-Clause */
/* A batch of one kind, through the pipeline and through the bare loop, see sparse_core.h. */
#include <string.h>
#include <sys/resource.h>

#include <rte_cycles.h>

#include "lab/bench/sparse_core.h"
#include "protocols/sparse/switch/sparse.h"
#include "pipeline/worker.h"

/* Blocks of each batch whose slots are sampled. */
#define SAMPLED 4

/* Calibration of a batch during which the thread lost its core: longer than any other. */
#define PREEMPTED (UINT64_MAX / 256)

/* Returns how often this thread has had to leave its core so far. */
static long
preemptions(void)
{
	struct rusage usage = { 0 };

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

static uint32_t
pattern_of(uint32_t block)
{
	return block % SPARSE_PATTERNS;
}

/* Prepares a host's packets of a block. */
static void
prepare_block(struct sparse_bench *bench, const struct sparse_lane *lane, uint16_t host,
	      uint32_t block)
{
	const struct sparse_data *data = &bench->data;
	const uint32_t pattern = pattern_of(block);

	for (uint32_t i = 0; i < data->n_shards[pattern]; i++) {
		const struct sparse_shard *shard = &data->shards[pattern][i];
		struct rte_mbuf *mbuf;
		struct fanin_headers *headers;

		if (data->hosts[pattern][i] != host)
			continue;
		mbuf = rte_pktmbuf_alloc(bench->rig.pools[0]);
		if (mbuf == NULL)
			rig_die("the pool has no packet left for a contribution");
		headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
		*headers = bench->rig.headers[host];
		headers->fanin.type = FANIN_TYPE_SPARSE;
		headers->fanin.job = lane->job->params.id;
		headers->fanin.epoch = lane->job->epoch;
		headers->fanin.count = shard->count;
		headers->fanin.members = shard->members;
		hosts_headers_set_block(headers, block);
		fanin_wire_set_payload_len(headers, shard->len);
		memcpy(headers + 1, shard->payload, shard->len);
		mbuf->data_len = (uint16_t)(sizeof(*headers) + shard->len);
		mbuf->pkt_len = mbuf->data_len;
		mbuf->port = bench->rig.ethdevs[host];
		bench->mbufs[bench->n_mbufs++] = mbuf;
	}
}

/*
 * Prepares a batch. Hosts send in step: the worker finds a burst of each host in turn, and the
 * packets are in that order.
 */
static void
prepare(struct sparse_bench *bench, const struct sparse_lane *lane)
{
	const uint32_t run = RTE_MIN((uint32_t)FANIN_BURST, bench->options.blocks);

	bench->n_mbufs = 0;
	for (uint32_t first = 0; first < bench->options.blocks; first += run) {
		for (uint16_t host = 0; host < bench->options.hosts; host++) {
			for (uint32_t i = 0; i < run; i++)
				prepare_block(bench, lane, host, lane->next_block + first + i);
		}
	}
}

static void
clear_seen(struct sparse_bench *bench)
{
	for (uint32_t i = 0; i < bench->options.blocks; i++)
		sparse_seen_clear(&bench->seen[i], &bench->data);
}

static void
see(struct sparse_bench *bench, const struct sparse_lane *lane, const struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const uint32_t block = headers->fanin.block - lane->next_block;

	if (headers->fanin.type != FANIN_TYPE_SPARSE_RESULT || block >= bench->options.blocks ||
	    !sparse_seen_add(&bench->seen[block], &bench->data, &headers->fanin,
			     (const uint8_t *)(headers + 1),
			     mbuf->data_len - (uint32_t)sizeof(*headers)))
		rig_die("wrong shard of the result of block %u", headers->fanin.block);
}

static void
expect(const struct sparse_bench *bench, const struct sparse_lane *lane, const char *who)
{
	for (uint32_t i = 0; i < bench->options.blocks; i++) {
		if (!sparse_seen_is(&bench->seen[i], &bench->data,
				    pattern_of(lane->next_block + i)))
			rig_die("wrong result of block %u by %s", lane->next_block + i, who);
	}
}

/* Runs the bare loop on the same packets. */
static uint64_t
run_bare(struct sparse_bench *bench, struct sparse_lane *lane, struct batch *batch)
{
	struct bare *bare = &lane->bare;
	uint64_t cycles;

	prepare(bench, lane);
	if (rte_pktmbuf_alloc_bulk(bench->rig.pools[0], bench->stock, bench->n_stock) != 0)
		rig_die("the pool has no %u packets left", bench->n_stock);
	bare->stock = bench->stock;
	bare->n_stock = bench->n_stock;
	bare->first_block = lane->next_block;
	batch->calibration = rig_calibrate(&bench->rig);
	cycles = rte_rdtsc();
	bare_run(bare, bench->mbufs, bench->n_mbufs);
	cycles = rte_rdtsc() - cycles;
	batch->calibration = RTE_MAX(batch->calibration, rig_calibrate(&bench->rig));
	clear_seen(bench);
	for (uint32_t i = 0; i < bare->n_results; i++)
		see(bench, lane, bare->results[i]);
	expect(bench, lane, "the bare loop");
	rte_pktmbuf_free_bulk(bench->mbufs, bench->n_mbufs);
	rte_pktmbuf_free_bulk(bench->stock, bench->n_stock);
	return cycles;
}

static void
offer(struct sparse_bench *bench, struct sparse_lane *lane)
{
	for (uint32_t i = 0; i < bench->n_mbufs; i++) {
		const struct rte_mbuf *mbuf = bench->mbufs[i];
		const struct fanin_headers *headers =
			rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);

		if (rte_ring_enqueue(bench->rig.rx[headers->fanin.rank][0], bench->mbufs[i]) != 0)
			rig_die("a port takes no more packets");
		lane->n_bytes += mbuf->data_len - sizeof(*headers);
		lane->n_values += headers->fanin.count;
	}
	lane->n_packets += bench->n_mbufs;
	lane->n_blocks += bench->options.blocks;
}

/* Takes all hosts' results, and checks those of the first host: all hosts get the same packets. */
static void
collect(struct sparse_bench *bench, struct sparse_lane *lane)
{
	clear_seen(bench);
	for (uint16_t host = 0; host < bench->options.hosts; host++) {
		struct rte_mbuf *mbuf;
		uint32_t n = 0;

		for (; rte_ring_dequeue(bench->rig.tx[host][0], (void **)&mbuf) == 0; n++) {
			if (host == 0)
				see(bench, lane, mbuf);
			rte_pktmbuf_free(mbuf);
		}
		if (host == 0)
			bench->n_mbufs = n;
		else if (n != bench->n_mbufs)
			rig_die("host %u got %u packets of results, host 0 %u", host, n,
				bench->n_mbufs);
	}
	expect(bench, lane, lane->job->handler->name);
	lane->n_packets_out += bench->n_mbufs;
	for (uint32_t i = 0; i < bench->options.blocks; i++) {
		lane->n_values_out += bench->seen[i].n_values;
		lane->n_bytes_out += bench->seen[i].n_bytes;
		lane->n_distinct += bench->data.n_distinct[pattern_of(lane->next_block + i)];
	}
}

/* Returns the bytes of the cache lines that hold elements of f32. */
static uint64_t
touched_values(const uint64_t *occupied, uint32_t n_words)
{
	const unsigned int in_line = RTE_CACHE_LINE_SIZE / sizeof(float);
	uint64_t n_lines = 0;

	for (uint32_t i = 0; i < n_words; i++) {
		for (unsigned int at = 0; at < 64; at += in_line)
			n_lines += (occupied[i] >> at & (UINT64_MAX >> (64 - in_line))) != 0;
	}
	return n_lines * RTE_CACHE_LINE_SIZE;
}

/* Counts the bytes of the slots' memory that the batch's last blocks have touched. */
static void
sample_slots(const struct sparse_bench *bench, struct sparse_lane *lane)
{
	const struct fanin_slots *slots = &lane->job->params.slots;
	const uint32_t n_words = bench->data.span / 64;

	for (uint32_t i = 0; i < RTE_MIN((uint32_t)SAMPLED, bench->options.blocks); i++) {
		const struct fanin_sparse *slot =
			(const void *)
				slots->by_index[fanin_slot_index(slots, lane->next_block + i)];

		lane->n_sampled++;
		lane->n_bytes_touched += sizeof(*slot) + n_words * sizeof(uint64_t);
		if (slot->mode == FANIN_SPARSE_ARRAY)
			lane->n_bytes_touched += touched_values(slot->array.occupied, n_words);
		if (slot->n_lanes == 0)
			continue;
		lane->n_bytes_touched += (uint64_t)slot->n_lanes * slot->index_bytes +
					 slot->n_lanes / 64 * sizeof(uint64_t) +
					 touched_values(slot->table.occupied, slot->n_lanes / 64) +
					 slot->n_spills * (uint64_t)bench->data.payload_bytes;
	}
}

static uint64_t
run_pipeline(struct sparse_bench *bench, struct sparse_lane *lane, struct batch *batch)
{
	struct worker *worker = bench->rig.pipeline->workers[0];
	uint32_t done = 0;
	uint64_t cycles;

	prepare(bench, lane);
	offer(bench, lane);
	batch->calibration = RTE_MAX(batch->calibration, rig_calibrate(&bench->rig));
	cycles = rte_rdtsc();
	while (done < bench->n_mbufs)
		done += worker_round(worker);
	cycles = rte_rdtsc() - cycles;
	batch->calibration = RTE_MAX(batch->calibration, rig_calibrate(&bench->rig));
	collect(bench, lane);
	sample_slots(bench, lane);
	lane->next_block += bench->options.blocks;
	return cycles;
}

static struct batch
dense_batch(struct sparse_bench *bench)
{
	struct sparse_lane *lane = &bench->lanes[SPARSE_KIND_DENSE];
	const struct rig_options *options = &bench->rig.options;
	struct rig *rig = &bench->rig;
	struct batch batch;

	rig_bare_clear(rig, bench->accumulators);
	rig_prepare(rig);
	batch.calibration = rig_calibrate(rig);
	batch.bare = rig_bare(rig, bench->accumulators);
	batch.calibration = RTE_MAX(batch.calibration, rig_calibrate(rig));
	rig_discard(rig);
	rig_prepare(rig);
	rig_offer(rig);
	batch.calibration = RTE_MAX(batch.calibration, rig_calibrate(rig));
	batch.pipeline = rig_run(rig);
	batch.calibration = RTE_MAX(batch.calibration, rig_calibrate(rig));
	rig_collect(rig);
	lane->n_blocks += rig->n_blocks;
	lane->n_packets += options->mbufs;
	lane->n_packets_out += rig->n_blocks;
	lane->n_bytes += (uint64_t)options->mbufs * options->payload;
	lane->n_bytes_out += (uint64_t)rig->n_blocks * options->payload;
	/* Counts the elements that are values of a sparse vector. */
	lane->n_values += (uint64_t)((double)options->mbufs * options->payload / sizeof(float) *
				     bench->options.density);
	return batch;
}

struct batch
sparse_batch(struct sparse_bench *bench, enum sparse_kind kind)
{
	struct sparse_lane *lane = &bench->lanes[kind];
	const long before = preemptions();
	struct batch batch;

	if (kind == SPARSE_KIND_DENSE) {
		batch = dense_batch(bench);
	} else {
		batch.bare = run_bare(bench, lane, &batch);
		batch.pipeline = run_pipeline(bench, lane, &batch);
	}
	if (preemptions() != before)
		batch.calibration = PREEMPTED;
	return batch;
}
