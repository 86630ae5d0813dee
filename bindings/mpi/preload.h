/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library to preload into MPI programs: it carries out collectives in the network, through the
 * public host library, and hands all others to MPI by its profiling interface (docs/mpi.md). One
 * source for all MPI libraries, compiled for each.
 *
 * Whether a call goes into the network depends only on what is the same on all ranks of its
 * communicator: the bytes of its signature, type and operator, the communicator's state. Any other
 * rule makes ranks wait for each other forever.
 */
#ifndef FANIN_BINDINGS_MPI_PRELOAD_H
#define FANIN_BINDINGS_MPI_PRELOAD_H

#include <fanin/fanin.h>
#include <fenv.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#define PRELOAD_EXPORT __attribute__((visibility("default")))

/* The collectives that may go into the network, and their names in the report. */
#define COLLECTIVE_KINDS(X)                                                                        \
	X(ALLREDUCE, "Allreduce")                                                                  \
	X(REDUCE, "Reduce")                                                                        \
	X(BCAST, "Bcast")                                                                          \
	X(BARRIER, "Barrier")                                                                      \
	X(ALLGATHER, "Allgather")                                                                  \
	X(REDUCE_SCATTER_BLOCK, "Reduce_scatter_block")

enum collective_kind {
#define X(name, text) COLLECTIVE_##name,
	COLLECTIVE_KINDS(X)
#undef X
	N_COLLECTIVES
};

/* Where a call went: into the network, or to MPI and why. The order is that of the report. */
#define WAYS(X)                                                                                       \
	X(NETWORK, "in the network")                                                                  \
	X(MPI_WRONG, "in the network, though small, since MPI's own answer is wrong")                 \
	X(DISABLED, "turned off by FANIN_MPI, or before MPI_Init")                                    \
	X(TOO_SMALL, "fewer bytes than FANIN_MPI_MIN_BYTES")                                          \
	X(TOO_LARGE, "more than 2 GiB at once, moved or with several ranks on a host")                \
	X(TYPE, "a data type that the network does not reduce")                                       \
	X(OPERATOR, "an operator that the network does not have for the type")                        \
	X(ARGUMENT, "an argument that MPI refuses")                                                   \
	X(NONBLOCKING,                                                                                \
	  "a nonblocking call, without MPI_THREAD_MULTIPLE or by FANIN_MPI_NONBLOCKING")              \
	X(NO_JOB_YET,                                                                                 \
	  "a barrier or nonblocking call before a blocking one with data; see FANIN_MPI_JOB_AT_INIT") \
	X(INTERCOMM, "an intercommunicator")                                                          \
	X(ONE_RANK, "a communicator of one rank")                                                     \
	X(ONE_HOST, "all ranks are on one host")                                                      \
	X(PLACEMENT, "ranks are not the same number on each host in a row")                           \
	X(FOREIGN, "processes that another mpirun, or a spawn, has started")                          \
	X(MANY_JOBS, "more communicators with a job than FANIN_MPI_MAX_JOBS")                         \
	X(MEMORY, "out of memory")                                                                    \
	X(NO_MANAGER, "no network manager is configured, or it can't be reached")                     \
	X(PERMISSION, "no rights for the transport that was asked for")                               \
	X(NOT_JOINED, "the job could not be joined")                                                  \
	X(FAILED, "an earlier collective of the communicator has failed")                             \
	X(ERROR, "failed: the call returned an error")

enum way {
#define X(name, text) WAY_##name,
	WAYS(X)
#undef X
	N_WAYS
};

/* A call as the program made it. */
struct collective {
	enum collective_kind kind;
	const void *send; /* may be MPI_IN_PLACE */
	void *recv;
	MPI_Count count; /* of the type: of a Bcast, of what is reduced, of each part of an
			    Allgather as received */
	MPI_Datatype type;
	MPI_Count send_count; /* of an Allgather */
	MPI_Datatype send_type;
	MPI_Op op;
	int root;
	MPI_Comm comm;
};

/* What a call is in the network. */
struct operation {
	size_t bytes; /* of the whole vector */
	enum fanin_dtype dtype;
	enum fanin_op op;
	enum way way; /* what is counted if the network does it: NETWORK or MPI_WRONG */
};

/* What is the same on all ranks of MPI_COMM_WORLD: rank 0's environment and fanin.conf. */
struct settings {
	uint64_t min_bytes;
	uint32_t max_jobs;
	uint32_t timeout_ms;
	bool enabled;
	bool nonblocking; /* nonblocking calls go into the network, too: MPI has MPI_THREAD_MULTIPLE
			   */
	bool job_at_init; /* MPI_COMM_WORLD's */
	bool report, report_json;
};
extern struct settings preload_settings;

#define SETTING_LEN 4096
/* The variable's text, of the environment or fanin.conf, in `text`; NULL: there is none. */
const char *setting_text(const char *name, char text[SETTING_LEN]);

/*
 * A communicator's membership in a job; only leaders of hosts have one. One thread at a time uses
 * it, and there is no lock: blocking collectives of a communicator do not overlap, and wait until
 * those that are queued are done.
 */
struct channel {
	fanin_ctx *ctx;
	fanin_comm *comm;
	bool sleeps;               /* in fanin_wait, which is to be interrupted */
	unsigned int driven_waits; /* further waits that have MPI move its data all the time */
	unsigned int next_driven_waits;
};

/* How a communicator with a job carries out its collectives. */
enum phase {
	PHASE_IN_NETWORK,
	PHASE_FAILED, /* a collective has failed here, or the communicator is being freed: this rank
			 has begun the agreement */
	PHASE_AGREED, /* on the call from which on all ranks use MPI, on `shadow`: they know of the
			 failure at different times */
};

/*
 * What is kept about a communicator, as its attribute. Memory is reused, never freed: another
 * thread may still look at it.
 */
struct comm_state {
	MPI_Comm comm;
	enum way way; /* NETWORK: there is a job, or was; or why all its collectives go to MPI. The
			 program's threads read it */
	bool wanted;  /* NO_JOB_YET: by a nonblocking call; the next blocking one makes the job */
	uint32_t barriers;  /* NO_JOB_YET: so many have gone to MPI */
	bool in_background; /* the thread that carries out its collectives is the queue's, which
			       leaves the core to others */
	bool ends_program;  /* an error of the call that the queue's thread carries out */
	int rank, size;
	uint64_t calls;        /* collectives that this rank has posted, carried out or failed */
	enum phase phase;      /* atomic */
	uint64_t next;         /* the first call that this rank has not begun */
	uint64_t meet;         /* the last such of all ranks: from there on all use MPI */
	MPI_Request agreement; /* on `meet` */
	bool closing;    /* the communicator is being freed: its empty queue begins the agreement.
			    Atomic */
	bool left;       /* its job has been left then. Atomic */
	bool is_taken;   /* by a thread that frees it. Atomic */
	MPI_Comm shadow; /* the same ranks, for agreements */
	MPI_Comm node;   /* the ranks of this host; rank 0 is the leader */
	int node_rank, node_size;
	int n_hosts, host;     /* this rank's host, by order of leaders */
	int *host_of;          /* of each rank */
	int *place_of;         /* each rank's rank among those of its host */
	bool regular;          /* hosts have the same number of ranks, in a row */
	struct shared *shared; /* memory of the host's ranks; NULL: each host has one, or MPI has
				  none */
	struct channel *channel;
	struct queue *queue; /* NULL: nonblocking calls go to MPI */
	struct comm_state *next_free, *next_joined;
};

/* types.c */
void types_init(void);
/* Bytes of a predefined type whose elements lie side by side; 0 for others. */
size_t type_plain_bytes(MPI_Datatype type);
/* The network's type and operator; NETWORK, or why there is none. */
enum way type_to_fanin(MPI_Datatype type, MPI_Op op, enum fanin_dtype *dtype,
		       enum fanin_op *fanin_op);
/* The type of the elements of which such a type is made. */
enum fanin_dtype type_element(MPI_Datatype type);

/* What the self-test has found of MPI's own reductions of a type: a bit for each operator. */
#define OP_BIT(op) (1u << (op))
struct finding {
	uint16_t wrong, refused;
};
/* Names of types in types.c, some of which an MPI library does not have, or are the same. */
#define N_TYPES 64
/* All types', the same place for the same type on all ranks. */
struct finding *type_findings(void);
/* True if MPI's own answers are wrong for it. */
bool type_is_wrong_in_mpi(MPI_Datatype type, MPI_Op op);

/* A type that the network reduces. */
struct type_view {
	MPI_Datatype type;
	enum fanin_dtype dtype;
	size_t bytes;
	bool is_logical;
	uint32_t ops; /* a bit for each operator */
	struct finding *finding;
};
/* The next one from *place on, which begins at 0. Returns false if there is none. */
bool type_next(unsigned int *place, struct type_view *view);

/* operators.c */
void operators_init(void);
void operators_finish(void);
/* 0: none. */
enum fanin_op operator_to_fanin(MPI_Op op);
MPI_Op operator_of_mpi(enum fanin_op op);
/* As in "MPI_SUM". */
const char *operator_name(enum fanin_op op);
/* This library's own, with which MPI combines by the network's arithmetic. */
MPI_Op operator_own(enum fanin_op op);
/*
 * What MPI is given for a call that is its own: the operator, or this library's if MPI's answers
 * are wrong.
 */
MPI_Op operator_for_mpi(MPI_Datatype type, MPI_Op op);
/*
 * A thread rounds to nearest and keeps denormal numbers, as a switch does, from the one call to the
 * other; the program may do otherwise.
 */
void arithmetic_enter(fenv_t *programs);
void arithmetic_leave(const fenv_t *programs);
/* acc[i] = acc[i] op in[i], as a switch does it, between those calls. */
void local_combine(enum fanin_dtype dtype, enum fanin_op op, void *acc, const void *in,
		   size_t elements);

/* self_test.c */
/* True if MPI's own answers are wrong for some type and operator. */
extern bool findings_some_wrong;
/* Finds out for which, on any rank. Collective on MPI_COMM_WORLD. */
void self_test(void);

/* messages.c */
void messages_init(void);
/*
 * Collective, in MPI_Finalize: rank 0 says what it has not yet, and counts of all ranks are added.
 */
void messages_finish(void);
/*
 * Tells the user once in the program. reason: what makes two texts the same; NULL: the text, but
 * for numbers and names of jobs. at_once: by this process, since the program may end. Thread-safe.
 */
void say(const char *reason, bool at_once, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* At rank 0: says what another rank has sent, if something is there. Has MPI make progress. */
void messages_look(void);
/* This process says what it has only sent: the program ends. */
void messages_say_sent(void);
/*
 * The texts, from *place 0 on, and how often there was cause to say each; NULL: there are no more.
 * After messages_finish, at rank 0.
 */
const char *message_next(unsigned int *place, uint64_t *count);

/* arguments.c */
void arguments_init(void);
void arguments_finish(void);
/* True if MPI takes the type of what the call receives, or reduces. */
bool received_type_holds(const struct collective *call);
/* A committed copy of what received_type_holds takes; MPI_DATATYPE_NULL: the type itself is. */
MPI_Datatype type_committed(MPI_Datatype type);
enum verdict {
	VERDICT_TAKEN,
	VERDICT_REFUSED,  /* by MPI */
	VERDICT_UNUSABLE, /* a buffer that is none, which this MPI would use */
};
/*
 * What MPI says of the call's other arguments but the operator, on an intracommunicator. bytes: of
 * the vector.
 */
enum verdict arguments_judge(const struct collective *call, size_t bytes, int rank, int size);
/* True if MPI takes the operator for the type of what the call reduces. Thread-safe. */
bool operator_holds(const struct collective *call);

/* communicators.c */
int states_init(void);
/*
 * The communicator's state in *state; NULL: it has none yet. Returns an error of MPI, which its
 * handler has been told of.
 */
int state_find(MPI_Comm comm, struct comm_state **state);
/*
 * Notes that a nonblocking call would have used a job: the next blocking one makes it. Local.
 * state: as it was found.
 */
void state_want(MPI_Comm comm, struct comm_state *state);
/*
 * Counts a barrier that had no job to use. Local. Returns true if there have been so many that it
 * is to make one.
 */
bool state_count_barrier(MPI_Comm comm, struct comm_state *state);
/* True if a job is wanted of some communicator. */
bool states_are_wanted(void);
/*
 * Makes the state, or completes one with NO_JOB_YET, in a blocking call of all ranks, and joins a
 * job if all can.
 */
struct comm_state *state_make(MPI_Comm comm, struct comm_state *begun);
/* Says so, and ends the program: there is nothing that ranks could agree on. */
void no_memory(void) __attribute__((noreturn));

/* agreement.c */
/*
 * In MPI_Finalize: waits for what is queued on all communicators. What a rank has not made by then
 * will never be: calls that wait for it fail.
 */
void states_drain(void);
/* True if the calls that are under way are to fail for that. Thread-safe. */
bool states_give_up(void);
void states_finish(void);
/*
 * Leaves the job after a failure, a fanin_status, whose error may end the program, and begins the
 * agreement.
 */
void state_fail(struct comm_state *state, int status, bool ends_program);
/* Waits for the agreement that this rank has begun. */
void state_wait_agreed(struct comm_state *state);
/*
 * True if the queue's thread has an agreement to finish or a job to leave, which it does when its
 * queue is empty.
 */
bool state_has_duty(const struct comm_state *state);
void state_do_duty(struct comm_state *state);
enum phase state_phase(const struct comm_state *state);
/*
 * Ends the communicator's job before the communicator is freed: in the background, or, without
 * queues, with all ranks. Returns an error of MPI if there is no such communicator, which the
 * error's handler has been told of.
 */
int comm_close(const MPI_Comm *comm);
/* Waits for what is queued on the communicator. The same errors. */
int comm_drain(const MPI_Comm *comm);
/*
 * Waits until communicators that the program has freed are at their end, for about a second at
 * most.
 */
void closed_wait(void);

/* progress.c */
/* All processes of MPI_COMM_WORLD, for what the library sends by itself. */
extern MPI_Comm preload_comm;
int progress_init(void);
void progress_finish(void);
/* Drives what MPI has in progress. */
void mpi_progress(void);
/* Leaves the core to others for some time, the longer the more often it has looked in vain. */
void nap(unsigned int looks);
/* Waits for a request of MPI, if it was posted. Returns an MPI error. */
int mpi_finish(int posted, MPI_Request *req, bool in_background);
/* The same for what all ranks do in any case, in MPI_Finalize at the latest. */
int mpi_finish_surely(MPI_Request *req, bool in_background);
/*
 * Calls MPI. In the background by the nonblocking call `iname`: MPI's own waits would take a core.
 * All ranks do the same.
 */
#define MPI_CALL(in_background, name, iname, ...)                                                  \
	({                                                                                         \
		MPI_Request mpi_req;                                                               \
		(in_background) ? mpi_finish(PMPI_##iname(__VA_ARGS__, &mpi_req), &mpi_req, true)  \
				: PMPI_##name(__VA_ARGS__);                                        \
	})

/* channel.c */
int channel_join(const char *job_name, int rank, int size, struct channel **channel, enum way *way);
/*
 * With all ranks, or at once after a failure: collectives that this rank has not posted fail at the
 * others.
 */
void channel_leave(struct channel *channel, bool at_once);
/* Waits, and has MPI move its data meanwhile. */
int channel_wait(struct channel *channel, fanin_request **req);
/* Waits without MPI's progress, for at most 0.1 s. Returns FANIN_IN_PROGRESS then. */
int channel_wait_some(struct channel *channel, fanin_request **req);
int channel_wait_quietly(struct channel *channel, fanin_request **req);

/* network.c: return a fanin_status. */
int collective_run(struct comm_state *state, const struct collective *call,
		   const struct operation *operation);
/* True if the call can be posted, and others after it before it is waited for. */
bool collective_can_post(struct comm_state *state, const struct collective *call,
			 const struct operation *operation);
int collective_post(struct comm_state *state, const struct collective *call,
		    const struct operation *operation, fanin_request **req);

/* shared.c: memory that the ranks of a host share. Collective on node. NULL: there is none. */
struct shared *shared_make(const char *job_name, int host, MPI_Comm node, int node_rank,
			   int node_size);
void shared_free(struct shared *shared);

/*
 * A reduce that waits. MPICH's blocking one is wrong for some placements of ranks, and crashes for
 * others in place, which only the root knows of; its nonblocking one is right (docs/mpi.md), so all
 * ranks make that.
 */
#ifdef MPICH
#define REDUCE_BY_MPI(suffix, in_background, ...)                                                  \
	({                                                                                         \
		MPI_Request reduce_req;                                                            \
		mpi_finish(PMPI_Ireduce##suffix(__VA_ARGS__, &reduce_req), &reduce_req,            \
			   in_background);                                                         \
	})
#else
#define REDUCE_BY_MPI(suffix, in_background, ...)                                                  \
	MPI_CALL(in_background, Reduce##suffix, Ireduce##suffix, __VA_ARGS__)
#endif

/*
 * by_mpi.c: carries out a call by MPI on another communicator of the same ranks. Returns an MPI
 * error.
 */
int collective_by_mpi(const struct collective *call, MPI_Comm comm, bool in_background);

/* queue.c: the nonblocking calls of a communicator with a job. */
struct queue *queue_start(struct comm_state *state);
/* Wakes the queue's thread, which has a duty. queue: not NULL. */
void queue_wake(struct queue *queue);
/* Waits for what is queued, and ends its thread. queue: may be NULL. */
void queue_end(struct queue *queue);
/* Calls that are not done. queue: may be NULL. */
uint32_t queue_open(const struct queue *queue);
/*
 * Waits until all that was queued is done, and has MPI move its data meanwhile. queue: may be NULL.
 */
void queue_drain(struct queue *queue);
/*
 * The same, and then the channel is the caller's until it releases the queue, whose thread
 * otherwise looks after an idle job. A new queue is held.
 */
void queue_hold(struct queue *queue);
void queue_release(struct queue *queue);
/* Appends a call, and makes its request. */
void queue_add(struct queue *queue, const struct collective *call,
	       const struct operation *operation, MPI_Request *req);

/* True if errors of the communicator end the program. */
bool errors_are_fatal(MPI_Comm comm);
/* True if it is the request of a call that is under way. Thread-safe. */
bool request_is_open(MPI_Request req);

/* requests.c: waits for those that are of calls in a queue. */
void requests_wait(int n, const MPI_Request reqs[]);

/* decide.c */
/* True if the call is done, with *result what it returns; false: MPI does it. */
bool collective_take(const struct collective *call, int *result);
/* The same for a nonblocking call, which has been queued if true. */
bool collective_start(const struct collective *call, MPI_Request *req, int *result);
/*
 * The communicator's next call, in the network or, after a failure, as all ranks agree. Returns an
 * MPI error.
 */
int collective_carry_out(struct comm_state *state, const struct collective *call,
			 const struct operation *operation);

/* report.c */
void report_count(enum collective_kind kind, enum way way, uint64_t bytes);
void report_communicator(enum way way);
void report_print(void);

#endif
