/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A parameter server without its sockets: the parent of the aggregating switch of each of its jobs
 * (PA-ATP, sections III and IV; protocols/pa_atp/README.md). It takes complete sums, partial sums
 * and single contributions, each with the set of the ranks in it. It sends each block's result to
 * the job's group once. Callers pass packets and the time in; a callback sends packets: no I/O, no
 * clock, no threads. Memory is allocated when a job is added. serve.c adds the sockets; tests and
 * simulations have their own shells.
 */
#ifndef FANIN_PROTOCOLS_PA_ATP_HOST_SERVER_H
#define FANIN_PROTOCOLS_PA_ATP_HOST_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fanin/server.h"
#include "handlers/kernels/kernels.h"
#include "hostlib/src/base/error.h"
#include "wire/wire.h"

#define FANIN_SERVER_MAX_SLOTS (2u * FANIN_WIRE_MAX_WINDOW)
#define FANIN_SERVER_FLUSH_BLOCKS                                                                  \
	64u /* the oldest blocks without a result, for which FLUSHes are sent */
/* Maximum time between the FLUSHes for one block, unless two round trips are longer. */
#define FANIN_SERVER_MAX_FLUSH_WAIT_NS UINT64_C(1000000000)
/*
 * The round trip before the first measurement, and the bounds of a measured one: after a loss, the
 * time measured is a host's retry timer.
 */
#define FANIN_SERVER_ROUND_TRIP_NS UINT64_C(1000000)
#define FANIN_SERVER_MIN_ROUND_TRIP_NS UINT64_C(500000)
#define FANIN_SERVER_MAX_ROUND_TRIP_NS UINT64_C(50000000)
/* Maximum length of a payload that is not a block's. */
#define FANIN_SERVER_BODY_MAX 256u

static_assert(sizeof(struct fanin_join_ack_body) + sizeof(uint64_t) <= FANIN_SERVER_BODY_MAX &&
		      sizeof(struct fanin_answer_body) + 2 * sizeof(uint64_t) <=
			      FANIN_SERVER_BODY_MAX,
	      "bodies in jobs of 64 ranks");

/*
 * A packet to send, from the server's address and port, with TTL 64, unfragmented, without UDP
 * checksum. The caller adds Ethernet, IPv4 and UDP headers.
 */
struct fanin_server_emission {
	const struct fanin_hdr *hdr; /* valid during the call */
	/*
	 * A block's payload (`lasting`) is the job's memory, which stays the same until a later
	 * block takes the slot or the job is removed. Other payloads are valid during the call and
	 * have at most FANIN_SERVER_BODY_MAX bytes.
	 */
	const void *payload;
	uint32_t payload_len;
	uint32_t dst_ip_be; /* address of the switch, or of the job's group */
	uint16_t dst_port;  /* host order */
	bool lasting;
};

struct fanin_server_core_options {
	void (*send)(void *arg, const struct fanin_server_emission *emission);
	uint64_t (*random)(void *arg); /* for cookies and run numbers */
	void *arg;
	uint16_t udp_port; /* UDP port of the switches */
	enum fanin_isa isa;
	uint32_t max_jobs;
	uint64_t memory_bytes;  /* for all jobs; each job may use its share */
	uint64_t round_trip_ns; /* 0: measured when the switch joins */
};

/* The description of a job to add. */
struct fanin_server_spec {
	uint32_t id;
	uint64_t key;
	uint32_t member_ip_be; /* of the aggregating switch */
	uint16_t n_ranks;
	uint16_t payload_bytes;
	uint32_t slots;                             /* a power of two; the window is half of it */
	uint64_t parameters[FANIN_WIRE_PARAMETERS]; /* sent in JOIN_ACK */
	char handler[16];                           /* sent in JOIN_ACK, zero-padded */
};

struct fanin_server_core;
struct fanin_server_job;

/*
 * Makes a server without jobs. core: set on success only. Returns FANIN_OK or FANIN_ERR_NO_MEMORY.
 */
int fanin_server_core_create(const struct fanin_server_core_options *options,
			     struct fanin_server_core **core);

/* Frees the server and its jobs. core may be NULL. */
void fanin_server_core_free(struct fanin_server_core *core);

/* Return the memory of a job in bytes, and the maximum that a job may use. */
uint64_t fanin_server_job_bytes(uint32_t slots, uint32_t payload_bytes);
uint64_t fanin_server_job_share(const struct fanin_server_core *core);

/*
 * Returns the maximum number of slots that fit into a job's share with this payload: a power of
 * two, or 0 if not even two fit.
 */
uint32_t fanin_server_max_slots(const struct fanin_server_core *core, uint32_t payload_bytes);

/*
 * Adds a job. Returns FANIN_OK, FANIN_ERR_INVALID (a field is out of its range, or the number is
 * taken) or FANIN_ERR_NO_MEMORY, with the amounts asked for and available in *error.
 */
int fanin_server_core_add(struct fanin_server_core *core, const struct fanin_server_spec *spec,
			  struct fanin_error *error);

/* Removes a job, whose switch is refused from then on. Returns false if there is no such job. */
bool fanin_server_core_remove(struct fanin_server_core *core, uint32_t id);

/* Returns a job, or NULL if there is none. */
const struct fanin_server_job *fanin_server_core_job(const struct fanin_server_core *core,
						     uint32_t id);

/* Returns the lowest job number above `after`, or 0 if there is none. */
uint32_t fanin_server_core_next(const struct fanin_server_core *core, uint32_t after);

/*
 * Handles a packet of any content that was sent to the server. headers: of a frame of frame_len
 * bytes, of which sizeof(*headers) are readable; IPv4's source and TOS and UDP's source port are
 * used. payload: follows the headers, any alignment. now_ns: never goes back.
 */
void fanin_server_core_receive(struct fanin_server_core *core, const struct fanin_headers *headers,
			       size_t frame_len, const void *payload, uint64_t now_ns);

/*
 * Sends the FLUSHes that are due. Returns when to call it next; UINT64_MAX: not before another
 * packet has come.
 */
uint64_t fanin_server_core_timers(struct fanin_server_core *core, uint64_t now_ns);

/* Returns the same time without sending. */
uint64_t fanin_server_core_due(const struct fanin_server_core *core);

/* Returns the number of packets that were dropped or refused for a reason. */
uint64_t fanin_server_core_drops(const struct fanin_server_core *core, enum fanin_reason reason);

/* Counts a packet that the caller could not send. */
void fanin_server_core_note_drop(struct fanin_server_core *core, enum fanin_reason reason);

/* Fills all but `sz`. */
void fanin_server_job_describe(const struct fanin_server_job *job,
			       struct fanin_server_job_stats *stats);

/* The switch's address, and the number of this server's start. */
uint32_t fanin_server_job_member(const struct fanin_server_job *job);
uint64_t fanin_server_core_instance(const struct fanin_server_core *core);
uint32_t fanin_server_core_n_jobs(const struct fanin_server_core *core);

/* Lists waiting blocks, the oldest first. Returns their number; at most n are written. */
size_t fanin_server_job_waits(const struct fanin_server_job *job, uint64_t now_ns,
			      struct fanin_server_wait *waits, size_t n);

#endif
