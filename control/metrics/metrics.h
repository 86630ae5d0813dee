/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon's metrics: a table selects values of a JSON object as metrics, and a small web server
 * provides them in Prometheus' text format 0.0.4. Knows neither DPDK nor what the values mean.
 * Single-threaded: the server works only while its owner calls it.
 */
#ifndef FANIN_CONTROL_METRICS_METRICS_H
#define FANIN_CONTROL_METRICS_METRICS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "control/address.h"
#include "control/control.h"

#define METRICS_ERROR_LEN 512
#define METRICS_MAX_LABELS 6
#define METRICS_MAX_DEPTH 3

enum metrics_type {
	METRICS_COUNTER,
	METRICS_GAUGE,
	METRICS_HISTOGRAM, /* of an object like {"0": 5, "2-3": 1, "4096-": 2}: ranges of whole
			      numbers and counts */
};

struct metrics_label {
	const char *name; /* NULL: none */
	const char *key;  /* of its value in an object of the path */
	/*
	 * Index of the object: 0 is the entry of the outermost array, 1 that of the array inside,
	 * and so on; the last is the value, if it is an object.
	 */
	unsigned int depth;
};

/* One metric. A table ends with a NULL name. */
struct metrics_family {
	const char *name;
	enum metrics_type type;
	const char *help; /* one line */
	/*
	 * Path of the value: keys joined by dots, with "[]" after those of arrays, each entry of
	 * which gives a sample: "jobs[].members[].joined". A number is taken unchanged, a boolean
	 * as 0 or 1, an object that is no histogram as 1, for its labels. A missing value gives no
	 * sample.
	 */
	const char *path;
	struct metrics_label labels[METRICS_MAX_LABELS];
	double scale; /* multiplies numbers, to convert them to base units; 0: no conversion */
	const char *equals; /* a string counts as 1 if it equals this, else 0 */
	const char *sum;    /* HISTOGRAM, required: key of the sum of all values, next to it */
};

/*
 * Writes all metrics of a table. Returns a string that the caller frees, with its length in *len,
 * or NULL without memory.
 */
char *metrics_render(const struct metrics_family *families, const json_t *values, size_t *len);

/*
 * Reads an IP address and a TCP port: "127.0.0.1:9464", "[::1]:9464". Returns 0 with *address set,
 * or -EINVAL.
 */
int metrics_address(const char *text, struct address *address);

/*
 * Reads "metrics", an object with the address to listen on, from a daemon's configuration.
 *
 * port: the port in the messages' example. listen: set to the address, which belongs to the
 * configuration, if it is there. Returns 0, or -EINVAL with *error filled.
 */
int metrics_listen_read(const json_t *root, const char *port, const char **listen,
			struct control_error *error);

/*
 * Checks that metrics_server_open could listen on an address of this machine; a server that already
 * listens there is no error. listen: as for metrics_server_open. error: METRICS_ERROR_LEN bytes.
 * Returns 0, or -errno with the error filled.
 */
int metrics_check_machine(const char *listen, char *error);

struct metrics_server;

/*
 * Listens and answers GET /metrics; other paths get 404, other methods 405. At most 16 connections
 * at a time: a further one replaces the one whose request takes the longest. A connection is closed
 * if it has not sent a whole request within 5 s, or not received the answer within 10 s.
 *
 * listen: as for metrics_address; NULL or "" opens nothing and sets *server to NULL. families,
 * user: borrowed. values: called within metrics_server_serve for each answer; returns a new
 * reference, or NULL for the answer 500. error: METRICS_ERROR_LEN bytes. Returns 0 and sets
 * *server, or -errno with the error filled.
 */
int metrics_server_open(const char *listen, const struct metrics_family *families,
			json_t *(*values)(void *user), void *user, struct metrics_server **server,
			char *error);

/*
 * Returns a descriptor that is readable when metrics_server_serve has work; -1 if server is NULL.
 */
int metrics_server_fd(const struct metrics_server *server);

/*
 * Does all pending work without waiting. Call this at least about once a second: it also closes
 * clients that hang. Returns true if there is more work, so that the caller should come back soon.
 * server may be NULL.
 */
bool metrics_server_serve(struct metrics_server *server);

/* Closes all connections. server may be NULL. */
void metrics_server_close(struct metrics_server *server);

#endif
