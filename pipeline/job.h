/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs: who takes part, the slots they own, and the table that workers look them up in. Jobs are
 * made and destroyed by the main thread and published by RCU; what a run of the job changes
 * (members that join and leave) is guarded by the job's lock, taken for JOIN and LEAVE packets
 * only.
 */
#ifndef FANIN_PIPELINE_JOB_H
#define FANIN_PIPELINE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_rcu_qsbr.h>
#include <rte_spinlock.h>

#include "handlers/handler.h"
#include "pipeline/base/counters.h"
#include "pipeline/pipeline.h"
#include "pipeline/slot_pool.h"
#include "wire/tag.h"

#define JOB_OWNER_LEN 64 /* a manager's name and the id of its database */
/* Instead of a child. */
#define JOB_LONGER_TIMERS 7u /* the last ones are 4^7 times as long as the handler's timeout */
#define JOB_NO_CHILD UINT8_MAX

/* What probing a child has come to (probe.h); under the job's lock: rw. */
struct job_probe {
	uint64_t until_ns;  /* probing ends; 0: no rank has waited for this child in this run */
	uint32_t block;     /* last queried block that lacks its contribution */
	uint8_t unanswered; /* probes in a row */
};

/* What a member is, a host or a switch, and where its current process is. */
struct job_member {
	uint32_t ip_be;
	uint16_t rank;     /* by which its packets name it: the lowest behind it */
	uint16_t port;     /* index in pipeline->ports */
	bool joined;       /* under lock: rw */
	uint8_t mac[6];    /* under lock: rw */
	uint64_t nonce;    /* of the JOIN; under lock: rw */
	uint32_t progress; /* of the JOIN: the first block that it wants to run; under lock: rw */
	bool again;        /* its JOIN says that it was in a run that is lost; under lock: rw */
	bool told_silent;  /* its last JOIN was refused since the parent is silent: the next one is
			      not; under lock: rw */
	uint64_t asked_nonce;  /* of the process that was challenged last; under lock: rw */
	uint64_t cookie;       /* that it has to give back; 0: none; under lock: rw */
	uint64_t taken;        /* that it has given back when it joined; under lock: rw */
	uint8_t other_version; /* that a JOIN had, for the log; 0: none. Workers: w, main thread: r,
				  atomic */
	bool told_version;     /* it was logged. Main thread */
	uint16_t udp_port_be;  /* that its JOIN came from; under lock: rw */
	struct job_probe probe;
};

/* This switch as a member of the job at its parent. */
struct job_parent {
	uint64_t nonce;            /* of the run that it joins or has joined */
	uint64_t cookie;           /* that the parent wants to have back; 0: none yet */
	struct fanin_ranks joined; /* the ranks that have joined there, as last told */
	uint32_t progress;         /* its first block there, as last told */
	uint32_t epoch;            /* the run there; 0: not joined */
	bool asked; /* a JOIN with the nonce was sent: the parent may count this switch as joined */
	uint16_t refusal;    /* enum fanin_reason: why the last JOIN was refused */
	uint32_t unanswered; /* JOINs since the parent answered one */
	bool known;          /* it has answered in this version */
	uint64_t in_vain; /* bitmap of children whose processes wait for it in vain: it has another
			     version */
	uint32_t slots;   /* there, as it told last; atomic, as the next */
	uint32_t sharing; /* how many jobs share them */
};

struct job_worker_stats {
	struct fanin_handler_stats stats; /* its worker: rw, control: ro */
	uint64_t bursts;                  /* of this worker with packets of the job */
	uint64_t probes;                  /* of children that others wait for */
	uint64_t probe_answers;           /* signs of life and of death from them */
	/* Open blocks of the job, over all workers, sampled after some of these bursts. */
	uint64_t occupancy[COUNTERS_HISTOGRAM];
	uint64_t occupancy_sum; /* of all that the histogram counts */
} __rte_cache_aligned;

struct job {
	/* Constant from creation; workers: ro. */
	struct fanin_job_params params;
	const struct fanin_handler *handler;
	bool reproducible;
	void *state;    /* the handler's; NULL: it has none */
	int8_t timeout; /* index in pipeline->timeouts of its timers; -1: its handler has none */
	int8_t longer[JOB_LONGER_TIMERS]; /* likewise of those for longer waits. Main thread */
	uint8_t n_longer;
	struct slot_pool *pool; /* of params.slots; NULL: there are none */
	uint32_t part;          /* of the pool, if its jobs have parts of their own. Main thread */
	uint32_t group_be;
	uint8_t child_of_rank[FANIN_WIRE_MAX_RANKS];     /* 0 also for ranks that are no child's */
	uint16_t child_ports[FANIN_WIRE_MAX_CHILDREN];   /* index in pipeline->ports */
	uint16_t child_ethdevs[FANIN_WIRE_MAX_CHILDREN]; /* of that port */
	uint64_t child_neighbors[FANIN_WIRE_MAX_CHILDREN]; /* bitmap of the children at its port,
							      itself too */
	uint64_t apart; /* all children if each has a port of its own, else 0 */
	struct fanin_template child_templates[FANIN_WIRE_MAX_CHILDREN];

	uint32_t parent_ip_be;                 /* of params.has_parent */
	uint8_t parent_mac[6];                 /* likewise */
	uint16_t parent_port;                  /* likewise; index in pipeline->ports */
	uint16_t parent_ethdev;                /* likewise; of that port */
	struct fanin_template parent_template; /* likewise; of its results */

	uint32_t first_block; /* of the run: the least of the members' progress; under lock: rw */

	/* The run. Written under lock, read by workers with acquire. */
	uint32_t epoch;        /* 0: no run; else all members have joined, those of the whole job */
	uint32_t parent_epoch; /* the same run as the parent numbers it, from before `epoch` is set
				  until it is 0 */
	uint64_t parent_instance;  /* of the parent, for tags, as last told: before a run, too */
	uint8_t parent_port_shift; /* of source ports of what goes there, likewise. Atomic */
	uint32_t lone_epoch; /* of a job that admits by key, while it has no run; else 0. Constant
			      */

	uint16_t parent_version; /* of its packets, as it answered last if that is not ours; 0: not
				    known. Atomic */
	uint16_t logged_version; /* that was logged. Main thread */

	/*
	 * What probes have found. Words are written under lock, relaxed atomic, and read by any
	 * thread.
	 */
	struct fanin_ranks ended;  /* their processes have ended */
	struct fanin_ranks silent; /* hosts and switches that don't answer */

	/* The first packet of a run that did not fit its block. Under lock: rw; any thread. */
	struct {
		uint32_t epoch; /* of the run; another one than the run's: there is none. Read
				   without the lock, too: atomic */
		uint32_t parent_epoch; /* the same run as the parent numbers it; it may ask when the
					  run has ended here */
		struct fanin_mismatch what;
	} mismatch;

	rte_spinlock_t lock;
	uint64_t joined;          /* bitmap of children; under lock: rw */
	struct job_parent parent; /* under lock: rw */
	struct job_member members[FANIN_WIRE_MAX_CHILDREN];

	struct job_worker_stats *worker_stats;
	uint16_t n_workers;
	struct fanin_tagger **taggers; /* one for each worker; NULL: the job's packets have no tags.
					  Constant */
	char owner[JOB_OWNER_LEN];     /* who made it; empty: unknown; control: ro */
	uint64_t secret;               /* that the keys are derived from; control: ro */
};

/* A parameter of the handler, by its name. */
struct job_parameter {
	const char *name;
	uint64_t value;
};

/* What is asked for when a job is made. */
struct job_spec {
	uint32_t id;            /* 0: the smallest that is free */
	uint64_t key;           /* the job's secret; 0 is not allowed */
	const char *owner;      /* who makes it, shorter than JOB_OWNER_LEN; NULL: unknown */
	const char *handler;    /* of the registry, or "auto" */
	uint32_t buffers;       /* per block, for handlers with several; 0: 2 */
	uint64_t message_bytes; /* usual size of a collective, for "auto"; 0: large */
	bool reproducible;      /* sums in a fixed order: the handler is tree */
	bool wide;              /* sums and averages of f16 and bf16 are accumulated in f32 */
	bool authenticate;      /* packets have tags (wire/tag.h) */
	uint32_t slots; /* 2W, a power of two; 0: as many as a job of its handler may have */
	uint32_t payload_bytes; /* 0: what the members' ports carry */
	uint16_t n_ranks;       /* hosts of the job, behind all of its switches; 0: n_members */
	uint16_t n_members;
	struct {
		uint16_t port; /* index */
		uint32_t ip_be;
		struct fanin_ranks ranks;   /* those behind it; none: its index */
	} members[FANIN_WIRE_MAX_CHILDREN]; /* children in the order in which they are combined */
	uint64_t links; /* bitmap of the ports that lead to other switches, by index; of jobs of the
			   shape LEADERS */
	bool has_parent;
	struct {
		uint16_t port; /* index */
		uint32_t ip_be;
		uint8_t mac[6];
		bool is_server; /* it makes the results; else it is a switch */
	} parent;
	uint16_t n_parameters; /* those that the handler shall not choose itself */
	struct job_parameter parameters[FANIN_PARAMETERS_MAX];
};

struct job_table {
	struct job *jobs[FANIN_WIRE_MAX_JOB + 1]; /* control: w (release), workers: r (acquire) */
	uint64_t watched[(FANIN_WIRE_MAX_JOB + 1) / 64]; /* bitmap of jobs with children to probe;
							    workers: rw, atomic */
	uint32_t next_epoch; /* unique over all jobs of this process; atomic */
	uint16_t max_jobs;
	uint16_t n_jobs;
	uint32_t slots_per_job; /* the static split: power of two */
	uint32_t mbufs_per_job; /* that the slots of a job may hold together */
	uint32_t shared_mbufs;  /* that the slots of a pool that jobs share may hold together */
	struct slot_pool *shared_pools; /* main thread */
};

/*
 * Makes a table for max_jobs that split `slots`, and as many mbufs, evenly. shared_slots: of each
 * pool that jobs share, likewise. Returns NULL without memory.
 */
struct job_table *job_table_create(uint16_t max_jobs, uint32_t slots, uint32_t shared_slots);

/* Destroys the jobs that are left; the workers must have stopped. */
void job_table_free(struct pipeline *pipeline);

/*
 * job_slots.c: slots of a pool that jobs of a handler share, 0 if there is no room for any. Main
 * thread.
 */
uint32_t job_slots_shared(const struct job_table *table, const struct fanin_handler *handler);

/*
 * job_slots.c: gives a job its slots, whose handler and params are set: n of its own, or those that
 * it shares. Main thread.
 *
 * Returns 0; -ENOMEM; or -ENOSPC: other pools hold all that there is for shared ones.
 */
int job_slots_take(struct pipeline *pipeline, struct job *job, uint32_t n);

/*
 * job_slots.c: gives them back, with what they hold; there may be none. The job is not in the table
 * any more, and no worker can see it. Main thread.
 */
void job_slots_give_back(struct pipeline *pipeline, struct job *job);

/*
 * job_slots.c: releases what ended runs have left in shared slots. Main thread; workers keep
 * running.
 */
void job_slots_sweep(struct job_table *table);

/* job_slots.c: bytes of all slots. Main thread. */
uint64_t job_slots_bytes(const struct job_table *table);

/*
 * job_tree.c: checks members, ranks, parent and server, and completes what the spec leaves open.
 * Where packets are admitted by key, ranks may be behind switches that are no members.
 *
 * payload: set to the bytes per packet. error: PIPELINE_ERROR_LEN bytes. Returns 0 or -EINVAL.
 */
int job_tree_check(const struct pipeline *pipeline, const struct fanin_handler *handler,
		   struct job_spec *spec, uint32_t *payload, char *error);

/*
 * job_tree.c: children, parent and the headers of their packets, of a spec that was checked.
 * params.payload_bytes is set.
 */
void job_tree_build(const struct pipeline *pipeline, const struct job_spec *spec, struct job *job);

/*
 * Admits a job and publishes it. Main thread.
 *
 * error: PIPELINE_ERROR_LEN bytes, says what was asked and what is available; *code a static
 * control error code. Returns 0 and sets *created (owned by the table), or -errno.
 */
int job_create(struct pipeline *pipeline, const struct job_spec *spec, struct job **created,
	       const char **code, char *error);

/*
 * Withdraws a job, waits until no worker can see it, and frees its slots. Main thread; workers go
 * on. Returns 0 or -ENOENT.
 */
int job_destroy(struct pipeline *pipeline, uint32_t id);

/*
 * Worker or main thread: the job of an id, or NULL. A worker's pointer holds until its next
 * quiescent state.
 */
static inline struct job *
job_lookup(const struct job_table *table, uint32_t id)
{
	if (id > FANIN_WIRE_MAX_JOB)
		return NULL;
	return __atomic_load_n(&table->jobs[id], __ATOMIC_ACQUIRE);
}

/*
 * What handlers are told as the epoch, which no other job of this process has had: that of the run,
 * or, of a job that admits by key and has none, one since it was made. That is so for good where
 * blocks have leaders: their runs are the leaders', and a run of the hosts here is none of the job.
 * 0: there is none. Any thread.
 */
static inline uint32_t
job_epoch(const struct job *job)
{
	const uint32_t epoch = job->handler->shape == FANIN_SHAPE_LEADERS
				       ? 0
				       : __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);

	return epoch != 0 ? epoch : job->lone_epoch;
}

/* Copies a set whose words others may change meanwhile, each atomically. Any thread. */
static inline void
job_ranks_load(struct fanin_ranks *to, const struct fanin_ranks *from)
{
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		to->words[i] = __atomic_load_n(&from->words[i], __ATOMIC_RELAXED);
}

/*
 * Of a set that others read meanwhile: what `ranks` are in it from now on. now: those of them that
 * are; NULL: none. Under the lock.
 */
static inline void
job_ranks_set(struct fanin_ranks *set, const struct fanin_ranks *ranks,
	      const struct fanin_ranks *now)
{
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++) {
		const uint64_t in = now == NULL ? 0 : now->words[i] & ranks->words[i];

		__atomic_store_n(&set->words[i], (set->words[i] & ~ranks->words[i]) | in,
				 __ATOMIC_RELAXED);
	}
}

/* job_run.c: a number that no run of this process has had. Any thread. */
uint32_t job_next_epoch(struct job_table *table);

/* Adds up what the workers counted for the job. */
void job_stats(const struct job *job, struct fanin_handler_stats *sum);

/* The child that packets of this rank come from, if one does: some child anyway. */
static inline unsigned int
job_likely_child_of(const struct job *job, uint16_t rank)
{
	return job->child_of_rank[rank % FANIN_WIRE_MAX_RANKS];
}

/* The child that packets of this rank come from, or JOB_NO_CHILD. */
static inline unsigned int
job_child_of(const struct job *job, uint16_t rank)
{
	unsigned int child = job_likely_child_of(job, rank);

	/* A job that only passes a switch has none, and no rank leads to one. */
	return child < job->params.n_children && job->members[child].rank == rank ? child
										  : JOB_NO_CHILD;
}

/* What a JOIN is answered. */
struct job_join_answer {
	enum fanin_join_state state;
	bool ask_parent; /* this switch has to join at its parent now: see job_parent_join */
	uint64_t call; /* bitmap of children that have to be told that there is no run: others were
			  in one */
	struct fanin_ranks joined; /* the ranks that are there */
	uint64_t cookie;           /* CHALLENGE: to be given back; else the one that was */
	uint32_t epoch;            /* ACTIVE: the run */
	uint32_t first_block; /* likewise: the least of what its members' JOINs say, their block 0
				 from now on */
};

/*
 * A member's JOIN, already checked against port, source and key. Worker.
 *
 * headers: of the JOIN, for its source and progress. body: of the JOIN, aligned.
 * Returns FANIN_REASON_NONE and fills *answer, or the reason to refuse.
 */
enum fanin_reason job_join(struct job_table *table, struct job *job, unsigned int child,
			   const struct fanin_headers *headers, const struct fanin_join_body *body,
			   struct job_join_answer *answer);

/*
 * A member's LEAVE, likewise checked; harmless when repeated. Worker.
 *
 * Returns true if this switch has to leave at its parent now, the run *parent_epoch.
 */
bool job_leave(struct job *job, unsigned int child, uint32_t epoch, uint32_t *parent_epoch);

/*
 * Fills in the JOIN by which this switch asks its parent, again and again the same until the run is
 * over. Worker.
 *
 * hdr: gets progress, the least of the children's, and flags.
 */
void job_parent_join(struct job *job, struct fanin_hdr *hdr, struct fanin_join_body *body);

/*
 * Is the next JOIN to be of the version before, as there is no answer, and a parent of that version
 * would not give one? Worker.
 */
bool job_parent_may_be_older(struct job *job);

/*
 * An answer of the parent's in the version before, checked against port, source and key: those who
 * have joined are told at each JOIN. nonce: of the JOIN that it answers. version: that the parent
 * says it has. Worker.
 */
void job_parent_has_version(struct job *job, uint64_t nonce, uint16_t version);

/*
 * A child's JOIN of another version, likewise checked, is to be logged, unless one of this version
 * has come with the same nonce: then it only asks whether this switch is older. Worker.
 */
void job_note_version(struct job *job, unsigned int child, uint64_t nonce, uint8_t version);

/* Children that have not joined. Worker. */
uint64_t job_missing(struct job *job);

/*
 * The parent's JOIN_ACK, checked against port, source and key. Worker.
 *
 * joined: the set behind its body.
 * Returns true if it wants the cookie back: job_parent_join is to be sent once more.
 */
bool job_parent_ack(struct job_table *table, struct job *job, const struct fanin_hdr *hdr,
		    const struct fanin_join_ack_body *ack, const struct fanin_ranks *joined);

/*
 * The parent's refusal, likewise: if it is of the JOIN that was sent, whoever joins next is told.
 * Worker.
 */
void job_parent_refused(struct job *job, const struct fanin_hdr *hdr);

#endif
