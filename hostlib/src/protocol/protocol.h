/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host protocols. A protocol carries out the collectives of a communicator and is one table of
 * functions, through which alone communicators and the public calls use it. The name of a job's
 * handler selects the protocol. A protocol is a file, or a directory, of its own, which ends with
 * FANIN_PROTOCOL_REGISTER.
 *
 * An endpoint is made by a protocol's `open`: the state of one rank in one job, or in one tree of
 * it. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_PROTOCOL_H
#define FANIN_HOSTLIB_PROTOCOL_H

#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fanin/fanin.h"
#include "hostlib/src/base/error.h"
#include "hostlib/src/base/peer.h"
#include "hostlib/src/request/request.h"
#include "hostlib/src/transport/transport.h"
#include "wire/keys.h"
#include "wire/tag.h"
#include "wire/wire.h"

/*
 * The handler of jobs that run without a switch: the network manager's name for a job without a
 * reduction tree.
 */
#define FANIN_HANDLER_WITHOUT_SWITCH "ring"

struct fanin_cc_type;
struct fanin_engine_rules;
struct fanin_protocol;

/* Uses of a job that a communicator joins beside its own. */
enum fanin_beside_use {
	FANIN_BESIDE_NONE,
	FANIN_BESIDE_MULTICAST, /* its broadcasts and allgathers */
	FANIN_BESIDE_PUSH,      /* its regions, reduced by pushes */
	FANIN_BESIDE_PULL,      /* the same, reduced by pulls */
	FANIN_BESIDE_REGION,    /* one of its regions */
	FANIN_BESIDE_USES,
};

/* Base of all protocols' endpoints: the first member of each. */
struct fanin_endpoint {
	const struct fanin_protocol *protocol;
};

/* Configuration of an endpoint; `open` copies it. */
struct fanin_protocol_config {
	struct fanin_keys keys;
	uint64_t timeout_ns;    /* longest time without progress of a request, unless ranks are only
				   late */
	uint64_t wait_limit_ns; /* the same while ranks are merely late; 0: none */
	uint16_t rank;
	uint16_t size;
	bool wide; /* sums and averages of f16 and bf16 are accumulated in f32 */
	uint64_t (*now_ns)(void *arg); /* NULL: the monotonic clock */
	void *now_arg;
	const struct fanin_log *log; /* the owner's */

	/* For a job on switches. */
	struct fanin_transport *transport; /* the owner's */
	struct fanin_flow flow;            /* to the switch; src_port is overwritten */
	/*
	 * The flow through the host's second link, over the same transport, in a job with leaders.
	 * src_ip_be 0: the host has no second link.
	 */
	struct fanin_flow second_flow;
	struct fanin_tagger *tagger; /* adds and checks tags, the owner's; NULL: packets have none
				      */
	uint64_t instance;           /* of the switch; tags are bound to it */
	uint32_t job;
	uint32_t epoch;
	uint16_t window;        /* maximum of blocks in flight, a power of two */
	uint16_t payload_bytes; /* maximum per packet */
	uint32_t first_block;   /* 0; tests start elsewhere */
	/*
	 * Congestion control, unless the protocol bounds the data in flight itself. NULL: the one
	 * that suits the transport.
	 */
	const struct fanin_cc_type *cc;
	uint8_t port_shift; /* 2^this blocks in a row have one source port */
	bool spread; /* the switch has several workers, one of which may be behind the others */
	bool stagger;
	bool recover;          /* a run that the switch has lost can be resumed */
	uint32_t slots;        /* of the switch, for the job and the jobs that share them with it */
	uint32_t sharing_jobs; /* how many jobs share them, when the job was joined */
	uint64_t parameters[FANIN_WIRE_PARAMETERS]; /* of the job, as its handler declares them */
	/*
	 * The ranks' addresses by rank, as of when the job was given to them. Valid in `open` only:
	 * copy what is needed later. NULL: unknown.
	 */
	const struct fanin_peer *hosts;

	/* For a job among the ranks only. */
	int listener; /* from `listen`; the protocol's from now on, also on failure */
	const struct sockaddr_in *peers; /* listening address of each rank, by rank; the owner's */
};

/* The obstacles to resuming a lost run, as far as the joined switch and other ranks tell. */
struct fanin_rejoin {
	struct fanin_ranks missing; /* ranks that have not joined again; empty if unknown, too */
	struct fanin_ranks gone;    /* those of them that will not join, or do not answer */
	struct fanin_ranks late; /* those of them known to be alive, with nothing else in the way;
				    empty: no reason to wait */
	uint64_t told_ns;        /* when the switch said so */
};

/*
 * Functions of a protocol on switches for jobs with several trees, and for runs that a switch may
 * lose. Each of the two groups may be NULL as a whole; `abort` belongs to both, and may be set
 * alone.
 */
struct fanin_switch_ops {
	/*
	 * Jobs with several trees, whose requests are split over as many endpoints. NULL: such a
	 * job can't be joined.
	 */

	/*
	 * Lays a request out and cuts it into blocks without posting it. Returns the number of
	 * blocks of its vector.
	 */
	uint64_t (*cut)(struct fanin_endpoint *endpoint, struct fanin_request *request,
			uint64_t count);

	/*
	 * Returns FANIN_OK if this many more blocks can be posted, FANIN_ERR_INVALID if not, or the
	 * error that the endpoint has failed with.
	 */
	int (*accepts)(struct fanin_endpoint *endpoint, uint64_t n_blocks);

	/* Fails all requests with another endpoint's error, unless this one has failed already. */
	void (*abort)(struct fanin_endpoint *endpoint, int status, const struct fanin_error *error);

	/*
	 * Runs that are resumed after the switch has lost them, and jobs that move to other
	 * switches. NULL: a lost run is an error, as any other missing result is.
	 */

	/*
	 * True once the switch says that it does not have the run, if the run can be resumed.
	 * Nothing is sent until `resume`, and the endpoint fails at its timeout.
	 */
	bool (*run_lost)(struct fanin_endpoint *endpoint);

	/*
	 * A source other than the switch says that the run is lost; a rank with nothing to send
	 * would not notice. run_lost is true from now on, if runs can be resumed, until `resume`.
	 */
	void (*suspect_run)(struct fanin_endpoint *endpoint);

	/*
	 * While the run is lost: stores which ranks a new run waits for. If all of them are merely
	 * late, the endpoint waits for them without the timeout.
	 */
	void (*note_rejoin)(struct fanin_endpoint *endpoint, const struct fanin_rejoin *rejoin);

	/* Returns the first block whose result this rank lacks. */
	uint32_t (*progress)(struct fanin_endpoint *endpoint);

	/*
	 * Resumes in another run (docs/protocol.md, "Going on with another tree"), or in the same
	 * one if it was not lost after all.
	 *
	 * instance: of the switch that has the run; a restarted switch has another one, whatever
	 * its epochs. first_block: the least of all ranks' progress, which the new run counts as
	 * block 0. Returns FANIN_OK, or FANIN_ERR_REFUSED if that block is more than a window back,
	 * because a rank has started anew; the endpoint has failed then.
	 */
	int (*resume)(struct fanin_endpoint *endpoint, uint32_t epoch, uint64_t instance,
		      uint32_t first_block);

	/*
	 * The run is lost because the path to its switch is lost: continues over another transport,
	 * which the caller owns. Nothing is sent before `redirect` and `resume`.
	 */
	void (*move)(struct fanin_endpoint *endpoint, struct fanin_transport *transport);

	/* Sets the flow of all packets from now on; copied. */
	void (*redirect)(struct fanin_endpoint *endpoint, const struct fanin_flow *flow);

	/*
	 * Sets another hint why nothing comes back, for the text of a timeout; borrowed. NULL or
	 * "": none.
	 */
	void (*hint)(struct fanin_endpoint *endpoint, const char *hint);

	/*
	 * True if another rank may still need a result of this one, as after a switch loses the
	 * run: the ranks leave together. May be set without the others of this group.
	 */
	bool (*peers_may_need_results)(struct fanin_endpoint *endpoint);
};

/*
 * Functions of a protocol whose jobs are multicast regions (protocols/region/README.md), between
 * polls.
 */
struct fanin_protocol_region_ops {
	/*
	 * Sets the region's memory, which stays in place until the endpoint is closed. base, bytes:
	 * the job's parameters must be equal. Returns FANIN_OK, or FANIN_ERR_REFUSED with what was
	 * found in `error`.
	 */
	int (*attach)(struct fanin_endpoint *endpoint, void *memory, uint64_t base, uint64_t bytes,
		      struct fanin_error *error);

	/*
	 * Copies bytes into the region's memory: here now, and at all other ranks by the next
	 * fence. Nothing is sent before the next poll. data: may be the destination itself. Returns
	 * FANIN_OK; FANIN_ERR_INVALID if the bytes don't fit into the region, during a fence, or if
	 * there are too many packets since the last one; FANIN_ERR_NO_MEMORY; or the error that the
	 * endpoint has failed with.
	 */
	int (*store)(struct fanin_endpoint *endpoint, uint64_t offset, const void *data,
		     uint64_t bytes);

	/*
	 * Posts a fence, of which there is one at a time. request: in progress until all that any
	 * rank has written before its fence is there at all ranks. Returns FANIN_OK,
	 * FANIN_ERR_INVALID, or the error that the endpoint has failed with.
	 */
	int (*fence)(struct fanin_endpoint *endpoint, struct fanin_request *request);
};

struct fanin_protocol {
	const char *name;            /* for the report and for messages */
	const char *const *handlers; /* handlers whose jobs it runs; ends with NULL. No two
					protocols name the same one */
	/*
	 * Packet types of its handlers, registered together with it; ends with an entry without a
	 * name. NULL: none.
	 */
	const struct fanin_packet_type *packets;
	bool is_usual; /* default for jobs whose handler no protocol names; exactly one protocol is
			*/
	bool has_custom; /* supports custom operators */
	bool has_tags;   /* packets may carry message authentication codes */
	/*
	 * This rank must answer others even while it posts nothing: the progress thread runs while
	 * the application computes.
	 */
	bool has_duties;
	/*
	 * Ranks join no switch and send packets to each other, by way of the first hop; `hosts` is
	 * needed.
	 */
	bool has_leaders;
	bool multicasts;  /* broadcast and allgather go by multicast, each packet once to all ranks
			   */
	bool any_density; /* sparse requests need no density that all ranks know */
	/* Jobs of its first handler are made for this use. No two protocols have the same one. */
	enum fanin_beside_use beside;
	const struct fanin_protocol_region_ops *region; /* its jobs are multicast regions; NULL:
							   they are not */
	/*
	 * Returns how many packets may be in flight to a rank of a job. NULL: as many as the job's
	 * window.
	 */
	uint32_t (*in_flight)(uint16_t size, uint16_t payload_bytes);
	/*
	 * The decisions of a protocol on the block engine (engine/engine_internal.h). NULL: it has
	 * an engine of its own.
	 */
	const struct fanin_engine_rules *rules;
	uint32_t collectives; /* bit 1 << enum fanin_collective for each that it carries out */

	/*
	 * For protocols on switches. NULL: the protocol runs among the ranks, without a switch; the
	 * network manager tells their addresses.
	 */
	const struct fanin_switch_ops *on_switch;

	/*
	 * Opens the socket to which other ranks will connect, before the job is asked for. NULL if
	 * the protocol has none; a protocol on a switch never has one.
	 *
	 * ip_be: the address that they shall connect to. address: receives it with the port.
	 * Returns the descriptor, or a negative status.
	 */
	int (*listen)(uint32_t ip_be, struct sockaddr_in *address, struct fanin_error *error);

	/*
	 * protocol: this table, to which endpoint->protocol is set. endpoint: set on success only.
	 * Returns FANIN_OK or a negative status with what was found in `error`.
	 */
	int (*open)(const struct fanin_protocol *protocol,
		    const struct fanin_protocol_config *config, struct fanin_endpoint **endpoint,
		    struct fanin_error *error);

	/*
	 * Says goodbye if the protocol has to, for a second at most, and frees the endpoint.
	 * Requests are dropped. endpoint may be NULL.
	 */
	void (*close)(struct fanin_endpoint *endpoint);

	/*
	 * False while polls are needed before requests can be posted; `problem` then receives what
	 * is missing. NULL: an endpoint is ready once it is open.
	 */
	bool (*ready)(struct fanin_endpoint *endpoint, struct fanin_error *problem);

	/*
	 * Takes a request that its owner has filled in. Requests are carried out in the order of
	 * posting. Nothing need be sent before the next poll.
	 *
	 * count: as for fanin_request_layout. Returns FANIN_OK, FANIN_ERR_INVALID if it is too long
	 * beside the posted ones, or the error that the endpoint has failed with.
	 */
	int (*post)(struct fanin_endpoint *endpoint, struct fanin_request *request, uint64_t count);

	/*
	 * Receives, sends and checks the timers once, without blocking. Returns how many times data
	 * was sent or received, or a negative status once the endpoint has failed; every request
	 * then has it.
	 */
	int (*poll)(struct fanin_endpoint *endpoint);

	/*
	 * Returns for how many nanoseconds from now the endpoint has nothing to do, unless poll_fds
	 * wake it.
	 */
	uint64_t (*idle_ns)(struct fanin_endpoint *endpoint);

	/*
	 * Fills in the descriptors and events for poll(); returns how many of the
	 * FANIN_TRANSPORT_MAX_FDS entries are used.
	 */
	unsigned int (*poll_fds)(struct fanin_endpoint *endpoint, struct pollfd *fds);

	/* Returns the reason of its failure; an empty text if it has not failed. */
	const struct fanin_error *(*error)(struct fanin_endpoint *endpoint);

	/*
	 * For a protocol among the ranks: fails the endpoint with all its requests, unless it has
	 * failed, and tells the other ranks. NULL: it can't. status: negative.
	 */
	void (*abort)(struct fanin_endpoint *endpoint, int status, const struct fanin_error *error);

	/* Fills in the ranks that the oldest request waits for, late or gone, as far as known. */
	void (*missing)(struct fanin_endpoint *endpoint, struct fanin_ranks *ranks);

	/* Fills in the fields that only the protocol knows; leaves the others. */
	void (*report)(struct fanin_endpoint *endpoint, struct fanin_report *report);

	/* used by the registry */
	struct fanin_protocol *next;
};

/* True if its jobs have a tree of switches that the ranks join. */
static inline bool
fanin_protocol_has_tree(const struct fanin_protocol *protocol)
{
	return protocol->on_switch != NULL && !protocol->has_leaders;
}

/*
 * True if the protocol supports jobs with several trees, with an endpoint for each. It runs on
 * switches.
 */
static inline bool
fanin_protocol_splits(const struct fanin_protocol *protocol)
{
	return protocol->on_switch->cut != NULL;
}

/* True if the protocol resumes a run that its switch has lost. It runs on switches. */
static inline bool
fanin_protocol_recovers(const struct fanin_protocol *protocol)
{
	return protocol->on_switch->run_lost != NULL;
}

/*
 * True if a received frame is a valid packet of the endpoint's run, or a refusal, from the switch
 * that the endpoint sends to.
 *
 * config: of an endpoint on a switch whose packets have no tags.
 */
static inline bool
fanin_protocol_admits(const struct fanin_protocol_config *config, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;

	return fanin_wire_validate(headers, frame->len) == FANIN_REASON_NONE &&
	       fanin_wire_comes_from(headers, config->flow.dst_mac, config->flow.dst_ip_be) &&
	       headers->fanin.job == config->job && headers->fanin.epoch == config->epoch &&
	       fanin_keys_fit_answer(&config->keys, &headers->fanin);
}

/*
 * Returns why a protocol can't be registered, such as a name that is taken; a static string, or
 * NULL if it can be. Thread-safe after start-up.
 */
const char *fanin_protocol_problem(const struct fanin_protocol *candidate);

/*
 * Adds a protocol to the registry, and its packets to the known types. Called by
 * FANIN_PROTOCOL_REGISTER before main, single-threaded. Ends the process with a message if the
 * protocol can't be registered.
 */
void fanin_protocol_register(struct fanin_protocol *protocol);

/*
 * Returns the protocol of a job.
 *
 * handler: of the job. reason: receives a phrase why this protocol was chosen. Thread-safe after
 * start-up.
 */
const struct fanin_protocol *fanin_protocol_of(const char *handler, char *reason,
					       size_t reason_len);

/*
 * Returns the protocol for a use, or NULL if this library was built without it. The names of its
 * jobs end with its name. Thread-safe after start-up.
 */
const struct fanin_protocol *fanin_protocol_beside(enum fanin_beside_use use);

/*
 * Finds the protocol of a job on a switch.
 *
 * handler, multicast: of the job, as the switch says. protocol, reason: set on success only, as by
 * fanin_protocol_of. Returns FANIN_OK, or FANIN_ERR_UNSUPPORTED with an error that describes the
 * job and names what could use it. Thread-safe after start-up.
 */
int fanin_protocol_on_switch(uint32_t job, const char *handler, bool multicast,
			     const struct fanin_protocol **protocol, char *reason,
			     size_t reason_len, struct fanin_error *error);

/*
 * Finds the protocol of a job whose blocks have leaders, as the network manager says, among the
 * protocols that join no switch. Everything else is as for fanin_protocol_on_switch.
 */
int fanin_protocol_with_leaders(uint32_t job, const char *handler,
				const struct fanin_protocol **protocol, char *reason,
				size_t reason_len, struct fanin_error *error);

#define FANIN_PROTOCOL_REGISTER(protocol)                                                          \
	static void __attribute__((constructor)) register_##protocol(void)                         \
	{                                                                                          \
		fanin_protocol_register(&(protocol));                                              \
	}

#endif
