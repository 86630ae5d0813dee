/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host of the traffic generator in one of its jobs: finds the switch by ARP, joins, contributes
 * by the window protocol, verifies every result, repeats lost contributions, and leaves
 * (docs/protocol.md). It knows neither ports nor clocks: the caller passes frames and the time, so
 * that tests can run it against a switch in their own process. One thread.
 *
 * One caller plays all hosts of a job, and so knows when the last contribution to a block was sent.
 * Only after that can a result be late.
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

/* Counters of all hosts and jobs together. */
struct pktgen_stats {
	uint64_t contributions; /* sent for the first time */
	uint64_t retransmits;
	uint64_t results;     /* awaited ones */
	uint64_t lost;        /* results that did not come in time, each counted once */
	uint64_t duplicates;  /* results of finished blocks */
	uint64_t wrong;       /* results that differ from those of the hosts' data */
	uint64_t answers;     /* to retransmissions that the switch already had, while it waited for
				 others */
	uint64_t stale;       /* refused late duplicates: block_stale, block_out_of_window */
	uint64_t foreign;     /* frames that are no answer of the switch to these hosts */
	struct histogram own; /* time from a host's contribution to its result */
	struct histogram block; /* time from the last host's contribution to each result */
};

/* A station on a link of the generator, alone or with others. */
struct pktgen_host {
	uint8_t mac[6];
	uint8_t switch_mac[6];
	bool resolved; /* switch_mac is known */
	uint16_t port; /* number of the caller's port */
	uint32_t ip_be;
	uint32_t switch_ip_be;
	uint32_t mtu;
	uint16_t udp_port;
};

struct pktgen_block {
	uint64_t block;
	uint64_t last_ns; /* when the last host so far first sent its contribution */
	uint16_t n_sent;  /* number of hosts that have sent it */
};

struct pktgen_job {
	/* Set by the caller. */
	uint32_t id;
	uint64_t secret;        /* from which its keys are derived */
	struct fanin_keys keys; /* derived from secret */
	uint16_t size;          /* number of hosts */
	uint8_t dtype;          /* wire codes */
	uint8_t op;
	uint32_t payload;    /* bytes of a contribution; 0: as many as the job takes */
	uint16_t max_window; /* 0: the job's */
	bool stagger;
	uint64_t timeout_ns; /* time after which a result is lost */
	uint64_t stall_ns;   /* time after which the switch is given up */
	struct pktgen_stats *stats;

	/* Reported by the switch; the same for all hosts. */
	uint32_t epoch; /* 0: not active yet */
	uint16_t window;
	uint16_t payload_limit;
	uint32_t group_be;
	bool wide;

	struct hosts_data data;
	struct pktgen_block *blocks;  /* 2W entries, by block modulo 2W */
	uint64_t limit;               /* first block that is not sent */
	uint64_t next_block;          /* first block that no host has sent */
	uint64_t progress_ns;         /* when the last result came */
	char error[PKTGEN_ERROR_LEN]; /* not empty: the job has failed */
};

enum pktgen_state {
	PKTGEN_RESOLVE, /* asks for the switch's MAC address */
	PKTGEN_JOIN,    /* until the switch reports the job as active */
	PKTGEN_RUN,
	PKTGEN_LEAVE, /* until the switch confirms */
	PKTGEN_LEFT,
};

struct pktgen_lane {
	uint64_t block;    /* current block; increases by W */
	uint64_t first_ns; /* when the block was first sent */
	uint64_t last_ns;  /* when the block was last sent */
	bool sent;         /* waits for the block's result */
	bool queued;
	bool late; /* counted as lost */
};

struct pktgen_member {
	struct pktgen_host *host;
	struct pktgen_job *job;
	uint16_t rank;
	enum pktgen_state state;
	bool joined; /* is a member at the switch */
	uint64_t nonce;
	uint64_t cookie;
	unsigned int refusal;  /* last reason for which JOIN has to wait */
	uint64_t next_send_ns; /* of ARP, JOIN or LEAVE */
	uint64_t next_scan_ns; /* when to look for late results */
	struct fanin_headers headers;
	struct pktgen_lane *lanes; /* W entries, by block modulo W */
	uint16_t *queue;           /* ring of up to W lanes that have something to send */
	uint16_t queue_head;
	uint16_t queue_len;
	uint16_t in_flight;
	uint64_t oldest; /* oldest block without its result */
};

/* nonce: random, different for each run. */
void pktgen_member_init(struct pktgen_member *member, struct pktgen_host *host,
			struct pktgen_job *job, uint16_t rank, uint64_t nonce);

void pktgen_member_free(struct pktgen_member *member);

/*
 * Allocates the job's data for the run, once one of its members is in the state RUN.
 *
 * Returns 0, -EINVAL or -ENOMEM with job->error filled.
 */
int pktgen_job_start(struct pktgen_job *job);

/*
 * Allocates the data of a member, which must be in the state RUN. Returns 0, or -ENOMEM with
 * job->error filled.
 */
int pktgen_member_start(struct pktgen_member *member);

void pktgen_job_free(struct pktgen_job *job);

/*
 * Lets the job's members send blocks up to limit - 1, from where they stopped. After raising the
 * limit, call pktgen_member_resume for every member.
 */
void pktgen_job_limit(struct pktgen_job *job, uint64_t limit, uint64_t now_ns);
void pktgen_member_resume(struct pktgen_member *member);

/* True if all of the member's blocks below the limit have their results. */
bool pktgen_member_done(const struct pktgen_member *member);

/* True if there is an ARP request, JOIN or LEAVE to send now. */
bool pktgen_member_control_due(const struct pktgen_member *member, uint64_t now_ns);

/* Writes that packet into frame, of PKTGEN_CONTROL_LEN bytes. Returns its length. */
size_t pktgen_member_control(struct pktgen_member *member, uint64_t now_ns, void *frame);

/*
 * Queues contributions whose results are late. Call it only in rounds that have processed all
 * received frames: after a break, results that are still waiting must not count as lost.
 */
void pktgen_member_scan(struct pktgen_member *member, uint64_t now_ns);

/* True if a contribution may be sent now. */
bool pktgen_member_ready(struct pktgen_member *member);

/*
 * Writes the next contribution, after pktgen_member_ready has returned true.
 *
 * frame: FANIN_PAYLOAD_OFFSET + data.bytes of the job. Returns the length.
 */
size_t pktgen_member_contribution(struct pktgen_member *member, uint64_t now_ns, void *frame);

/* Handles an ARP answer, if this host waits for it. */
void pktgen_host_arp(struct pktgen_host *host, const void *frame, size_t len);

/* Handles a valid frame that was sent to this member alone: all types but RESULT. */
void pktgen_member_receive(struct pktgen_member *member, const struct fanin_headers *headers);

/* Handles a valid RESULT of the job. Returns false if this member does not wait for it. */
bool pktgen_member_result(struct pktgen_member *member, const struct fanin_headers *headers,
			  uint64_t now_ns);

/* Counts a valid RESULT that no host on its port waits for. */
void pktgen_job_unclaimed(struct pktgen_job *job, const struct pktgen_member *member,
			  const struct fanin_headers *headers);

/* Starts to leave: the member repeats LEAVE until it is confirmed. */
void pktgen_member_leave(struct pktgen_member *member);

#endif
