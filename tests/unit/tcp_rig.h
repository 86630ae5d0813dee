/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control server on TCP for tests, with the files that it may need: a thread serves two commands.
 * `wait` answers nothing; `release` answers the waiting request, or refuses it if asked to, and
 * tells whether there was one and how many clients have gone.
 */
#ifndef FANIN_TESTS_UNIT_TCP_RIG_H
#define FANIN_TESTS_UNIT_TCP_RIG_H

#include <stdbool.h>
#include <sys/types.h>

#include "control/control.h"

#define TOKEN "correct-horse"

struct tcp_rig {
	char token_file[64];                     /* has TOKEN */
	char certificate_file[64], key_file[64]; /* to be made by tcp_rig_certificate */
	char other_file[64];                     /* for the test's use */
	char at[64];                             /* address at which the server listens */
	struct control *control;
};

extern struct tcp_rig tcp_rig;

/* Makes a directory for the files, and the token file. */
void tcp_rig_begin(void);

/* Removes the files. */
void tcp_rig_end(void);

void tcp_rig_write(const char *path, const char *text, mode_t mode);

/* Makes a self-signed certificate for 127.0.0.1, with its key. */
void tcp_rig_certificate(const char *certificate_path, const char *key_path);

/* Starts the server, which calls itself the manager m0 and takes lines of 10000 bytes. */
void tcp_rig_start(const struct control_tcp *tcp, bool answers_hello, unsigned int max_clients);

/* Ends its thread; the test may then read the counters. */
void tcp_rig_stop_serving(void);

/* Ends its thread and closes it. */
void tcp_rig_stop(void);

#endif
