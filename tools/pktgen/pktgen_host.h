/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host of the traffic generator in one of its jobs: finds the switch by ARP, joins, contributes
 * by the window protocol, verifies every result, repeats what is lost, and leaves
 * (docs/protocol.md). It knows neither ports nor clocks: the caller brings frames and the time, so
 * that tests run it against a switch in their own process. One thread.
 *
 * All hosts of a job are played by one caller, which therefore knows when the last contribution to
 * a block was sent. Only from then on a result can be late.
 */
#ifndef FANIN_TOOLS_PKTGEN_PKTGEN_HOST_H
#define FANIN_TOOLS_PKTGEN_PKTGEN_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/measure/histogram.h"
#include "lab/reference/hosts.h"
#include "wire/keys.h"

#define PKTGEN_ERROR_LEN 512
#define PKTGEN_NO_LIMIT UINT64_MAX
#define PKTGEN_ARP_LEN 60
/* Longest frame without elements that a host sends. */
#define PKTGEN_CONTROL_LEN (FANIN_PAYLOAD_OFFSET + sizeof(struct fanin_join_body))

/* What happened; of all hosts and jobs together. */
struct pktgen_stats {
	uint64_t contributions; /* sent for the first time */
	uint64_t retransmits;
	uint64_t results;     /* awaited ones */
	uint64_t lost;        /* results that did not come in time; each is counted once */
	uint64_t duplicates;  /* results of blocks that were finished already */
	uint64_t wrong;       /* results that are not what the hosts' data make */
	uint64_t answers;     /* to retransmissions that the switch had already, while it waited for
				 others */
	uint64_t stale;       /* refused late duplicates: block_stale, block_out_of_window */
	uint64_t foreign;     /* frames that are no answers of the switch to these hosts */
	struct histogram own; /* from a host's contribution to its result */
	struct histogram block; /* from the last host's contribution to each result */
};

/* A station: has a link of the generator, alone or with others. */
struct pktgen_host {
	uint8_t mac[6];
	uint8_t switch_mac[6];
	bool resolved; /* switch_mac is known */
	uint16_t port; /* the caller's */
	uint32_t ip_be;
	uint32_t switch_ip_be;
	uint32_t mtu;
	uint16_t udp_port;
};

struct pktgen_block {
	uint64_t block;
	uint64_t last_ns; /* when the last contribution so far was sent for the first time */
	uint16_t n_sent;  /* hosts */
};

struct pktgen_job {
	/* Set by the caller. */
	uint32_t id;
	uint64_t secret;        /* which its keys are derived from */
	struct fanin_keys keys; /* likewise */
	uint16_t size;          /* hosts */
	uint8_t dtype;          /* wire codes */
	uint8_t op;
	uint32_t payload;    /* bytes of a contribution; 0: as many as the job takes */
	uint16_t max_window; /* 0: the job's */
	bool stagger;
	uint64_t timeout_ns; /* after which a result is lost */
	uint64_t stall_ns;   /* after which the switch is given up */
	struct pktgen_stats *stats;

	/* From the switch; the same for all hosts. */
	uint32_t epoch; /* 0: not active yet */
	uint16_t window;
	uint16_t payload_limit;
	uint32_t group_be;
	bool wide;

	struct hosts_data data;
	struct pktgen_block *blocks;  /* 2W, by block modulo 2W */
	uint64_t limit;               /* first block that is not sent */
	uint64_t next_block;          /* behind the last one that any host has sent */
	uint64_t progress_ns;         /* the last result */
	char error[PKTGEN_ERROR_LEN]; /* not empty: the job has failed */
};

enum pktgen_state {
	PKTGEN_RESOLVE, /* asks for the switch's MAC address */
	PKTGEN_JOIN,    /* until the switch says active */
	PKTGEN_RUN,
	PKTGEN_LEAVE, /* until the switch confirms */
	PKTGEN_LEFT,
};

struct pktgen_lane {
	uint64_t block;    /* that it is about; goes up by W */
	uint64_t first_ns; /* sent for the first time */
	uint64_t last_ns;  /* sent for the last time */
	bool sent;         /* its result is awaited */
	bool queued;
	bool late; /* counted as lost */
};

struct pktgen_member {
	struct pktgen_host *host;
	struct pktgen_job *job;
	uint16_t rank;
	enum pktgen_state state;
	bool joined; /* the switch has it in its list */
	uint64_t nonce;
	uint64_t cookie;
	unsigned int refusal;  /* last reason for which JOIN has to wait */
	uint64_t next_send_ns; /* of ARP, JOIN or LEAVE */
	uint64_t next_scan_ns; /* for results that are late */
	struct fanin_headers headers;
	struct pktgen_lane *lanes; /* W, by block modulo W */
	uint16_t *queue;           /* ring of W lanes that have something to send */
	uint16_t queue_head;
	uint16_t queue_len;
	uint16_t in_flight;
	uint64_t oldest; /* block; every one before has its result */
};

/* nonce: random, another one for each run. */
void pktgen_member_init(struct pktgen_member *member, struct pktgen_host *host,
			struct pktgen_job *job, uint16_t rank, uint64_t nonce);

void pktgen_member_free(struct pktgen_member *member);

/*
 * Makes what the job needs to run, once one of its members is in the state RUN.
 *
 * Returns 0, -EINVAL or -ENOMEM with job->error filled.
 */
int pktgen_job_start(struct pktgen_job *job);

/*
 * The same for a member, which must be in the state RUN. Returns 0, or -ENOMEM with job->error
 * filled.
 */
int pktgen_member_start(struct pktgen_member *member);

void pktgen_job_free(struct pktgen_job *job);

/*
 * Lets the job's members send blocks up to limit - 1, from where they stopped. Every member has to
 * be told by pktgen_member_resume when the limit was raised.
 */
void pktgen_job_limit(struct pktgen_job *job, uint64_t limit, uint64_t now_ns);
void pktgen_member_resume(struct pktgen_member *member);

/* True if all of the member's blocks below the limit have their results. */
bool pktgen_member_done(const struct pktgen_member *member);

/* True if there is an ARP request, JOIN or LEAVE to send now. */
bool pktgen_member_control_due(const struct pktgen_member *member, uint64_t now_ns);

/* Writes it into frame, of PKTGEN_CONTROL_LEN bytes. Returns its length. */
size_t pktgen_member_control(struct pktgen_member *member, uint64_t now_ns, void *frame);

/*
 * Queues contributions whose results are late. To be called in each round in which all frames that
 * had come in were taken: a caller that was away for a while must not take what waits for it as
 * lost.
 */
void pktgen_member_scan(struct pktgen_member *member, uint64_t now_ns);

/* True if there is a contribution that may be sent now. */
bool pktgen_member_ready(struct pktgen_member *member);

/*
 * Writes the next one; pktgen_member_ready must have said that there is one.
 *
 * frame: FANIN_PAYLOAD_OFFSET + data.bytes of the job. Returns the length.
 */
size_t pktgen_member_contribution(struct pktgen_member *member, uint64_t now_ns, void *frame);

/* Takes an ARP answer, if it is one that this host waits for. */
void pktgen_host_arp(struct pktgen_host *host, const void *frame, size_t len);

/* Takes a valid frame that was sent to this member alone: all types but RESULT. */
void pktgen_member_receive(struct pktgen_member *member, const struct fanin_headers *headers);

/* Takes a valid RESULT of the job, if this member waits for it; returns false if it does not. */
bool pktgen_member_result(struct pktgen_member *member, const struct fanin_headers *headers,
			  uint64_t now_ns);

/* Counts a valid RESULT that no host on its port waits for. */
void pktgen_job_unclaimed(struct pktgen_job *job, const struct pktgen_member *member,
			  const struct fanin_headers *headers);

/* From now on the member repeats LEAVE until it is confirmed. */
void pktgen_member_leave(struct pktgen_member *member);

#endif
