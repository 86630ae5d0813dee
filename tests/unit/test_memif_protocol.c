/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memif protocol's messages: those that the host library sends and how it handles the switch's,
 * and those that the switch accepts from a host.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <check.h>

#include "switch/memif_check.h"
#include "tests/unit/memif_peer.h"
#include "tests/unit/suites.h"

static const struct fanin_memif_options options = { .socket = "test", .id = 3 };

static struct peer peer;

static int
open_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(directory) != NULL)
		n++;
	closedir(directory);
	return n;
}

START_TEST(handshake_shares_sealed_memory_and_two_rings)
{
	const struct memif_message *init = &peer.heard[1];
	int before = open_fds();
	struct fanin_memif *memif = peer_attach(&peer, &options);

	ck_assert_uint_eq(init->type, MEMIF_TYPE_INIT);
	ck_assert_uint_eq(init->init.version, MEMIF_VERSION);
	ck_assert_uint_eq(init->init.id, options.id);
	ck_assert_uint_eq(init->init.mode, MEMIF_MODE_ETHERNET);
	ck_assert_uint_eq(peer.heard[2].type, MEMIF_TYPE_ADD_REGION);
	ck_assert_uint_eq(peer.heard[2].add_region.index, 0);
	ck_assert_int_ne(fcntl(peer.area_fd, F_GET_SEALS) & F_SEAL_SHRINK, 0);
	ck_assert_uint_eq(peer.heard[3].add_ring.flags, MEMIF_RING_TO_SERVER);
	ck_assert_uint_eq(peer.heard[4].add_ring.flags, 0);
	ck_assert_uint_eq(peer.heard[5].type, MEMIF_TYPE_CONNECT);
	ck_assert_uint_eq(peer.to_server->cookie, MEMIF_COOKIE);
	ck_assert_uint_eq(peer.to_client->cookie, MEMIF_COOKIE);
	ck_assert_int_ge(peer.event_fds[0], 0);
	ck_assert_int_ge(peer.event_fds[1], 0);
	ck_assert_uint_gt(peer.to_client->head, 0);
	/* The switch accepts the messages. */
	for (int i = 1; i < PEER_STEPS; i++) {
		static struct memif_layout layout;
		int fds[PEER_STEPS] = { -1, -1, peer.area_fd, peer.event_fds[0], peer.event_fds[1],
					-1 };
		char reason[MEMIF_CHECK_REASON_LEN] = "";

		ck_assert_msg(memif_check(&layout, &peer.heard[i], fds[i], reason) == 0, "%s",
			      reason);
	}
	memif->transport.ops->close(&memif->transport);
	peer_close(&peer);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

#define SAYS(step, ...)                                                                            \
	{                                                                                          \
		step, PEER_SAYS,                                                                   \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define REFUSES(step, text)                                                                        \
	SAYS(step, .type = MEMIF_TYPE_DISCONNECT, .disconnect = { .reason = text })

static const struct {
	struct peer_slip slip;
	bool busy;
	const char *words;
} slips[] = {
	{ SAYS(0, .type = MEMIF_TYPE_HELLO,
	       .hello = { .min_version = 0x0300, .max_version = 0x0400, .max_log2_ring = 14 }),
	  false, "the switch speaks memif 0x0300 to 0x0400, expected 0x0200" },
	{ SAYS(0, .type = MEMIF_TYPE_HELLO,
	       .hello = { .max_version = 0x01ff, .max_log2_ring = 14 }),
	  false, "the switch speaks memif 0x0000 to 0x01ff, expected 0x0200" },
	{ SAYS(0, .type = MEMIF_TYPE_HELLO,
	       .hello = { .min_version = 0x0200, .max_version = 0x0200, .max_log2_ring = 9 }),
	  false, "the switch takes rings of 2^9 slots, expected 2^10" },
	{ SAYS(0, .type = MEMIF_TYPE_ACK), false, "found message type 1, expected 2" },
	{ { 0, PEER_CUTS, { 0 } }, false, "found a message of 60 bytes, expected 128" },
	{ { 0, PEER_ADDS, { 0 } }, false, "found a message of 256 bytes, expected 128" },
	{ { 0, PEER_HANGS_UP, { 0 } }, false, "the switch closed the connection: no reason given" },
	{ { 0, PEER_KEEPS_SILENT, { 0 } },
	  false,
	  "the switch sends no answer: expected message type 2" },
	{ REFUSES(1, "no port has the memif id 3"), false,
	  "the switch refused: no port has the memif id 3" },
	{ REFUSES(1, MEMIF_BUSY_REASON ": \"x\""), true,
	  "the switch refused: already connected: \"x\"" },
	{ REFUSES(1, "Already connected"), true, "the switch refused: Already connected" },
	{ REFUSES(1, "\x1b[31m\xff"), false, "the switch refused: ?[31m?" },
	{ SAYS(1, .type = 65535), false, "found message type 65535, expected 1" },
	{ { 2, PEER_CUTS, { .type = MEMIF_TYPE_ACK } },
	  false,
	  "found a message of 60 bytes, expected 128" },
	{ { 2, PEER_HANGS_UP, { 0 } }, false, "the switch closed the connection: no reason given" },
	{ REFUSES(3, "no"), false, "the switch refused: no" },
	{ { 4, PEER_KEEPS_SILENT, { 0 } },
	  false,
	  "the switch sends no answer: expected message type 1" },
	{ SAYS(5, .type = MEMIF_TYPE_ACK), false, "found message type 1, expected 7" },
	{ { 5, PEER_HANGS_UP, { 0 } }, false, "the switch closed the connection: no reason given" },
};

START_TEST(a_wrong_answer_is_an_error_that_says_what_was_found)
{
	struct fanin_memif *unset = NULL;
	struct fanin_error error = { 0 };
	int before = open_fds();
	bool busy = !slips[_i].busy;
	int fd = peer_start(&peer, &slips[_i].slip);
	int status = fanin_memif_attach(fd, &options,
					slips[_i].slip.how == PEER_KEEPS_SILENT ? 50
										: PEER_ANSWER_MS,
					&unset, &busy, &error);

	ck_assert_int_eq(status, FANIN_ERR_TRANSPORT);
	ck_assert_str_eq(error.text, slips[_i].words);
	ck_assert_int_eq(busy, slips[_i].busy);
	ck_assert_ptr_null(unset);
	peer_join(&peer);
	peer_close(&peer);
	ck_assert_int_eq(open_fds(), before);
}
END_TEST

START_TEST(a_reason_without_an_end_is_cut)
{
	struct peer_slip slip = REFUSES(1, "");
	struct fanin_error error = { 0 };
	struct fanin_memif *memif;
	bool busy;

	memset(slip.message.disconnect.reason, 'x', sizeof(slip.message.disconnect.reason));
	ck_assert_int_eq(fanin_memif_attach(peer_start(&peer, &slip), &options, PEER_ANSWER_MS,
					    &memif, &busy, &error),
			 FANIN_ERR_TRANSPORT);
	ck_assert_uint_eq(strlen(error.text), strlen("the switch refused: ") + 95);
	peer_join(&peer);
	peer_close(&peer);
}
END_TEST

#define REGION_BYTES 65536

static int
memory(bool sealed)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, REGION_BYTES), 0);
	if (sealed)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static const struct {
	struct memif_message message;
	enum {
		NO_FD,
		SEALED,
		UNSEALED
	} fd;
	const char *reason; /* NULL: it is accepted */
} said[] = {
	{ { .type = MEMIF_TYPE_ADD_REGION, .add_region = { .size = 1 } },
	  SEALED,
	  "found message type 4, expected INIT" },
	{ { .type = MEMIF_TYPE_INIT, .init = { .version = 0x0100 } },
	  NO_FD,
	  "found version 0x0100, expected 0x0200" },
	{ { .type = MEMIF_TYPE_INIT, .init = { .version = MEMIF_VERSION, .mode = 1 } },
	  NO_FD,
	  "found mode 1, expected Ethernet, 0" },
	{ { .type = MEMIF_TYPE_INIT, .init = { .version = MEMIF_VERSION } },
	  SEALED,
	  "found a file descriptor with message type 3" },
	{ { .type = MEMIF_TYPE_INIT, .init = { .version = MEMIF_VERSION } }, NO_FD, NULL },
	{ { .type = MEMIF_TYPE_INIT, .init = { .version = MEMIF_VERSION } },
	  NO_FD,
	  "a second INIT" },
	{ { .type = MEMIF_TYPE_CONNECT }, NO_FD, "CONNECT without a ring in each direction" },
	{ { .type = MEMIF_TYPE_ADD_REGION, .add_region = { .size = 4096 } },
	  NO_FD,
	  "found no file descriptor with message type 4" },
	{ { .type = MEMIF_TYPE_ADD_REGION, .add_region = { .size = 4096 } },
	  UNSEALED,
	  "the memory is not sealed against shrinking" },
	{ { .type = MEMIF_TYPE_ADD_REGION, .add_region = { .size = REGION_BYTES + 1 } },
	  SEALED,
	  "found 65536 bytes of memory, expected 65537" },
	{ { .type = MEMIF_TYPE_ADD_REGION, .add_region = { .size = 0 } },
	  SEALED,
	  "found 65536 bytes of memory, expected 0" },
	{ { .type = MEMIF_TYPE_ADD_REGION, .add_region = { .index = 1, .size = 4096 } },
	  SEALED,
	  "found region 1, expected 0, and at most 16" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 4 } },
	  SEALED,
	  "the ring does not lie in its region" },
	{ { .type = MEMIF_TYPE_ADD_REGION, .add_region = { .size = REGION_BYTES } }, SEALED, NULL },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 15 } },
	  SEALED,
	  "found 2^15 slots, expected 2^1 to 2^14" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 0 } },
	  SEALED,
	  "found 2^0 slots, expected 2^1 to 2^14" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 14 } },
	  SEALED,
	  "the ring does not lie in its region" },
	{ { .type = MEMIF_TYPE_ADD_RING,
	    .add_ring = { .log2_slots = 10, .offset = 65536 - 16504 } },
	  SEALED,
	  "the ring does not lie in its region" },
	{ { .type = MEMIF_TYPE_ADD_RING,
	    .add_ring = { .log2_slots = 10, .offset = UINT32_MAX - 7 } },
	  SEALED,
	  "the ring does not lie in its region" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 10, .offset = 4 } },
	  SEALED,
	  "the ring does not lie in its region" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 10, .region = 1 } },
	  SEALED,
	  "the ring does not lie in its region" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 10, .index = 1 } },
	  SEALED,
	  "expected one ring in each direction" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 10, .private_header = 8 } },
	  SEALED,
	  "found private headers of 8 bytes, expected none" },
	{ { .type = MEMIF_TYPE_ADD_RING,
	    .add_ring = { .log2_slots = 10, .offset = 65536 - 16512 } },
	  SEALED,
	  NULL },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .log2_slots = 10 } },
	  SEALED,
	  "expected one ring in each direction" },
	{ { .type = MEMIF_TYPE_CONNECT }, NO_FD, "CONNECT without a ring in each direction" },
	{ { .type = MEMIF_TYPE_ADD_RING, .add_ring = { .flags = 1, .log2_slots = 10 } },
	  SEALED,
	  NULL },
	{ { .type = MEMIF_TYPE_HELLO }, NO_FD, "found message type 2, which no client sends" },
	{ { .type = 4711 }, NO_FD, "found message type 4711, which no client sends" },
	{ { .type = MEMIF_TYPE_CONNECT }, NO_FD, NULL },
};

/* One conversation: a refused message leaves no trace. */
START_TEST(the_switch_checks_each_message_against_the_ones_before)
{
	struct memif_layout layout = { 0 };

	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		int fd = said[i].fd == NO_FD ? -1 : memory(said[i].fd == SEALED);
		char reason[MEMIF_CHECK_REASON_LEN] = "";
		int ret = memif_check(&layout, &said[i].message, fd, reason);

		ck_assert_str_eq(reason, said[i].reason == NULL ? "" : said[i].reason);
		ck_assert_int_eq(ret, said[i].reason == NULL ? 0 : -EPROTO);
		if (fd >= 0)
			close(fd);
	}
}
END_TEST

Suite *
suite_memif_protocol(void)
{
	Suite *suite = suite_create("memif_protocol");
	TCase *host = tcase_create("host");
	TCase *check = tcase_create("switch");

	tcase_add_test(host, handshake_shares_sealed_memory_and_two_rings);
	tcase_add_loop_test(host, a_wrong_answer_is_an_error_that_says_what_was_found, 0,
			    sizeof(slips) / sizeof(slips[0]));
	tcase_add_test(host, a_reason_without_an_end_is_cut);
	suite_add_tcase(suite, host);
	tcase_add_test(check, the_switch_checks_each_message_against_the_ones_before);
	suite_add_tcase(suite, check);
	return suite;
}
