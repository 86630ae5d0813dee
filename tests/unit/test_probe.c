/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Late or gone: how the switch probes children that an overdue block lacks. The test acts as the
 * hosts' machines, and moves the clock of the probes.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include <rte_arp.h>
#include <rte_icmp.h>
#include <rte_ip.h>

#include "pipeline/probe.h"
#include "pipeline/base/dpdk_names.h"
#include "pipeline/base/tx.h"
#include "tests/unit/probe_rig.h"
#include "tests/unit/suites.h"

#define HOSTS 3
#define JOIN_PORT 50000 /* of ring_switch's hosts */

static struct fanin_headers *const got = (struct fanin_headers *)probe_rig.buffer;

/* _i: the switch has this many workers more than one. */
#define N_VARIANTS 2

static void
open_switch(int variant)
{
	ring_switch_eal();
	ring_switch_open(&probe_rig.sw, 4, (uint16_t)(1 + variant), NULL);
	probe_rig.job = ring_switch_job(&probe_rig.sw, HOSTS, 8);
	probe_rig.epoch = host_join_all(&probe_rig.sw, probe_rig.job, HOSTS, 7);
	probe_rig_begin();
}

static void
close_switch(void)
{
	ring_switch_close(&probe_rig.sw);
}

/* The main thread waits for workers that are online; here it is one of them itself. */
static void
workers_pause(bool paused)
{
	for (uint16_t w = 0; w < probe_rig.sw.pipeline->n_workers; w++) {
		if (paused)
			rte_rcu_qsbr_thread_offline(probe_rig.sw.pipeline->qsbr, w);
		else
			rte_rcu_qsbr_thread_online(probe_rig.sw.pipeline->qsbr, w);
	}
}

static void
expect_silence(uint16_t port)
{
	ck_assert_uint_eq(ring_switch_take(&probe_rig.sw, port, probe_rig.buffer), 0);
}

static void
expect_ethernet(unsigned int h)
{
	uint8_t mac[6];

	host_mac(h, mac);
	ck_assert_mem_eq(got->eth.dst, mac, 6);
	ck_assert_mem_eq(got->eth.src, probe_rig.sw.pipeline->mac, 6);
}

/*
 * Checks the three frames of a probe for host h: a PROBE, an echo request and an ARP request. The
 * first one is left in `got`.
 */
static void
expect_probe(unsigned int h)
{
	const struct rte_icmp_hdr *icmp = (const struct rte_icmp_hdr *)&got->udp;
	const struct rte_arp_hdr *arp = (const struct rte_arp_hdr *)&got->ip;
	struct fanin_headers probe;

	ck_assert_uint_eq(ring_switch_take(&probe_rig.sw, (uint16_t)h, probe_rig.buffer),
			  FANIN_PAYLOAD_OFFSET);
	probe = *got;
	expect_ethernet(h);
	ck_assert_uint_eq(fanin_wire_validate(probe_rig.buffer, FANIN_PAYLOAD_OFFSET),
			  FANIN_REASON_NONE);
	ck_assert_uint_eq(probe.fanin.type, FANIN_TYPE_PROBE);
	ck_assert_uint_eq(probe.fanin.key, 0);
	ck_assert_uint_eq(probe.ip.dst_be, host_ip_be(h));
	ck_assert_uint_eq(probe.udp.dst_be, htons(JOIN_PORT));
	ck_assert_uint_eq(probe.udp.src_be, probe_rig.sw.pipeline->udp_port_be);

	ck_assert_uint_eq(ring_switch_take(&probe_rig.sw, (uint16_t)h, probe_rig.buffer), 60);
	expect_ethernet(h);
	ck_assert_uint_eq(fanin_ip_checksum(&got->ip), 0);
	ck_assert_uint_eq(got->ip.protocol, IPPROTO_ICMP);
	ck_assert_uint_eq(got->ip.dst_be, host_ip_be(h));
	ck_assert_uint_eq(got->ip.src_be, probe_rig.sw.pipeline->ip_be);
	ck_assert_uint_eq(icmp->icmp_type, RTE_ICMP_TYPE_ECHO_REQUEST);
	ck_assert_uint_eq(rte_raw_cksum(icmp, 60 - FANIN_ETH_LEN - FANIN_IP_LEN), UINT16_MAX);

	ck_assert_uint_eq(ring_switch_take(&probe_rig.sw, (uint16_t)h, probe_rig.buffer), 60);
	expect_ethernet(h);
	ck_assert_uint_eq(got->eth.type_be, htons(RTE_ETHER_TYPE_ARP));
	ck_assert_uint_eq(arp->arp_opcode, htons(RTE_ARP_OP_REQUEST));
	ck_assert_uint_eq(arp->arp_data.arp_tip, host_ip_be(h));
	*got = probe;
}

/* Takes a probe if one was sent. Returns true if it was. */
static bool
was_probed(unsigned int h)
{
	bool found = false;

	while (ring_switch_take(&probe_rig.sw, (uint16_t)h, probe_rig.buffer) != 0)
		found = true;
	return found;
}

/*
 * Puts in an IPv4 frame of host h's machine to the switch with an ICMP message, whose checksum it
 * sets.
 */
static void
put_icmp(uint16_t port, unsigned int h, struct rte_icmp_hdr *icmp, const void *data,
	 uint16_t data_len)
{
	uint8_t frame[256] = { 0 };
	struct fanin_headers *headers = (struct fanin_headers *)frame;
	struct rte_icmp_hdr *placed = (struct rte_icmp_hdr *)&headers->udp;

	host_mac(h, headers->eth.src);
	memcpy(headers->eth.dst, probe_rig.sw.pipeline->mac, 6);
	headers->eth.type_be = htons(RTE_ETHER_TYPE_IPV4);
	headers->ip = (struct fanin_ip){
		.version_ihl = 0x45,
		.total_len_be = htons((uint16_t)(FANIN_IP_LEN + sizeof(*icmp) + data_len)),
		.ttl = 64,
		.protocol = IPPROTO_ICMP,
		.src_be = host_ip_be(h),
		.dst_be = probe_rig.sw.pipeline->ip_be,
	};
	headers->ip.checksum_be = fanin_ip_checksum(&headers->ip);
	*placed = *icmp;
	memcpy(placed + 1, data, data_len);
	placed->icmp_cksum = (uint16_t)~rte_raw_cksum(placed, sizeof(*icmp) + data_len);
	ring_switch_put(&probe_rig.sw, port, frame,
			FANIN_ETH_LEN + FANIN_IP_LEN + sizeof(*icmp) + data_len);
}

static void
reply_to_echo(uint16_t port, unsigned int h)
{
	struct rte_icmp_hdr icmp = { .icmp_type = RTE_ICMP_TYPE_ECHO_REPLY,
				     .icmp_ident = htons(PROBE_ECHO_ID) };
	const uint8_t data[18] = { 0 };

	put_icmp(port, h, &icmp, data, sizeof(data));
}

static void
reply_to_arp(uint16_t port, unsigned int h)
{
	uint8_t frame[60] __attribute__((aligned(8))) = { 0 };
	struct rte_ether_hdr *eth = (struct rte_ether_hdr *)frame;
	struct rte_arp_hdr *arp = (struct rte_arp_hdr *)(eth + 1);

	memcpy(&eth->dst_addr, probe_rig.sw.pipeline->mac, 6);
	host_mac(h, eth->src_addr.addr_bytes);
	eth->ether_type = htons(RTE_ETHER_TYPE_ARP);
	arp->arp_hardware = htons(RTE_ARP_HRD_ETHER);
	arp->arp_protocol = htons(RTE_ETHER_TYPE_IPV4);
	arp->arp_hlen = 6;
	arp->arp_plen = 4;
	arp->arp_opcode = htons(RTE_ARP_OP_REPLY);
	arp->arp_data.arp_sha = eth->src_addr;
	arp->arp_data.arp_sip = host_ip_be(h);
	arp->arp_data.arp_tip = probe_rig.sw.pipeline->ip_be;
	ring_switch_put(&probe_rig.sw, port, frame, sizeof(frame));
}

/*
 * Makes host h's machine on a port answer a PROBE to that UDP port with "destination unreachable".
 */
static void
refuse_probe(uint16_t port, unsigned int h, uint8_t code, const struct fanin_headers *probe)
{
	struct rte_icmp_hdr icmp = { .icmp_type = 3, .icmp_code = code };

	put_icmp(port, h, &icmp, &probe->ip, FANIN_IP_LEN + FANIN_UDP_LEN);
}

/* Hosts 0 and 2 contribute to block 0, and host 0 waits. */
static void
wait_for_host_1(void)
{
	host_contribute(&probe_rig.sw, probe_rig.job, 0, probe_rig.epoch, 0, false);
	host_contribute(&probe_rig.sw, probe_rig.job, 2, probe_rig.epoch, 0, false);
	probe_rig_expect_finding(0, 0);
}

START_TEST(an_overdue_block_has_those_probed_that_it_misses)
{
	open_switch(_i);
	host_contribute(&probe_rig.sw, probe_rig.job, 0, probe_rig.epoch, 0, false);
	host_contribute(&probe_rig.sw, probe_rig.job, 2, probe_rig.epoch, 0, false);
	probe_rig_ask(0, 0, false);
	ck_assert(was_probed(0)); /* the answer */
	probe_rig_tick();
	for (uint16_t h = 0; h < HOSTS; h++)
		expect_silence(h);

	probe_rig_ask(0, 0, true);
	ck_assert(was_probed(0));
	probe_rig_tick();
	expect_probe(1);
	ck_assert_uint_eq(got->fanin.block, 0);
	for (uint16_t h = 0; h < probe_rig.sw.n_ports; h++)
		expect_silence(h);
	close_switch();
}
END_TEST

START_TEST(probes_go_twice_a_second_until_5_s_after_the_last_query)
{
	struct worker *worker;
	unsigned int n = 0;

	open_switch(_i);
	wait_for_host_1();
	for (unsigned int i = 0; i < 20; i++) {
		probe_rig_tick();
		n += was_probed(1);
		if (i == 3)
			probe_rig_answer();
	}
	/* Two seconds and five more, without the very last moment. */
	ck_assert_uint_eq(n, 13);
	ck_assert(!probes_are_out(probe_rig.sw.pipeline));
	ck_assert_uint_eq(probe_rig.job->worker_stats[0].probes, 13);

	/* Within half a second of a probe there is no other one. */
	probe_rig_answer();
	probe_rig_tick();
	ck_assert(was_probed(1));
	worker = probe_rig.sw.pipeline->workers[0];
	worker->now_ns = probe_rig.clock_ns + PROBE_INTERVAL_NS - 1;
	probe_due(worker);
	worker_flush(worker);
	expect_silence(1);
	close_switch();
}
END_TEST

START_TEST(a_host_whose_machine_answers_is_late)
{
	uint64_t answers = 0;

	open_switch(_i);
	wait_for_host_1();
	for (unsigned int i = 0; i < 20; i++) {
		probe_rig_tick();
		ck_assert(was_probed(1));
		/* Host 1 answers by either of the two, now and then. */
		if (i % 3 == 0)
			reply_to_echo(1, 1);
		else if (i % 3 == 2)
			reply_to_arp(1, 1);
		probe_rig_expect_finding(0, 0);
	}
	for (uint16_t w = 0; w < probe_rig.job->n_workers; w++)
		answers += probe_rig.job->worker_stats[w].probe_answers;
	ck_assert_uint_ge(answers, 13);
	close_switch();
}
END_TEST

START_TEST(a_closed_port_is_a_process_that_has_ended)
{
	struct fanin_headers probe;

	open_switch(_i);
	wait_for_host_1();
	probe_rig_tick();
	expect_probe(1);
	probe = *got;
	refuse_probe(1, 1, 3, &probe);
	probe_rig_expect_finding(0x2, 0);
	/* The host counts as ended, whatever its machine answers, and is not probed any more. */
	reply_to_echo(1, 1);
	probe_rig_tick();
	expect_silence(1);
	probe_rig_expect_finding(0x2, 0);
	close_switch();
}
END_TEST

START_TEST(a_firewall_that_refuses_is_a_sign_of_life)
{
	open_switch(_i);
	wait_for_host_1();
	for (unsigned int i = 0; i < 10; i++) {
		struct fanin_headers probe;

		probe_rig_tick();
		expect_probe(1);
		probe = *got;
		refuse_probe(1, 1, 13, &probe);
		probe_rig_expect_finding(0, 0);
	}
	close_switch();
}
END_TEST

START_TEST(three_probes_without_an_answer_are_silence)
{
	open_switch(_i);
	wait_for_host_1();
	for (unsigned int i = 0; i < PROBE_PATIENCE; i++) {
		probe_rig_tick();
		probe_rig_expect_finding(0, 0);
	}
	probe_rig_tick();
	probe_rig_expect_finding(0, 0x2);
	/* The host is there again. */
	reply_to_arp(1, 1);
	probe_rig_expect_finding(0, 0);
	was_probed(1);
	close_switch();
}
END_TEST

START_TEST(others_can_not_answer_for_a_host)
{
	struct fanin_headers probe;

	open_switch(_i);
	wait_for_host_1();
	for (unsigned int i = 0; i < PROBE_PATIENCE + 1; i++) {
		probe_rig_tick();
		expect_probe(1);
		probe = *got;
		reply_to_echo(2, 1); /* its address on another port */
		reply_to_echo(1, 2); /* another address on its port */
		reply_to_arp(2, 1);
		refuse_probe(2, 1, 3, &probe);
		probe.ip.dst_be = host_ip_be(2);
		refuse_probe(1, 1, 3, &probe); /* about a frame of another host */
		probe.ip.dst_be = host_ip_be(1);
		probe.udp.dst_be = htons(JOIN_PORT + 1);
		refuse_probe(1, 1, 3, &probe); /* about another port */
		probe.udp.dst_be = htons(JOIN_PORT);
		probe.udp.src_be = htons(4000);
		refuse_probe(1, 1, 3, &probe); /* about no probe of the switch */
	}
	probe_rig_expect_finding(0, 0x2);
	close_switch();
}
END_TEST

START_TEST(a_member_that_has_left_has_ended)
{
	uint8_t frame[4096];

	open_switch(_i);
	wait_for_host_1();
	ring_switch_put(&probe_rig.sw, 1, frame,
			host_packet(&probe_rig.sw, 1, FANIN_TYPE_LEAVE, probe_rig.job->params.id,
				    probe_rig.epoch, NULL, 0, (struct fanin_headers *)frame));
	ck_assert(was_probed(1)); /* LEAVE_ACK */
	probe_rig_tick();
	expect_silence(1);
	probe_rig_expect_finding(0x2, 0);
	close_switch();
}
END_TEST

START_TEST(a_new_run_begins_without_a_finding)
{
	uint8_t frame[4096];

	open_switch(_i);
	wait_for_host_1();
	for (unsigned int i = 0; i < PROBE_PATIENCE + 1; i++)
		probe_rig_tick();
	probe_rig_expect_finding(0, 0x2);
	for (unsigned int h = 0; h < HOSTS; h++)
		ring_switch_put(&probe_rig.sw, (uint16_t)h, frame,
				host_packet(&probe_rig.sw, h, FANIN_TYPE_LEAVE,
					    probe_rig.job->params.id, probe_rig.epoch, NULL, 0,
					    (struct fanin_headers *)frame));
	for (unsigned int h = 0; h < HOSTS; h++)
		was_probed(h);
	probe_rig.epoch = host_join_all(&probe_rig.sw, probe_rig.job, HOSTS, 70);
	for (unsigned int h = 0; h < HOSTS; h++)
		was_probed(h);
	ck_assert(fanin_ranks_is_empty(&probe_rig.job->silent));
	wait_for_host_1();
	close_switch();
}
END_TEST

START_TEST(on_memif_a_port_without_a_host_has_ended)
{
	open_switch(_i);
	probe_rig.sw.pipeline->ports[1].shared = true;
	wait_for_host_1();
	for (unsigned int i = 0; i < 10; i++) {
		probe_rig_tick();
		expect_silence(1);
		probe_rig_expect_finding(0, 0);
	}
	workers_pause(true);
	pipeline_port_set_down(probe_rig.sw.pipeline, 1, true);
	workers_pause(false);
	probe_rig_tick();
	probe_rig_expect_finding(0x2, 0);
	close_switch();
}
END_TEST

START_TEST(jobs_that_are_destroyed_are_not_probed)
{
	open_switch(_i);
	wait_for_host_1();
	workers_pause(true);
	ck_assert_int_eq(job_destroy(probe_rig.sw.pipeline, probe_rig.job->params.id), 0);
	workers_pause(false);
	probe_rig_tick();
	expect_silence(1);
	ck_assert(!probes_are_out(probe_rig.sw.pipeline));
	close_switch();
}
END_TEST

Suite *
suite_probe(void)
{
	Suite *suite = suite_create("probe");
	TCase *hosts = tcase_create("hosts");

	tcase_add_loop_test(hosts, an_overdue_block_has_those_probed_that_it_misses, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, probes_go_twice_a_second_until_5_s_after_the_last_query, 0,
			    N_VARIANTS);
	tcase_add_loop_test(hosts, a_host_whose_machine_answers_is_late, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, a_closed_port_is_a_process_that_has_ended, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, a_firewall_that_refuses_is_a_sign_of_life, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, three_probes_without_an_answer_are_silence, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, others_can_not_answer_for_a_host, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, a_member_that_has_left_has_ended, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, a_new_run_begins_without_a_finding, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, on_memif_a_port_without_a_host_has_ended, 0, N_VARIANTS);
	tcase_add_loop_test(hosts, jobs_that_are_destroyed_are_not_probed, 0, N_VARIANTS);
	suite_add_tcase(suite, hosts);
	return suite;
}
