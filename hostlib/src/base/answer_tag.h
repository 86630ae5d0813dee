/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which packets a rank accepts from its switch in a job with tags (docs/protocol.md, "Tags"): for
 * JOIN and LEAVE (join.c) and for the engine (engine/tag.c).
 */
#ifndef FANIN_HOSTLIB_ANSWER_TAG_H
#define FANIN_HOSTLIB_ANSWER_TAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/tag.h"

/*
 * Checks a packet's tag and removes it. A switch has no tag for a sender that it does not know as a
 * member: its REFUSED may come without one. The general validation is left to the caller.
 *
 * instance: of the switch. headers: len bytes of any content, FANIN_PAYLOAD_OFFSET at least, in
 * memory that no other process writes to. Returns false, with nothing changed, if the packet must
 * be ignored.
 */
bool fanin_answer_open(struct fanin_tagger *tagger, uint64_t instance,
		       struct fanin_headers *headers, size_t len);

#endif
