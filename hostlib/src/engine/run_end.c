/* SPDX-License-Identifier: BSD-3-Clause */
/* See run_end.h. */
#include "engine_internal.h"

#include <poll.h>

#include "hostlib/src/base/clock.h"

#define BURST 32
#define BYE_NS UINT64_C(1000000000)
#define BYE_WAIT_MS 20

void
fanin_run_end_note(struct fanin_engine *engine, enum fanin_run_why why, uint64_t whom)
{
	engine->run_end.why = why;
	engine->run_end.whom = whom;
	engine->run_end.until_ns = fanin_loop_clock_ns(&engine->loop) + engine->config.timeout_ns;
}

uint64_t
fanin_run_end_blame(uint64_t some, uint64_t others)
{
	const int more = __builtin_popcountll(some) - __builtin_popcountll(others);

	return more < 0 ? some : more > 0 ? others : some | others;
}

void
fanin_run_end_fail(struct fanin_engine *engine, uint32_t block, enum fanin_run_why why,
		   uint64_t whom)
{
	struct fanin_error *error = &engine->loop.error;
	const struct fanin_ranks set = fanin_ranks_of_word(whom);
	char ranks[128], absence[FANIN_ABSENCE_LEN];

	fanin_run_end_note(engine, why, whom);
	if (why == FANIN_RUN_MISMATCH)
		fanin_error_set(
			error, 0,
			"%s posted another collective than the others for block %u: data type, operator, elements or root differ",
			fanin_format_ranks(&set, ranks, sizeof(ranks)), block);
	else
		fanin_error_set(error, 0, "block %u waits for %s, as another rank says", block,
				fanin_format_absence(&set, engine->config.size, &set,
						     FANIN_RANKS_SILENT, absence));
	error->missing = set;
	fanin_engine_fail(engine,
			  why == FANIN_RUN_MISMATCH ? FANIN_ERR_REFUSED : FANIN_ERR_TIMEOUT);
}

/* True if the others have not been told yet. */
static bool
must_begin(const struct fanin_engine *engine)
{
	return engine->run_end.why == FANIN_RUN_GOES_ON && engine->rules->end != NULL;
}

int
fanin_run_end_poll(struct fanin_engine *engine)
{
	struct fanin_loop *loop = &engine->loop;
	struct fanin_transport *transport = loop->transport;
	struct fanin_frame frames[BURST];
	unsigned int n;

	if (engine->rules->answer == NULL)
		return loop->status;
	loop->now_ns = fanin_loop_clock_ns(loop);
	if (must_begin(engine))
		engine->rules->end(engine);
	/*
	 * Frames for the others leave now: if this process had no core, the time for answering may
	 * be over.
	 */
	(void)transport->ops->tx_flush(transport);
	if (fanin_run_end_idle_ns(engine) == UINT64_MAX)
		return loop->status;
	n = transport->ops->rx_burst(transport, frames, BURST);
	for (unsigned int i = 0; i < n; i++)
		engine->rules->answer(engine, &frames[i]);
	if (n != 0)
		transport->ops->rx_release(transport, frames, n);
	(void)transport->ops->tx_flush(transport);
	return loop->status;
}

uint64_t
fanin_run_end_idle_ns(const struct fanin_engine *engine)
{
	const struct fanin_run_end *end = &engine->run_end;
	const uint64_t now_ns = fanin_loop_clock_ns(&engine->loop);

	if (engine->rules->answer == NULL)
		return UINT64_MAX;
	if (must_begin(engine))
		return 0;
	return end->why != FANIN_RUN_GOES_ON && now_ns < end->until_ns ? end->until_ns - now_ns
								       : UINT64_MAX;
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
fanin_run_end_goodbye(struct fanin_engine *engine)
{
	struct fanin_endpoint *endpoint = &engine->endpoint;
	const struct fanin_protocol *protocol = endpoint->protocol;
	const uint64_t deadline_ns = fanin_now_ns(NULL) + BYE_NS;
	struct pollfd fds[FANIN_TRANSPORT_MAX_FDS];

	while (!engine->rules->say_bye(engine) && fanin_now_ns(NULL) < deadline_ns) {
		poll(fds, protocol->poll_fds(endpoint, fds), BYE_WAIT_MS);
		if (protocol->poll(endpoint) < 0)
			break;
	}
}
