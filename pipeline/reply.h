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
 * job: the sender's, by whose tags the answer is told from others'; NULL: the sender is no member,
 * and gets none.
 */
void worker_reply(struct worker *worker, struct rte_mbuf *mbuf, const struct job *job,
		  uint32_t payload_len);

/*
 * Makes a REFUSED of a packet and returns it to its sender.
 *
 * job: the sender's, which the member check has found to be one; NULL: it has not, and gets back
 * the key that it gave.
 */
void worker_refuse(struct worker *worker, struct rte_mbuf *mbuf, struct job *job,
		   enum fanin_reason reason);

#endif
