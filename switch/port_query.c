/* SPDX-License-Identifier: BSD-3-Clause */
/* See port_query.h. */
#include "switch/port_query.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "switch/super_frame_kernel.h"

enum query_state {
	QUERY_IDLE,
	QUERY_ASKED,
	QUERY_ANSWERED,
	QUERY_ENDS,
};

struct port_query {
	struct ports *ports;
	pthread_t thread;
	int event_fd;
	pthread_mutex_t lock;
	pthread_cond_t asked;
	enum query_state state; /* under lock */
	/* Owned by the thread while the state is ASKED, otherwise by the main thread. */
	struct port_question questions[CONFIG_MAX_PORTS];
	struct port_answer answers[CONFIG_MAX_PORTS];
};

static void
ask_about_af_xdp(struct ports *ports, uint16_t index, const struct port_question *question,
		 struct port_answer *answer)
{
	struct port_program *program = &ports->programs[index];

	answer->queues = ports_receive_queues(ports, index);
	answer->has_program = program->own != 0;
	if (answer->has_program)
		answer->program = port_program_look(program, question->ifindex,
						    answer->link.program, answer->found);
	if (answer->has_program && answer->program == PORT_PROGRAM_OFF && question->may_attach) {
		answer->attach_tried = true;
		answer->attach_ret = port_program_attach(program, question->ifindex,
							 answer->why_not);
	}
	/*
	 * DPDK's driver sets promiscuous mode in the way of `ip link`, so `ip link` can turn it
	 * off.
	 */
	if (answer->link.promiscuity == 0 && ports->promiscuous[index]) {
		ports_set_promiscuous(ports, index);
		answer->promiscuous_set = true;
	}
}

static void
ask_all(struct port_query *query)
{
	for (uint16_t i = 0; i < query->ports->n_ports; i++) {
		const struct port_question *question = &query->questions[i];
		struct port_answer *answer = &query->answers[i];

		*answer = (struct port_answer){ .ifindex = question->ifindex };
		if (question->ifindex == 0)
			continue;
		answer->ret = kernel_link_read(question->ifindex, &answer->link);
		if (answer->ret == 0 && question->is_af_xdp)
			ask_about_af_xdp(query->ports, i, question, answer);
		if (answer->ret == 0 && question->is_packet)
			answer->takes_super_frames =
				super_frame_interface_takes(query->ports->interfaces[i]);
	}
}

static void *
query_run(void *user)
{
	struct port_query *query = user;
	const uint64_t one = 1;

	pthread_mutex_lock(&query->lock);
	for (;;) {
		while (query->state != QUERY_ASKED && query->state != QUERY_ENDS)
			pthread_cond_wait(&query->asked, &query->lock);
		if (query->state == QUERY_ENDS)
			break;
		pthread_mutex_unlock(&query->lock);
		ask_all(query);
		pthread_mutex_lock(&query->lock);
		if (query->state == QUERY_ASKED)
			query->state = QUERY_ANSWERED;
		/* This can't fail: the counter is far from its maximum. */
		if (write(query->event_fd, &one, sizeof(one)) < 0)
			break;
	}
	pthread_mutex_unlock(&query->lock);
	return NULL;
}

int
port_query_open(struct ports *ports, struct port_query **query)
{
	struct port_query *opened = calloc(1, sizeof(*opened));
	int ret;

	if (opened == NULL)
		return -ENOMEM;
	opened->ports = ports;
	pthread_mutex_init(&opened->lock, NULL);
	pthread_cond_init(&opened->asked, NULL);
	opened->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = opened->event_fd < 0 ? -errno
				   : -pthread_create(&opened->thread, NULL, query_run, opened);
	if (ret == 0) {
		*query = opened;
		return 0;
	}
	if (opened->event_fd >= 0)
		close(opened->event_fd);
	free(opened);
	return ret;
}

int
port_query_fd(const struct port_query *query)
{
	return query->event_fd;
}

static void
set_state(struct port_query *query, enum query_state state)
{
	pthread_mutex_lock(&query->lock);
	query->state = state;
	pthread_cond_signal(&query->asked);
	pthread_mutex_unlock(&query->lock);
}

void
port_query_ask(struct port_query *query, const struct port_question *questions)
{
	memcpy(query->questions, questions, query->ports->n_ports * sizeof(*questions));
	set_state(query, QUERY_ASKED);
}

bool
port_query_take(struct port_query *query, struct port_answer *answers)
{
	uint64_t n;
	bool answered;

	if (read(query->event_fd, &n, sizeof(n)) != sizeof(n))
		return false;
	pthread_mutex_lock(&query->lock);
	answered = query->state == QUERY_ANSWERED;
	if (answered)
		query->state = QUERY_IDLE;
	pthread_mutex_unlock(&query->lock);
	if (answered)
		memcpy(answers, query->answers, query->ports->n_ports * sizeof(*answers));
	return answered;
}

void
port_query_close(struct port_query *query)
{
	if (query == NULL)
		return;
	set_state(query, QUERY_ENDS);
	pthread_join(query->thread, NULL);
	close(query->event_fd);
	pthread_cond_destroy(&query->asked);
	pthread_mutex_destroy(&query->lock);
	free(query);
}
