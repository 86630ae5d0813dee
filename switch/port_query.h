/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asks the kernel about the interfaces of ports, on a thread of its own: such requests wait for the
 * kernel's lock on all interfaces, which others on the machine may hold for long, and the main
 * thread has next hops to probe. What such a request mends at once is done there, too. Main thread.
 */
#ifndef FANIN_SWITCH_PORT_QUERY_H
#define FANIN_SWITCH_PORT_QUERY_H

#include "switch/kernel_link.h"
#include "switch/ports.h"

struct port_query;

struct port_question {
	unsigned int ifindex; /* 0: nothing is asked about the port */
	bool is_af_xdp;       /* about its program, queues and promiscuous mode, too */
	bool is_packet;       /* whether the interface takes super-frames of UDP, too */
	bool may_attach;      /* its XDP program, if it was taken off */
};

struct port_answer {
	unsigned int ifindex; /* the question's */
	int ret;              /* of kernel_link_read; what follows is set if it is 0 */
	struct kernel_link link;
	/* Of AF_XDP ports. */
	unsigned int queues; /* that the interface has; 0: unknown */
	bool has_program;    /* that is known; else what is said of it is not set */
	enum port_program_state program;
	char found[PORT_PROGRAM_TEXT_LEN]; /* in its place */
	bool attach_tried;
	int attach_ret; /* 0: the program is attached again */
	char why_not[PORT_PROGRAM_TEXT_LEN];
	bool promiscuous_set; /* it was taken off */
	/* Of packet ports. */
	bool takes_super_frames;
};

/* ports: borrowed; all have been started. Returns 0, or -errno. */
int port_query_open(struct ports *ports, struct port_query **query);

/* A descriptor that is readable when there are answers to take. */
int port_query_fd(const struct port_query *query);

/*
 * Asks about all ports. questions: one for each. There must be no question that is not answered,
 * and no answer that is not taken.
 */
void port_query_ask(struct port_query *query, const struct port_question *questions);

/* Returns true with an answer for each port, or false: there is none yet. */
bool port_query_take(struct port_query *query, struct port_answer *answers);

/* Waits for the kernel, if it is being asked. query may be NULL. */
void port_query_close(struct port_query *query);

#endif
