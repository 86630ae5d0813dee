/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host's membership of a job at the network manager: JSON lines over a connection that stays open
 * as long as the host is a member. Joining blocks; fanin_manager_poll does everything later,
 * including reconnecting, which does not affect the job. One thread at a time.
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
/* Maximum of ranks of a job that runs without a reduction tree. */
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

/* The request of a host that joins. */
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
	uint64_t beside_key; /* of the job that this one belongs beside, as its name says; 0: none
			      */
};

/* The switch at which the job begins for this host. */
struct fanin_manager_home {
	uint32_t ip_be; /* the host's own address there; 0: the manager has not told it */
	uint32_t switch_ip_be;
	uint16_t udp_port; /* host order */
	/*
	 * Changes whenever the tree is made again, even over the same switches: its run is lost
	 * then. 0: unknown.
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
	bool ring; /* as a ring; else in the network */
	char reason[FANIN_TEXT_LEN];
	uint64_t key;
	uint16_t rank;
	uint16_t size;
	/* For a job in the network. */
	struct fanin_manager_tree trees[FANIN_MAX_TREES];
	uint16_t n_trees;
	bool authenticated;     /* packets have tags */
	uint16_t payload_bytes; /* of packets, the same in all of several trees, or of a job with
				   leaders; 0: not told */
	uint16_t trees_asked;
	char trees_reason[FANIN_TEXT_LEN / 2]; /* why there are fewer than asked for; "": there are
						  not */
	/*
	 * For a job whose blocks have leaders: its hosts join no switch, and the manager tells them
	 * what a switch would tell.
	 */
	bool has_leaders;
	char handler[17];
	uint16_t window;       /* a power of two */
	uint32_t slots;        /* of a switch, shared with other jobs; 0: not told */
	uint32_t sharing_jobs; /* how many jobs share them */
	uint64_t parameters[FANIN_WIRE_PARAMETERS]; /* in the handler's order */
	/* For a ring, by rank. */
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

/* Frees the memory of an answer, but not the answer itself. */
void fanin_manager_answer_free(struct fanin_manager_answer *answer);

/* Returns this host's address on the route to the manager. */
uint32_t fanin_manager_local_ip(const struct fanin_manager *manager);

/*
 * Joins a job and waits until all ranks have joined it.
 *
 * answer: set on success only, to be freed by the caller. Returns what fanin_manager_open does.
 */
int fanin_manager_join(struct fanin_manager *manager, const struct fanin_manager_join *join,
		       struct fanin_manager_answer *answer, struct fanin_error *error);

/* Returns the key of the joined job's first tree. */
uint64_t fanin_manager_key(const struct fanin_manager *manager);

/* Sends heartbeats, applies the manager's messages, and reconnects. Cheap if nothing is due. */
void fanin_manager_poll(struct fanin_manager *manager);

/*
 * Gives the membership up without waiting: this rank's communicator has failed, and others must not
 * wait for it. The connection is not restored any more. manager may be NULL; may be called
 * repeatedly.
 */
void fanin_manager_give_up(struct fanin_manager *manager);

/*
 * Gives the membership up, waits for a second at most until the manager has confirmed, and frees
 * it. manager may be NULL.
 */
void fanin_manager_leave(struct fanin_manager *manager);

/* Returns the manager's address: "10.0.0.1:21932". */
const char *fanin_manager_address(const struct fanin_manager *manager);

/* Returns the connection's current problem; "" if there is none. */
const char *fanin_manager_problem(const struct fanin_manager *manager);

/*
 * Returns why one of the job's trees is gone, as the manager says; "" if it is not gone. Valid
 * until the manager is closed.
 */
const char *fanin_manager_stranded(const struct fanin_manager *manager, uint16_t tree);

/*
 * Returns why the manager has ended the job, which has no tree then; "" if it has not. Valid until
 * the manager is closed.
 */
const char *fanin_manager_ended(const struct fanin_manager *manager);

/*
 * Returns the switch at which a tree of the job continues, as the manager said after the join;
 * NULL: the manager has not said so. Valid until the next poll.
 */
const struct fanin_manager_home *fanin_manager_home(const struct fanin_manager *manager,
						    uint16_t tree);

/* Returns a number that changes whenever the results of the calls above may have changed. */
uint32_t fanin_manager_changes(const struct fanin_manager *manager);

/*
 * Returns the ranks that have left the job, as far as the manager has told. Valid until the next
 * poll.
 */
const struct fanin_ranks *fanin_manager_left(const struct fanin_manager *manager);

/*
 * True if the connection is up, so that the manager's statements about the job's other ranks are
 * current. Otherwise nothing is known of them.
 */
bool fanin_manager_is_current(const struct fanin_manager *manager);

/*
 * Fills in the ranks that the manager has lost, does not hear, or knows that no switch reaches, as
 * last told. They may come back.
 *
 * since_ns: when the last one of them was added.
 */
void fanin_manager_away(const struct fanin_manager *manager, struct fanin_ranks *away,
			uint64_t *since_ns);

/* Returns how often the connection was lost and restored. */
uint32_t fanin_manager_reconnects(const struct fanin_manager *manager);

#endif
