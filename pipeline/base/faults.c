/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See faults.h. The generator is SplitMix64, seeded by the configuration and the worker's number,
 * so that a run with one worker and the same arrivals repeats itself.
 */
#include "pipeline/base/faults.h"
#include "pipeline/base/state.h"

#include "pipeline/base/fastpath.h"

static uint64_t
next_random(struct faults *faults)
{
	uint64_t z = faults->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

void
faults_init(struct faults *faults, const struct pipeline_faults *options, unsigned int worker)
{
	const double scale = 4294967296.0;

	faults->enabled = options->drop > 0 || options->duplicate > 0 || options->reorder > 0;
	faults->state = options->seed + worker * UINT64_C(0x632be59bd9b4e019);
	faults->drop = (uint64_t)(options->drop * scale);
	faults->duplicate = (uint64_t)(options->duplicate * scale);
	faults->reorder = (uint64_t)(options->reorder * scale);
}

enum fault
faults_draw(struct faults *faults)
{
	if ((next_random(faults) >> 32) < faults->drop)
		return FAULT_DROP;
	if ((next_random(faults) >> 32) < faults->duplicate)
		return FAULT_DUPLICATE;
	if ((next_random(faults) >> 32) < faults->reorder)
		return FAULT_REORDER;
	return FAULT_NONE;
}

bool
faults_hold(struct faults *faults, struct rte_mbuf *mbuf, uint16_t port)
{
	struct faults_held *held;

	if (faults->n_held == FAULTS_HELD)
		return false;
	held = &faults->held[faults->n_held++];
	held->mbuf = mbuf;
	held->port = port;
	held->rounds = (uint16_t)(1 + next_random(faults) % FAULTS_MAX_DELAY);
	return true;
}

bool
faults_due(struct faults *faults, bool first, struct rte_mbuf **mbuf, uint16_t *port)
{
	for (uint16_t i = 0; first && i < faults->n_held; i++)
		faults->held[i].rounds--;
	for (uint16_t i = 0; i < faults->n_held; i++) {
		if (faults->held[i].rounds != 0)
			continue;
		*mbuf = faults->held[i].mbuf;
		*port = faults->held[i].port;
		faults->held[i] = faults->held[--faults->n_held];
		return true;
	}
	return false;
}
