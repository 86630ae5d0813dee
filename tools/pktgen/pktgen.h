/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The traffic generator: ethdev ports with hosts behind them (pktgen_port.c), jobs on the switch
 * (pktgen_jobs.c), the polling loop (pktgen_run.c), the search for the highest rate
 * (pktgen_search.c), and what is printed (pktgen_report.c). All on one thread.
 */
#ifndef FANIN_TOOLS_PKTGEN_PKTGEN_H
#define FANIN_TOOLS_PKTGEN_PKTGEN_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "tools/pktgen/pktgen_host.h"

#define PKTGEN_MAX_JOBS 64
#define PKTGEN_BURST 32
#define PKTGEN_NAME_LEN 64

struct pktgen_options {
	const char *ports[HOSTS_MAX]; /* vdevs with their arguments, or PCI addresses */
	uint16_t n_ports;
	const char *switch_ports[HOSTS_MAX]; /* the switch's names of the other ends */
	uint16_t n_switch_ports;
	const char *eal; /* more words for the EAL; NULL: none */
	int cpu;         /* -1: any */
	bool huge;
	uint32_t mtu;

	uint32_t switch_ip_be;
	uint32_t first_ip_be; /* of host 0 */
	uint16_t udp_port;
	uint16_t hosts;

	const char *control; /* socket; jobs are made there */
	const char *handler;
	uint16_t n_jobs;
	struct {
		uint32_t id;
		uint64_t key;
		bool has_key;
	} jobs[PKTGEN_MAX_JOBS]; /* existing ones, without control */

	uint8_t dtype; /* wire codes */
	uint8_t op;
	uint32_t payload; /* 0: as many as the job takes */
	uint16_t window;  /* 0: the job's */
	bool stagger;
	bool exponential; /* gaps between contributions; else all the same */
	double rate;      /* contributions per second of all hosts; 0: as the window lets */
	double seconds;
	uint64_t blocks; /* of each job; 0: seconds count */
	bool search;
	double timeout_s;
	double stall_s;

	bool join_only;
	bool keep; /* exit without leaving */
	const char *pcap;
	bool json;
};

struct pktgen_port {
	uint16_t ethdev;
	bool open;
	bool drained; /* all that had come in was taken in this round */
	uint16_t n_tx;
	struct rte_mbuf *tx[PKTGEN_BURST]; /* not taken by the driver yet */
	uint64_t tx_full;                  /* times that it took less than it was given */
};

struct pktgen {
	const struct pktgen_options *options;
	char **argv; /* of the program, with a NULL at the end */
	struct rte_mempool *pool;
	struct pktgen_port ports[HOSTS_MAX];
	struct pktgen_host hosts[HOSTS_MAX];
	struct pktgen_job *jobs;       /* n_jobs */
	struct pktgen_member *members; /* n_jobs x hosts: job by job */
	double *due_ns;                /* by member: when the next contribution is to be sent */
	uint8_t *job_index;            /* by number: index in jobs and 1; 0: none */
	struct client *control;
	uint16_t n_jobs;
	uint16_t n_created; /* jobs that are to be destroyed */
	uint16_t turn;      /* member that is asked first in the next round */
	double gap_ns;      /* between two contributions of a member, on average; 0: none */
	unsigned short random[3];
	uint64_t now_ns;
	uint32_t empty_rounds;
	struct pktgen_stats stats;
	char error[PKTGEN_ERROR_LEN];
};

/* What a run or a trial came to. */
struct pktgen_trial {
	double rate; /* asked for; 0: as the window lets */
	double seconds;
	uint64_t contributions; /* sent in these seconds */
	uint64_t missed; /* frames that the generator's ports dropped: received, and to be sent */
	uint64_t tx_full;
	struct pktgen_stats stats; /* of all that was sent, until the last result */
};

/* Set by SIGINT and SIGTERM: the signal's number. */
extern volatile int pktgen_signal;

/* Notes what went wrong, for people; the first one stays. Returns `result`. */
int __attribute__((format(printf, 3, 4)))
pktgen_fail(struct pktgen *gen, int result, const char *format, ...);

/* Reads the command line. Ends the program with status 2 if it is wrong, with 0 after --help. */
void pktgen_options_parse(struct pktgen_options *options, int argc, char **argv);

/*
 * The EAL, the pool and the ports. Returns 0 or -errno with gen->error filled; close undoes any
 * part.
 */
int pktgen_ports_open(struct pktgen *gen);
void pktgen_ports_close(struct pktgen *gen);

/* Frames that were received but not taken, and that the driver failed to send, over all ports. */
uint64_t pktgen_ports_missed(const struct pktgen *gen);

/* Sends what waits at a port. */
void pktgen_port_flush(struct pktgen_port *port);

/*
 * Makes the jobs on the switch, or takes the given ones. Returns 0 or -errno with gen->error
 * filled.
 */
int pktgen_jobs_open(struct pktgen *gen);

/* Destroys what pktgen_jobs_open has made. Returns 0 or -errno with gen->error filled. */
int pktgen_jobs_close(struct pktgen *gen);

/* All hosts join all jobs. Returns 0, -EINTR after a signal, or -errno with gen->error filled. */
int pktgen_join(struct pktgen *gen);

/*
 * Sends contributions at a rate for options->seconds, or options->blocks, and waits for all
 * results.
 *
 * rate: contributions per second, 0: as the window lets. Returns as above; trial is filled in any
 * case.
 */
int pktgen_trial(struct pktgen *gen, double rate, struct pktgen_trial *trial);

/* Answers nothing and sends nothing until a signal comes: the membership is held. */
void pktgen_hold(struct pktgen *gen);

/* All members leave, for a second at most. Returns 0, or -ETIMEDOUT with gen->error filled. */
int pktgen_leave(struct pktgen *gen);

/*
 * The highest rate at which a trial succeeds, by halving.
 *
 * most: where to begin. resolution: share of most. try: returns 1 if the rate is held, 0 if not,
 * negative to stop. Returns 0 with *best set (0: none), or what try returned.
 */
int pktgen_search(double most, double resolution, int (*try)(void *argument, double rate),
		  void *argument, double *best);

/* Writes PREFIX-hN.pcap for each host: its contributions to the first blocks of the first job. */
int pktgen_pcap_write(struct pktgen *gen, const char *prefix, uint64_t blocks);

/* What all hosts have joined, as one JSON object. */
void pktgen_report_joined(const struct pktgen *gen);

/* The trial: a table, or with --json one object. trials: how many the search took; 0: no search. */
void pktgen_report(const struct pktgen *gen, const struct pktgen_trial *trial, unsigned int trials);

#endif
