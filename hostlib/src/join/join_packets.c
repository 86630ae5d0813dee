/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packets of a member that joins and leaves, and the checks of their answers. See
 * join_internal.h.
 */
#include "join_internal.h"

#include "hostlib/src/base/answer_tag.h"
#include "hostlib/src/base/clock.h"

#include <errno.h>

/*
 * Makes a control packet, in the version of the packet that it answers, or in this one.
 *
 * body_len: of the packet with its tag, set on success only. Returns false if the tag can't be
 * made.
 */
static bool
control_make(struct fanin_member *member, enum fanin_type type, enum fanin_path path,
	     uint8_t version, struct fanin_control *control, size_t *body_len)
{
	const struct fanin_member_config *config = &member->config;
	const bool is_older = version != FANIN_WIRE_VERSION;
	size_t len = 0;

	fanin_wire_encode_header(&control->headers.fanin, type, config->job, member->epoch,
				 member->keys.up);
	control->headers.fanin.version = version;
	control->headers.fanin.rank = config->rank;
	control->headers.fanin.port = is_older ? 0 : member->channel.join_port;
	if (type == FANIN_TYPE_JOIN) {
		control->headers.fanin.epoch = 0;
		control->headers.fanin.contributions = 1;
		control->headers.fanin.progress = member->progress;
		control->headers.fanin.flags = member->rejoins ? FANIN_FLAG_RETRANSMIT : 0;
		control->body.join = (struct fanin_join_body){
			.nonce = member->nonce,
			.size = config->size,
			.udp_port = is_older ? FANIN_WIRE_DEFAULT_UDP_PORT : 0,
			.mtu = member->mtu,
			/* Without the cookie a JOIN changes nothing. */
			.cookie = is_older ? 0 : member->cookie,
			.address_be = member->local_ip_be,
			.path = (uint8_t)path,
		};
		len = is_older ? FANIN_JOIN_BODY_BEFORE : sizeof(control->body.join);
	}
	if (member->tagger != NULL) {
		if (!fanin_tagger_seal(member->tagger, FANIN_TAG_UP, member->instance,
				       &control->headers.fanin, control->body.bytes, (uint32_t)len,
				       control->body.bytes + len))
			return false;
		len += FANIN_TAG_LEN;
	}
	*body_len = len;
	return true;
}

int
fanin_member_send(struct fanin_member *member, enum fanin_type type, uint8_t version)
{
	struct fanin_control control;
	size_t body_len;

	if (!control_make(member, type, FANIN_PATH_SINGLE, version, &control, &body_len))
		return EIO;
	return member->channel.ops->send(&member->channel, &control, body_len);
}

void
fanin_member_send_pair(struct fanin_member *member)
{
	struct fanin_control pair[2];
	size_t body_len;

	if (!member->config.wants_path || member->super_frames || member->pair_errnum != 0 ||
	    member->pairs == FANIN_JOIN_PAIRS_MAX || member->channel.ops->send_pair == NULL)
		return;
	if (!control_make(member, FANIN_TYPE_JOIN, FANIN_PATH_FIRST, FANIN_WIRE_VERSION, &pair[0],
			  &body_len) ||
	    !control_make(member, FANIN_TYPE_JOIN, FANIN_PATH_SECOND, FANIN_WIRE_VERSION, &pair[1],
			  &body_len))
		return;
	member->pairs++;
	member->pair_errnum = member->channel.ops->send_pair(&member->channel, pair, body_len);
	/* Neither a pending error of an earlier packet nor a lack of room is about super-frames. */
	if (member->pair_errnum == ECONNREFUSED || member->pair_errnum == EAGAIN ||
	    member->pair_errnum == ENOBUFS)
		member->pair_errnum = 0;
}

/*
 * Removes the tag of a packet in a job that has tags. Returns false if the packet must be dropped.
 */
static bool
control_open(struct fanin_member *member, struct fanin_control *control, size_t len)
{
	return len >= sizeof(control->headers) &&
	       fanin_answer_open(member->tagger, member->instance, &control->headers, len);
}

/*
 * True if a switch of an earlier release may have answered this member's JOIN. A switch of this
 * release answers such a JOIN in the same way, and adds its version.
 *
 * len: without the tag. The packet has the right key.
 */
static bool
is_older_answer(const struct fanin_member *member, const struct fanin_control *control, size_t len)
{
	const struct fanin_hdr *hdr = &control->headers.fanin;

	if (hdr->version != FANIN_WIRE_VERSION_BEFORE)
		return false;
	if (hdr->type == FANIN_TYPE_REFUSED)
		return hdr->members == member->nonce && hdr->contributions < FANIN_WIRE_VERSION;
	return hdr->type == FANIN_TYPE_JOIN_ACK &&
	       len >= sizeof(control->headers) + sizeof(control->body.join_ack.nonce) &&
	       control->body.join_ack.nonce == member->nonce;
}

bool
fanin_member_receive(struct fanin_member *member, struct fanin_control *control, int *errnum)
{
	size_t len;

	for (;;) {
		len = member->channel.ops->receive(&member->channel, control, errnum);
		if (len == 0)
			return false;
		if (len < sizeof(control->headers) ||
		    (member->tagger != NULL && !control_open(member, control, len)) ||
		    control->headers.fanin.job != member->config.job ||
		    !fanin_keys_fit_answer(&member->keys, &control->headers.fanin))
			continue;
		if (is_older_answer(member, control, len))
			member->is_older = true;
		else if (fanin_wire_validate(control, len) == FANIN_REASON_NONE)
			return true;
	}
}

void
fanin_member_wait(struct fanin_member *member, uint64_t until_ns)
{
	uint64_t now_ns = fanin_now_ns(NULL);

	if (until_ns > now_ns)
		member->channel.ops->wait(&member->channel,
					  (int)((until_ns - now_ns + 999999) / 1000000));
}
