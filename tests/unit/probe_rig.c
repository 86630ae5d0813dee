/* SPDX-License-Identifier: BSD-3-Clause */
/* See probe_rig.h. */
#include <check.h>
#include <string.h>

#include "pipeline/aggregate.h"
#include "pipeline/probe.h"
#include "pipeline/base/tx.h"
#include "tests/unit/probe_rig.h"

struct probe_rig probe_rig;

void
probe_rig_take_all(void)
{
	for (uint16_t p = 0; p < probe_rig.sw.n_ports; p++) {
		while (ring_switch_take(&probe_rig.sw, p, probe_rig.buffer) != 0)
			;
	}
}

void
probe_rig_begin(void)
{
	probe_rig_take_all();
	/*
	 * The clock is far ahead, so that nothing is due in the rounds in which the test puts
	 * frames in.
	 */
	probe_rig.clock_ns = pipeline_now_ns() + UINT64_C(3600000000000);
}

void
probe_rig_tick(void)
{
	struct worker *worker = probe_rig.sw.pipeline->workers[0];

	probe_rig.clock_ns += PROBE_INTERVAL_NS;
	worker->now_ns = probe_rig.clock_ns;
	if (probes_are_due(probe_rig.sw.pipeline, probe_rig.clock_ns))
		probe_due(worker);
	worker_flush(worker);
}

void
probe_rig_ask(unsigned int h, uint32_t block, bool overdue)
{
	struct worker *worker = probe_rig.sw.pipeline->workers[0];
	uint8_t frame[4096];
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(probe_rig.sw.pool);

	host_packet(&probe_rig.sw, h, FANIN_TYPE_QUERY, probe_rig.job->params.id, probe_rig.epoch,
		    NULL, 0, headers);
	headers->fanin.block = block;
	headers->fanin.number = 1;
	headers->fanin.flags = overdue ? FANIN_FLAG_RETRANSMIT : 0;
	memcpy(rte_pktmbuf_append(mbuf, sizeof(*headers)), frame, sizeof(*headers));
	mbuf->port = probe_rig.sw.pipeline->ports[h].ethdev;
	worker->now_ns = probe_rig.clock_ns;
	worker_aggregate(worker, &mbuf, 1);
	worker_flush(worker);
}

struct answer_words
probe_rig_answer(void)
{
	const struct fanin_headers *got = (const struct fanin_headers *)probe_rig.buffer;
	struct answer_words body;

	probe_rig_ask(0, 0, true);
	ck_assert_uint_eq(ring_switch_take(&probe_rig.sw, 0, probe_rig.buffer),
			  FANIN_PAYLOAD_OFFSET + sizeof(body));
	ck_assert_uint_eq(got->fanin.type, FANIN_TYPE_ANSWER);
	memcpy(&body, got + 1, sizeof(body));
	return body;
}

void
probe_rig_expect_finding(uint64_t ended, uint64_t silent)
{
	const struct answer_words body = probe_rig_answer();

	ck_assert_uint_eq(answer_ended(&body), ended);
	ck_assert_uint_eq(answer_silent(&body), silent);
}
