/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the two doors of MPI programs share: the library to preload (preload/) and Open MPI's
 * component (component/). Both carry out collectives in the network, through the public host
 * library, and hand all others to MPI (docs/mpi.md). The code here is compiled for each door and
 * each MPI library, and calls MPI by its profiling interface; at the end of this file stands what a
 * door provides.
 *
 * The decision that a call goes into the network depends only on values that are the same on all
 * ranks of its communicator: the bytes of its signature, type and operator, the communicator's
 * state. Any other rule makes ranks wait for each other forever.
 */
#ifndef FANIN_BINDINGS_MPI_CORE_H
#define FANIN_BINDINGS_MPI_CORE_H

#include <fanin/fanin.h>
#include <fenv.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

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

/*
 * Destination of a call: the network, or MPI and the reason for it. The order is that of the
 * report.
 */
#define WAYS(X)                                                                                       \
	X(NETWORK, "in the network")                                                                  \
	X(MPI_WRONG, "in the network, though small, since MPI's own answer is wrong")                 \
	X(DISABLED, "turned off by FANIN_MPI, or before MPI_Init")                                    \
	X(TOO_SMALL, "fewer bytes than FANIN_MPI_MIN_BYTES")                                          \
	X(TOO_LARGE, "more than 2 GiB at once that are moved")                                        \
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
	MPI_Count count; /* elements of the type: of a Bcast, of the reduced vector, of each part of
			    an Allgather as received */
	MPI_Datatype type;
	MPI_Count send_count; /* for an Allgather */
	MPI_Datatype send_type;
	MPI_Op op;
	int root;
	MPI_Comm comm;
	void *module; /* where Open MPI's component keeps the communicator's state */
};

/* A call as an operation of the network. */
struct operation {
	size_t bytes; /* of the whole vector */
	enum fanin_dtype dtype;
	enum fanin_op op;
	enum way way; /* counted if the network does it: NETWORK or MPI_WRONG */
};

/* Settings, the same on all ranks of library_comm. */
struct settings {
	uint64_t min_bytes;
	uint32_t max_jobs;
	uint32_t timeout_ms;
	bool enabled;
	bool nonblocking; /* nonblocking calls go into the network, too */
	bool job_at_init; /* MPI_COMM_WORLD gets its job in MPI_Init */
	bool report, report_json;
};
extern struct settings mpi_settings;

/* settings.c */
void settings_read(void);
#define SETTING_LEN 4096
/* Reads a variable of the environment or fanin.conf, as setting_text does. */
const char *setting_of_fanin(const char *name, char text[SETTING_LEN]);

/* nap.c: leaves the core to others, as nap does for a thread. */
void thread_nap(unsigned int looks);

/* library.c: starts and ends what the doors share, on all ranks of library_comm. */
void library_start(void);
void library_finish(void);

/*
 * A communicator's membership in a job. One thread at a time uses it, without a lock: blocking
 * collectives of a communicator do not overlap, and wait until queued ones are done.
 */
struct channel {
	fanin_ctx *ctx;
	fanin_comm *comm;
	bool sleeps;                    /* in fanin_wait, which must be interrupted */
	unsigned int driven_waits;      /* further waits that drive MPI's progress all the time */
	unsigned int next_driven_waits; /* 0: there was no long wait yet */
};

/* How a communicator with a job carries out its collectives. */
enum phase {
	PHASE_IN_NETWORK,
	PHASE_FAILED, /* a collective has failed here, or the communicator is being freed: this rank
			 has begun the agreement */
	PHASE_AGREED, /* from an agreed call on, all ranks use MPI, on `shadow`: they learn of the
			 failure at different times */
};

/*
 * The library's state of a communicator, kept as its attribute. Memory is reused, never freed:
 * another thread may still read it.
 */
struct comm_state {
	MPI_Comm comm;
	enum way way; /* NETWORK: there is a job, or was; else why all its collectives go to MPI.
			 The program's threads read it */
	bool wanted;  /* NO_JOB_YET: a nonblocking call wants the job, which the next blocking one
			 makes */
	uint32_t barriers;  /* NO_JOB_YET: number of barriers that have gone to MPI */
	bool in_background; /* the queue's worker carries out its collectives, and leaves the core
			       to others */
	bool ends_program;  /* an error of the call that the queue's worker carries out ends the
			       program */
	int rank, size;
	uint64_t calls;        /* collectives that this rank has posted, carried out or failed */
	enum phase phase;      /* atomic */
	uint64_t next;         /* the first call that this rank has not begun */
	uint64_t meet;         /* maximum of `next` over all ranks: from this call on all use MPI */
	MPI_Request agreement; /* the agreement's request, which sets `meet` */
	bool closing;    /* the communicator is being freed: the agreement begins when its queue is
			    empty. Atomic */
	bool left;       /* its job has been left after that. Atomic */
	bool is_taken;   /* by a thread that frees it. Atomic */
	MPI_Comm shadow; /* a communicator of the same ranks, for agreements */
	struct channel *channel;
	struct queue *queue; /* NULL: nonblocking calls go to MPI */
	struct comm_state *next_free, *next_joined;
};

/* types.c */
void types_init(void);
/* Returns the bytes of a predefined type whose elements are contiguous; 0 for others. */
size_t type_plain_bytes(MPI_Datatype type);
/* Finds the network's type and operator. Returns NETWORK, or why there is none. */
enum way type_to_fanin(MPI_Datatype type, MPI_Op op, enum fanin_dtype *dtype,
		       enum fanin_op *fanin_op);
/* Returns the type of the elements that such a type consists of. */
enum fanin_dtype type_element(MPI_Datatype type);

/* Findings of the self-test about MPI's own reductions of a type: a bit for each operator. */
#define OP_BIT(op) (1u << (op))
struct finding {
	uint16_t wrong, refused;
};
/* Maximum of types in types.c. An MPI library may lack some, and some may be the same. */
#define N_TYPES 64
/* Returns the findings of all types; a type has the same index on all ranks. */
struct finding *type_findings(void);
/* True if no operator of MPI's own is wrong for the type. */
bool type_is_right_in_mpi(MPI_Datatype type);
/* True if MPI's own reductions of the type by the operator are wrong. */
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
/* Finds the next type, from *place on, which begins at 0. Returns false if there is none. */
bool type_next(unsigned int *place, struct type_view *view);

/* operators.c */
void operators_init(void);
void operators_finish(void);
/* Returns the network's operator; 0: none. */
enum fanin_op operator_to_fanin(MPI_Op op);
MPI_Op operator_of_mpi(enum fanin_op op);
/* Returns the name, such as "MPI_SUM". */
const char *operator_name(enum fanin_op op);
/* Returns this library's own operator, with which MPI combines by the network's arithmetic. */
MPI_Op operator_own(enum fanin_op op);
/*
 * Returns the operator to be given to MPI for a call that goes to MPI: the program's, or this
 * library's if MPI's own is wrong.
 */
MPI_Op operator_for_mpi(MPI_Datatype type, MPI_Op op);
/*
 * Between these two calls a thread rounds to nearest and keeps denormal numbers, as a switch does;
 * the program may do otherwise.
 */
void arithmetic_enter(fenv_t *programs);
void arithmetic_leave(const fenv_t *programs);
/* Computes acc[i] = acc[i] op in[i] as a switch does. To be called between those calls. */
void local_combine(enum fanin_dtype dtype, enum fanin_op op, void *acc, const void *in,
		   size_t elements);

/* self_test.c */
/* True if MPI's own reductions are wrong for some type and operator. */
extern bool findings_some_wrong;
/* Finds the types and operators that any rank's MPI has wrong. Collective on library_comm. */
void self_test(void);

/* messages.c */
void messages_init(void);
/*
 * In MPI_Finalize: rank 0 prints the remaining messages, and adds the counts of all ranks.
 * Collective.
 */
void messages_finish(void);
/*
 * Tells the user something once in the program. reason: texts with the same reason are the same
 * message; NULL: so are texts that differ only in numbers and names of jobs. at_once: this process
 * prints it, since the program may end. Thread-safe.
 */
void say(const char *reason, bool at_once, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* At rank 0: prints messages that other ranks have sent. Drives MPI's progress. Thread-safe. */
void messages_look(void);
/* Prints the messages that this process has only sent, as the program ends. */
void messages_say_sent(void);
/*
 * Returns the texts one by one, from *place 0 on, and how often each had a cause; NULL: there are
 * no more. After messages_finish, at rank 0.
 */
const char *message_next(unsigned int *place, uint64_t *count);

/* arguments.c */
void arguments_init(void);
void arguments_finish(void);
/* True if MPI accepts the type of the data that the call receives or reduces. */
bool received_type_holds(const struct collective *call);
/*
 * Returns a committed copy of a type that received_type_holds accepts; MPI_DATATYPE_NULL: the type
 * itself is committed.
 */
MPI_Datatype type_committed(MPI_Datatype type);
enum verdict {
	VERDICT_TAKEN,
	VERDICT_REFUSED,  /* by MPI */
	VERDICT_UNUSABLE, /* an invalid buffer, which this MPI would use */
};
/*
 * Returns MPI's verdict on the call's other arguments except the operator, on an intracommunicator.
 * bytes: of the vector.
 */
enum verdict arguments_judge(const struct collective *call, size_t bytes, int rank, int size);
/* True if MPI accepts the operator for the type of the data that the call reduces. Thread-safe. */
bool operator_holds(const struct collective *call);

/* communicators.c */
/*
 * Records that a nonblocking call would have used a job, which the next blocking one makes. Local.
 * state: as it was found.
 */
void state_want(const struct collective *call, struct comm_state *state);
/*
 * Counts a barrier that had no job to use. Local. Returns true if there have been enough barriers
 * that this one makes a job.
 */
bool state_count_barrier(const struct collective *call, struct comm_state *state);
/* The communicators that want a job. Atomic. */
extern uint32_t n_wanted_states;

static inline bool
states_are_wanted(void)
{
	return __atomic_load_n(&n_wanted_states, __ATOMIC_RELAXED) != 0;
}

/*
 * Makes the state, or completes one with NO_JOB_YET, in a blocking call of all ranks, and joins a
 * job if all can.
 */
struct comm_state *state_make(const struct collective *call, struct comm_state *begun);
/* Ends the state of a communicator that is being freed. A state with a job outlives it. */
void state_drop(struct comm_state *state);
/* Prints that there is no memory, and ends the program: the ranks could not agree on anything. */
void no_memory(void) __attribute__((noreturn));

/* agreement.c */
/*
 * In MPI_Finalize: waits for queued calls of all communicators. Calls that another rank has not
 * made by then fail, since it will never make them.
 */
void states_drain(void);
/* True if calls in progress must fail for that reason. Thread-safe. */
bool states_give_up(void);
void states_finish(void);
/*
 * Leaves the job after a failure, and begins the agreement. status: a fanin_status. ends_program:
 * the error may end the program.
 */
void state_fail(struct comm_state *state, int status, bool ends_program);
/* Waits for the end of the agreement that this rank has begun. */
void state_wait_agreed(struct comm_state *state);
/*
 * True if the queue's worker has an agreement to finish or a job to leave, which it does once its
 * queue is empty.
 */
bool state_has_duty(const struct comm_state *state);
void state_do_duty(struct comm_state *state);
enum phase state_phase(const struct comm_state *state);
/*
 * Begins to end the job of a communicator that is being freed, in the background if the state has a
 * queue. Does not wait for nonblocking calls in progress: other ranks may not have made theirs.
 */
void state_close_begin(struct comm_state *state);
/* Waits for its end, and frees what the state has. */
void state_close_end(struct comm_state *state);
/*
 * Frees the states of communicators that the program has freed. Returns false if the jobs of some
 * have not ended.
 */
bool closed_free(void);
/*
 * Waits until the jobs of communicators that the program has freed have ended, for about a second
 * at most.
 */
void closed_wait(void);

/*
 * Calls MPI. In the background it uses the nonblocking call `iname`: MPI's own waits would take a
 * core. All ranks do the same.
 */
#define MPI_CALL(in_background, name, iname, ...)                                                  \
	({                                                                                         \
		MPI_Request mpi_req;                                                               \
		(in_background) ? mpi_finish(PMPI_##iname(__VA_ARGS__, &mpi_req), &mpi_req, true)  \
				: PMPI_##name(__VA_ARGS__);                                        \
	})

/* channel.c */
/* hosts: of each rank. */
int channel_join(const char *job_name, int rank, int size, const uint16_t *hosts,
		 struct channel **channel, enum way *way);
/*
 * Leaves the job: together with all ranks, or at once after a failure. Collectives that this rank
 * has not posted then fail at the others.
 */
void channel_leave(struct channel *channel, bool at_once);
int channel_wait_quietly(struct channel *channel, fanin_request **req);

/* network.c: these return a fanin_status. */
int collective_run(struct comm_state *state, const struct collective *call,
		   const struct operation *operation);
/* True if the call can be posted, and later ones can be posted before it is done. */
bool collective_can_post(struct comm_state *state, const struct collective *call,
			 const struct operation *operation);
int collective_post(struct comm_state *state, const struct collective *call,
		    const struct operation *operation, fanin_request **req);

/*
 * A reduce that waits. MPICH's blocking one is wrong for some placements of ranks, and crashes for
 * others in place, which only the root knows of; its nonblocking one is right (docs/mpi.md), so all
 * ranks use the nonblocking one.
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

/* queue.c: calls of a communicator with a job that a worker carries out in the background. */
struct queue *queue_start(struct comm_state *state);
/* Wakes the queue's worker, as it has a duty. queue: not NULL. */
void queue_wake(struct queue *queue);
/* Waits for queued calls, and ends the queue's worker. queue: may be NULL. */
void queue_end(struct queue *queue);
/* Returns the number of calls that are not done. queue: may be NULL. */
uint32_t queue_open(const struct queue *queue);
/*
 * Waits until all queued calls are done, and drives MPI's progress meanwhile. queue: may be NULL.
 */
void queue_drain(struct queue *queue);
/*
 * queue_hold does the same, and gives the caller the channel until it releases the queue, whose
 * worker otherwise looks after an idle job. A new queue is held.
 */
void queue_hold(struct queue *queue);
void queue_release(struct queue *queue);
/* Appends a call, and makes its request. */
void queue_add(struct queue *queue, const struct collective *call,
	       const struct operation *operation, MPI_Request *req);

/* True if errors of the communicator end the program. */
bool errors_are_fatal(MPI_Comm comm);

/* decide.c */
/* True if the call is done, with its return value in *result; false: MPI has to do it. */
bool collective_take(const struct collective *call, int *result);
/* The same for a nonblocking call, which has been queued if this returns true. */
bool collective_start(const struct collective *call, MPI_Request *req, int *result);
/*
 * Carries out the communicator's next call: in the network or, after a failure, as all ranks agree.
 * Returns an MPI error.
 */
int collective_carry_out(struct comm_state *state, const struct collective *call,
			 const struct operation *operation);

/* report.c: counters of the program's collectives. Any thread may add to them. */
struct counters {
	uint64_t calls[N_COLLECTIVES][N_WAYS];
	uint64_t bytes[N_COLLECTIVES][N_WAYS];
	uint64_t communicators[N_WAYS];
};
extern struct counters report_counters;

static inline void
report_count(enum collective_kind kind, enum way way, uint64_t bytes)
{
	__atomic_fetch_add(&report_counters.calls[kind][way], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&report_counters.bytes[kind][way], bytes, __ATOMIC_RELAXED);
}

void report_communicator(enum way way);
void report_print(void);

/*
 * What a door provides.
 *
 * All processes of MPI_COMM_WORLD that use the door with the same settings, for the library's own
 * messages and for what they agree on when they start.
 */
extern MPI_Comm library_comm;
/*
 * Reads a setting of the door into `text`, and returns it; NULL: it is not set. name: as in the
 * environment, such as FANIN_MPI_MIN_BYTES.
 */
const char *setting_text(const char *name, char text[SETTING_LEN]);
/*
 * Finds the state of the call's communicator. *state is NULL if it has none yet. Returns an error
 * of MPI, which has been passed to its handler.
 */
int state_find(const struct collective *call, struct comm_state **state);
/* Keeps the state with the call's communicator. */
void state_attach(const struct collective *call, struct comm_state *state);
/* Told of the request that completes when a message has come, at rank 0. */
void message_awaited(MPI_Request req);
/* Says that the communicator is the library's own, whose calls all go to MPI. */
void own_comm(MPI_Comm comm);
/* Passes an error to the communicator's error handler, unless MPI does so itself. */
int error_raise(MPI_Comm comm, int error);

/* Drives the progress of MPI's operations. */
void mpi_progress(void);
/* Leaves the core to others for some time, which grows with the number of looks without progress.
 */
void nap(unsigned int looks);
/* Waits for a request of MPI, if it was posted. Returns an MPI error. */
int mpi_finish(int posted, MPI_Request *req, bool in_background);
/* The same for operations that all ranks do in any case, in MPI_Finalize at the latest. */
int mpi_finish_surely(MPI_Request *req, bool in_background);

/* Waits, and drives MPI's progress meanwhile. */
int channel_wait(struct channel *channel, fanin_request **req);
/* Waits without MPI's progress, for at most 0.1 s. Returns FANIN_IN_PROGRESS then. */
int channel_wait_some(struct channel *channel, fanin_request **req);

/* A worker carries out a queue's calls beside the program. */
struct worker;
/* True if queues are to have workers. */
bool worker_is_wanted(void);
/*
 * Starts run(arg). started: set before run begins. Returns false if there are no resources.
 */
bool worker_start(void *(*run)(void *), void *arg, struct worker **started);
/* Wakes a worker that sleeps, or its next sleep. Thread-safe. */
void worker_wake(struct worker *worker);
/*
 * Called by the worker: sleeps until it is woken. Returns false if the job, which has been idle,
 * should be looked after.
 */
bool worker_sleep(struct worker *worker);
/* Waits for the end of the worker, which returns from run, and frees it. */
void worker_join(struct worker *worker);
/*
 * Leaves the job by channel_leave; a worker that drives MPI's progress does not stop it meanwhile.
 * channel: may be NULL.
 */
void worker_leave(struct channel *channel, bool at_once);

/* The request of a call that a worker carries out. */
struct own_request;
/* Makes it. comm: the program's communicator. Returns NULL if there is no memory. */
struct own_request *request_make(MPI_Comm comm, MPI_Request *req);
/* Completes it. ends_program: an error of it ends the program. Called by a worker. */
void request_complete(struct own_request *request, int error, bool ends_program);

/* Carries out a blocking call of a communicator with a job. Returns an MPI error. */
int collective_wait(struct comm_state *state, const struct collective *call,
		    const struct operation *operation);

#endif
