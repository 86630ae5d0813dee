/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packets of the protocol "acked": an allreduce whose results are acknowledged. Shared by its
 * handler and its host protocol. docs/adding-a-protocol.md explains its files.
 */
#ifndef ACKED_H
#define ACKED_H

#include "wire/packets.h"

enum {
	ACKED_TYPE_ACK = 192,
	ACKED_TYPE_WAITING = 193,
};

static const struct fanin_packet_type acked_packets[] = {
	{
		.name = "ACKED_ACK",
		.text = "the block's result has come",
		.code = ACKED_TYPE_ACK,
		.direction = FANIN_UP,
		.class = FANIN_CLASS_BLOCK,
		.payload = FANIN_PAYLOAD_NOTHING,
	},
	{
		.name = "ACKED_WAITING",
		.text = "the contribution is there; the body is the set of the ranks that are missing",
		.code = ACKED_TYPE_WAITING,
		.direction = FANIN_DOWN,
		.class = FANIN_CLASS_BLOCK,
		.payload = FANIN_PAYLOAD_BODY,
		.body_len = sizeof(uint64_t), /* of jobs of up to 64 ranks */
	},
	{ 0 },
};

#endif
