/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs: their members, the slots they own, and the table in which workers look them up. The main
 * thread creates and destroys jobs and publishes them by RCU. The job's lock guards what a run of
 * the job changes (members that join and leave); only JOIN and LEAVE packets take it.
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

#define JOB_OWNER_LEN 64       /* a manager's name and the id of its database */
#define JOB_LONGER_TIMERS 7u   /* the last ones are 4^7 times as long as the handler's timeout */
#define JOB_NO_CHILD UINT8_MAX /* instead of the index of a child */

/* The state of probing a child (probe.h); under the job's lock: rw. */
struct job_probe {
	uint64_t until_ns;  /* end of probing; 0: no rank has waited for this child in this run */
	uint32_t block;     /* last queried block that misses the child's contribution */
	uint8_t unanswered; /* probes in a row */
};

/* A member, which is a host or a switch, and the place of its current process. */
struct job_member {
	uint32_t ip_be;
	uint16_t rank;     /* the lowest rank behind it, by which its packets name it */
	uint16_t port;     /* index in pipeline->ports */
	bool joined;       /* under lock: rw */
	uint8_t mac[6];    /* under lock: rw */
	uint64_t nonce;    /* of its JOIN; under lock: rw */
	uint32_t progress; /* of its JOIN: the first block to run; under lock: rw */
	bool again;        /* its JOIN says that it was in a run that is lost; under lock: rw */
	bool told_silent; /* its last JOIN was refused because the parent is silent: the next one is
			     not refused; under lock: rw */
	uint64_t asked_nonce;  /* nonce of the process that was challenged last; under lock: rw */
	uint64_t cookie;       /* that the process has to return; 0: none; under lock: rw */
	uint64_t taken;        /* cookie that the process returned when it joined; under lock: rw */
	uint8_t other_version; /* version of a JOIN, for the log, if it was another one; 0: none.
				  Workers: w, main thread: r, atomic */
	bool told_version;     /* other_version was logged. Main thread */
	uint16_t udp_port_be;  /* port that its JOIN came from; under lock: rw */
	struct job_probe probe;
};

/* This switch as a member of the job at its parent. */
struct job_parent {
	uint64_t nonce;            /* of the run that this switch joins or has joined */
	uint64_t cookie;           /* that the parent wants returned; 0: none yet */
	struct fanin_ranks joined; /* ranks that have joined there, by its last answer */
	uint32_t progress;         /* first block there, by its last answer */
	uint32_t epoch;            /* the run there; 0: not joined */
	bool asked; /* a JOIN with the nonce was sent: the parent may count this switch as joined */
	uint16_t refusal;    /* enum fanin_reason: why the last JOIN was refused */
	uint32_t unanswered; /* JOINs since the parent answered one */
	bool known;          /* the parent has answered in this version */
	uint64_t in_vain;    /* bitmap of children whose processes can't join because the parent has
				another version */
	uint32_t slots;      /* at the parent, by its last answer; atomic, as is the next */
	uint32_t sharing;    /* number of jobs that share these slots */
};

struct job_worker_stats {
	struct fanin_handler_stats stats; /* its worker: rw, control: ro */
	uint64_t bursts;                  /* bursts of this worker with packets of the job */
	uint64_t probes;                  /* sent to children that others wait for */
	uint64_t probe_answers;           /* answers that show a child alive or ended */
	/* Open blocks of the job, over all workers, sampled after some of these bursts. */
	uint64_t occupancy[COUNTERS_HISTOGRAM];
	uint64_t occupancy_sum; /* sum of the values in the histogram */
} __rte_cache_aligned;

struct job {
	/* Constant from creation; workers: ro. */
	struct fanin_job_params params;
	const struct fanin_handler *handler;
	bool reproducible;
	void *state;    /* the handler's; NULL: it has none */
	int8_t timeout; /* index in pipeline->timeouts; -1: the handler has no timers */
	int8_t longer[JOB_LONGER_TIMERS]; /* indices of those for longer waits. Main thread */
	uint8_t n_longer;
	struct slot_pool *pool; /* of params.slots; NULL: there are none */
	uint32_t part; /* part of the pool, if each of its jobs has one of its own. Main thread */
	uint32_t group_be;
	uint8_t child_of_rank[FANIN_WIRE_MAX_RANKS]; /* 0 also for ranks that belong to no child */
	uint16_t child_ports[FANIN_WIRE_MAX_CHILDREN];     /* index in pipeline->ports */
	uint16_t child_ethdevs[FANIN_WIRE_MAX_CHILDREN];   /* device of that port */
	uint64_t child_neighbors[FANIN_WIRE_MAX_CHILDREN]; /* bitmap of the children at the same
							      port, including itself */
	uint64_t apart; /* all children if each has a port of its own, otherwise 0 */
	struct fanin_template child_templates[FANIN_WIRE_MAX_CHILDREN];

	uint32_t parent_ip_be;                 /* if params.has_parent */
	uint8_t parent_mac[6];                 /* likewise */
	uint16_t parent_port;                  /* likewise; index in pipeline->ports */
	uint16_t parent_ethdev;                /* likewise; of that port */
	struct fanin_template parent_template; /* likewise; of its results */

	uint32_t first_block; /* of the run: the lowest progress of its members; under lock: rw */

	/* The run. Written under lock, read by workers with acquire. */
	uint32_t epoch;        /* 0: no run; otherwise all members of the whole job have joined */
	uint32_t parent_epoch; /* the parent's epoch of the same run; set before `epoch` is, kept
				  until `epoch` is 0 */
	uint64_t parent_instance; /* the parent's instance, for tags, by its last answer; also known
				     before a run */
	uint8_t parent_port_shift; /* for source ports of packets to the parent, likewise. Atomic */
	uint32_t lone_epoch; /* epoch of a job that admits by key while it has no run; otherwise 0.
				Constant */

	uint16_t parent_version; /* version of the parent's packets, by its last answer, if it is
				    not this one; 0: unknown. Atomic */
	uint16_t logged_version; /* parent_version that was logged last. Main thread */

	/*
	 * Results of probes. Words are written under the lock, relaxed atomic, and read by any
	 * thread.
	 */
	struct fanin_ranks ended;  /* ranks whose processes have ended */
	struct fanin_ranks silent; /* ranks of hosts and switches that don't answer */

	/* The first packet of a run that did not fit its block. Under lock: rw; any thread. */
	struct {
		uint32_t epoch; /* of the packet's run; if it is not the current epoch, there is no
				   such packet. Also read without the lock: atomic */
		uint32_t parent_epoch; /* the parent's epoch of the same run; the parent may ask
					  after the run has ended here */
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
	char owner[JOB_OWNER_LEN];     /* its creator; empty: unknown; control: ro */
	uint64_t secret;               /* from which the keys are derived; control: ro */
};

/* A parameter of the handler, by its name. */
struct job_parameter {
	const char *name;
	uint64_t value;
};

/* The parameters of job_create. */
struct job_spec {
	uint32_t id;            /* 0: the lowest free one */
	uint64_t key;           /* the job's secret; 0 is not allowed */
	const char *owner;      /* its creator, shorter than JOB_OWNER_LEN; NULL: unknown */
	const char *handler;    /* its name in the registry, or "auto" */
	uint32_t buffers;       /* per block, for handlers with several; 0: 2 */
	uint64_t message_bytes; /* usual size of a collective, for "auto"; 0: large */
	bool reproducible;      /* sums in a fixed order: the handler is tree */
	bool wide;              /* sums and averages of f16 and bf16 are accumulated in f32 */
	bool authenticate;      /* packets have tags (wire/tag.h) */
	uint32_t slots; /* 2W, a power of two; 0: the most that a job of its handler may have */
	uint32_t payload_bytes; /* 0: the largest that the members' ports carry */
	uint16_t n_ranks;       /* hosts of the job, behind all of its switches; 0: n_members */
	uint16_t n_members;
	struct {
		uint16_t port; /* index */
		uint32_t ip_be;
		struct fanin_ranks ranks;   /* the ranks behind it; empty: its index */
	} members[FANIN_WIRE_MAX_CHILDREN]; /* children in the order in which they are combined */
	uint64_t links; /* bitmap of the ports to other switches, by index; only for jobs of the
			   shape LEADERS */
	bool has_parent;
	struct {
		uint16_t port; /* index */
		uint32_t ip_be;
		uint8_t mac[6];
		bool is_server; /* a server, which makes the results; otherwise a switch */
	} parent;
	uint16_t n_parameters; /* parameters that the handler must not choose itself */
	struct job_parameter parameters[FANIN_PARAMETERS_MAX];
};

struct job_table {
	struct job *jobs[FANIN_WIRE_MAX_JOB + 1]; /* control: w (release), workers: r (acquire) */
	uint64_t watched[(FANIN_WIRE_MAX_JOB + 1) / 64]; /* bitmap of jobs with children to probe;
							    workers: rw, atomic */
	uint32_t next_epoch; /* unique over all jobs of this process; atomic */
	uint16_t max_jobs;
	uint16_t n_jobs;
	uint32_t slots_per_job;         /* the static split: power of two */
	uint32_t mbufs_per_job;         /* that all slots of a job may hold together */
	uint32_t shared_mbufs;          /* that all slots of a shared pool may hold together */
	struct slot_pool *shared_pools; /* main thread */
};

/*
 * Creates a table for up to max_jobs jobs. They split `slots` slots, and as many mbufs, evenly.
 * shared_slots: the same for each pool that jobs share. Returns NULL without memory.
 */
struct job_table *job_table_create(uint16_t max_jobs, uint32_t slots, uint32_t shared_slots);

/* Destroys the remaining jobs; the workers must have stopped. */
void job_table_free(struct pipeline *pipeline);

/*
 * job_slots.c: returns the number of slots in a pool that jobs of the handler share, 0 if there is
 * no room for one. Main thread.
 */
uint32_t job_slots_shared(const struct job_table *table, const struct fanin_handler *handler);

/*
 * job_slots.c: gives a job its slots: n of its own, or those that it shares. The job's handler and
 * params are set. Main thread.
 *
 * Returns 0; -ENOMEM; or -ENOSPC if other pools hold everything that shared pools may have.
 */
int job_slots_take(struct pipeline *pipeline, struct job *job, uint32_t n);

/*
 * job_slots.c: releases a job's slots, if it has any, and what they hold. The job is no longer in
 * the table, and no worker can see it. Main thread.
 */
void job_slots_give_back(struct pipeline *pipeline, struct job *job);

/* job_slots.c: releases what ended runs left in shared slots. Main thread, while workers run. */
void job_slots_sweep(struct job_table *table);

/* job_slots.c: returns the bytes of all slots. Main thread. */
uint64_t job_slots_bytes(const struct job_table *table);

/*
 * job_tree.c: checks members, ranks, parent and server, and sets what the spec leaves open. In jobs
 * that admit by key, ranks may be behind switches that are no members.
 *
 * payload: set to the bytes per packet. error: PIPELINE_ERROR_LEN bytes. Returns 0 or -EINVAL.
 */
int job_tree_check(const struct pipeline *pipeline, const struct fanin_handler *handler,
		   struct job_spec *spec, uint32_t *payload, char *error);

/*
 * job_tree.c: sets children, parent and the headers of their packets from a checked spec.
 * params.payload_bytes is set.
 */
void job_tree_build(const struct pipeline *pipeline, const struct job_spec *spec, struct job *job);

/*
 * Admits a job and publishes it. Main thread.
 *
 * error: PIPELINE_ERROR_LEN bytes; set to what was asked and what is available. *code: set to a
 * static control error code. Returns 0 and sets *created (owned by the table), or -errno.
 */
int job_create(struct pipeline *pipeline, const struct job_spec *spec, struct job **created,
	       const char **code, char *error);

/*
 * Withdraws a job, waits until no worker can see it, and frees its slots. Main thread, while
 * workers run. Returns 0 or -ENOENT.
 */
int job_destroy(struct pipeline *pipeline, uint32_t id);

/*
 * Returns the job with this id, or NULL. Worker or main thread. A worker's pointer is valid until
 * its next quiescent state.
 */
static inline struct job *
job_lookup(const struct job_table *table, uint32_t id)
{
	if (id > FANIN_WIRE_MAX_JOB)
		return NULL;
	return __atomic_load_n(&table->jobs[id], __ATOMIC_ACQUIRE);
}

/*
 * Returns the epoch that handlers see; no other job of this process has had the same. Usually this
 * is the run's epoch. A job that admits by key and has no run has an epoch from its creation
 * instead. A job whose blocks have leaders always has that one: its runs belong to the leaders, and
 * a run of the hosts here is not one of the job. 0: there is none. Any thread.
 */
static inline uint32_t
job_epoch(const struct job *job)
{
	const uint32_t epoch = job->handler->shape == FANIN_SHAPE_LEADERS
				       ? 0
				       : __atomic_load_n(&job->epoch, __ATOMIC_ACQUIRE);

	return epoch != 0 ? epoch : job->lone_epoch;
}

/* Copies a set word by word, each atomically, as others may change it meanwhile. Any thread. */
static inline void
job_ranks_load(struct fanin_ranks *to, const struct fanin_ranks *from)
{
	for (unsigned int i = 0; i < FANIN_RANKS_WORDS; i++)
		to->words[i] = __atomic_load_n(&from->words[i], __ATOMIC_RELAXED);
}

/*
 * Replaces the members among `ranks` of a set that others may be reading. now: those of `ranks`
 * that are in it from now on; NULL: none. Under the lock.
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

/* job_run.c: returns an epoch that no run of this process has had. Any thread. */
uint32_t job_next_epoch(struct job_table *table);

/* Adds up what the workers counted for the job. */
void job_stats(const struct job *job, struct fanin_handler_stats *sum);

/* Returns the child that packets of this rank come from, or any child if there is none. */
static inline unsigned int
job_likely_child_of(const struct job *job, uint16_t rank)
{
	return job->child_of_rank[rank % FANIN_WIRE_MAX_RANKS];
}

/* Returns the child that packets of this rank come from, or JOB_NO_CHILD. */
static inline unsigned int
job_child_of(const struct job *job, uint16_t rank)
{
	unsigned int child = job_likely_child_of(job, rank);

	/* A job whose packets only pass this switch has no children, and no rank leads to one. */
	return child < job->params.n_children && job->members[child].rank == rank ? child
										  : JOB_NO_CHILD;
}

/* The answer to a JOIN. */
struct job_join_answer {
	enum fanin_join_state state;
	bool ask_parent; /* this switch has to join at its parent now: see job_parent_join */
	uint64_t call;   /* bitmap of children to tell that there is no run; others were in one */
	struct fanin_ranks joined; /* the ranks that have joined */
	uint64_t cookie;      /* CHALLENGE: to be returned; otherwise the one that was returned */
	uint32_t epoch;       /* ACTIVE: the run */
	uint32_t first_block; /* likewise: the lowest block that its members' JOINs name; it becomes
				 their block 0 */
};

/*
 * Takes a member's JOIN, whose port, source and key have been checked. Worker.
 *
 * headers: of the JOIN, for its source and progress. body: of the JOIN, aligned. Returns
 * FANIN_REASON_NONE and fills *answer, or the reason to refuse.
 */
enum fanin_reason job_join(struct job_table *table, struct job *job, unsigned int child,
			   const struct fanin_headers *headers, const struct fanin_join_body *body,
			   struct job_join_answer *answer);

/*
 * Takes a member's LEAVE, checked likewise; repeating it is harmless. Worker.
 *
 * Returns true if this switch has to leave the run *parent_epoch at its parent now.
 */
bool job_leave(struct job *job, unsigned int child, uint32_t epoch, uint32_t *parent_epoch);

/*
 * Fills in this switch's JOIN to its parent. Repeated JOINs are the same until the run is over.
 * Worker.
 *
 * hdr: gets flags and progress, which is the lowest of the children's.
 */
void job_parent_join(struct job *job, struct fanin_hdr *hdr, struct fanin_join_body *body);

/*
 * Returns true if the next JOIN should have the previous version: the parent does not answer, and a
 * parent of the previous version would not answer a JOIN of this version. Worker.
 */
bool job_parent_may_be_older(struct job *job);

/*
 * Takes the parent's answer in the previous version, whose port, source and key have been checked.
 * Members that have joined are told at each of their JOINs. nonce: of the JOIN that it answers.
 * version: the one that the parent says it has. Worker.
 */
void job_parent_has_version(struct job *job, uint64_t nonce, uint16_t version);

/*
 * Notes the version of a child's JOIN that has another one, checked likewise, for the log. A JOIN
 * is not noted if one of this version came with the same nonce: then it only asks whether this
 * switch is older. Worker.
 */
void job_note_version(struct job *job, unsigned int child, uint64_t nonce, uint8_t version);

/* Returns the children that have not joined. Worker. */
uint64_t job_missing(struct job *job);

/*
 * Takes the parent's JOIN_ACK, whose port, source and key have been checked. Worker.
 *
 * joined: the set behind its body. Returns true if the parent wants the cookie returned:
 * job_parent_join has to be sent once more.
 */
bool job_parent_ack(struct job_table *table, struct job *job, const struct fanin_hdr *hdr,
		    const struct fanin_join_ack_body *ack, const struct fanin_ranks *joined);

/*
 * Takes the parent's refusal, checked likewise. If it answers the JOIN that was sent, the next
 * member that joins is told. Worker.
 */
void job_parent_refused(struct job *job, const struct fanin_hdr *hdr);

#endif
