/* SPDX-License-Identifier: BSD-3-Clause */
/* See segments.h. */
#include "segments.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>

void
fanin_segments_begin(struct fanin_segments *segments, const void *headers, uint32_t len,
		     uint32_t size)
{
	memcpy(&segments->like, headers, FANIN_L4_LEN);
	segments->like.udp.checksum_be = 0;
	segments->len = len;
	segments->size = size;
	segments->next = 0;
	if (len > size) {
		segments->counts.received++;
		segments->counts.received_packets += (len + size - 1) / size;
	}
	if (size >= FANIN_HDR_LEN)
		fanin_wire_set_payload_len(&segments->like, size - FANIN_HDR_LEN);
}

unsigned int
fanin_segments_next(struct fanin_segments *segments, struct fanin_frame *frames, unsigned int max)
{
	unsigned int n = 0;

	while (n < max && segments->next < segments->len) {
		const uint32_t at = segments->next;
		const uint32_t rest = segments->len - at;
		const uint32_t len = rest < segments->size ? rest : segments->size;
		const uint32_t index = at / segments->size;
		struct fanin_headers *headers = &segments->headers[index % FANIN_SEGMENTS_MAX];

		segments->next += len;
		if (len < FANIN_HDR_LEN || index >= FANIN_SEGMENTS_MAX)
			continue;
		memcpy(headers, &segments->like, FANIN_L4_LEN);
		memcpy(&headers->fanin, segments->data + at, FANIN_HDR_LEN);
		if (len != segments->size)
			fanin_wire_set_payload_len(headers, len - FANIN_HDR_LEN);
		frames[n++] = (struct fanin_frame){
			.data = headers,
			.len = FANIN_L4_LEN + len,
			.headers_only = true,
			.handle = at,
		};
	}
	return n;
}

void
fanin_segment_control_set(struct msghdr *message, union fanin_segment_control *control,
			  uint16_t size)
{
	struct cmsghdr *header = &control->first;

	header->cmsg_level = SOL_UDP;
	header->cmsg_type = UDP_SEGMENT;
	header->cmsg_len = CMSG_LEN(sizeof(size));
	memcpy(CMSG_DATA(header), &size, sizeof(size));
	message->msg_control = control->bytes;
	message->msg_controllen = CMSG_SPACE(sizeof(size));
}

bool
fanin_segments_have(const struct fanin_segments *segments, const struct fanin_frame *frame)
{
	const uint8_t *data = frame->data;
	const uint8_t *first = (const uint8_t *)segments->headers;

	return data >= first && data < first + sizeof(segments->headers);
}

bool
fanin_segments_copy(const struct fanin_segments *segments, const struct fanin_frame *frame,
		    uint32_t offset, void *to, uint32_t len)
{
	uint32_t made = 0;

	if (offset > frame->len || len > frame->len - offset)
		return false;
	/* The headers are made up; the payload is at its place in the super-frame. */
	if (offset < FANIN_L4_LEN) {
		made = len < FANIN_L4_LEN - offset ? len : FANIN_L4_LEN - offset;
		memcpy(to, (const uint8_t *)frame->data + offset, made);
	}
	if (made < len)
		memcpy((uint8_t *)to + made,
		       segments->data + frame->handle + (offset + made - FANIN_L4_LEN), len - made);
	return true;
}
