/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libFuzzer target for super-frames. The first byte says what the input is: what a kernel hands
 * over, with its header before it, of others or of Fanin's; or a list of frames that may leave as
 * one, each behind two bytes of length (little-endian). super_seeds.py makes the seeds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hostlib/src/transport/segments.h"
#include "pipeline/base/offload.h"
#include "switch/super_frame.h"

#define ROOM 65536u
#define PARTS 3u
#define FRAMES 64u
#define UDP_PORT 21930

#define REQUIRE(condition)                                                                         \
	do {                                                                                       \
		if (!(condition))                                                                  \
			abort();                                                                   \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A frame of the input in an mbuf whose memory ends where the frame does. */
static struct rte_mbuf *
make_mbuf(const uint8_t *data, size_t size, size_t room)
{
	struct rte_mbuf *mbuf = calloc(1, sizeof(*mbuf));

	REQUIRE(mbuf != NULL);
	mbuf->buf_addr = malloc(room == 0 ? 1 : room);
	REQUIRE(mbuf->buf_addr != NULL);
	memcpy(mbuf->buf_addr, data, size);
	mbuf->buf_len = (uint16_t)RTE_MIN(room, (size_t)UINT16_MAX);
	mbuf->data_len = (uint16_t)size;
	mbuf->pkt_len = (uint32_t)size;
	mbuf->nb_segs = 1;
	return mbuf;
}

static void
drop(struct rte_mbuf *mbuf)
{
	while (mbuf != NULL) {
		struct rte_mbuf *next = mbuf->next;

		free(mbuf->buf_addr);
		free(mbuf);
		mbuf = next;
	}
}

/* In PARTS mbufs, the first one of `first` bytes. */
static struct rte_mbuf *
make_chain(const uint8_t *data, size_t size, size_t first)
{
	struct rte_mbuf *head = NULL, **end = &head;
	uint16_t n = 0;

	for (size_t at = 0; n == 0 || at < size; n++) {
		const size_t part = n + 1 == PARTS ? size - at : RTE_MIN(size - at, first);

		*end = make_mbuf(data + at, part, part);
		end = &(*end)->next;
		at += part;
	}
	head->nb_segs = n;
	head->pkt_len = (uint32_t)size;
	return head;
}

/* Of others: what is taken can be given back as it came, and its segments are all of it. */
static void
take_foreign(const struct virtio_net_hdr *vnet, uint32_t shift, const uint8_t *data, size_t size)
{
	struct rte_mbuf *frame = make_chain(data, size, 64 + shift * 16);
	struct virtio_net_hdr again;
	uint32_t sum = 0;

	if (!super_frame_read(vnet, shift, frame) || !offload_is_needed(frame)) {
		drop(frame);
		return;
	}
	super_frame_write(frame, &again);
	REQUIRE(again.flags == VIRTIO_NET_HDR_F_NEEDS_CSUM);
	REQUIRE(again.csum_start == vnet->csum_start + shift &&
		again.csum_offset == vnet->csum_offset);
	REQUIRE(((again.gso_type ^ vnet->gso_type) & ~VIRTIO_NET_HDR_GSO_ECN) == 0);
	REQUIRE(again.gso_type == VIRTIO_NET_HDR_GSO_NONE || again.gso_size == vnet->gso_size);
	REQUIRE(offload_link_len(frame) <= frame->pkt_len);
	for (uint32_t i = 0; i < offload_segments(frame); i++) {
		struct rte_mbuf *segment = make_mbuf(data, 0, offload_link_len(frame));

		offload_copy_segment(frame, i, segment);
		REQUIRE(segment->pkt_len <= offload_link_len(frame));
		sum += segment->pkt_len;
		drop(segment);
	}
	REQUIRE(sum == frame->pkt_len + (offload_segments(frame) - 1) * offload_header_len(frame));
	drop(frame);
}

/*
 * Of Fanin's: switches and hosts take each segment for the same packet, whose Fanin header is its
 * own.
 */
static void
take_fanin(uint16_t gso_size, const uint8_t *data, size_t size)
{
	static struct fanin_segments segments;
	static struct fanin_frame frames[FANIN_SEGMENTS_MAX];
	static uint8_t room[ROOM];
	const struct fanin_headers *whole = (const struct fanin_headers *)data;
	uint32_t len, i = 0;
	unsigned int n;

	if (size <= FANIN_L4_LEN || gso_size == 0)
		return;
	len = (uint32_t)size - FANIN_L4_LEN;
	memcpy(segments.data, data + FANIN_L4_LEN, len);
	fanin_segments_begin(&segments, data, len, gso_size);
	n = fanin_segments_next(&segments, frames, FANIN_SEGMENTS_MAX);
	for (uint32_t at = 0; at < len && i < SUPER_FRAME_SEGMENTS_IN; at += gso_size, i++) {
		const uint32_t own = RTE_MIN(len - at, (uint32_t)gso_size);
		struct fanin_headers made;

		super_frame_segment_headers(whole, i, own, &made);
		REQUIRE(rte_be_to_cpu_16(made.udp.len_be) == FANIN_UDP_LEN + own);
		if (own < FANIN_HDR_LEN)
			continue;
		REQUIRE(i < n && frames[i].len == FANIN_L4_LEN + own);
		REQUIRE(fanin_segments_copy(&segments, &frames[i], 0, room, frames[i].len));
		REQUIRE(memcmp(room + FANIN_L4_LEN, segments.data + at, own) == 0);
		REQUIRE(memcmp(room, &made.eth, FANIN_ETH_LEN) == 0);
		REQUIRE(memcmp(&((struct fanin_headers *)room)->udp, &made.udp, FANIN_UDP_LEN) ==
			0);
		fanin_wire_validate((const struct fanin_headers *)room, frames[i].len);
	}
	REQUIRE(n <= i);
}

/*
 * Frames that leave together are each in one group, in their order, of one job, and its segments
 * again.
 */
static void
send_frames(const uint8_t *data, size_t size)
{
	struct rte_mbuf *mbufs[FRAMES];
	struct super_frame_group groups[FRAMES];
	const struct rte_mbuf *before[FRAMES];
	uint16_t n = 0, n_groups, at = 0;

	while (size > sizeof(uint16_t) && n < FRAMES) {
		const size_t len = RTE_MIN((size_t)(data[0] | data[1] << 8) & 0x7ff, size - 2);

		before[n] = mbufs[n] = make_mbuf(data + 2, len, len);
		n++;
		data += 2 + len;
		size -= 2 + len;
	}
	n_groups = super_frame_group(mbufs, n, rte_cpu_to_be_16(UDP_PORT), groups);
	for (uint16_t g = 0; g < n_groups; g++) {
		const struct super_frame_group *group = &groups[g];
		const struct rte_mbuf *first = mbufs[group->first];
		uint16_t last_index = 0;

		REQUIRE(group->first == at && group->n > 0);
		for (uint16_t k = 0; k < group->n; k++) {
			const struct rte_mbuf *mbuf = mbufs[group->first + k];
			uint16_t index = 0;

			while (before[index] != mbuf)
				index++;
			REQUIRE(k == 0 || index > last_index);
			last_index = index;
			REQUIRE(k + 1 == group->n ? mbuf->pkt_len <= first->pkt_len
						  : mbuf->pkt_len == first->pkt_len);
		}
		at = (uint16_t)(at + group->n);
		if (group->n > 1) {
			const struct fanin_headers *headers =
				rte_pktmbuf_mtod(first, const struct fanin_headers *);
			struct super_frame_head head;

			super_frame_head(group, first, &head);
			REQUIRE(group->n <= SUPER_FRAME_SEGMENTS_OUT &&
				group->len <= SUPER_FRAME_LEN_OUT);
			for (uint16_t k = 0; k < group->n; k++)
				REQUIRE(rte_pktmbuf_mtod(mbufs[group->first + k],
							 const struct fanin_headers *)
						->fanin.job == headers->fanin.job);
		}
	}
	REQUIRE(at == n);
	for (uint16_t i = 0; i < n; i++)
		drop(mbufs[i]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct virtio_net_hdr vnet;
	uint8_t kind;

	if (size < 1 || size > ROOM)
		return 0;
	kind = data[0];
	data++;
	size--;
	if (kind % 3 == 2) {
		send_frames(data, size);
		return 0;
	}
	if (size < sizeof(vnet))
		return 0;
	memcpy(&vnet, data, sizeof(vnet));
	data += sizeof(vnet);
	size -= sizeof(vnet);
	if (kind % 3 == 1)
		take_fanin(vnet.gso_size, data, size);
	else
		take_foreign(&vnet, kind >= 128 ? RTE_VLAN_HLEN : 0, data, size);
	return 0;
}
