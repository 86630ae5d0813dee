/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cost of super-frames for a packet port's worker, without copying: for lab/bench/instructions.py,
 * which counts the instructions of super_frames_round. Packets come in rounds as segments of
 * super-frames, get headers of their own, and leave grouped.
 *
 * usage: super-frames-bench ROUNDS FLOWS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "switch/super_frame.h"

#define BURST 64
#define LEN 1000 /* of a UDP payload */
#define UDP_PORT 21930

static struct rte_mbuf mbufs[BURST];
static struct rte_mbuf *burst[BURST];
static struct super_frame_group groups[BURST];
static struct super_frame_head heads[BURST];

int super_frames_round(const struct fanin_headers *wholes, unsigned int flows);

/*
 * Handles one burst: one super-frame of each flow, whose packets are mixed with those of the other
 * flows. Returns how many super-frames leave.
 */
__attribute__((noinline, noipa)) int
super_frames_round(const struct fanin_headers *wholes, unsigned int flows)
{
	uint16_t n;

	for (unsigned int i = 0; i < BURST; i++) {
		burst[i] = &mbufs[i];
		super_frame_segment_headers(&wholes[i % flows], i / flows, LEN,
					    rte_pktmbuf_mtod(burst[i], struct fanin_headers *));
	}
	n = super_frame_group(burst, BURST, rte_cpu_to_be_16(UDP_PORT), groups);
	for (uint16_t g = 0; g < n; g++) {
		if (groups[g].n > 1)
			super_frame_head(&groups[g], burst[groups[g].first], &heads[g]);
	}
	return n;
}

int
main(int argc, char **argv)
{
	static uint8_t room[BURST][FANIN_L4_LEN + LEN];
	static struct fanin_headers wholes[BURST];
	const unsigned int rounds = argc == 3 ? (unsigned int)atoi(argv[1]) : 0;
	const unsigned int flows = argc == 3 ? (unsigned int)atoi(argv[2]) : 0;

	if (rounds == 0 || flows == 0 || flows > BURST) {
		fprintf(stderr, "usage: super-frames-bench ROUNDS FLOWS\n");
		return 2;
	}
	for (unsigned int i = 0; i < BURST; i++) {
		const struct fanin_flow flow = { .dst_mac = { 2, (uint8_t)i },
						 .src_mac = { 2 },
						 .src_ip_be = 1,
						 .dst_ip_be = i + 2,
						 .src_port = UDP_PORT,
						 .dst_port = UDP_PORT };

		fanin_wire_encode_l4(&wholes[i], &flow, BURST / flows * LEN - FANIN_HDR_LEN);
		mbufs[i].buf_addr = room[i];
		mbufs[i].data_len = sizeof(room[i]);
		mbufs[i].pkt_len = sizeof(room[i]);
		mbufs[i].nb_segs = 1;
	}
	for (unsigned int i = 0; i < rounds; i++) {
		if (super_frames_round(wholes, flows) != (int)flows) {
			fprintf(stderr,
				"super-frames-bench: packets of %u flows leave in other groups\n",
				flows);
			return 1;
		}
	}
	return 0;
}
