/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The role of a parameter server, for jobs whose switches pass sums, partial sums and single
 * contributions on to one. fanin-server(8) is a daemon around it; a program that is to be a server
 * itself calls this.
 *
 * A server belongs to one thread at a time and makes none. It does something only in fanin_serve,
 * which never waits. The program waits for the server's descriptor, along with others.
 *
 *     struct fanin_server_opts opts = { .sz = sizeof(opts), .address = "10.77.0.200" };
 *     struct fanin_server_job_opts job = { .sz = sizeof(job), .job = 7, .key = key, .size = 4,
 * .switch_address = "10.77.0.254" };
 *
 *     if (fanin_server_open(&opts, &server, error, sizeof(error)) != FANIN_OK ||
 * fanin_server_add_job(server, &job) != FANIN_OK)
 *             ...
 *     for (;;) {
 *             struct pollfd fd = { .fd = fanin_server_fd(server), .events = POLLIN };
 *
 *             poll(&fd, 1, -1);
 *             while (fanin_serve(server) > 0)
 *                     ;
 *     }
 */
#ifndef FANIN_SERVER_H
#define FANIN_SERVER_H

#include <fanin/fanin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fanin_server fanin_server;

/* sz, zeros and how these structs grow: as fanin.h says for its own. */
struct fanin_server_opts {
	size_t sz;
	const char *address;   /* IPv4 address of an interface of this host; required */
	uint16_t udp_port;     /* default 21930; the switches have the same */
	uint16_t reserved;     /* 0 */
	uint32_t max_jobs;     /* default 16; each has an equal share of the memory */
	uint64_t memory_bytes; /* for blocks of all jobs; default 256 MiB. Allocated when a job is
				  added */
	uint32_t receive_buffer_bytes; /* of the socket; default 8 MiB, or as much as the kernel
					  gives */
	/*
	 * How long a block waits for its other contributions before the switch is told to pass on
	 * what it has of it. Default: the time that the switch took to answer when it joined, 500
	 * us to 50 ms.
	 */
	uint32_t round_trip_us;
};

struct fanin_server_job_opts {
	size_t sz;
	uint32_t job;               /* its number, 1 to 65535; required */
	uint16_t size;              /* ranks, 1 to 64; required */
	uint16_t payload_bytes;     /* a multiple of 64; default: the most that the interface's MTU
				       carries */
	uint64_t key;               /* as on the switches; required */
	const char *switch_address; /* IPv4 address of the job's aggregating switch; required */
	const char *handler; /* the switches' handler, which JOIN_ACK tells; default "pa-atp" */
	uint32_t slots;    /* a power of two, 2 to 8192, twice the job's window; default: what fits,
			      1024 at most */
	uint32_t reserved; /* 0 */
	uint64_t parameters[8]; /* of the job's handler, in its order, which JOIN_ACK tells */
};

/* X(field, text) Fields are added at the end. */
#define FANIN_SERVER_COUNTERS(X)                                                                   \
	X(blocks, "Blocks begun.")                                                                 \
	X(results, "Blocks finished.")                                                             \
	X(sums, "Complete sums that the switch has made.")                                         \
	X(partials, "Partial sums of several ranks.")                                              \
	X(singles, "Contributions of one rank, which no switch has merged.")                       \
	X(direct, "Partial sums and contributions that this server had asked for.")                \
	X(known, "Blocks whose result a rank had already, from an earlier run.")                   \
	X(duplicates, "Sums whose ranks were there already.")                                      \
	X(replaced, "Sums that took the place of a part of them.")                                 \
	X(overlaps, "Sums that were dropped because only some of their ranks were there.")         \
	X(stale, "Packets of blocks that all ranks are done with.")                                \
	X(ce, "Sums that came with the mark of congestion.")                                       \
	X(queries, "Queries about blocks.")                                                        \
	X(repeats, "Results sent again.")                                                          \
	X(answers, "Answers that name who is missing.")                                            \
	X(asks, "Requests to ranks whose contribution is missing.")                                \
	X(flushes, "Requests to the switch for what it has of a block.")                           \
	X(runs, "Runs that the switch has joined.")                                                \
	X(block_ns,                                                                                \
	  "Time of finished blocks from their first to their last contribution, nanoseconds.")

/* A job's properties and counters. The caller sets sz and only reads the other fields. */
struct fanin_server_job_stats {
	size_t sz;
	uint32_t job;
	uint32_t epoch; /* of the run; 0: the switch has not joined */
	uint16_t size;
	uint16_t window;
	uint16_t payload_bytes;
	uint16_t waiting; /* blocks with contributions of some ranks only */
	uint32_t slots;
	uint32_t round_trip_us;
	uint64_t memory_bytes;
	uint64_t bytes_reduced; /* payload of all that was merged */
#define FANIN_SERVER_COUNTER(field, text) uint64_t field;
	FANIN_SERVER_COUNTERS(FANIN_SERVER_COUNTER)
#undef FANIN_SERVER_COUNTER
};

struct fanin_server_stats {
	size_t sz;
	uint64_t instance; /* random, another one after each start */
	uint8_t mac[6];    /* of the interface */
	uint16_t udp_port;
	char interface[16];
	uint32_t mtu;
	bool link; /* the interface is up and has a carrier */
	uint8_t reserved[3];
	uint32_t receive_buffer_bytes; /* what the kernel gave */
	uint32_t jobs;
	uint32_t max_jobs;
	uint32_t slots_per_job;      /* that each job may have with the longest payload */
	uint64_t memory_bytes;       /* of the jobs that there are */
	uint64_t memory_limit_bytes; /* of all */
	uint64_t job_memory_bytes;   /* each job's share of that */
	uint64_t rx_packets;
	uint64_t rx_bytes; /* with all headers, as the next one */
	uint64_t tx_packets;
	uint64_t tx_bytes;
	uint64_t rx_missed;  /* the socket was full */
	uint64_t tx_dropped; /* the kernel did not take them */
	uint64_t rounds;     /* calls of fanin_serve */
};

/* A block that waits for contributions. */
struct fanin_server_wait {
	uint32_t block;
	uint32_t flushes; /* requests to the switch so far */
	uint64_t since_ns;
	uint64_t missing; /* bitmap of the ranks */
};

/* Why packets were not processed. */
struct fanin_server_drop {
	const char *name; /* small letters and underscores; static, as is the next one */
	const char *text;
	uint64_t count;
};

/*
 * Makes a server without jobs: finds the interface of the address and binds a UDP socket to it.
 *
 * opts: only read during the call. server: set on success only; free with fanin_server_close.
 * error: receives a line about what was wrong, error_len bytes; may be NULL. Returns FANIN_OK,
 * FANIN_ERR_INVALID, FANIN_ERR_NO_ROUTE (no interface has the address), FANIN_ERR_NO_MEMORY,
 * FANIN_ERR_SYSTEM if the port is taken, say, or FANIN_ERR_VERSION.
 */
FANIN_API int fanin_server_open(const struct fanin_server_opts *opts, fanin_server **server,
				char *error, size_t error_len);

/* Calls of fanin_server_open are calls of this function, as with fanin_init_from. */
FANIN_API int fanin_server_open_from(unsigned int header, const struct fanin_server_opts *opts,
				     fanin_server **server, char *error, size_t error_len);
#define fanin_server_open(...) fanin_server_open_from(FANIN_HEADER_NUMBER, __VA_ARGS__)

/* Removes all jobs and frees the server, which may be NULL. */
FANIN_API void fanin_server_close(fanin_server *server);

/* Returns why the last failed call failed. The text is valid until the next call. */
FANIN_API const char *fanin_server_error(const fanin_server *server);

/*
 * Adds a job, whose switch may join from then on. All its memory is allocated here.
 *
 * opts: only read during the call.
 * Returns FANIN_OK, FANIN_ERR_INVALID (a value is wrong, or there is such a job),
 * FANIN_ERR_UNSUPPORTED (more than 64 ranks) or FANIN_ERR_CAPACITY (more jobs or more memory than
 * there may be); fanin_server_error tells which amounts were asked for and are available.
 */
FANIN_API int fanin_server_add_job(fanin_server *server, const struct fanin_server_job_opts *opts);

/*
 * Removes a job, whatever its state. Its switch is refused from then on, and the ranks learn of it
 * with their next packet. Returns FANIN_OK, or FANIN_ERR_INVALID if there is no such job.
 */
FANIN_API int fanin_server_remove_job(fanin_server *server, uint32_t job);

/*
 * Takes packets that have come, at most some hundred, answers them, and sends what is due. Never
 * waits.
 *
 * Returns how many packets came: if it is not 0 there may be more; or FANIN_ERR_SYSTEM if the
 * socket fails.
 */
FANIN_API int fanin_serve(fanin_server *server);

/*
 * A descriptor that is readable when fanin_serve has something to do, packets or time. Belongs to
 * the server.
 */
FANIN_API int fanin_server_fd(const fanin_server *server);

/* Fills stats. Returns FANIN_OK, or FANIN_ERR_INVALID if sz is not as it may be. */
FANIN_API int fanin_server_stats(const fanin_server *server, struct fanin_server_stats *stats);

/* The lowest job number above `after`; 0: there is none. */
FANIN_API uint32_t fanin_server_next_job(const fanin_server *server, uint32_t after);

/*
 * Fills stats. Returns FANIN_OK, or FANIN_ERR_INVALID if there is no such job or sz is not as it
 * may be.
 */
FANIN_API int fanin_server_job_stats(const fanin_server *server, uint32_t job,
				     struct fanin_server_job_stats *stats);

/*
 * Lists blocks of a job that wait for contributions, those that began first. waits: room for n.
 * Returns how many blocks wait, of which at most n are written; 0 if there is no such job.
 */
FANIN_API size_t fanin_server_waits(const fanin_server *server, uint32_t job,
				    struct fanin_server_wait *waits, size_t n);

/*
 * The i-th reason for which packets are not processed, from 0 on. Returns FANIN_OK, or
 * FANIN_ERR_INVALID behind the last one.
 */
FANIN_API int fanin_server_drops(const fanin_server *server, unsigned int i,
				 struct fanin_server_drop *drop);

#ifdef __cplusplus
}
#endif

#endif
