/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of fanin-perf: options (perf_options.c, perf_values.c, perf_usage.c), the run
 * (fanin-perf.c), its output (perf_output.c), its trace of windows (perf_trace.c), and its profile
 * (perf_profile.h).
 */
#ifndef FANIN_TOOLS_PERF_H
#define FANIN_TOOLS_PERF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <fanin/fanin.h>

#include "control/cli_fields.h"
#include "lab/reference/perf_collective.h"
#include "lab/reference/perf_sparse.h"
#include "tools/perf_profile.h"

struct options {
	struct fanin_init_opts init;
	struct fanin_join_opts join;
	uint64_t bytes;
	uint64_t iters;
	uint64_t warmup;
	uint64_t pause_seconds; /* how long this rank makes the others wait, once; 0: not at all */
	uint64_t pause_at;      /* iteration, including the warm-up */
	uint64_t pause_ms;      /* pause of every rank before each measured collective */
	uint32_t seed;
	char memif_socket[108];
	uint16_t hosts[FANIN_MAX_RANKS]; /* of each rank */
	uint64_t n_placed;               /* ranks that these are of; 0: not given */
	const char *trace_file;          /* NULL: no trace */
	uint64_t trace_us;               /* least time between two lines of the trace */
	const char *mark;                /* the socket that --mark names, or NULL */
	const char *dtype_name;
	const char *op_name;
	enum fanin_dtype dtype;
	enum fanin_op op;
	enum perf_collective_kind collective;
	uint16_t root;
	double density; /* of sparse vectors; also passed as their hint */
	enum perf_pattern pattern;
	const char *pattern_file;  /* file with the places, in place of a pattern; NULL: none */
	struct perf_places places; /* content of pattern_file; zeros without a file */
	bool sparse;               /* allreduce of sparse vectors */
	bool maybe_sparse; /* allreduce of dense vectors with the hint that they may be sparse;
			      zeros at the indices without values */
	bool in_place;
	bool finds_multicast; /* a blocking call before the first iteration finds whether multicast
				 is faster */
	bool check;
	bool random_data;
	bool check_ends; /* only the first and the last collective are checked */
	bool pause_busy; /* computes during the pause, with the collective posted */
	bool times;
	bool profile;
	bool json;
	bool progress;
	bool verbose;
};

/* True if a rank has values at some indices only. */
static inline bool
options_has_zeros(const struct options *options)
{
	return options->sparse || options->maybe_sparse;
}

struct trace {
	FILE *file;     /* NULL: none */
	double sampled; /* when the last line was written; 0: none yet */
	uint64_t bytes; /* bytes reduced by then */
};

struct run {
	const struct options *options;
	fanin_ctx *ctx;
	fanin_comm *comm;
	fanin_request *request; /* the one that is waited for, or NULL */
	struct fanin_report report;
	bool wide; /* results are accumulated in f32 although the type is smaller */
	struct perf_collective collective;
	uint8_t *send;    /* the vector to send */
	uint8_t *recv;    /* the vector to receive; in place, the same as send */
	uint8_t *indices; /* of the values to send, for sparse or maybe sparse vectors; else NULL */
	uint64_t nnz;     /* number of these values */
	uint8_t *values;  /* the values, for maybe sparse vectors; else NULL */
	struct fanin_sparse_result result; /* of a sparse allreduce; its dense result is recv */
	uint64_t iteration;                /* including warm-up */
	uint64_t measured;                 /* number of measured iterations */
	uint64_t mismatches;
	uint64_t digest; /* FNV-1a over all results, including the warm-up; see run_has_digest */
	double seconds;  /* of the measured collectives only */
	double *times;   /* of each measured collective, with --times; else NULL */
	double *begins;  /* when each measured collective began, by CLOCK_MONOTONIC; like times */
	double started;  /* start of the current collective */
	struct trace trace;
	struct profile profile; /* with --profile */
	int status;
	char message[512];
	uint16_t missing[FANIN_MAX_RANKS];
	size_t n_missing;
};

/* Parses the command line. Errors end the program with status 2, --help and --version with 0. */
void options_parse(struct options *options, int argc, char **argv);

/* Prints an error of the command line, and ends the program with status 2. */
void __attribute__((noreturn, format(printf, 1, 2))) usage_error(const char *format, ...);

/* Returns the bytes of an index. */
static inline uint8_t
run_index_bytes(const struct run *run)
{
	return run->collective.count > UINT64_C(1) << 32 ? 8 : 4;
}

/* True if a run's results are hashed. Hashing takes long, and makes the other ranks wait, too. */
static inline bool
run_has_digest(const struct run *run)
{
	return run->options->random_data && !run->options->check_ends;
}

/*
 * Opens the run's trace, if the options ask for one. Call it when the run has joined and
 * run->report is set. Returns FANIN_OK, or a negative status with run->message.
 */
int trace_open(struct run *run);

/*
 * Waits for run->request like fanin_wait, and writes to the trace meanwhile. should_stop: like
 * interrupt callbacks.
 */
int trace_wait(struct run *run, bool (*should_stop)(void *arg));

/*
 * Writes the last line and closes the file. Call it before the run leaves its job. Returns 0, or -1
 * after a message.
 */
int trace_close(struct run *run);

/* Prints a member of a JSON object, followed by a comma. value: NULL is printed as null. */
void perf_json_string(const char *name, const char *value);

/* Prints a run's outcome: one JSON object, or a line for people. */
void json_print(const struct run *run);
void line_print(const struct run *run);

#endif
