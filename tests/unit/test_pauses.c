/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hosts that lose their cores for random times, as on an overloaded machine, with the congestion
 * control and the window of real transports: as soon as all of them run again, their collectives
 * make progress.
 */
#define WINDOW 256
#define QUEUE_LEN 4096

#include "tests/unit/engine_world.h"
#include "tests/unit/suites.h"

#define COLLECTIVES 6
#define MAX_PAUSE_BLOCKS (8 * WINDOW)
#define MAX_STEPS 1000000
#define US 1000ull
#define MS 1000000ull

static struct collective collectives[COLLECTIVES];

/* A host as a process: it posts one collective after the other, and loses its core now and then. */
struct process {
	uint64_t back_ns; /* it has no core before this time */
	unsigned int posted;
	unsigned int done;
};

static struct process processes[MAX_RANKS];

/* The speed of a machine: time between two polls, and how long a core is gone; means. */
static const struct {
	uint64_t step_ns;
	uint64_t pause_ns;
} machines[] = {
	{ 50 * US, MS }, { 500 * US, 20 * MS }, { 5 * MS, 150 * MS }, { 20 * MS, 3000 * MS }
};

static const uint16_t sizes[] = { 2, 5, 16 };
static const double losses[] = { 0, 0.02, 0.2 };

#define N_MACHINES ((int)(sizeof(machines) / sizeof(machines[0])))
#define N_SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))
#define N_LOSSES ((int)(sizeof(losses) / sizeof(losses[0])))

static void
process_step(struct world *world, uint16_t rank, uint64_t pause_ns)
{
	struct process *process = &processes[rank];
	struct fanin_endpoint *engine = world->engines[rank];

	if (random_chance(&world->random, 0.005))
		process->back_ns = world->now_ns +
				   random_below(&world->random, (uint32_t)(2 * pause_ns / US)) * US;
	/* The send ring may be full. */
	world->links[rank].memory.full = random_chance(&world->random, 0.01);
	if (process->done == process->posted && process->posted < COLLECTIVES)
		collective_post(&collectives[process->posted++], world, rank, false);
	ck_assert_msg(fanin_engine_poll(engine) >= 0, "rank %u: %s", rank,
		      fanin_engine_error(engine)->text);
	if (process->done < process->posted &&
	    collectives[process->done].requests[rank].status == FANIN_OK)
		process->done++;
}

/* Returns the number of blocks whose results all ranks have. */
static uint64_t
blocks_done(const struct world *world)
{
	uint64_t sum = 0;

	for (uint16_t rank = 0; rank < world->n_ranks; rank++)
		sum += fanin_engine_stats(world->engines[rank])->blocks;
	return sum;
}

/*
 * Runs all processes to their ends. Returns the longest time in which all had a core and no block
 * was done.
 */
static uint64_t
longest_standstill(struct world *world, uint64_t step_ns, uint64_t pause_ns)
{
	uint64_t since_ns = world->now_ns;
	uint64_t longest_ns = 0;
	uint64_t before = 0;

	for (unsigned int step = 0; blocks_done(world) == 0 || processes[0].done < COLLECTIVES ||
				    !collective_done(&collectives[COLLECTIVES - 1], world);
	     step++) {
		bool all_run = true;

		ck_assert_uint_lt(step, MAX_STEPS);
		world->now_ns += 1 + random_below(&world->random, (uint32_t)(2 * step_ns));
		for (uint16_t rank = 0; rank < world->n_ranks; rank++) {
			if (world->now_ns < processes[rank].back_ns)
				all_run = false;
			else
				process_step(world, rank, pause_ns);
		}
		if (!all_run || blocks_done(world) != before)
			since_ns = world->now_ns;
		before = blocks_done(world);
		if (world->now_ns - since_ns > longest_ns)
			longest_ns = world->now_ns - since_ns;
	}
	return longest_ns;
}

START_TEST(collectives_go_on_as_soon_as_all_hosts_run_again)
{
	const int machine = _i % N_MACHINES;
	struct world *world;

	world_cc = &fanin_cc_delay;
	world = world_create_of(sizes[_i / N_MACHINES % N_SIZES], WINDOW,
				_i % 2 != 0 ? UINT32_MAX - 500 : 0, _i / 2 % 2 != 0);
	world_cc = NULL;
	world->random = random_seed((uint64_t)_i + 1);
	world->loss = losses[_i / N_MACHINES / N_SIZES];
	world->duplication = world->loss / 4;
	world->reordering = _i % 3 == 0 ? 0.1 : 0;
	memset(processes, 0, sizeof(processes));
	/*
	 * All ranks begin each collective together, as after a barrier; every second one is a
	 * barrier.
	 */
	for (unsigned int c = 0; c < COLLECTIVES; c++)
		collective_prepare(&collectives[c],
				   c % 2 == 0 ? 0
					      : random_below(&world->random, MAX_PAUSE_BLOCKS) *
							ELEMENTS,
				   c * 1000);
	/* The next query may be a second away, and may be lost, too. */
	ck_assert_uint_le(longest_standstill(world, machines[machine].step_ns,
					     machines[machine].pause_ns),
			  (world->loss == 0 ? 1000 : 4000) * MS);
	for (unsigned int c = 0; c < COLLECTIVES; c++)
		collective_expect(&collectives[c], world);
	world_destroy(world);
}
END_TEST

Suite *
suite_pauses(void)
{
	Suite *suite = suite_create("pauses");
	TCase *all = tcase_create("all");

	tcase_set_timeout(all, 300);
	tcase_add_loop_test(all, collectives_go_on_as_soon_as_all_hosts_run_again, 0,
			    N_MACHINES * N_SIZES * N_LOSSES);
	suite_add_tcase(suite, all);
	return suite;
}
