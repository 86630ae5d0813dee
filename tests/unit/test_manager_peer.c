/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the manager's connection to a switch: under TLS, refused, lost and made again; and its
 * messages about a switch that it can't talk to.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>

#include "control/clock.h"
#include "manager/peer.h"
#include "tests/unit/suites.h"
#include "tests/unit/tcp_rig.h"

/* Events of a manager's connection to a switch. */
struct peer_story {
	bool ready;
	bool lost;
	char code[32]; /* of the answer; "ok": it is a result */
};

static void
peer_is_ready(void *user, struct peer *peer)
{
	(void)peer;
	((struct peer_story *)user)->ready = true;
}

static void
peer_is_lost(void *user, struct peer *peer)
{
	(void)peer;
	((struct peer_story *)user)->lost = true;
}

static void
peer_answers(void *user, uint32_t which, struct peer *peer, const json_t *result, const char *code,
	     const char *message)
{
	(void)peer;
	(void)message;
	ck_assert_uint_eq(which, 7);
	snprintf(((struct peer_story *)user)->code, 32, "%s", result == NULL ? code : "ok");
}

/*
 * Serves the peer by its events and times until a flag or a text is set, or its error is other than
 * `before`.
 */
static void
serve_peer(struct peer *peer, const bool *flag, const char *text, const char *before)
{
	uint64_t end_ms = clock_ms() + 20000;

	for (;;) {
		uint64_t wake_ms = peer_serve(peer, clock_ms());
		uint64_t now = clock_ms();
		struct epoll_event event;

		if ((flag != NULL && *flag) || (text != NULL && text[0] != '\0') ||
		    strcmp(peer->error, before) != 0)
			return;
		ck_assert_uint_lt(now, end_ms);
		if (wake_ms > now)
			epoll_wait(peer->epoll_fd, &event, 1,
				   wake_ms - now < 1000 ? (int)(wake_ms - now) : 1000);
	}
}

#define NOT_YET "not connected yet"

static void
open_peer(struct peer *peer, struct peer_story *story, const struct topology_switch *about,
	  const struct peer_events *events)
{
	char error[CONTROL_MESSAGE_LEN] = "";

	*story = (struct peer_story){ 0 };
	ck_assert_msg(peer_begin(peer, about, 0, events, epoll_create1(EPOLL_CLOEXEC), error) == 0,
		      "%s", error);
}

static void
close_peer(struct peer *peer)
{
	peer_end(peer);
	close(peer->epoll_fd);
}

START_TEST(a_manager_asks_a_switch_under_tls)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = tcp_rig.token_file,
					 .certificate = tcp_rig.certificate_file,
					 .key = tcp_rig.key_file,
					 .ca = tcp_rig.certificate_file };
	const struct topology_switch about = { .name = "m0",
					       .control = tcp_rig.at,
					       .token_file = tcp_rig.token_file,
					       .ca = tcp_rig.certificate_file,
					       .certificate = tcp_rig.certificate_file,
					       .key = tcp_rig.key_file };
	struct peer_story story;
	const struct peer_events events = { &story, peer_is_ready, peer_is_lost };
	struct peer peer;

	tcp_rig_certificate(tcp_rig.certificate_file, tcp_rig.key_file);
	tcp_rig_start(&tcp, false, 0);
	open_peer(&peer, &story, &about, &events);
	serve_peer(&peer, &story.ready, NULL, NOT_YET);
	ck_assert_msg(story.ready, "%s", peer.error);
	ck_assert_int_eq(peer_ask(&peer, "release", NULL, peer_answers, &story, 7), 0);
	serve_peer(&peer, NULL, story.code, NOT_YET);
	ck_assert_str_eq(story.code, "ok");
	story.code[0] = '\0';
	ck_assert_int_eq(peer_ask(&peer, "junk", NULL, peer_answers, &story, 7), 0);
	serve_peer(&peer, NULL, story.code, NOT_YET);
	ck_assert_str_eq(story.code, "not_found");

	/* A request without an answer is lost with the switch. */
	ck_assert_int_eq(peer_ask(&peer, "wait", NULL, peer_answers, &story, 7), 0);
	peer.dead_after_ms = 100;
	serve_peer(&peer, &story.lost, NULL, NOT_YET);
	ck_assert(story.lost);
	ck_assert_str_eq(story.code, "lost");
	ck_assert_str_eq(peer.error, "the switch does not answer");
	ck_assert_int_eq(peer_ask(&peer, "release", NULL, peer_answers, &story, 7), -ENOTCONN);
	/* The connection is tried again. */
	story.ready = false;
	peer.dead_after_ms = 5000;
	serve_peer(&peer, &story.ready, NULL, "the switch does not answer");
	ck_assert(story.ready);
	close_peer(&peer);
	tcp_rig_stop();
}
END_TEST

static const struct {
	const char *name;
	const char *token; /* NULL: none */
	bool tls;          /* of the server; the manager always requires it */
	const char *error; /* part of the error */
} wrong_peers[] = {
	{ "leaf7", TOKEN, true, "calls itself \"m0\", expected \"leaf7\"" },
	{ "m0", "wrong", true, "token: found another one" },
	{ "m0", NULL, true, "token: found none" },
	{ "m0", TOKEN, false, "wrong version number" },
};

START_TEST(faults_between_manager_and_switch_are_named)
{
	const struct control_tcp tcp = { .listen = "127.0.0.1:0",
					 .token_file = tcp_rig.token_file,
					 .certificate = wrong_peers[_i].tls
								? tcp_rig.certificate_file
								: NULL,
					 .key = wrong_peers[_i].tls ? tcp_rig.key_file : NULL };
	const struct topology_switch about = {
		.name = wrong_peers[_i].name,
		.control = tcp_rig.at,
		.token_file = wrong_peers[_i].token == NULL ? NULL : tcp_rig.other_file,
		.ca = tcp_rig.certificate_file,
	};
	struct peer_story story;
	const struct peer_events events = { &story, peer_is_ready, peer_is_lost };
	struct peer peer;

	tcp_rig_certificate(tcp_rig.certificate_file, tcp_rig.key_file);
	if (wrong_peers[_i].token != NULL)
		tcp_rig_write(tcp_rig.other_file, wrong_peers[_i].token, 0600);
	tcp_rig_start(&tcp, false, 0);
	open_peer(&peer, &story, &about, &events);
	serve_peer(&peer, NULL, NULL, NOT_YET);
	ck_assert_msg(strstr(peer.error, wrong_peers[_i].error) != NULL, "%s", peer.error);
	close_peer(&peer);
	tcp_rig_stop();
}
END_TEST

Suite *
suite_manager_peer(void)
{
	Suite *suite = suite_create("manager_peer");
	TCase *tcase = tcase_create("peer");

	tcase_add_checked_fixture(tcase, tcp_rig_begin, tcp_rig_end);
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, a_manager_asks_a_switch_under_tls);
	tcase_add_loop_test(tcase, faults_between_manager_and_switch_are_named, 0,
			    (int)(sizeof(wrong_peers) / sizeof(wrong_peers[0])));
	suite_add_tcase(suite, tcase);
	return suite;
}
