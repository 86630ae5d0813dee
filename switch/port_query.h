/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asks the kernel about the interfaces of ports, on its own thread. Such requests wait for the
 * kernel's lock on all interfaces, which other programs may hold for long, and the main thread has
 * next hops to probe. This thread also makes the repairs that such requests allow at once. Main
 * thread.
 */
#ifndef FANIN_SWITCH_PORT_QUERY_H
#define FANIN_SWITCH_PORT_QUERY_H

#include "switch/kernel_link.h"
#include "switch/ports.h"

struct port_query;

struct port_question {
	unsigned int ifindex; /* 0: no question about the port */
	bool is_af_xdp;       /* asks also about program, queues and promiscuous mode */
	bool is_packet;       /* asks also whether the interface takes super-frames of UDP */
	bool may_attach;      /* the XDP program may be attached again if it was detached */
};

struct port_answer {
	unsigned int ifindex; /* the interface of the question */
	/* result of kernel_link_read; the following members are set if it is 0 */
	int ret;
	struct kernel_link link;
	/* Set for AF_XDP ports only. */
	unsigned int queues; /* receive queues of the interface; 0: unknown */
	bool has_program;    /* the program is known; otherwise the members about it are not set */
	enum port_program_state program;
	char found[PORT_PROGRAM_TEXT_LEN]; /* the program in its place */
	bool attach_tried;
	int attach_ret; /* 0: the program is attached again */
	char why_not[PORT_PROGRAM_TEXT_LEN];
	bool promiscuous_set; /* promiscuous mode was off and has been set */
	/* Set for packet ports only. */
	bool takes_super_frames;
};

/* ports: borrowed; all have been started. Returns 0, or -errno. */
int port_query_open(struct ports *ports, struct port_query **query);

/* Returns a descriptor that is readable when there are answers to take. */
int port_query_fd(const struct port_query *query);

/*
 * Asks about all ports. questions: one for each port. All earlier questions must be answered, and
 * all answers taken.
 */
void port_query_ask(struct port_query *query, const struct port_question *questions);

/* Returns true with an answer for each port, or false if there is none yet. */
bool port_query_take(struct port_query *query, struct port_answer *answers);

/* Waits if the kernel is being asked. query may be NULL. */
void port_query_close(struct port_query *query);

#endif
