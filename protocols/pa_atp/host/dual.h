/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion control of jobs with a parameter server: the dual windows of PA-ATP (section III.B)
 * and the five algorithms that it is compared with, in fanin_dual_types. CWD bounds the blocks in
 * flight, as DCTCP's window does. AWD bounds how far a rank runs ahead of the last block whose
 * result it has. All functions are pure functions on a state: hosts and simulations run the same
 * object. They use only additions, multiplications, divisions and square roots, so that all
 * machines compute the same windows. One thread at a time. GACK: the switch received a gradient.
 * AACK: the block's result. Block numbers are serial numbers.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_HOST_DUAL_H
#define FANIN_PROTOCOLS_PA_ATP_HOST_DUAL_H

#include <stdbool.h>
#include <stdint.h>

/* The acknowledgment that takes a block out of flight. */
enum fanin_dual_clock {
	FANIN_DUAL_GACK,
	FANIN_DUAL_AACK,
};

struct fanin_dual_type {
	const char *name;
	const char *description;
	enum fanin_dual_clock clock;
	bool ecn;      /* CE marks and losses change CWD; otherwise it is fixed */
	bool progress; /* leaders cut CWD more than stragglers do */
	bool limit;    /* AWD adapts; otherwise it is W */
};

#define FANIN_DUAL_TYPES 6

/*
 * In the order of the job parameter `congestion`: sync, atp, straw, straw+progress, straw+limit,
 * pa-atp.
 */
extern const struct fanin_dual_type fanin_dual_types[FANIN_DUAL_TYPES];

/* 0 in f, w or p_max selects the usual value. */
struct fanin_dual_settings {
	uint32_t limit;        /* W: upper bound of both windows, blocks; 1 at least */
	uint32_t aggregators;  /* M: slots of the switch's pool */
	uint32_t sharing_jobs; /* jobs that share the pool; 0 counts as 1 */
	uint32_t n_ranks;      /* 1 at least */
	uint32_t fixed_window; /* for types without ECN: blocks, at most W; 0: W */
	double f;              /* weight of the latest round trip in alpha; usually 1/8 */
	double w;              /* the same in beta; usually 1/8 */
	double p_max;          /* progress of a leader whose window is always halved; usually 2 */
};

/*
 * A round trip. As in DCTCP, it ends with the acknowledgment of a block that was sent after the
 * round trip began.
 */
struct fanin_dual_round {
	bool begun;
	uint32_t end; /* first block sent after it began */
	uint32_t acks;
	uint32_t marks;
};

struct fanin_dual {
	const struct fanin_dual_type *type;
	struct fanin_dual_settings settings;
	double cwd;   /* blocks, 1 to W */
	double awd;   /* blocks, 1 to W */
	double alpha; /* congestion level of the path, 0 to 1 */
	double beta;  /* occupancy level of the aggregators, 0 to 1 */
	double p;     /* progress degree, 0 to p_max; 1: equal to the average */
	bool slow_start;
	bool limited; /* CWD held a block back in this round trip */
	bool lost_in_round;
	bool cut;  /* marks of blocks before cut_end have been handled, */
	bool lost; /* and losses of blocks before loss_end */
	uint32_t cut_end;
	uint32_t loss_end;
	struct fanin_dual_round cwd_round;
	struct fanin_dual_round awd_round;
	uint64_t rounds; /* round trips counted by CWD so far */
	uint64_t cuts;   /* cuts of CWD because of marks */
	uint64_t losses; /* losses that halved CWD */
};

/* The content of an acknowledgment, and the rank's progress after it. */
struct fanin_dual_sample {
	uint32_t block; /* the acknowledged block */
	uint32_t next;  /* first block that has not been sent (the paper's snd_nxt) */
	/* first block without GACK, after this acknowledgment; an AACK implies the GACK */
	uint32_t gacked;
	uint32_t aacked; /* first block without AACK, after this acknowledgment */
	/* the path marked the gradient (GACK), or one of the block's gradients (AACK) */
	bool ce;
	bool aecn; /* of an AACK: aggregators are nearly used up */
	/*
	 * GACK only: sum over all ranks of the number of the last block that the rank has sent,
	 * plus 1.
	 */
	uint64_t sum;
};

/* Returns the algorithm with this name, or NULL. */
const struct fanin_dual_type *fanin_dual_find(const char *name);

/* Initialises the state, also for a job's new run, whose block numbers may start again. */
void fanin_dual_init(struct fanin_dual *dual, const struct fanin_dual_type *type,
		     const struct fanin_dual_settings *settings);

/*
 * Returns whether a new block may be sent. in_flight: blocks that were sent and have no GACK (types
 * clocked by AACKs: no AACK). ahead: distance of the new block from the first one without AACK.
 * Call this only with a block ready to be sent: CWD grows if it held a block back.
 */
bool fanin_dual_may_send(struct fanin_dual *dual, uint32_t in_flight, uint32_t ahead);

/* Handles the first GACK of a block. */
void fanin_dual_on_gack(struct fanin_dual *dual, const struct fanin_dual_sample *sample);

/* Handles the first AACK of a block. */
void fanin_dual_on_aack(struct fanin_dual *dual, const struct fanin_dual_sample *sample);

/*
 * Handles a lost gradient: a block is retransmitted because its acknowledgment is overdue. next:
 * first block that has not been sent.
 */
void fanin_dual_on_loss(struct fanin_dual *dual, uint32_t block, uint32_t next);

/*
 * Returns the factor d = alpha^(1 - p / p_max) by half of which CWD shrinks. 0^0, a leader without
 * any congestion, is 0: without a mark nothing is cut.
 */
double fanin_dual_decrease(double alpha, double p, double p_max);

/*
 * Returns a rank's progress degree: its own progress as a multiple of the job's average, 0 to
 * p_max; 1 if the average is 0.
 */
double fanin_dual_progress(const struct fanin_dual_sample *sample, uint32_t n_ranks, double p_max);

#endif
