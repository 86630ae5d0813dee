/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers a packet in its own mbuf. Worker only. */
#ifndef FANIN_PIPELINE_REPLY_H
#define FANIN_PIPELINE_REPLY_H

#include "pipeline/base/worker.h"
#include "pipeline/job.h"

/*
 * Turns a Fanin packet around to its sender with payload_len bytes behind the Fanin header, which
 * the caller has written after fanin_frame_answer_to, and sends it.
 *
 * job: the sender's job, whose tags authenticate the answer; NULL: the sender is no member, and the
 * answer has no tag.
 */
void worker_reply(struct worker *worker, struct rte_mbuf *mbuf, const struct job *job,
		  uint32_t payload_len);

/*
 * Makes a REFUSED of a packet and returns it to its sender.
 *
 * job: the sender's job, if the member check has found the sender to be a member; NULL: it has not,
 * and the sender gets back the key that it gave.
 */
void worker_refuse(struct worker *worker, struct rte_mbuf *mbuf, struct job *job,
		   enum fanin_reason reason);

#endif
