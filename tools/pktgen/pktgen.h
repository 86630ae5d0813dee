/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The traffic generator: ethdev ports with hosts behind them (pktgen_port.c), jobs on the switch
 * (pktgen_jobs.c), the polling loop (pktgen_run.c), the search for the highest rate
 * (pktgen_search.c), and the output (pktgen_report.c). All on one thread.
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
	const char *switch_ports[HOSTS_MAX]; /* names of the switch's ports at the other ends */
	uint16_t n_switch_ports;
	const char *eal; /* additional arguments of the EAL; NULL: none */
	int cpu;         /* -1: any */
	bool huge;
	uint32_t mtu;

	uint32_t switch_ip_be;
	uint32_t first_ip_be; /* of host 0 */
	uint16_t udp_port;
	uint16_t hosts;

	const char *control; /* control socket, on which jobs are created */
	const char *handler;
	uint16_t n_jobs;
	struct {
		uint32_t id;
		uint64_t key;
		bool has_key;
	} jobs[PKTGEN_MAX_JOBS]; /* existing jobs, without control */

	uint8_t dtype; /* wire codes */
	uint8_t op;
	uint32_t payload; /* bytes; 0: as many as the job takes */
	uint16_t window;  /* 0: the job's */
	bool stagger;
	bool exponential; /* exponential gaps between contributions; else fixed ones */
	double rate; /* contributions per second of all hosts; 0: as fast as the window allows */
	double seconds;
	uint64_t blocks; /* of each job; 0: `seconds` ends the run */
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
	bool drained; /* all received frames were processed in this round */
	uint16_t n_tx;
	struct rte_mbuf *tx[PKTGEN_BURST]; /* not accepted by the driver yet */
	uint64_t tx_full; /* number of times that the driver accepted fewer than offered */
};

struct pktgen {
	const struct pktgen_options *options;
	char **argv; /* a copy of the command line with its keys, ended by NULL */
	struct rte_mempool *pool;
	struct pktgen_port ports[HOSTS_MAX];
	struct pktgen_host hosts[HOSTS_MAX];
	struct pktgen_job *jobs;       /* n_jobs */
	struct pktgen_member *members; /* n_jobs * hosts, job by job */
	double *due_ns;                /* by member: when the next contribution is to be sent */
	uint8_t *job_index;            /* by number of the job: index in jobs plus 1; 0: none */
	struct client *control;
	uint16_t n_jobs;
	uint16_t n_created; /* jobs to be destroyed at the end */
	uint16_t turn;      /* member that comes first in the next round */
	double gap_ns;      /* between two contributions of a member, on average; 0: none */
	unsigned short random[3];
	uint64_t now_ns;
	uint32_t empty_rounds;
	struct pktgen_stats stats;
	char error[PKTGEN_ERROR_LEN];
};

/* The result of a run or a trial. */
struct pktgen_trial {
	double rate; /* requested; 0: as fast as the window allows */
	double seconds;
	uint64_t contributions; /* sent in these seconds */
	uint64_t missed;        /* frames that the generator's ports dropped, in both directions */
	uint64_t tx_full;
	struct pktgen_stats stats; /* of everything that was sent, until the last result */
};

/* Set by SIGINT and SIGTERM: the signal's number. */
extern volatile int pktgen_signal;

/* Saves an error message, unless there is one already. Returns `result`. */
int __attribute__((format(printf, 3, 4)))
pktgen_fail(struct pktgen *gen, int result, const char *format, ...);

/* Reads the command line. Ends the program with status 2 if it is wrong, with 0 after --help. */
void pktgen_options_parse(struct pktgen_options *options, int argc, char **argv);

/*
 * Opens the EAL, the pool and the ports. Returns 0 or -errno with gen->error filled; close undoes
 * any part.
 */
int pktgen_ports_open(struct pktgen *gen);
void pktgen_ports_close(struct pktgen *gen);

/* Returns the frames that all ports received but did not deliver, or failed to send. */
uint64_t pktgen_ports_missed(const struct pktgen *gen);

/* Sends the frames that wait at a port. */
void pktgen_port_flush(struct pktgen_port *port);

/*
 * Creates the jobs on the switch, or uses the given ones. Returns 0 or -errno with gen->error
 * filled.
 */
int pktgen_jobs_open(struct pktgen *gen);

/*
 * Destroys the jobs that pktgen_jobs_open has created. Returns 0 or -errno with gen->error filled.
 */
int pktgen_jobs_close(struct pktgen *gen);

/*
 * Lets all hosts join all jobs. Returns 0, -EINTR after a signal, or -errno with gen->error filled.
 */
int pktgen_join(struct pktgen *gen);

/*
 * Sends contributions at a rate for options->seconds, or options->blocks, and waits for all
 * results.
 *
 * rate: contributions per second, 0: as fast as the window allows. Returns like pktgen_join; trial
 * is filled in any case.
 */
int pktgen_trial(struct pktgen *gen, double rate, struct pktgen_trial *trial);

/* Holds the membership until a signal comes: answers and sends nothing. */
void pktgen_hold(struct pktgen *gen);

/* Lets all members leave, for at most a second. Returns 0, or -ETIMEDOUT with gen->error filled. */
int pktgen_leave(struct pktgen *gen);

/*
 * Finds the highest rate at which a trial succeeds, by halving.
 *
 * most: the first rate. resolution: share of most. try: returns 1 if the rate is held, 0 if not,
 * negative to stop. Returns 0 with *best set (0: none), or the negative value of try.
 */
int pktgen_search(double most, double resolution, int (*try)(void *argument, double rate),
		  void *argument, double *best);

/* Writes PREFIX-hN.pcap for each host: its contributions to the first blocks of the first job. */
int pktgen_pcap_write(struct pktgen *gen, const char *prefix, uint64_t blocks);

/* Prints what all hosts have joined, as one JSON object. */
void pktgen_report_joined(const struct pktgen *gen);

/*
 * Prints a trial: a table, or with --json one object. trials: number of trials of the search; 0: no
 * search.
 */
void pktgen_report(const struct pktgen *gen, const struct pktgen_trial *trial, unsigned int trials);

#endif
