/* SPDX-License-Identifier: BSD-3-Clause */
/* See version.h. */
#include "wire/version.h"

#include <string.h>

enum fanin_reason
fanin_version_validate(const void *frame, size_t frame_len)
{
	enum fanin_reason reason = fanin_wire_validate_l4(frame, frame_len);
	struct fanin_headers today;
	uint32_t grown = 0;

	if (reason != FANIN_REASON_NONE)
		return reason;
	memcpy(&today, frame, sizeof(today));
	if (today.fanin.version != FANIN_WIRE_VERSION_BEFORE)
		return FANIN_REASON_VERSION;
	if (today.fanin.type == FANIN_TYPE_JOIN)
		grown = sizeof(struct fanin_join_body) - FANIN_JOIN_BODY_BEFORE;
	else if (today.fanin.type == FANIN_TYPE_JOIN_ACK)
		grown = sizeof(struct fanin_join_ack_body) - FANIN_JOIN_ACK_BODY_BEFORE;
	else if (today.fanin.type != FANIN_TYPE_REFUSED)
		return FANIN_REASON_VERSION;
	/* Validates the same packet with this version's number; only its headers are read. */
	today.fanin.version = FANIN_WIRE_VERSION;
	fanin_wire_set_payload_len(&today, fanin_wire_payload_len(&today) + grown);
	return fanin_wire_validate(&today, frame_len + grown);
}
