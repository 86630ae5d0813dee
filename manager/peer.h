/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager's connection to one switch, or to a parameter server, which has the same protocol: a
 * client of the switch's control protocol that reconnects, sends requests, and reports when the
 * switch comes and goes. Non-blocking; main thread only.
 */
#ifndef FANIN_MANAGER_PEER_H
#define FANIN_MANAGER_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "control/address.h"
#include "control/control_client.h"
#include "manager/topology.h"
#include "wire/wire.h"

enum peer_state {
	PEER_DOWN,       /* waits for the next attempt */
	PEER_CONNECTING, /* the connection is being made */
	PEER_GREETING,   /* waits for the switch's greeting */
	PEER_LEARNING,   /* may be asked; its properties and jobs are not known yet */
	PEER_UP,
};

struct peer;

/*
 * Receives the answer to a request.
 *
 * user, which: as given to peer_ask. result: borrowed; or NULL if the switch refused, with its
 * error's code and message, or if the connection was lost, with the code "lost". After a loss it is
 * not known whether the request was carried out.
 */
typedef void (*peer_answer)(void *user, uint32_t which, struct peer *peer, const json_t *result,
			    const char *code, const char *message);

/* Callbacks to the owner of a peer. */
struct peer_events {
	void *user;
	void (*ready)(void *user, struct peer *peer); /* it is LEARNING: it may be asked now */
	void (*lost)(void *user, struct peer *peer);  /* it was ready and is DOWN now; all requests
							 have been answered */
};

struct peer_request {
	TAILQ_ENTRY(peer_request) entry;
	json_int_t id;
	uint64_t asked_ms;
	peer_answer answer;
	void *user;
	uint32_t which;
};

struct peer {
	const struct topology_switch *about;
	const struct peer_events *events;
	uint16_t index; /* in the topology */
	enum peer_state state;
	uint64_t since_ms; /* since when it is in this state; states before LEARNING count as one */
	uint64_t retry_ms; /* DOWN: when to connect next */
	uint64_t dead_after_ms;
	uint64_t retry_after_ms;
	int epoll_fd;           /* watches its connection */
	struct address address; /* ss_family AF_UNIX: about->control is a path */
	struct tls *tls;
	char token[SECRET_SIZE];
	struct control_service service; /* required by the line */
	struct control_client line;
	int connecting_fd; /* CONNECTING; else -1 */
	json_int_t last_id;
	TAILQ_HEAD(peer_requests, peer_request) requests; /* in the order of their answers */
	char error[CONTROL_MESSAGE_LEN];                  /* why it is down; "": it is not */
	char told[CONTROL_MESSAGE_LEN]; /* the last error that was logged since the switch was up */
	uint64_t told_ms;               /* when that was logged; 0: never */

	/* Reported by the switch; written by the peer's owner. */
	char ip[16];
	char mac[18];
	uint16_t udp_port;
	uint32_t jobs;
	uint32_t max_jobs;
	uint32_t slots_per_job;
	uint32_t mbufs_per_job; /* the most that the slots of a job may hold together */
	json_t *handlers;       /* each with name, default, in_order, order, slot_mbufs */
	json_t *ports;          /* name: MTU */
	json_t *ports_down;     /* names */
	/* owner.c: numbers of jobs that carry the manager's name without an id */
	json_t *unnumbered;
	/* owner.c: jobs that carry the manager's name with another id */
	json_t *namesakes;
	uint64_t namesakes_told_ms; /* when they were last logged; 0: never */
	json_t *next_hops;          /* of its routes, each with port and MAC address */
	uint64_t routes_ms;         /* when to ask for the next hops again */
	uint64_t ping_ms;           /* when to ping next */
	bool pinging;
	uint64_t reconcile_ms; /* when to compare its jobs next */
};

/*
 * Prepares a peer that connects at its first peer_serve.
 *
 * error: CONTROL_MESSAGE_LEN bytes. Returns 0, or -errno if token or certificates cannot be read.
 */
int peer_begin(struct peer *peer, const struct topology_switch *about, uint16_t index,
	       const struct peer_events *events, int epoll_fd, char *error);

/*
 * Connects, receives, sends, and detects a dead switch. Call it when the connection has events, and
 * at the returned time, in milliseconds of clock_ms.
 */
uint64_t peer_serve(struct peer *peer, uint64_t now_ms);

/*
 * Sends a request to the switch. args: a reference that the call takes; NULL: none. answer: called
 * exactly once, later, unless peer_end comes first. Returns 0; or -ENOTCONN or -ENOMEM, and answer
 * is not called.
 */
int peer_ask(struct peer *peer, const char *command, json_t *args, peer_answer answer, void *user,
	     uint32_t which);

/*
 * Returns the version of a host's or switch's packets. told: the version that it reported; 0: none,
 * which means version 2.
 */
static inline int64_t
peer_packet_version(int64_t told)
{
	return told != 0 ? told : FANIN_WIRE_VERSION_BEFORE;
}

/*
 * Ends the connection and answers all requests as lost; the next attempt follows after a while.
 * why: for people.
 */
void peer_lose(struct peer *peer, const char *why);

/* Closes the connection and frees what the peer has; requests are not answered. */
void peer_end(struct peer *peer);

#endif
