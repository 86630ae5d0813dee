/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's objects behind the public handles, and what context.c, comm.c and request.c need of
 * each other.
 */
#ifndef FANIN_HOSTLIB_CONTEXT_H
#define FANIN_HOSTLIB_CONTEXT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hostlib/src/base/clock.h"
#include "hostlib/src/base/error.h"
#include "hostlib/src/base/options.h"
#include "hostlib/src/join/join.h"
#include "hostlib/src/manager/manager.h"
#include "hostlib/src/protocol/protocol.h"
#include "hostlib/src/transport/route.h"
#include "hostlib/src/transport/transport.h"
#include "progress.h"

/*
 * Broadcasts and allgathers of at least so many packets go by multicast where that is left to the library: shorter ones are done sooner by blocks, without barriers before
 * and after (docs/performance.md, "Multicast").
 */
#define FANIN_MULTICAST_LEAST_PACKETS 16u

/* Most descriptors of communicators that a context can sleep on; with more, it does not sleep. */
#define FANIN_CTX_MAX_FDS (16 * FANIN_TRANSPORT_MAX_FDS)

struct fanin_ctx {
	struct fanin_log log; /* one line at a time; any thread */
	fanin_print_fn print; /* the user's, NULL: silent */
	void *print_arg;
	pthread_mutex_t print_lock;
	char transport[16]; /* as in the options */
	bool background;    /* likewise: a thread makes progress, too */
	struct fanin_progress *progress; /* the progress thread, and the lock of the fields below; NULL: there is none */
	fanin_interrupt_fn interrupt;
	void *interrupt_arg;
	uint64_t interrupt_next_ns;
	struct fanin_error error; /* of public calls; the thread does not touch it */
	struct fanin_comm *comms;
};

/*
 * Operations of a communicator with one engine (comm_single.c), on a switch or among the ranks, or
 * with one for each of several trees (comm_trees.c). All but `leave` may only be called once
 * joining has succeeded; see struct fanin_protocol.
 */
struct fanin_comm_ops {
	int (*post)(struct fanin_comm *comm, struct fanin_request *request, uint64_t count);
	int (*poll)(struct fanin_comm *comm);
	uint64_t (*idle_ns)(const struct fanin_comm *comm);
	unsigned int (*poll_fds)(struct fanin_comm *comm, struct pollfd *fds); /* fanin_comm_max_fds */
	const struct fanin_error *(*error)(const struct fanin_comm *comm);
	void (*missing)(const struct fanin_comm *comm, struct fanin_ranks *ranks);

	/* Fills in the fields that differ between kinds of communicators; the rest is zero. */
	void (*report)(const struct fanin_comm *comm, struct fanin_report *report);

	/*
	 * Returns the part on the switches of one of n_trees: it has an engine and belongs to the
	 * communicator.
	 */
	struct fanin_comm *(*part)(struct fanin_comm *comm, uint16_t tree);

	/* Leaves, and closes whatever is open, also after joining has failed half-way. */
	int (*leave)(struct fanin_comm *comm, struct fanin_error *error);
};

/* comm.c: fails a communicator that runs on switches, and all its requests, unless it has failed already. status: negative. */
void fanin_comm_abort(struct fanin_comm *comm, int status, const struct fanin_error *error);

/*
 * comm.c: fills in the ranks that the oldest unfinished block waits for; see
 * fanin_comm_missing_ranks.
 */
void fanin_comm_missing_set(const struct fanin_comm *comm, struct fanin_ranks *ranks);

extern const struct fanin_comm_ops fanin_comm_single_ops;
extern const struct fanin_comm_ops fanin_comm_trees_ops;

/* Buffers for a report's strings. The originals may change in any poll. */
struct fanin_comm_texts {
	char transport_reason[FANIN_TEXT_LEN];
	char interface[IF_NAMESIZE];
	char handler[32];
	char manager_problem[FANIN_TEXT_LEN];
};

/* The options that a communicator was joined with, to join other jobs later. */
struct fanin_kept_options {
	struct fanin_join_opts options;
	char *texts[4]; /* copies that the options point to */
};

/* Another link that a job with leaders uses as well. */
struct fanin_leaders_link {
	struct fanin_route route;
	struct fanin_channel channel; /* without ops: there is none */
};

/* What the ranks have yet to agree on, and the requests that wait for it. */
struct fanin_agreement {
	bool is_open;                   /* there are requests that wait */
	struct fanin_request_list held; /* these; the first one for the agreement */
	struct fanin_request request;
	uint64_t data[3];      /* the request's */
	uint64_t maybe_sparse; /* as struct fanin_report has them */
	uint64_t maybe_sparse_taken;
};

/* Leaving together. */
struct fanin_closing {
	struct fanin_request request;
	bool has_begun;
	uint64_t timeout_ns; /* the options' */
};

/* How a communicator on a switch goes on when its run is lost (comm_recover.c) or its path has changed (comm_move.c). */
struct fanin_recovery {
	bool rejoining;      /* the run was lost, and the member joins again */
	bool moved;          /* to another first hop, where the member has not been in a run yet */
	bool bound;          /* the user named the interface */
	uint32_t generation; /* of the tree, as the manager counts; 0: unknown */
	uint32_t applied_changes; /* fanin_manager_changes when they were last applied */
	uint64_t refused_ns; /* when the switch last refused to let the member join again; 0: never */
	uint64_t next_follow_ns; /* when to check whether the switch has another MAC address */
	uint64_t next_move_ns;   /* when to retry moving */
	uint64_t ring_drops;     /* of transports that were closed */
	char path_problem[FANIN_TEXT_LEN]; /* why moving fails; empty: it does not, or is not needed */
	char hint[2 * FANIN_TEXT_LEN];     /* the engine's */
};

/* The trees of a communicator, or its place among those of another one, which is one of several. */
struct fanin_comm_trees {
	struct fanin_trees *all; /* NULL: one tree or none, described by the communicator itself */
	struct fanin_trees *siblings; /* of one of several trees, which borrows the manager; else NULL */
	uint16_t index;               /* likewise; else 0 */
	uint16_t n;                   /* 0: it runs among the ranks */
	uint16_t n_asked;
	char reason[FANIN_TEXT_LEN / 2]; /* why there are fewer */
};

/* By which way a communicator's broadcasts and allgathers go. */
struct fanin_comm_multicast {
	bool is_open; /* the job for them may still be joined */
	uint32_t use; /* enum fanin_multicast_use */
	char reason[FANIN_TEXT_LEN];
};

/* The regions of a communicator. */
struct fanin_comm_regions {
	struct fanin_region *first; /* linked by next */
	uint32_t n_asked;           /* for, so far */
	uint64_t next_address;      /* of the next one; 0: it is the first */
};

struct fanin_comm {
	const struct fanin_comm_ops *ops;
	struct fanin_ctx *ctx;
	struct fanin_comm *next;
	struct fanin_manager *manager;         /* NULL: the job was found without one */
	const struct fanin_protocol *protocol; /* what the collectives run; NULL: not known yet */
	char protocol_reason[FANIN_TEXT_LEN];  /* why this protocol */
	/*
	 * Others that carry out its collectives, or reduce its regions; in the context's list as
	 * well. NULL: not joined.
	 */
	struct fanin_comm *beside[FANIN_BESIDE_USES];
	struct fanin_comm *owner;       /* of such a one, or of a region */
	struct fanin_kept_options kept; /* to join them */
	struct fanin_comm_multicast multicast;
	struct fanin_comm_regions regions;
	struct fanin_comm_trees trees;
	uint32_t registered_ip_be; /* this host's address as registered at the manager; 0: no manager */
	char job_name[FANIN_JOB_NAME_MAX + 1];
	char mode_reason[FANIN_TEXT_LEN];
	struct fanin_comm_texts *texts; /* NULL: reports point to the originals */
	struct fanin_route route;
	struct fanin_leaders_link second;
	uint8_t switch_mac[6]; /* destination of the engine's packets */
	struct fanin_member member;
	struct fanin_transport *transport;
	struct fanin_endpoint *endpoint; /* the protocol's; NULL: none yet, or one for each tree */
	struct fanin_request *requests;  /* not freed yet, linked by sibling */
	struct fanin_agreement agreement;
	struct fanin_closing closing;
	struct fanin_recovery recovery;
	bool gave_up;    /* the engine has failed, and switch and manager have been told */
	uint16_t window; /* lanes of the engine */
	uint16_t payload_bytes;
};

/* For public calls: locks out the progress thread, if there is one. May be nested. */
static inline void
fanin_ctx_lock(struct fanin_ctx *ctx)
{
	if (__builtin_expect(ctx->progress != NULL, 0))
		fanin_progress_lock(ctx->progress);
}

static inline void
fanin_ctx_unlock(struct fanin_ctx *ctx)
{
	if (__builtin_expect(ctx->progress != NULL, 0))
		fanin_progress_unlock(ctx->progress);
}

/* With the lock held: makes the thread look again at what it waits for. */
static inline void
fanin_ctx_wake(struct fanin_ctx *ctx)
{
	if (__builtin_expect(ctx->progress != NULL, 0))
		fanin_progress_wake(ctx->progress);
}

/*
 * The same after a caller's own poll, which has changed what there is to wait for: the thread
 * sleeps on the old descriptors, and an interrupt of shared memory may be off. Does nothing if
 * there is nothing to wait for.
 */
void fanin_ctx_polled(struct fanin_ctx *ctx);

/* Returns the most entries that a communicator's poll_fds fills in. */
static inline unsigned int
fanin_comm_max_fds(const struct fanin_comm *comm)
{
	return (comm->trees.n > 1 ? comm->trees.n : 1u) * FANIN_TRANSPORT_MAX_FDS;
}

/*
 * comm_manager.c: finds an interface by its name, or if that is NULL by its address.
 *
 * ip_be: in: the address; set to the interface's. name: IF_NAMESIZE bytes. Returns false if there
 * is none with an IPv4 address.
 */
bool fanin_interface_find(const char *wanted, uint32_t *ip_be, char *name);

/*
 * comm_switch.c: joins a job on a switch.
 *
 * options: checked here. peers: the manager's list for the tree, NULL: there is none. most_payload:
 * upper bound of a packet's payload in bytes, even if the switch allows more; 0: as the switch
 * allows. deadline_ns: for all ranks to have joined.
 */
int fanin_comm_switch_join(struct fanin_comm *comm, struct fanin_join_opts *options,
			   const struct fanin_peer *peers, uint16_t most_payload,
			   uint64_t deadline_ns, struct fanin_error *error);

/* comm_trees.c: joins a job that has several trees. answer: the manager's. */
int fanin_comm_trees_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
			  struct fanin_manager_answer *answer, uint64_t deadline_ns,
			  struct fanin_error *error);

/*
 * comm_trees.c: posts a request to all trees, at once. Returns what fanin_split_post returns, or for a sparse one what fanin_sparse_vector_layout does.
 */
int fanin_comm_trees_post(struct fanin_trees *trees, struct fanin_request *request, uint64_t count);

/* comm_trees.c: fails all trees, and every request, unless they have failed already. status: negative. */
void fanin_comm_trees_abort(struct fanin_trees *trees, int status, const struct fanin_error *error);

/*
 * comm_trees.c: polls the trees that are already joined while another one is being joined: they may
 * have moved, and others wait there.
 */
void fanin_comm_trees_poll_joined(struct fanin_trees *trees);

/* A job beside a communicator's. */
struct fanin_beside {
	struct fanin_comm *owner; /* whose ranks it belongs to; NULL: it is a job of its own */
	enum fanin_beside_use use;
	const char *number; /* of several for the same use, in its name; "": there is one */
	const char *what;   /* it is for, for messages */
	uint16_t trees;
	const struct fanin_manager_parameter *parameters; /* n_parameters of the handler's */
	size_t n_parameters;
};

/*
 * comm_beside.c: returns why this rank can't join a job beside the communicator's, or NULL. options: as the communicator was joined.
 */
const char *fanin_comm_beside_obstacle(struct fanin_comm *comm, const struct fanin_join_opts *options,
				       enum fanin_beside_use use, const char *number);

/*
 * comm_beside.c: joins a job beside its owner's if all ranks can, which all call. Called without
 * the lock.
 *
 * obstacle: why this rank can't; NULL: it can. joined: set if all are in it. why: FANIN_TEXT_LEN
 * bytes; the reason, if they are not. Returns FANIN_OK in both cases, or a negative status with
 * `error`: the communicator has failed.
 */
int fanin_comm_beside_join(const struct fanin_join_opts *options, const struct fanin_beside *job,
			   const char *obstacle, struct fanin_comm **joined, char *why,
			   struct fanin_error *error);

/*
 * comm_beside.c: finds the least values of all ranks, by an allreduce on the communicator. what: for, in messages. Returns FANIN_OK or a negative status. If it is
 * interrupted, the communicator has failed: nothing refers to the values any more, and no rank goes on as if all had agreed.
 */
int fanin_comm_least_of_all(struct fanin_comm *comm, const char *what, enum fanin_dtype dtype,
			    void *values, uint64_t n, struct fanin_error *error);

/*
 * comm_beside.c: leaves the jobs beside a communicator's, which then is not beside another one
 * any more. Returns FANIN_OK, or the last failure with its error.
 */
int fanin_comm_beside_leave(struct fanin_comm *comm, struct fanin_error *error);

/* comm_beside.c: keeps what a communicator was joined with, to join other jobs later. Returns FANIN_OK or FANIN_ERR_NO_MEMORY. */
int fanin_comm_options_keep(struct fanin_comm *comm, const struct fanin_join_opts *options,
			    struct fanin_error *error);
void fanin_comm_options_forget(struct fanin_comm *comm);

/* comm.c: fanin_join; beside: what the job is besides what the options say. */
int fanin_comm_join(struct fanin_ctx *ctx, const struct fanin_join_opts *opts,
		    const struct fanin_beside *beside, struct fanin_comm **comm);

/* A multicast region, and the job beside its communicator's that carries it. */
struct fanin_region {
	struct fanin_region *next;
	struct fanin_comm *owner; /* whose ranks it belongs to */
	struct fanin_comm *comm;
	uint8_t *memory;
	uint64_t bytes;
	uint64_t address; /* of its first byte in the network */
};

/*
 * comm_region.c: makes a region of all ranks' memory, which all call. region: set on success only. Returns FANIN_OK or a negative status.
 */
int fanin_comm_region_create(struct fanin_comm *comm, void *memory, uint64_t bytes,
			     struct fanin_region **region, struct fanin_error *error);

/* comm_region.c: leaves its job and frees it. Returns what fanin_leave does. */
int fanin_comm_region_free(struct fanin_region *region);

/*
 * comm_region.c: returns, in *reducing, the communicator beside a region's that reduces it in a way, which all ranks call: it is joined once.
 *
 * way: FANIN_BESIDE_PUSH or FANIN_BESIDE_PULL.
 */
int fanin_comm_region_reducing(struct fanin_comm *comm, enum fanin_beside_use way,
			       struct fanin_comm **reducing, struct fanin_error *error);

/*
 * comm_multicast.c: joins the job that is beside a communicator's for broadcasts and allgathers, if the options say that there has to be one; else the first
 * collective that is better off with it does. The communicator is its context's already.
 *
 * options: as given to fanin_join, with defaults. Returns FANIN_OK, also if there is none and there need not be, or the reason why there is none.
 */
int fanin_comm_multicast_begin(struct fanin_comm *comm, const struct fanin_join_opts *options,
			       struct fanin_error *error);

/* comm_multicast.c: before a blocking call with this request, which has its layout: joins the other job, once, if the request is better off with it. */
int fanin_comm_multicast_prepare(struct fanin_comm *comm, const struct fanin_request *request,
				 struct fanin_error *error);

/*
 * comm_multicast.c: returns the communicator that carries a collective out: this one, or the one beside it. The same at all ranks.
 *
 * request: with its layout.
 */
struct fanin_comm *fanin_comm_for(struct fanin_comm *comm, const struct fanin_request *request);

/*
 * comm_multicast.c: a communicator beside another one has failed. If it carries that one's broadcasts, that fails with its error: some of its ranks may know of the failure and
 * others not yet, so that they would not agree any more what goes by multicast. Called with the lock held; again and again without harm.
 */
void fanin_comm_multicast_failed(struct fanin_comm *multicast, int status);

/*
 * comm_switch.c: opens the transport that the context asks for, over a route to the job's switch.
 *
 * transport: set on success only.
 */
int fanin_comm_transport(const struct fanin_comm *comm, const struct fanin_route *route,
			 uint16_t udp_port, struct fanin_transport **transport,
			 struct fanin_error *error);

/*
 * comm_move.c: moves to the first hop that the manager has told, if it is another one. Until that
 * succeeds nothing changes; to be called repeatedly.
 */
void fanin_comm_move(struct fanin_comm *comm, const struct fanin_manager_home *home);

/* comm_move.c: true if the manager has told of another first hop than the communicator's. */
bool fanin_comm_is_elsewhere(const struct fanin_comm *comm);

/*
 * comm_move.c: after the member has joined again: points the engine at the switch that answered,
 * which may be another one or have another MAC address. Returns FANIN_OK or a negative status.
 */
int fanin_comm_move_end(struct fanin_comm *comm, struct fanin_error *error);

/*
 * comm_move.c: a switch that replaces the communicator's has its IP address, and perhaps another
 * MAC address: checks the kernel's neighbour table every 250 ms. The new switch then tells that the
 * run is lost.
 */
void fanin_comm_follow(struct fanin_comm *comm);

/*
 * comm_manager.c: asks the manager for the job, and connects the ranks with each other if it says
 * so.
 *
 * options: if the job runs in the network, receives the switch's address and the job's number, key
 * and rank in its first tree; else comm->endpoint is set. beside: as for fanin_comm_join. answer:
 * owns the options' new strings. Returns FANIN_OK or a negative status.
 */
int fanin_comm_manager(struct fanin_comm *comm, struct fanin_join_opts *options,
		       const struct fanin_beside *beside, struct fanin_manager_answer *answer,
		       struct fanin_error *error);

/*
 * comm_peers.c: opens the protocol's engine among the ranks and waits until it is ready. The
 * protocol was chosen before.
 *
 * listener: of the protocol's listen; taken over.
 */
int fanin_comm_peers(struct fanin_comm *comm, const struct fanin_join_opts *options,
		     const struct fanin_manager_answer *answer, int listener, uint64_t deadline_ns,
		     struct fanin_error *error);

/*
 * comm_peers.c: polls until the engine is ready: the other ranks are there. options: say how long that may take, for the error.
 */
int fanin_comm_ready_wait(struct fanin_comm *comm, const struct fanin_join_opts *options,
			  uint64_t deadline_ns, struct fanin_error *error);

/*
 * comm_leaders.c: opens the protocol's engine for a job whose blocks have leaders, and waits until it is ready.
 *
 * options: with what fanin_comm_tree_options has filled in. answer: the manager's.
 */
int fanin_comm_leaders(struct fanin_comm *comm, const struct fanin_join_opts *options,
		       const struct fanin_manager_answer *answer, uint64_t deadline_ns,
		       struct fanin_error *error);

/*
 * comm_leaders.c: whether the options fit a job of a handler whose hosts lead blocks. handler: NULL: not known. Returns FANIN_OK, also for
 * other handlers, or FANIN_ERR_INVALID.
 */
int fanin_comm_leaders_check(const struct fanin_ctx *ctx, const struct fanin_join_opts *options,
			     const char *handler, struct fanin_error *error);

/*
 * comm_switch.c: the address given to the manager must be the one used, or the switch takes this host for another one.
 */
int fanin_comm_address_check(const struct fanin_comm *comm, struct fanin_error *error);

/*
 * comm_single.c: opens the communicator's engine with its protocol. config: what the caller knows;
 * the rest is filled in from the options.
 */
int fanin_comm_engine_open(struct fanin_comm *comm, const struct fanin_join_opts *options,
			   struct fanin_protocol_config *config, struct fanin_error *error);

/*
 * Fills in the options that a user would give to join a tree's job on its switch, and the link that
 * it uses. The answer owns the strings.
 */
int fanin_comm_tree_options(struct fanin_comm *comm, struct fanin_join_opts *options,
			    struct fanin_manager_answer *answer, uint16_t tree,
			    struct fanin_error *error);

/*
 * comm_memif.c: true if the options ask for shared memory with the switch.
 */
bool fanin_comm_wants_memif(const struct fanin_ctx *ctx, const struct fanin_join_opts *options);

/*
 * Connects to the switch by memif: fills in route and switch_mac and opens the transport, which
 * also carries control packets.
 *
 * deadline_ns: for the switch's answers. channel: set on success only. Returns FANIN_OK or a
 * negative status.
 */
int fanin_comm_memif(struct fanin_comm *comm, const struct fanin_join_opts *options,
		     uint32_t switch_ip_be, uint64_t deadline_ns, struct fanin_channel *channel,
		     struct fanin_error *error);

/*
 * comm_switch.c: tells the switch, once, that this rank's collectives have failed; otherwise others
 * would wait for it as for a late rank.
 */
void fanin_comm_give_up(struct fanin_comm *comm);

/*
 * comm_recover.c: polls an engine on a switch, and resumes a lost run. Returns the number of frames
 * received or a negative status.
 */
int fanin_comm_recover_poll(struct fanin_comm *comm);

/*
 * comm_close.c: before leaving. A rank that has all results must not leave while another rank whose
 * run was lost may need one (docs/protocol.md, "Going on with another tree"). So all ranks meet in
 * a block without elements; a rank that sends it has all results. Does nothing where that is
 * impossible, or if requests are in progress, or if there never were any.
 *
 * The first call posts the blocks, and the second one waits for them, until the timeout at most,
 * even if ranks are merely late; their absence is not an error of the caller. The communicator
 * still belongs to its context.
 */
void fanin_comm_close_begin(struct fanin_comm *comm);
void fanin_comm_close_wait(struct fanin_comm *comm);
/* This one and those beside it are left without waiting. */
void fanin_comm_close_skip(struct fanin_comm *comm);

/*
 * comm_agree.c: takes a request that can't be posted yet: a sparse one, whose blocks depend on the largest density of all ranks, or one
 * behind such a one, as block numbers have to be the same at all ranks. The first one has the ranks agree. count: as for post.
 *
 * Returns FANIN_OK, the request then being in progress, or what the protocol's post does.
 */
int fanin_comm_hold(struct fanin_comm *comm, struct fanin_request *request, uint64_t count);

/* comm_agree.c: true if a request depends on what the ranks have yet to agree on. The same at all ranks, whenever it is asked. */
bool fanin_comm_must_agree(const struct fanin_comm *comm, const struct fanin_request *request);

/* comm_agree.c: after a poll: posts what has waited long enough. Returns true if something was posted. */
bool fanin_comm_agree(struct fanin_comm *comm);

/*
 * Adds a communicator that has joined to its context, and starts the progress thread if the context
 * or the protocol wants one. Called without the lock.
 *
 * Returns FANIN_OK, or what fanin_progress_start returns; then nothing has changed.
 */
int fanin_ctx_attach(struct fanin_ctx *ctx, struct fanin_comm *comm, struct fanin_error *error);

/*
 * Fills in what poll() has to wait for on behalf of all communicators.
 *
 * fds: FANIN_CTX_MAX_FDS entries. sleep_ns: receives the longest time to sleep, 50 ms at most.
 * Returns how many entries are used.
 */
unsigned int fanin_ctx_poll_fds(struct fanin_ctx *ctx, struct pollfd *fds, uint64_t *sleep_ns);

/*
 * Reads pending socket errors, which would otherwise keep poll() from sleeping. fds: as poll() left
 * them.
 */
void fanin_ctx_clear_errors(const struct pollfd *fds, unsigned int n);

/*
 * Polls every communicator once.
 *
 * status: if not NULL, receives the last failure, or FANIN_OK. Returns the frames received.
 */
unsigned int fanin_ctx_poll(struct fanin_ctx *ctx, int *status);

/*
 * Polls until the request is no longer in progress. Returns its status, or FANIN_ERR_INTERRUPTED;
 * FANIN_IN_PROGRESS at the deadline, if nothing comes in any more. deadline_ns: on the clock of
 * fanin_now_ns; UINT64_MAX: none.
 */
int fanin_ctx_wait(struct fanin_ctx *ctx, const struct fanin_request *request, uint64_t deadline_ns);

#endif
