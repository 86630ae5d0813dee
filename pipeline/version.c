/* SPDX-License-Identifier: BSD-3-Clause */
/* See version.h. */
#include "pipeline/version.h"

#include <string.h>

#include "pipeline/admission.h"
#include "pipeline/reply.h"
#include "pipeline/tags.h"
#include "wire/version.h"

#include "pipeline/base/fastpath.h"

static uint64_t
nonce_of(const struct fanin_headers *headers)
{
	uint64_t nonce;

	static_assert(offsetof(struct fanin_join_body, nonce) == 0 &&
			      offsetof(struct fanin_join_ack_body, nonce) == 0,
		      "the nonce begins either body");
	if (headers->fanin.type == FANIN_TYPE_REFUSED)
		return headers->fanin.members;
	memcpy(&nonce, headers + 1, sizeof(nonce));
	return nonce;
}

static void
refuse_join(struct worker *worker, struct rte_mbuf *mbuf, const struct fanin_headers *headers)
{
	struct job *job = admission_job(worker->pipeline, mbuf);
	const enum fanin_reason reason = admission_member(worker->pipeline, mbuf, job);

	worker->counters.local++;
	if (reason != FANIN_REASON_NONE) {
		worker_refuse(worker, mbuf, NULL, reason);
		return;
	}
	job_note_version(job, job_child_of(job, headers->fanin.rank), nonce_of(headers),
			 headers->fanin.version);
	worker_refuse(worker, mbuf, job, FANIN_REASON_VERSION);
}

static bool
take_answer(struct worker *worker, struct rte_mbuf *mbuf, const struct fanin_headers *headers)
{
	struct job *job = admission_job(worker->pipeline, mbuf);

	if (admission_parent(worker->pipeline, mbuf, job) != FANIN_REASON_NONE)
		return false;
	job_parent_has_version(job, nonce_of(headers), fanin_version_told(&headers->fanin));
	worker_free(worker, mbuf);
	return true;
}

bool
version_take(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	const enum fanin_reason reason = fanin_version_validate(headers, mbuf->data_len);

	if (reason == FANIN_REASON_FLAGS)
		return tags_refuse_unexpected(worker, mbuf);
	if (reason != FANIN_REASON_NONE)
		return false;
	if (headers->fanin.type != FANIN_TYPE_JOIN)
		return take_answer(worker, mbuf, headers);
	refuse_join(worker, mbuf, headers);
	return true;
}
