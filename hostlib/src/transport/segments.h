/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A super-frame that the kernel has handed over: the UDP payloads of several packets of one flow,
 * one behind the other, with one set of headers. As a frame, each segment has headers of its own,
 * and its payload is copied from the super-frame to its destination.
 */
#ifndef FANIN_HOSTLIB_SEGMENTS_H
#define FANIN_HOSTLIB_SEGMENTS_H

#include <sys/socket.h>

#include "transport.h"
#include "wire/wire.h"

/* Maximum of segments in a super-frame: older kernels make 64. */
#define FANIN_SEGMENTS_MAX 128

struct fanin_segments {
	uint32_t len;                     /* of all segments, bytes */
	uint32_t size;                    /* of each segment but the last one */
	uint32_t next;                    /* offset of the first segment that was not handed out */
	struct fanin_super_frames counts; /* of received super-frames */
	struct fanin_headers like;
	struct fanin_headers headers[FANIN_SEGMENTS_MAX];
	uint8_t data[UINT16_MAX + 1];
};

/*
 * Begins another super-frame, whose payloads are in data. headers: of the whole, FANIN_L4_LEN
 * bytes. size: of a segment, above 0.
 */
void fanin_segments_begin(struct fanin_segments *segments, const void *headers, uint32_t len,
			  uint32_t size);

/*
 * Hands out at most max frames, which stay valid until the next super-frame begins. Segments
 * without a Fanin header are left out.
 */
unsigned int fanin_segments_next(struct fanin_segments *segments, struct fanin_frame *frames,
				 unsigned int max);

/* Control data of a message that is sent as segments. */
union fanin_segment_control {
	struct cmsghdr first;
	uint8_t bytes[CMSG_SPACE(sizeof(uint16_t)) + CMSG_SPACE(sizeof(int))];
};

/*
 * Makes the kernel send the message as datagrams of `size` bytes each; the last one may be shorter.
 * control: must live as long as the message.
 */
void fanin_segment_control_set(struct msghdr *message, union fanin_segment_control *control,
			       uint16_t size);

/* Returns true if the frame is one of the segments. */
bool fanin_segments_have(const struct fanin_segments *segments, const struct fanin_frame *frame);

/* See transport.h's rx_copy; may be called again. */
bool fanin_segments_copy(const struct fanin_segments *segments, const struct fanin_frame *frame,
			 uint32_t offset, void *to, uint32_t len);

#endif
