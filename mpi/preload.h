/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library to preload into MPI programs: it carries out collectives in the network, through the public host library, and
 * hands all others to MPI by its profiling interface (docs/mpi.md). One source for all MPI libraries, compiled for each.
 *
 * Whether a call goes into the network depends only on what is the same on all ranks of its communicator: the bytes of its
 * signature, type and operator, the communicator's state. Any other rule makes ranks wait for each other forever.
 */
#ifndef FANIN_MPI_PRELOAD_H
#define FANIN_MPI_PRELOAD_H

#include <fanin/fanin.h>
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
#define WAYS(X)                                                                                    \
	X(NETWORK, "in the network")                                                               \
	X(DISABLED, "turned off by FANIN_MPI, or before MPI_Init")                                 \
	X(TOO_SMALL, "fewer bytes than FANIN_MPI_MIN_BYTES")                                       \
	X(TOO_LARGE, "more than 2 GiB at once, moved or with several ranks on a host")             \
	X(TYPE, "a data type that the network does not reduce")                                    \
	X(OPERATOR, "an operator that the network does not have for the type")                     \
	X(ARGUMENT, "an argument that MPI refuses")                                                \
	X(NONBLOCKING, "a nonblocking call")                                                       \
	X(INTERCOMM, "an intercommunicator")                                                       \
	X(ONE_RANK, "a communicator of one rank")                                                  \
	X(ONE_HOST, "all ranks are on one host")                                                   \
	X(PLACEMENT, "ranks are not the same number on each host in a row")                        \
	X(FOREIGN, "processes that another mpirun, or a spawn, has started")                       \
	X(MANY_JOBS, "more communicators with a job than FANIN_MPI_MAX_JOBS")                      \
	X(MEMORY, "out of memory")                                                                 \
	X(NO_MANAGER, "no network manager is configured, or it can't be reached")                  \
	X(PERMISSION, "no rights to open raw sockets")                                             \
	X(NOT_JOINED, "the job could not be joined")                                               \
	X(FAILED, "an earlier collective of the communicator has failed")

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
	MPI_Count count; /* of the type: of a Bcast, of what is reduced, of each part of an Allgather as received */
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
};

/* What is the same on all ranks of MPI_COMM_WORLD: rank 0's environment. */
struct settings {
	uint64_t min_bytes;
	uint32_t max_jobs;
	uint32_t timeout_ms;
	bool enabled;
	bool report, report_json;
};
extern struct settings preload_settings;

/*
 * A communicator's membership in a job; only leaders of hosts have one. Blocking collectives of a communicator do not overlap, so
 * one thread at a time uses it, and there is no lock.
 */
struct channel {
	fanin_ctx *ctx;
	fanin_comm *comm;
	bool sleeps;               /* in fanin_wait, which is to be interrupted */
	unsigned int driven_waits; /* further waits that have MPI move its data all the time */
};

/* What is kept about a communicator, as its attribute. Memory is reused, never freed: see state_find. */
struct comm_state {
	MPI_Comm comm;
	enum way way; /* NETWORK, or why all its collectives go to MPI */
	bool failed; /* this rank's last collective in the network has failed; the ranks have yet to agree */
	int rank, size;
	uint64_t calls;  /* collectives of the communicator that were for the network */
	MPI_Comm shadow; /* the same ranks, for agreements */
	MPI_Comm node;   /* the ranks of this host; rank 0 is the leader */
	int node_rank, node_size;
	int n_hosts, host; /* this rank's host, by order of leaders */
	int *host_of;      /* of each rank */
	int *place_of;     /* each rank's rank among those of its host */
	bool regular;      /* hosts have the same number of ranks, in a row */
	struct channel *channel;
	struct comm_state *next_free, *next_joined;
};

/* types.c */
void types_init(void);
/* Bytes of a predefined type whose elements lie side by side; 0 for others. */
size_t type_plain_bytes(MPI_Datatype type);
/* The network's type and operator; NETWORK, or why there is none. */
enum way type_to_fanin(MPI_Datatype type, MPI_Op op, enum fanin_dtype *dtype,
		       enum fanin_op *fanin_op);

/* communicators.c */
int states_init(void);
void states_finish(void);
/* The communicator's state; NULL: it has none yet. */
struct comm_state *state_find(MPI_Comm comm);
/* Makes the state in a blocking collective of the communicator, and joins a job if all ranks can. NULL: out of memory. */
struct comm_state *state_make(MPI_Comm comm);
/* Leaves the job after a failure, a fanin_status. */
void state_fail(struct comm_state *state, int status);
/* True if all ranks have agreed that this call goes to MPI; false: others have failed in a later one, and this one fails. */
bool state_agree(struct comm_state *state);
/* Drives what MPI has in progress. */
void mpi_progress(void);

/* channel.c */
int channel_join(const char *job_name, int rank, int size, struct channel **channel, enum way *way);
void channel_leave(struct channel *channel);
/* Waits, and has MPI move its data meanwhile. */
int channel_wait(struct channel *channel, fanin_request **req);

/* blocking.c: carries out a call in the network. Returns a fanin_status. */
int collective_run(struct comm_state *state, const struct collective *call,
		   const struct operation *operation);

/* decide.c */
/* True if the call is done, with *result what it returns; false: MPI does it. */
bool collective_take(const struct collective *call, int *result);
/* Counts a nonblocking call, which goes to MPI. */
void collective_count_nonblocking(const struct collective *call);

/* report.c */
void report_count(enum collective_kind kind, enum way way, uint64_t bytes);
void report_communicator(enum way way);
void report_print(void);

#endif
