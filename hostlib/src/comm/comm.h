/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators. State that a single file uses is a struct in that file's header; comm_join.h has
 * how communicators join.
 */
#ifndef FANIN_HOSTLIB_COMM_H
#define FANIN_HOSTLIB_COMM_H

#include "comm_agree.h"
#include "comm_beside.h"
#include "comm_close.h"
#include "comm_multicast.h"
#include "comm_recover.h"
#include "comm_region.h"
#include "comm_trees.h"
#include "context.h"
#include "hostlib/src/join/join.h"

/*
 * Operations of a communicator with one engine (comm_single.c), on a switch or among the ranks, or
 * with one for each of several trees (comm_trees.c). All but `leave` may only be called once
 * joining has succeeded; see struct fanin_protocol.
 */
struct fanin_comm_ops {
	int (*post)(struct fanin_comm *comm, struct fanin_request *request, uint64_t count);
	int (*poll)(struct fanin_comm *comm);
	uint64_t (*idle_ns)(const struct fanin_comm *comm);
	unsigned int (*poll_fds)(struct fanin_comm *comm, struct pollfd *fds); /* fanin_comm_max_fds
										*/
	const struct fanin_error *(*error)(const struct fanin_comm *comm);
	void (*missing)(const struct fanin_comm *comm, struct fanin_ranks *ranks);

	/* Fills in the fields that differ between kinds of communicators; the rest is zero. */
	void (*report)(const struct fanin_comm *comm, struct fanin_report *report);

	/*
	 * Returns the communicator of one of its trees: it runs on switches, has an engine, and
	 * belongs to the communicator.
	 */
	struct fanin_comm *(*part)(struct fanin_comm *comm, uint16_t tree);

	/* Leaves, and closes everything that is open, also after joining has failed half-way. */
	int (*leave)(struct fanin_comm *comm, struct fanin_error *error);
};

extern const struct fanin_comm_ops fanin_comm_single_ops;
extern const struct fanin_comm_ops fanin_comm_trees_ops;

/* Buffers for a report's strings, whose originals may change in any poll. */
struct fanin_comm_texts {
	char transport_reason[FANIN_TEXT_LEN];
	char interface[IF_NAMESIZE];
	char handler[32];
	char manager_problem[FANIN_TEXT_LEN];
};

/* Another link that a job with leaders uses as well. */
struct fanin_leaders_link {
	struct fanin_route route;
	struct fanin_channel channel; /* without ops: there is no other link */
	uint8_t mac[6];               /* of the first hop */
};

struct fanin_comm {
	const struct fanin_comm_ops *ops;
	struct fanin_ctx *ctx;
	struct fanin_comm *next;
	struct fanin_manager *manager;         /* NULL: the job was found without one */
	const struct fanin_protocol *protocol; /* runs the collectives; NULL: not known yet */
	char protocol_reason[FANIN_TEXT_LEN];  /* why this protocol */
	char mode_reason[FANIN_TEXT_LEN];
	char job_name[FANIN_JOB_NAME_MAX + 1];
	struct fanin_comm_texts *texts;  /* NULL: reports point to the originals */
	struct fanin_endpoint *endpoint; /* the protocol's; NULL: none yet, or one for each tree */
	struct fanin_request *requests;  /* not freed yet, linked by sibling */
	struct fanin_agreement agreement;
	struct fanin_comm_trees trees;

	/*
	 * The membership and the path to the network. Among the ranks `member` has only rank, size,
	 * key and handler.
	 */
	struct fanin_member member;
	struct fanin_route route;
	struct fanin_transport *transport;
	uint8_t switch_mac[6];     /* destination of the engine's packets */
	uint16_t window;           /* lanes of the engine */
	uint16_t payload_bytes;    /* maximum of a packet */
	uint32_t registered_ip_be; /* this host's address as registered at the manager; 0: no
				      manager */
	bool is_local;             /* several ranks are on a host (comm_local.h) */
	bool gave_up; /* the engine has failed, and switch and manager have been told */
	struct fanin_leaders_link second;
	struct fanin_recovery recovery;
	struct fanin_closing closing;

	/*
	 * Other communicators that carry out its collectives or reduce its regions; the context
	 * lists them, too. NULL: not joined.
	 */
	struct fanin_comm *beside[FANIN_BESIDE_USES];
	struct fanin_comm *owner;       /* of a communicator beside another one, or of a region */
	struct fanin_comm *network;     /* of the hosts, at the leader of a host with several ranks;
					   likewise in the context's list */
	struct fanin_kept_options kept; /* to join the communicators beside this one */
	struct fanin_comm_multicast multicast;
	struct fanin_comm_regions regions;
};

/* Returns the maximum of entries that a communicator's poll_fds fills in. */
static inline unsigned int
fanin_comm_max_fds(const struct fanin_comm *comm)
{
	return (comm->trees.n > 1 ? comm->trees.n : 1u) * FANIN_TRANSPORT_MAX_FDS;
}

/* Returns the options' wait limit in nanoseconds; one that does not fit counts as none. */
uint64_t fanin_comm_wait_limit_ns(const struct fanin_join_opts *options);

/* Implements fanin_join. beside: the job's place beside another communicator. */
int fanin_comm_join(struct fanin_ctx *ctx, const struct fanin_join_opts *opts,
		    const struct fanin_beside *beside, struct fanin_comm **comm);

/*
 * Fails a communicator that runs on switches, and all its requests, unless it has failed already.
 * status: negative.
 */
void fanin_comm_abort(struct fanin_comm *comm, int status, const struct fanin_error *error);

/*
 * Returns the error of a communicator that has failed, or of a failed job that carries out its
 * collectives. With the lock held.
 */
const struct fanin_error *fanin_comm_error_of(const struct fanin_comm *comm);

/* Fills in a report, whose strings the next poll may change. With the lock held. */
void fanin_comm_report_fill(const struct fanin_comm *comm, struct fanin_report *full);

/* Fills in the ranks that the oldest unfinished block waits for; see fanin_comm_missing_ranks. */
void fanin_comm_missing_set(const struct fanin_comm *comm, struct fanin_ranks *ranks);

/*
 * comm_switch.c: tells the switch, once, that this rank's collectives have failed; otherwise other
 * ranks would wait for it as for a late rank.
 */
void fanin_comm_give_up(struct fanin_comm *comm);

#endif
