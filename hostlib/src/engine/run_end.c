/* SPDX-License-Identifier: BSD-3-Clause */
/* See run_end.h. */
#include "run_end.h"

#include <poll.h>

#include "hostlib/src/base/clock.h"
#include "wire/wire.h"

#define BURST 32
#define BYE_NS UINT64_C(1000000000)
#define BYE_WAIT_MS 20

void
fanin_run_end_note(struct fanin_run_end *end, enum fanin_run_why why, uint64_t whom,
		   uint64_t now_ns, uint64_t timeout_ns)
{
	end->why = why;
	end->whom = whom;
	end->until_ns = now_ns + timeout_ns;
}

uint64_t
fanin_run_end_blame(uint64_t some, uint64_t others)
{
	const int more = __builtin_popcountll(some) - __builtin_popcountll(others);

	return more < 0 ? some : more > 0 ? others : some | others;
}

void
fanin_run_end_mismatch(struct fanin_error *error, uint32_t block, uint64_t whom)
{
	const struct fanin_ranks set = fanin_ranks_of_word(whom);
	char ranks[128];

	fanin_error_set(
		error, 0,
		"%s posted another collective than the others for block %u: data type, operator, elements or root differ",
		fanin_format_ranks(&set, ranks, sizeof(ranks)), block);
	error->missing = set;
}

bool
fanin_run_end_lingers(const struct fanin_run_end *end, uint64_t now_ns)
{
	return end->why != FANIN_RUN_GOES_ON && now_ns < end->until_ns;
}

uint64_t
fanin_run_end_idle_ns(const struct fanin_run_end *end, uint64_t now_ns)
{
	return fanin_run_end_lingers(end, now_ns) ? end->until_ns - now_ns : UINT64_MAX;
}

int
fanin_run_end_linger(struct fanin_run_end *end, struct fanin_loop *loop, fanin_run_answer_fn answer,
		     void *user)
{
	struct fanin_transport *transport = loop->transport;
	struct fanin_frame frames[BURST];
	unsigned int n;

	loop->now_ns = fanin_loop_clock_ns(loop);
	if (!fanin_run_end_lingers(end, loop->now_ns))
		return loop->status;
	n = transport->ops->rx_burst(transport, frames, BURST);
	for (unsigned int i = 0; i < n; i++)
		answer(user, &frames[i]);
	if (n != 0)
		transport->ops->rx_release(transport, frames, n);
	(void)transport->ops->tx_flush(transport);
	return loop->status;
}

void
fanin_run_end_note_bye(struct fanin_run_end *end, uint32_t block, unsigned int rank)
{
	if (end->byes == 0 || fanin_block_before(end->bye_block, block)) {
		end->bye_block = block;
		end->byes = 0;
	}
	if (end->bye_block == block)
		end->byes |= UINT64_C(1) << rank;
}

bool
fanin_run_end_has_byes(const struct fanin_run_end *end, uint32_t block, uint64_t others)
{
	return others == 0 || (end->bye_block == block && (others & ~end->byes) == 0);
}

void
fanin_run_end_goodbye(struct fanin_endpoint *endpoint,
		      bool (*say_bye)(struct fanin_endpoint *endpoint))
{
	const struct fanin_protocol *protocol = endpoint->protocol;
	const uint64_t deadline_ns = fanin_now_ns(NULL) + BYE_NS;
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];

	while (!say_bye(endpoint) && fanin_now_ns(NULL) < deadline_ns) {
		poll(fds, protocol->poll_fds(endpoint, fds), BYE_WAIT_MS);
		if (protocol->poll(endpoint) < 0)
			break;
	}
}
