/* SPDX-License-Identifier: BSD-3-Clause */
/* See answer_tag.h. */
#include "answer_tag.h"

bool
fanin_answer_open(struct fanin_tagger *tagger, uint64_t instance, struct fanin_headers *headers,
		  size_t len)
{
	const struct fanin_hdr *hdr = &headers->fanin;

	if ((hdr->flags & FANIN_FLAG_TAGGED) == 0)
		return fanin_wire_refuses_sender(hdr);
	return fanin_wire_validate_l4(headers, len) == FANIN_REASON_NONE &&
	       fanin_tagger_open_frame(tagger, FANIN_TAG_DOWN, instance, headers);
}
