/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host's membership of a job at the network manager: JSON lines over a connection that stays open
 * as long as the host is a member. Joining blocks; everything later is done in fanin_manager_poll,
 * also reconnecting, which does not affect the job. One thread at a time.
 */
#ifndef FANIN_HOSTLIB_MANAGER_H
#define FANIN_HOSTLIB_MANAGER_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "hostlib/src/base/error.h"
#include "hostlib/src/base/peer.h"
#include "manager_settings.h"
#include "wire/wire.h"

#define FANIN_JOB_NAME_MAX 63
/* Most ranks of a job that runs without a reduction tree. */
#define FANIN_MANAGER_MAX_PEERS 64

struct fanin_manager;

struct fanin_manager_options {
	const char *manager;  /* NULL: as configured */
	const char *token;    /* likewise */
	uint64_t deadline_ns; /* for joining, on the clock of fanin_now_ns */
	uint64_t timeout_ns;  /* the same as a duration, for texts */
	fanin_interrupt_fn interrupt;
	void *interrupt_arg;
	const struct fanin_log *log;
};

/* A parameter of a job's handler. */
struct fanin_manager_parameter {
	const char *name;
	uint64_t value; /* INT64_MAX at most */
};

/* What a host asks for when it joins. */
struct fanin_manager_join {
	const char *job;
	uint16_t size;
	int rank; /* -1: any */
	uint32_t ip_be;
	const struct sockaddr_in *endpoint; /* where the ring's previous rank shall connect; NULL:
					       no fallback */
	uint32_t mtu;
	const char *handler;
	bool reproducible;
	bool wide;
	bool authenticate;
	uint16_t trees;                                   /* 0: the manager's default */
	const struct fanin_manager_parameter *parameters; /* n_parameters of them; the others are
							     the handler's defaults */
	size_t n_parameters;
	uint64_t beside_key; /* of the job that this one is beside, as its name says; 0: it is
				beside none */
};

/* Where the job begins for this host. */
struct fanin_manager_home {
	uint32_t ip_be; /* the host's own address there; 0: the manager has not told it */
	uint32_t switch_ip_be;
	uint16_t udp_port; /* host order */
	/*
	 * Changes when the tree is made anew, even over the same switches: its run is lost then. 0:
	 * unknown.
	 */
	uint32_t generation;
};

/* One of a job's trees: a job on the switches. */
struct fanin_manager_tree {
	struct fanin_manager_home home;
	char switch_ip[INET_ADDRSTRLEN]; /* of home */
	char interface[IF_NAMESIZE];     /* of home.ip_be; filled in by the caller */
	uint64_t key;
	uint32_t job;
	struct fanin_peer *peers; /* by rank; owned by the answer. NULL: not needed, as the job's
				     switches do all the work */
};

/* The manager's answer to a join. */
struct fanin_manager_answer {
	bool ring; /* else in the network */
	char reason[FANIN_TEXT_LEN];
	uint64_t key;
	uint16_t rank;
	uint16_t size;
	/* In the network. */
	struct fanin_manager_tree trees[FANIN_MAX_TREES];
	uint16_t n_trees;
	bool authenticated;     /* packets have tags */
	uint16_t payload_bytes; /* of a packet in any of several trees, or of a job with leaders; 0:
				   not told */
	uint16_t trees_asked;
	char trees_reason[FANIN_TEXT_LEN / 2]; /* why there are fewer; "": there are not */
	/*
	 * Of a job whose blocks have leaders: its hosts join no switch, and are told here what one
	 * would tell them.
	 */
	bool has_leaders;
	char handler[17];
	uint16_t window;       /* a power of two */
	uint32_t slots;        /* that the job shares on a switch; 0: not told */
	uint32_t sharing_jobs; /* how many jobs share them */
	uint64_t parameters[FANIN_WIRE_PARAMETERS]; /* in the handler's order */
	/* As a ring, by rank. */
	struct sockaddr_in endpoints[FANIN_MANAGER_MAX_PEERS];
};

/*
 * Connects and shakes hands.
 *
 * manager: set on success only. Returns FANIN_OK, FANIN_ERR_INVALID, FANIN_ERR_MANAGER,
 * FANIN_ERR_JOIN_REFUSED (the token), FANIN_ERR_JOIN_TIMEOUT, FANIN_ERR_INTERRUPTED or
 * FANIN_ERR_NO_MEMORY.
 */
int fanin_manager_open(const struct fanin_manager_options *options, struct fanin_manager **manager,
		       struct fanin_error *error);

/* Frees what an answer has, but not the answer. */
void fanin_manager_answer_free(struct fanin_manager_answer *answer);

/* Returns this host's address on the route to the manager. */
uint32_t fanin_manager_local_ip(const struct fanin_manager *manager);

/*
 * Joins a job and waits until all ranks have.
 *
 * answer: set on success only, and to be freed then. Returns what fanin_manager_open does.
 */
int fanin_manager_join(struct fanin_manager *manager, const struct fanin_manager_join *join,
		       struct fanin_manager_answer *answer, struct fanin_error *error);

/* Returns the key of the job that was joined, of its first tree. */
uint64_t fanin_manager_key(const struct fanin_manager *manager);

/* Sends heartbeats, applies what the manager says, reconnects. Cheap if nothing is due. */
void fanin_manager_poll(struct fanin_manager *manager);

/*
 * Gives the membership up without waiting: this rank's communicator has failed, and others are not
 * to wait for it. The connection is not restored any more. manager may be NULL; may be called
 * repeatedly.
 */
void fanin_manager_give_up(struct fanin_manager *manager);

/*
 * Gives the membership up, waits until the manager has confirmed, for a second at most, and frees
 * it. manager may be NULL.
 */
void fanin_manager_leave(struct fanin_manager *manager);

/* "10.0.0.1:21932" */
const char *fanin_manager_address(const struct fanin_manager *manager);

/* Returns what is wrong with the connection now; "" if nothing is. */
const char *fanin_manager_problem(const struct fanin_manager *manager);

/*
 * Returns why one of the job's trees is gone, as the manager says; "" if it is not. Valid until the
 * manager is closed.
 */
const char *fanin_manager_stranded(const struct fanin_manager *manager, uint16_t tree);

/* Returns why the manager has ended the job, which no tree has then; "" if it has not. Likewise. */
const char *fanin_manager_ended(const struct fanin_manager *manager);

/*
 * Returns where a tree of the job continues, as the manager said after the join; NULL: it has not.
 * Valid until the next poll.
 */
const struct fanin_manager_home *fanin_manager_home(const struct fanin_manager *manager,
						    uint16_t tree);

/* Returns a number that changes whenever the results of the two calls above may have changed. */
uint32_t fanin_manager_changes(const struct fanin_manager *manager);

/*
 * Returns the ranks that have left the job, as far as the manager has told. Valid until the next
 * poll.
 */
const struct fanin_ranks *fanin_manager_left(const struct fanin_manager *manager);

/*
 * True if the connection is up, so that what the manager says of the job's other ranks is current.
 * Otherwise nothing is known of them.
 */
bool fanin_manager_is_current(const struct fanin_manager *manager);

/*
 * Fills in the ranks that the manager has lost, does not hear, or knows to be unreachable for any
 * switch, as last told. They may come back.
 *
 * since_ns: when the last one of them was added.
 */
void fanin_manager_away(const struct fanin_manager *manager, struct fanin_ranks *away,
			uint64_t *since_ns);

/* Returns how often the connection was lost and restored. */
uint32_t fanin_manager_reconnects(const struct fanin_manager *manager);

#endif
