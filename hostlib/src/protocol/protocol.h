/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host protocols. A protocol carries out the collectives of a communicator and is one table of functions: communicators and the
 * public calls know no more of it. Which one a job runs is said by the name of the job's handler. A protocol is a file, or a room,
 * of its own, which ends with FANIN_PROTOCOL_REGISTER.
 *
 * An engine is what a protocol's `open` makes: the state of one rank in one job, or in one tree of it. One thread at a time.
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

/* The handler whose protocol takes the place of a switch: what the network manager calls a job without a reduction tree. */
#define FANIN_HANDLER_WITHOUT_SWITCH "ring"

/* What an engine is made of. Constant while it is being opened, and copied. */
struct fanin_protocol_config {
	struct fanin_keys keys;
	uint64_t timeout_ns; /* longest time without progress while one is waited for, unless ranks are only late */
	uint64_t wait_limit_ns; /* the same if they are; 0: none */
	uint16_t rank;
	uint16_t size;
	bool wide; /* sums and averages of f16 and bf16 are accumulated in f32 */
	uint64_t (*now_ns)(void *arg); /* NULL: the monotonic clock */
	void *now_arg;
	const struct fanin_log *log; /* the owner's */

	/* On a switch. */
	struct fanin_transport *transport; /* the owner's */
	struct fanin_flow flow;            /* to the switch; src_port is overwritten */
	struct fanin_tagger *tagger; /* makes and checks tags, the owner's; NULL: packets have none */
	uint64_t instance;           /* of the switch; tags are bound to it */
	uint32_t job;
	uint32_t epoch;
	uint16_t window;        /* most blocks in flight, a power of two */
	uint16_t payload_bytes; /* most per packet */
	bool spread; /* the switch has several workers, of which one may be behind the others */
	bool stagger;
	bool recover; /* a run that the switch has lost can be resumed */
	/*
	 * By rank, where all were when the job was given to them. Valid in `open` only: what is needed later is to be copied. NULL: the network
	 * manager has not told, or there is none.
	 */
	const struct fanin_peer *hosts;

	/* Among the ranks only. */
	int listener; /* of `listen`; the protocol's from now on, also on failure */
	const struct sockaddr_in *peers; /* where each rank listens, by rank; the owner's */
};

/* What keeps a lost run from being taken up again, as far as the switch that is joined and others say. */
struct fanin_rejoin {
	struct fanin_ranks missing; /* ranks that have not joined again; none also if it is not known */
	struct fanin_ranks gone; /* of these: will not, or do not answer */
	struct fanin_ranks late; /* of these: are known to be there, and nothing else is in the way; none: no reason to wait */
	uint64_t told_ns; /* when the switch said it */
};

/*
 * Functions of a protocol on switches for jobs with several trees, and for runs that a switch may lose. Each of the two groups may be NULL
 * as a whole; `abort` belongs to both.
 */
struct fanin_switch_ops {
	/* Jobs with several trees, whose requests are split over as many engines. NULL: such a job can't be joined. */

	/* Lays a request out and cuts it into blocks without posting it. Returns how many the vector has. */
	uint64_t (*cut)(const void *engine, struct fanin_request *request, uint64_t count);

	/* FANIN_OK if so many blocks more can be posted, FANIN_ERR_INVALID if not, or the engine's earlier error. */
	int (*accepts)(const void *engine, uint64_t n_blocks);

	/* Fails with an error of others, unless it has failed already: all requests end. */
	void (*abort)(void *engine, int status, const struct fanin_error *error);

	/*
	 * Runs that are taken up again after the switch has lost them, and jobs that move to other switches. NULL: a run that is lost is an error,
	 * as anything else that keeps results from coming.
	 */

	/* True once the switch says, of a run that can be resumed, that it has no such run: nothing is sent until `resume`. */
	bool (*run_lost)(const void *engine);

	/* The run is said to be lost by others than the switch: run_lost is true from now on, if runs can be resumed. */
	void (*suspect_run)(void *engine);

	/* While the run is lost: whom a new one waits for, copied. Who is only late is waited for without the timeout. */
	void (*note_rejoin)(void *engine, const struct fanin_rejoin *rejoin);

	/* The first block that this rank has no result of. */
	uint32_t (*progress)(const void *engine);

	/*
	 * Goes on in another run, from first_block on, the least of all ranks' progress. Returns FANIN_OK, or FANIN_ERR_REFUSED if
	 * that can't be; the engine has failed then.
	 */
	int (*resume)(void *engine, uint32_t epoch, uint64_t instance, uint32_t first_block);

	/* The run is lost because the way to it is: the engine goes on over another transport, the owner's. */
	void (*move)(void *engine, struct fanin_transport *transport);

	/* Where packets go from now on; copied. */
	void (*redirect)(void *engine, const struct fanin_flow *flow);

	/* What else is known about why nothing comes back, for the words of a timeout; borrowed. NULL or "": nothing. */
	void (*hint)(void *engine, const char *hint);

	/* True if another rank may need a result that this one has, once a switch loses the run. */
	bool (*peers_may_need_results)(const void *engine);
};

struct fanin_protocol {
	const char *name; /* for the report and for messages */
	const char *const *handlers; /* whose jobs it runs; ends with NULL. No two protocols name the same one */
	/* Types of packets of its handlers' own, which become known with it; the last one has no name. NULL: none. */
	const struct fanin_packet_type *packets;
	bool is_usual;   /* it also runs jobs whose handler no protocol names. One protocol is */
	bool has_custom; /* custom operators may be there */
	bool has_tags;   /* packets may carry message authentication codes */
	/*
	 * This rank answers others while it posts nothing itself: a thread of the library makes progress while the application
	 * computes.
	 */
	bool has_duties;
	uint32_t collectives; /* 1 << enum fanin_collective of each that it carries out */

	/*
	 * It runs on switches. NULL: among the ranks, without a switch, of which the network manager tells them.
	 */
	const struct fanin_switch_ops *on_switch;

	/*
	 * Opens the socket at which other ranks will call, before the job is asked for. NULL if it has none, always so on a switch.
	 *
	 * ip_be: the address that they shall connect to. address: receives it with the port. Returns the descriptor, or a negative
	 * status.
	 */
	int (*listen)(uint32_t ip_be, struct sockaddr_in *address, struct fanin_error *error);

	/* engine: set on success only. Returns FANIN_OK or a negative status with what was found in `error`. */
	int (*open)(const struct fanin_protocol_config *config, void **engine,
		    struct fanin_error *error);

	/* Says goodbye where that is the protocol's to do, for a second at most, and frees the engine. Requests are forgotten. */
	void (*close)(void *engine);

	/*
	 * False as long as polls are needed before requests can be posted; `problem` then receives what is missing. NULL: an
	 * engine is ready when it is open.
	 */
	bool (*ready)(const void *engine, struct fanin_error *problem);

	/*
	 * Takes a request that its owner has filled in. Requests are carried out in the order of posting. Nothing need be sent
	 * before the next poll.
	 *
	 * count: as for fanin_request_layout. Returns FANIN_OK, FANIN_ERR_INVALID if it is too long for what is posted already, or
	 * the engine's earlier error.
	 */
	int (*post)(void *engine, struct fanin_request *request, uint64_t count);

	/*
	 * Receives, sends and looks at the timers once, without blocking. Returns how often something came or went, or a negative
	 * status once the engine has failed; every request then has it.
	 */
	int (*poll)(void *engine);

	/* How long from now the engine has nothing to do unless what poll_fds says wakes it. */
	uint64_t (*idle_ns)(const void *engine);

	/* Fills in what poll() has to wait for; returns how many of the FANIN_TRANSPORT_MAX_FDS places are used. */
	unsigned int (*poll_fds)(void *engine, struct pollfd *fds);

	/* What made it fail; an empty text if nothing did. */
	const struct fanin_error *(*error)(const void *engine);

	/* The ranks that the oldest request waits for, late or gone, as far as known. */
	void (*missing)(const void *engine, struct fanin_ranks *ranks);

	/* Fills in what only the protocol knows; the rest is not touched. */
	void (*report)(const void *engine, struct fanin_report *report);

	/* The registry's. */
	struct fanin_protocol *next;
};

/* True if the protocol can have engines on several trees at once. It runs on switches. */
static inline bool
fanin_protocol_splits(const struct fanin_protocol *protocol)
{
	return protocol->on_switch->cut != NULL;
}

/* True if the protocol takes up a run again that its switch has lost. It runs on switches. */
static inline bool
fanin_protocol_recovers(const struct fanin_protocol *protocol)
{
	return protocol->on_switch->run_lost != NULL;
}

/*
 * Is a received frame a valid packet of the engine's run, or a refusal, and from the switch that the engine sends to?
 *
 * config: of an engine on a switch whose packets have no tags.
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
 * Why a protocol can't be registered, such as a name that is taken; a static string, or NULL if it can. Thread-safe after start-up.
 */
const char *fanin_protocol_problem(const struct fanin_protocol *candidate);

/*
 * Adds a protocol to the registry, and its packets to the known types. Called by FANIN_PROTOCOL_REGISTER before main, single-threaded. If there
 * is a problem it ends the process, saying what it is.
 */
void fanin_protocol_register(struct fanin_protocol *protocol);

/*
 * The protocol of a job.
 *
 * handler: of the job. reason: receives, as a phrase, why it is this one. Thread-safe after start-up.
 */
const struct fanin_protocol *fanin_protocol_of(const char *handler, char *reason, size_t reason_len);

/*
 * The protocol of a job on a switch, if there is one that can run it.
 *
 * handler, multicast: what the switch says of the job. protocol, reason: set on success only, as fanin_protocol_of has them. Returns
 * FANIN_OK, or FANIN_ERR_UNSUPPORTED with what the job is and who could use it. Thread-safe after start-up.
 */
int fanin_protocol_on_switch(uint32_t job, const char *handler, bool multicast,
			     const struct fanin_protocol **protocol, char *reason,
			     size_t reason_len, struct fanin_error *error);

#define FANIN_PROTOCOL_REGISTER(protocol)                                                          \
	static void __attribute__((constructor)) register_##protocol(void)                         \
	{                                                                                          \
		fanin_protocol_register(&(protocol));                                              \
	}

#endif
