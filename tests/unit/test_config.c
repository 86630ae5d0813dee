/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the configuration: every class of bad input with the exact message, the defaults, the
 * examples in packaging/examples/, and that packaging/examples/schema.json agrees with the parser's
 * table.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>

#include "switch/config/config.h"
#include "switch/config/config_keys.h"
#include "tests/unit/suites.h"

#define ADDRESS "\"address\":{\"ip\":\"10.77.0.254\"}"
#define PORTS "\"ports\":[{\"name\":\"h0\",\"vdev\":\"net_null0\"}]"
#define WITH(member) "{" ADDRESS "," PORTS "," member "}"
#define WITH_PORTS(entries) "{" ADDRESS ",\"ports\":[" entries "]}"
#define WITH_ADDRESS(members) "{" PORTS ",\"address\":{" members "}}"

#define ROUTED_PORTS                                                                               \
	"\"ports\":[{\"name\":\"h0\",\"vdev\":\"net_null0\"},"                                     \
	"{\"name\":\"u0\",\"vdev\":\"net_null1\",\"routed\":true},"                                \
	"{\"name\":\"u1\",\"vdev\":\"net_null2\",\"routed\":true}]"
#define WITH_ROUTES(entries) "{" ADDRESS "," ROUTED_PORTS ",\"routes\":[" entries "]}"
#define HOP(port, ip) "{\"port\":\"" port "\",\"ip\":\"" ip "\"}"
#define PREFIX "\"prefix\":\"10.77.1.0/24\""
#define VIA "\"via\":[" HOP("u0", "10.78.0.254") "]"
#define A_PREFIX "an IPv4 prefix like \"10.77.1.0/24\", all bits behind its length zero"

static void
expect_error(const char *text, const char *message)
{
	char error[CONFIG_ERROR_LEN] = "";
	struct config config;
	struct config untouched;

	memset(&config, 0xa5, sizeof(config));
	memset(&untouched, 0xa5, sizeof(untouched));
	ck_assert_int_eq(config_parse(text, strlen(text), "sw.json", &config, error), -EINVAL);
	ck_assert_str_eq(error, message);
	ck_assert_mem_eq(&config, &untouched, sizeof(config));
}

static struct config
parse(const char *text)
{
	char error[CONFIG_ERROR_LEN] = "";
	struct config config;

	ck_assert_msg(config_parse(text, strlen(text), "sw.json", &config, error) == 0, "%s",
		      error);
	return config;
}

struct bad_input {
	const char *text;
	const char *message;
};

static const struct bad_input bad_inputs[] = {
	/* not JSON, or not the right kind of it */
	{ "", "sw.json: line 1, column 0: '[' or '{' expected near end of file" },
	{ "{\n\t\"name\" \"x\"\n}", "sw.json: line 2, column 11: ':' expected near '\"x\"'" },
	{ "{\"name\":\"a\",\"name\":\"b\"}",
	  "sw.json: line 1, column 18: duplicate object key near '\"name\"'" },
	{ "[]", "sw.json: found an empty array, expected an object" },
	{ "{\"name\":\"\x1b[31m\"}",
	  "sw.json: line 1, column 9: control character 0x1b near '\"'" },

	/* keys */
	{ "{}",
	  "sw.json: address.ip: missing, expected a unicast IPv4 address like \"10.77.0.254\"" },
	{ "{" ADDRESS "}", "sw.json: ports: missing, expected an array of 1 to 64 objects" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"net_null0\",\"mtuu\":1500}"),
	  "sw.json: ports[0].mtuu: unknown key (did you mean \"mtu\"?)" },
	{ WITH("\"worker\":[]"), "sw.json: worker: unknown key (did you mean \"workers\"?)" },
	{ WITH("\"limits\":{\"colour\":1}"),
	  "sw.json: limits.colour: unknown key, expected one of max_jobs, slots, shared_slots, key_rate" },
	{ WITH("\"limits\":{\"a\\nb\":1}"),
	  "sw.json: limits.\"a\\nb\": unknown key, expected one of max_jobs, slots, shared_slots, key_rate" },
	{ WITH("\"idle\":3"), "sw.json: idle: found 3, expected an object" },
	{ WITH("\"idle\":null"), "sw.json: idle: found null, expected an object" },

	/* numbers */
	{ WITH("\"limits\":{\"max_jobs\":\"many\"}"),
	  "sw.json: limits.max_jobs: found \"many\", expected an integer from 1 to 4096" },
	{ WITH("\"limits\":{\"max_jobs\":0}"),
	  "sw.json: limits.max_jobs: found 0, expected an integer from 1 to 4096" },
	{ WITH("\"limits\":{\"max_jobs\":4097}"),
	  "sw.json: limits.max_jobs: found 4097, expected an integer from 1 to 4096" },
	{ WITH("\"limits\":{\"max_jobs\":2.5}"),
	  "sw.json: limits.max_jobs: found 2.5, expected an integer from 1 to 4096" },
	{ WITH("\"limits\":{\"max_jobs\":true}"),
	  "sw.json: limits.max_jobs: found true, expected an integer from 1 to 4096" },
	{ WITH("\"memory\":{\"megabytes\":63}"),
	  "sw.json: memory.megabytes: found 63, expected an integer from 64 to 1048576" },
	{ WITH("\"mempool\":{\"mbufs\":511}"),
	  "sw.json: mempool.mbufs: found 511, expected an integer from 512 to 4194303" },
	{ WITH("\"mempool\":{\"cache\":-1}"),
	  "sw.json: mempool.cache: found -1, expected an integer from 0 to 512" },
	{ WITH("\"mac_table\":{\"entries\":63}"),
	  "sw.json: mac_table.entries: found 63, expected an integer from 64 to 1048576" },
	{ WITH("\"mac_table\":{\"age_seconds\":0}"),
	  "sw.json: mac_table.age_seconds: found 0, expected an integer from 1 to 1000000" },
	{ WITH("\"faults\":{\"drop\":1.5}"),
	  "sw.json: faults.drop: found 1.5, expected a number from 0 to 1" },
	{ WITH("\"faults\":{\"reorder\":-0.1}"),
	  "sw.json: faults.reorder: found -0.1, expected a number from 0 to 1" },
	{ WITH("\"faults\":{\"duplicate\":\"1%\"}"),
	  "sw.json: faults.duplicate: found \"1%\", expected a number from 0 to 1" },
	{ WITH("\"faults\":{\"seed\":99999999999999999999}"),
	  "sw.json: line 1, column 112: too big integer near '99999999999999999999'" },

	/* control over TCP */
	{ WITH("\"control\":{\"listen\":\"0.0.0.0:21931\"}"),
	  "sw.json: control: control address 0.0.0.0:21931: found no token file, expected one: without it only addresses of "
	  "this machine alone, like 127.0.0.1, may be listened on" },
	{ WITH("\"control\":{\"listen\":\"127.0.0.1:21931\",\"tls\":{\"key\":\"k\"}}"),
	  "sw.json: control: found a TLS key without a certificate, expected both or none" },
	{ WITH("\"control\":{\"token_file\":\"t\"}"),
	  "sw.json: control: found a token file or TLS without an address to listen on" },

	/* strings */
	{ WITH("\"name\":\"\""),
	  "sw.json: name: found \"\", expected 1 to 31 letters, digits, '.', '_' or '-'" },
	{ WITH("\"name\":\"a b\""),
	  "sw.json: name: found \"a b\", expected 1 to 31 letters, digits, '.', '_' or '-'" },
	{ WITH("\"metrics\":{\"listen\":\"localhost:9464\"}"),
	  "sw.json: metrics.listen: found \"localhost:9464\", expected an IP address and a TCP port like \"127.0.0.1:9464\" or \"[::1]:9464\"" },
	{ WITH("\"log_level\":\"loud\""),
	  "sw.json: log_level: found \"loud\", expected \"error\", \"warning\", \"info\" or \"debug\"" },
	{ WITH("\"idle\":{\"policy\":7}"),
	  "sw.json: idle.policy: found 7, expected \"yield\", \"spin\" or \"sleep\"" },
	{ WITH("\"control\":{\"socket\":\"\"}"),
	  "sw.json: control.socket: found \"\", expected a string of 1 to 107 bytes" },

	/* addresses */
	{ WITH_ADDRESS("\"ip\":\"10.77.0.256\""),
	  "sw.json: address.ip: found \"10.77.0.256\", expected a unicast IPv4 address like \"10.77.0.254\"" },
	{ WITH_ADDRESS("\"ip\":\"224.0.0.1\""),
	  "sw.json: address.ip: found \"224.0.0.1\", expected a unicast IPv4 address like \"10.77.0.254\"" },
	{ WITH_ADDRESS("\"ip\":\"0.0.0.0\""),
	  "sw.json: address.ip: found \"0.0.0.0\", expected a unicast IPv4 address like \"10.77.0.254\"" },
	{ WITH_ADDRESS("\"ip\":\"127.0.0.1\""),
	  "sw.json: address.ip: found \"127.0.0.1\", expected a unicast IPv4 address like \"10.77.0.254\"" },
	{ WITH_ADDRESS("\"ip\":\"10.1.1.1\",\"mac\":\"00:00:00:00:00:00\""),
	  "sw.json: address.mac: found \"00:00:00:00:00:00\", "
	  "expected a unicast MAC address like \"02:fa:00:00:00:fe\"" },
	{ WITH_ADDRESS("\"ip\":\"10.1.1.1\",\"mac\":\"01:00:5e:00:00:01\""),
	  "sw.json: address.mac: found \"01:00:5e:00:00:01\", "
	  "expected a unicast MAC address like \"02:fa:00:00:00:fe\"" },
	{ WITH_ADDRESS("\"ip\":\"10.1.1.1\",\"mac\":\"2:fa:0:0:0:fe\""),
	  "sw.json: address.mac: found \"2:fa:0:0:0:fe\", expected a unicast MAC address like \"02:fa:00:00:00:fe\"" },
	{ WITH_ADDRESS("\"ip\":\"10.1.1.1\",\"mac\":\"02-fa-00-00-00-fe\""),
	  "sw.json: address.mac: found \"02-fa-00-00-00-fe\", "
	  "expected a unicast MAC address like \"02:fa:00:00:00:fe\"" },
	{ WITH_ADDRESS("\"ip\":\"10.1.1.1\",\"udp_port\":1023"),
	  "sw.json: address.udp_port: found 1023, expected an integer from 1024 to 65535" },

	/* ports */
	{ WITH_PORTS(""), "sw.json: ports: found 0 entries, expected an array of 1 to 64 objects" },
	{ WITH_PORTS("7"), "sw.json: ports[0]: found 7, expected an object" },
	{ WITH_PORTS("{\"vdev\":\"net_null0\"}"),
	  "sw.json: ports[0].name: missing, expected 1 to 31 letters, digits, '.', '_' or '-'" },
	{ WITH_PORTS("{\"name\":\"h0\"}"),
	  "sw.json: ports[0]: found none of interface, vdev, pci and memif, expected one of them" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"net_null0\",\"pci\":\"0000:01:00.0\"}"),
	  "sw.json: ports[0]: found several of interface, vdev, pci and memif, expected one of them" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"net_memif,id=1\"}"),
	  "sw.json: ports[0]: found the vdev net_memif, expected \"memif\": ID instead of vdev" },
	{ WITH_PORTS("{\"name\":\"h0\",\"memif\":65536}"),
	  "sw.json: ports[0].memif: found 65536, expected an integer from 0 to 65535" },
	{ WITH_PORTS("{\"name\":\"h0\",\"memif\":7},{\"name\":\"h1\",\"memif\":7}"),
	  "sw.json: ports[1].memif: 7 is the id of ports[0] already" },
	{ WITH("\"memif\":{\"socket\":\"memif.sock\"}"),
	  "sw.json: memif.socket: found \"memif.sock\", "
	  "expected an absolute path of at most 99 bytes without spaces and any of , = [ ] \"" },
	{ WITH("\"memif\":{\"socket\":\"/run/a,b\"}"),
	  "sw.json: memif.socket: found \"/run/a,b\", "
	  "expected an absolute path of at most 99 bytes without spaces and any of , = [ ] \"" },
	{ WITH_PORTS("{\"name\":\"h0\",\"interface\":\"sixteen-letters-\"}"),
	  "sw.json: ports[0].interface: found \"sixteen-letters-\", "
	  "expected the name of a network interface like \"eth1\"" },
	{ WITH_PORTS("{\"name\":\"h0\",\"interface\":\"a,b\"}"),
	  "sw.json: ports[0].interface: found \"a,b\", expected the name of a network interface like \"eth1\"" },
	{ WITH_PORTS(
		  "{\"name\":\"h0\",\"interface\":\"a\"},{\"name\":\"h1\",\"vdev\":\"net_af_xdp,iface=a\"}"),
	  "sw.json: ports[1].vdev: interface \"a\" is that of ports[0] already" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"eth0\"}"),
	  "sw.json: ports[0].vdev: found \"eth0\", "
	  "expected a DPDK virtual device of at most 255 bytes like \"net_af_xdp,iface=eth1\"" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"net_null x\"}"),
	  "sw.json: ports[0].vdev: found \"net_null x\", "
	  "expected a DPDK virtual device of at most 255 bytes like \"net_af_xdp,iface=eth1\"" },
	{ WITH_PORTS("{\"name\":\"h0\",\"pci\":\"01:00.0\"}"),
	  "sw.json: ports[0].pci: found \"01:00.0\", expected a PCI address like \"0000:01:00.0\"" },
	{ WITH_PORTS("{\"name\":\"h0\",\"pci\":\"0000:01:20.0\"}"),
	  "sw.json: ports[0].pci: found \"0000:01:20.0\", expected a PCI address like \"0000:01:00.0\"" },
	{ WITH_PORTS("{\"name\":\"h0\",\"pci\":\"0000:01:00.8\"}"),
	  "sw.json: ports[0].pci: found \"0000:01:00.8\", expected a PCI address like \"0000:01:00.0\"" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"net_null0\",\"mtu\":70000}"),
	  "sw.json: ports[0].mtu: found 70000, expected an integer from 576 to 61184" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"net_null0\",\"mtu\":575}"),
	  "sw.json: ports[0].mtu: found 575, expected an integer from 576 to 61184" },
	{ WITH_PORTS(
		  "{\"name\":\"h0\",\"vdev\":\"net_null0\"},{\"name\":\"h0\",\"vdev\":\"net_null1\"}"),
	  "sw.json: ports[1].name: \"h0\" is the name of ports[0] already" },
	{ WITH_PORTS(
		  "{\"name\":\"h0\",\"vdev\":\"net_null\"},{\"name\":\"h1\",\"vdev\":\"net_null\"}"),
	  "sw.json: ports[1].vdev: \"net_null\" is the device of ports[0] already: number them, like \"net_null0\"" },
	{ WITH_PORTS(
		  "{\"name\":\"h0\",\"vdev\":\"net_null0\"},{\"name\":\"h1\",\"vdev\":\"net_null0,size=64\"}"),
	  "sw.json: ports[1].vdev: \"net_null0\" is the device of ports[0] already" },
	{ WITH_PORTS("{\"name\":\"h0\",\"vdev\":\"net_af_xdp,iface=a\"},"
		     "{\"name\":\"h1\",\"vdev\":\"net_af_packet,blocksz=4096,iface=a,qpairs=1\"}"),
	  "sw.json: ports[1].vdev: interface \"a\" is that of ports[0] already" },
	{ WITH_PORTS(
		  "{\"name\":\"h0\",\"pci\":\"0000:0a:00.0\"},{\"name\":\"h1\",\"pci\":\"0000:0A:00.0\"}"),
	  "sw.json: ports[1].pci: \"0000:0A:00.0\" is the device of ports[0] already" },

	/* workers */
	{ WITH("\"workers\":[]"),
	  "sw.json: workers: found 0 entries, expected an array of 1 to 16 objects" },
	{ WITH("\"workers\":{}"),
	  "sw.json: workers: found an object, expected an array of 1 to 16 objects" },
	{ WITH("\"workers\":[{}]"),
	  "sw.json: workers[0].lcore: missing, expected an integer from 0 to 127" },
	{ WITH("\"workers\":[{\"lcore\":128}]"),
	  "sw.json: workers[0].lcore: found 128, expected an integer from 0 to 127" },
	{ WITH("\"workers\":[{\"lcore\":1},{\"lcore\":2},{\"lcore\":1}]"),
	  "sw.json: workers[2].lcore: 1 is the lcore of workers[0] already" },

	/* sizes that don't fit each other */
	{ WITH("\"limits\":{\"slots\":7}"),
	  "sw.json: limits.slots: found 7, expected an even number" },
	{ WITH("\"limits\":{\"shared_slots\":96}"),
	  "sw.json: limits.shared_slots: found 96, expected a power of two" },
	{ WITH("\"limits\":{\"max_jobs\":8,\"slots\":14}"),
	  "sw.json: limits.slots: found 14, which is less than 2 for each of 8 jobs: "
	  "expected at least 16, or a lower limits.max_jobs" },
	{ WITH("\"mempool\":{\"mbufs\":600,\"cache\":401}"),
	  "sw.json: mempool.cache: found 401, expected at most 400, two thirds of mempool.mbufs" },

	/* routes */
	{ WITH_ADDRESS("\"ip\":\"10.77.0.254\",\"prefix_len\":33"),
	  "sw.json: address.prefix_len: found 33, expected an integer from 8 to 32" },
	{ WITH_ADDRESS("\"ip\":\"10.77.0.255\""),
	  "sw.json: address.ip: found \"10.77.0.255\", the broadcast address of its subnet of "
	  "address.prefix_len 24, expected one of a host" },
	{ WITH_ADDRESS("\"ip\":\"10.77.16.0\",\"prefix_len\":20"),
	  "sw.json: address.ip: found \"10.77.16.0\", the network's own address of its subnet of "
	  "address.prefix_len 20, expected one of a host" },
	{ WITH_PORTS("{\"name\":\"u0\",\"vdev\":\"net_null0\",\"routed\":1}"),
	  "sw.json: ports[0].routed: found 1, expected true or false" },
	{ WITH_ROUTES("7"), "sw.json: routes[0]: found 7, expected an object" },
	{ WITH_ROUTES("{" VIA "}"), "sw.json: routes[0].prefix: missing, expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":7," VIA "}"),
	  "sw.json: routes[0].prefix: found 7, expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":\"10.0.0.0\"," VIA "}"),
	  "sw.json: routes[0].prefix: found \"10.0.0.0\", expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":\"10.0.0.0/\"," VIA "}"),
	  "sw.json: routes[0].prefix: found \"10.0.0.0/\", expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":\"10.0.0.0/33\"," VIA "}"),
	  "sw.json: routes[0].prefix: found \"10.0.0.0/33\", expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":\"10.0.0.0/8x\"," VIA "}"),
	  "sw.json: routes[0].prefix: found \"10.0.0.0/8x\", expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":\"10.0.1.0/16\"," VIA "}"),
	  "sw.json: routes[0].prefix: found \"10.0.1.0/16\", expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":\"0.0.0.1/0\"," VIA "}"),
	  "sw.json: routes[0].prefix: found \"0.0.0.1/0\", expected " A_PREFIX },
	{ WITH_ROUTES("{\"prefix\":\"10.77.0.0/24\"," VIA "}"),
	  "sw.json: routes[0].prefix: \"10.77.0.0/24\" is the hosts' subnet of address.ip and "
	  "address.prefix_len already" },
	{ WITH_ROUTES("{" PREFIX "," VIA "},{" PREFIX "," VIA "}"),
	  "sw.json: routes[1].prefix: \"10.77.1.0/24\" is the prefix of routes[0] already" },
	{ WITH_ROUTES("{" PREFIX "}"),
	  "sw.json: routes[0].via: missing, expected an array of 1 to 16 objects" },
	{ WITH_ROUTES("{" PREFIX ",\"via\":[]}"),
	  "sw.json: routes[0].via: found 0 entries, expected an array of 1 to 16 objects" },
	{ WITH_ROUTES("{" PREFIX ",\"via\":[{\"port\":\"u0\"}]}"),
	  "sw.json: routes[0].via[0].ip: missing, expected a unicast IPv4 address like \"10.77.0.254\"" },
	{ WITH_ROUTES("{" PREFIX ",\"via\":[" HOP("h0", "10.78.0.254") "]}"),
	  "sw.json: routes[0].via[0].port: found \"h0\", expected a port with \"routed\": true, "
	  "one of u0, u1" },
	{ WITH("\"routes\":[{" PREFIX ",\"via\":[" HOP("u9", "10.78.0.254") "]}]"),
	  "sw.json: routes[0].via[0].port: found \"u9\", expected a port with \"routed\": true, "
	  "and there is none" },
	{ WITH_ROUTES("{" PREFIX ",\"via\":[" HOP("u0", "10.77.0.254") "]}"),
	  "sw.json: routes[0].via[0].ip: found \"10.77.0.254\", which is the switch's own, "
	  "expected that of another" },
	{ WITH_ROUTES("{" PREFIX ",\"via\":[" HOP("u0", "10.78.0.254") "," HOP(
		  "u1", "10.78.0.254") "," HOP("u0", "10.78.0.254") "]}"),
	  "sw.json: routes[0].via[2].ip: \"10.78.0.254\" on port \"u0\" is via[0] already" },
};

START_TEST(bad_input_is_named_with_what_was_found_and_expected)
{
	expect_error(bad_inputs[_i].text, bad_inputs[_i].message);
}
END_TEST

START_TEST(an_error_of_any_length_is_one_printable_line)
{
	char error[CONFIG_ERROR_LEN];
	char source[2 * CONFIG_ERROR_LEN];
	char text[4096];
	char name[3000];
	struct config config;

	memset(source, 's', sizeof(source) - 1);
	source[sizeof(source) - 1] = '\0';
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	snprintf(text, sizeof(text), "{\"%s\":1}", name);
	ck_assert_int_eq(config_parse(text, strlen(text), source, &config, error), -EINVAL);
	ck_assert_uint_eq(strlen(error), CONFIG_ERROR_LEN - 1);
	ck_assert_int_eq(config_parse(text, strlen(text), "sw\n.json", &config, error), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "sw?.json: \"nnnn"));
	ck_assert_uint_lt(strlen(error), CONFIG_ERROR_LEN - 1);
}
END_TEST

START_TEST(only_address_and_ports_are_needed)
{
	struct config config = parse("{" ADDRESS "," PORTS "}");
	static const uint8_t mac[6] = { 0x02, 0xfa, 0, 0, 0, 0xfe };

	ck_assert_str_eq(config.name, "fanin");
	ck_assert_uint_eq(ntohl(config.ip_be), 0x0a4d00fe);
	ck_assert_mem_eq(config.mac, mac, 6);
	ck_assert_uint_eq(config.udp_port, 21930);
	ck_assert_str_eq(config.control_socket, "/run/fanin/switch.sock");
	ck_assert_str_eq(config.metrics_listen, "");
	ck_assert_int_eq(config.log_level, LOG_LEVEL_INFO);
	ck_assert_int_eq(config.hugepages, CONFIG_HUGEPAGES_AUTO);
	ck_assert_uint_eq(config.memory_megabytes, 512);
	ck_assert_uint_eq(config.mbufs, 0);
	ck_assert_uint_eq(config.mbuf_cache, 256);
	ck_assert_int_eq(config.idle_policy, CONFIG_IDLE_SLEEP);
	ck_assert_uint_eq(config.idle_empty_polls, 64);
	ck_assert_uint_eq(config.idle_sleep_us, 50);
	ck_assert_uint_eq(config.max_jobs, 8);
	ck_assert_uint_eq(config.slots, 4096);
	ck_assert_uint_eq(config.shared_slots, 1024);
	ck_assert_uint_eq(config.key_rate, 10000000);
	ck_assert_uint_eq(config.mac_entries, 8192);
	ck_assert_uint_eq(config.mac_age_seconds, 300);
	ck_assert_double_eq(config.fault_drop, 0);
	ck_assert_uint_eq(config.fault_seed, 1);
	ck_assert_uint_eq(config.n_ports, 1);
	ck_assert_str_eq(config.ports[0].device, "net_null0");
	ck_assert_uint_eq(config.ports[0].mtu, 1500);
	ck_assert_uint_eq(config.n_workers, 1);
	ck_assert_uint_eq(config.workers[0].lcore, config.workers[0].cpu);
}
END_TEST

START_TEST(every_key_reaches_its_field)
{
	struct config config = parse(
		"{\"name\":\"sw7\",\"address\":{\"ip\":\"10.1.2.3\",\"mac\":\"06:AA:bb:cc:dd:ee\",\"udp_port\":65535},"
		"\"control\":{\"socket\":\"/tmp/s\"},\"metrics\":{\"listen\":\"[::1]:9464\"},\"log_level\":\"debug\","
		"\"memory\":{\"hugepages\":\"never\",\"megabytes\":64},\"mempool\":{\"mbufs\":4194303,\"cache\":0},"
		"\"workers\":[{\"lcore\":5,\"cpu\":1},{\"lcore\":3}],"
		"\"idle\":{\"policy\":\"spin\",\"empty_polls\":9,\"sleep_us\":8},"
		"\"limits\":{\"max_jobs\":4096,\"slots\":8192,\"shared_slots\":64,\"key_rate\":1000},\"mac_table\":{\"entries\":64,\"age_seconds\":1},"
		"\"ports\":[{\"name\":\"a\",\"pci\":\"0000:01:1f.7\",\"mtu\":61184},"
		"{\"name\":\"b\",\"vdev\":\"net_tap0,iface=x\"},{\"name\":\"c\",\"memif\":65535}],"
		"\"memif\":{\"socket\":\"/tmp/m\"},"
		"\"faults\":{\"drop\":1,\"duplicate\":0.25,\"reorder\":0.5,\"seed\":9223372036854775807}}");
	static const uint8_t mac[6] = { 0x06, 0xaa, 0xbb, 0xcc, 0xdd, 0xee };

	ck_assert_str_eq(config.name, "sw7");
	ck_assert_uint_eq(ntohl(config.ip_be), 0x0a010203);
	ck_assert_mem_eq(config.mac, mac, 6);
	ck_assert_uint_eq(config.udp_port, 65535);
	ck_assert_str_eq(config.control_socket, "/tmp/s");
	ck_assert_str_eq(config.metrics_listen, "[::1]:9464");
	ck_assert_str_eq(config.memif_socket, "/tmp/m");
	ck_assert(config.ports[2].memif);
	ck_assert_uint_eq(config.ports[2].memif_id, 65535);
	ck_assert_int_eq(config.log_level, LOG_LEVEL_DEBUG);
	ck_assert_int_eq(config.hugepages, CONFIG_HUGEPAGES_NEVER);
	ck_assert_uint_eq(config.memory_megabytes, 64);
	ck_assert_uint_eq(config.mbufs, 4194303);
	ck_assert_uint_eq(config.mbuf_cache, 0);
	ck_assert_uint_eq(config.n_workers, 2);
	ck_assert_uint_eq(config.workers[0].lcore, 5);
	ck_assert_uint_eq(config.workers[0].cpu, 1);
	ck_assert_uint_eq(config.workers[1].lcore, 3);
	ck_assert_uint_eq(config.workers[1].cpu, 3);
	ck_assert_int_eq(config.idle_policy, CONFIG_IDLE_SPIN);
	ck_assert_uint_eq(config.idle_empty_polls, 9);
	ck_assert_uint_eq(config.idle_sleep_us, 8);
	ck_assert_uint_eq(config.max_jobs, 4096);
	ck_assert_uint_eq(config.slots, 8192);
	ck_assert_uint_eq(config.shared_slots, 64);
	ck_assert_uint_eq(config.key_rate, 1000);
	ck_assert_uint_eq(config.mac_entries, 64);
	ck_assert_uint_eq(config.mac_age_seconds, 1);
	ck_assert_uint_eq(config.n_ports, 3);
	ck_assert(config.ports[0].pci);
	ck_assert_str_eq(config.ports[0].device, "0000:01:1f.7");
	ck_assert_uint_eq(config.ports[0].mtu, 61184);
	ck_assert(!config.ports[1].pci);
	ck_assert_str_eq(config.ports[1].name, "b");
	ck_assert_str_eq(config.ports[1].device, "net_tap0,iface=x");
	ck_assert_double_eq(config.fault_drop, 1);
	ck_assert_double_eq(config.fault_duplicate, 0.25);
	ck_assert_double_eq(config.fault_reorder, 0.5);
	ck_assert_uint_eq(config.fault_seed, INT64_MAX);
}
END_TEST

START_TEST(routes_reach_their_fields)
{
	struct config config =
		parse(WITH_ROUTES("{" PREFIX ",\"via\":[" HOP("u1", "10.78.1.254") "," HOP(
			"u0", "10.78.0.254") "]},"
					     "{\"prefix\":\"0.0.0.0/0\"," VIA
					     "},{\"prefix\":\"10.77.0.7/32\"," VIA "}"));

	ck_assert_uint_eq(config.prefix_len, 24);
	ck_assert(!config.ports[0].routed && config.ports[1].routed && config.ports[2].routed);
	ck_assert_uint_eq(config.n_routes, 3);
	ck_assert_uint_eq(config.routes[0].prefix.ip_be, inet_addr("10.77.1.0"));
	ck_assert_uint_eq(config.routes[0].prefix.len, 24);
	ck_assert_uint_eq(config.routes[0].n_via, 2);
	ck_assert_uint_eq(config.routes[0].via[0].port, 2);
	ck_assert_uint_eq(config.routes[0].via[0].ip_be, inet_addr("10.78.1.254"));
	ck_assert_uint_eq(config.routes[0].via[1].port, 1);
	ck_assert_uint_eq(config.routes[1].prefix.len, 0);
	ck_assert_uint_eq(config.routes[2].prefix.len, 32);
	ck_assert_uint_eq(config.routes[2].n_via, 1);

	config = parse(WITH_ADDRESS("\"ip\":\"10.77.0.255\",\"prefix_len\":31"));
	ck_assert_uint_eq(config.prefix_len, 31);
	ck_assert_uint_eq(config.n_routes, 0);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_named)
{
	char error[CONFIG_ERROR_LEN] = "";
	struct config config;

	ck_assert_int_eq(config_load("/nonexistent/sw.json", &config, error), -ENOENT);
	ck_assert_str_eq(error, "/nonexistent/sw.json: cannot open: No such file or directory");
	ck_assert_int_eq(config_load("/", &config, error), -EISDIR);
	ck_assert_str_eq(error, "/: cannot read: Is a directory");
	ck_assert_int_eq(config_load("/dev/zero", &config, error), -EFBIG);
	ck_assert_str_eq(error, "/dev/zero: longer than 1048575 bytes: not a configuration file");
}
END_TEST

static const char *const examples[] = { "veth-af_xdp.json", "veth-af_packet.json", "nic.json",
					"two-workers.json", "memif.json",          "leaf.json",
					"spine.json" };

START_TEST(example_is_valid)
{
	char path[512];
	char error[CONFIG_ERROR_LEN] = "";
	struct config config;

	snprintf(path, sizeof(path), "%s/packaging/examples/%s", FANIN_SOURCE_DIR, examples[_i]);
	ck_assert_msg(config_load(path, &config, error) == 0, "%s", error);
	ck_assert_uint_ge(config.n_ports, 2);
}
END_TEST

START_TEST(a_missing_interface_is_named)
{
	struct config config = parse(
		WITH_PORTS("{\"name\":\"a\",\"vdev\":\"net_af_xdp,iface=lo\"},"
			   "{\"name\":\"b\",\"vdev\":\"net_af_packet,iface=fs-none,qpairs=1\"}"));
	char error[CONFIG_ERROR_LEN] = "";

	ck_assert_int_eq(config_check_machine(&config, "sw.json", error), -ENODEV);
	ck_assert_str_eq(
		error,
		"sw.json: interface \"fs-none\" does not exist: create it, or mend ports[1].vdev");
	config.n_ports = 1;
	ck_assert_int_eq(config_check_machine(&config, "sw.json", error), 0);
}
END_TEST

START_TEST(an_interface_gets_the_driver_of_the_rule)
{
	struct config config = parse(WITH_PORTS("{\"name\":\"a\",\"interface\":\"lo\"},"
						"{\"name\":\"b\",\"interface\":\"fs-none\"}"));
	char error[CONFIG_ERROR_LEN] = "";

	ck_assert(config.ports[0].by_rule);
	ck_assert_str_eq(config.ports[0].device, "net_af_packet,iface=lo");
	ck_assert_str_eq(config.ports[0].why, "lo's driver unknown has no zero-copy AF_XDP");
	ck_assert_str_eq(config_port_key(&config.ports[0]), "interface");
	ck_assert_int_eq(config_check_machine(&config, "sw.json", error), -ENODEV);
	ck_assert_str_eq(
		error,
		"sw.json: interface \"fs-none\" does not exist: create it, or mend ports[1].interface");
}
END_TEST

/* Driver, queues, queues that also send, MTU, and whether it is AF_XDP. */
static const struct {
	const char *driver;
	unsigned int queues;
	unsigned int combined;
	uint32_t mtu;
	bool xdp;
	const char *why;
} rules[] = {
	{ "veth", 1, 1, 1500, false, "e's driver veth has no zero-copy AF_XDP" },
	{ "virtio_net", 1, 1, 1500, false, "e's driver virtio_net has no zero-copy AF_XDP" },
	{ "ice", 0, 0, 1500, true, "e's driver ice has zero-copy AF_XDP" },
	{ "mlx5_core", 4, 4, 3474, true, "e's driver mlx5_core has zero-copy AF_XDP" },
	{ "ice", 1, 1, 3475, false, "e's MTU of 3475 is more than AF_XDP's 3474" },
	{ "ice", 5, 5, 1500, false,
	  "e has 5 receive queues, more than AF_XDP's 4 here (ethtool -L)" },
	{ "st_gmac", 1, 0, 1500, true, "e's driver st_gmac has zero-copy AF_XDP" },
	{ "st_gmac", 2, 0, 1500, false,
	  "e has 2 receive queues, of which AF_XDP serves 1 (ethtool -l)" },
	{ "ice", 3, 2, 1500, false,
	  "e has 3 receive queues, of which AF_XDP serves 2 (ethtool -l)" },
};

START_TEST(the_rule_goes_by_driver_mtu_and_queues)
{
	char why[INTERFACE_WHY_LEN];

	ck_assert_int_eq(interface_rule("e", rules[_i].driver, rules[_i].queues, rules[_i].combined,
					rules[_i].mtu, why),
			 rules[_i].xdp);
	ck_assert_str_eq(why, rules[_i].why);
}
END_TEST

START_TEST(a_tap_need_not_exist)
{
	struct config config =
		parse(WITH_PORTS("{\"name\":\"a\",\"vdev\":\"net_tap0,iface=fs-none\"}"));
	char error[CONFIG_ERROR_LEN] = "";

	ck_assert_int_eq(config_check_machine(&config, "sw.json", error), 0);
}
END_TEST

START_TEST(a_missing_pci_device_is_named)
{
	struct config config = parse(WITH_PORTS("{\"name\":\"a\",\"pci\":\"fffe:01:00.0\"}"));
	char error[CONFIG_ERROR_LEN] = "";

	ck_assert_int_eq(config_check_machine(&config, "sw.json", error), -ENODEV);
	ck_assert_str_eq(
		error,
		"sw.json: PCI device \"fffe:01:00.0\" does not exist: see lspci -D, or mend ports[0].pci");
}
END_TEST

START_TEST(a_missing_cpu_is_named)
{
	struct config config = parse(WITH("\"workers\":[{\"lcore\":0,\"cpu\":1023}]"));
	char error[CONFIG_ERROR_LEN] = "";
	char message[CONFIG_ERROR_LEN];
	cpu_set_t one;
	int cpu = sched_getcpu();

	/* The test runs in a process of its own, so it may tie itself to one CPU. */
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_int_eq(config_check_machine(&config, "sw.json", error), -EINVAL);
	snprintf(
		message, sizeof(message),
		"sw.json: workers[0]: CPU 1023 is not available, expected one of %d as lcore or as cpu",
		cpu);
	ck_assert_str_eq(error, message);
	config.workers[0].cpu = (uint16_t)cpu;
	ck_assert_int_eq(config_check_machine(&config, "sw.json", error), 0);

	/* The default worker runs where this process may run. */
	config = parse("{" ADDRESS "," PORTS "}");
	ck_assert_int_eq(config.workers[0].cpu, cpu);
}
END_TEST

static bool
array_has(const json_t *array, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach(array, i, item) {
		if (strcmp(json_string_value(item), text) == 0)
			return true;
	}
	return false;
}

static void
compare_value(const struct config_key *key, const json_t *property)
{
	const json_t *fallback = json_object_get(property, "default");
	size_t choices = 0;

	if (key->type == CONFIG_TYPE_INTEGER) {
		ck_assert_str_eq(json_string_value(json_object_get(property, "type")), "integer");
		ck_assert_int_eq(json_integer_value(json_object_get(property, "minimum")),
				 key->minimum);
		ck_assert_int_eq(json_integer_value(json_object_get(property, "maximum")),
				 key->maximum);
		if (fallback != NULL)
			ck_assert_int_eq(json_integer_value(fallback), key->fallback);
	} else if (key->type == CONFIG_TYPE_BOOLEAN) {
		ck_assert_str_eq(json_string_value(json_object_get(property, "type")), "boolean");
		ck_assert(json_is_true(fallback) == (key->fallback != 0));
	} else if (key->type == CONFIG_TYPE_SHARE) {
		ck_assert_str_eq(json_string_value(json_object_get(property, "type")), "number");
		ck_assert_double_eq(json_number_value(json_object_get(property, "maximum")), 1);
		ck_assert_double_eq(json_number_value(fallback), 0);
	} else if (key->type == CONFIG_TYPE_CHOICE) {
		while (key->choices[choices] != NULL)
			ck_assert(array_has(json_object_get(property, "enum"),
					    key->choices[choices++]));
		ck_assert_uint_eq(json_array_size(json_object_get(property, "enum")), choices);
		ck_assert_str_eq(json_string_value(fallback), key->choices[key->fallback]);
	} else {
		ck_assert_str_eq(json_string_value(json_object_get(property, "type")), "string");
		if (key->fallback_text != NULL)
			ck_assert_str_eq(json_string_value(fallback), key->fallback_text);
	}
	ck_assert_msg((fallback != NULL) == !(key->required || key->derived), "%s: default",
		      key->name);
}

static void
compare_object(const struct config_key *keys, const json_t *schema)
{
	const json_t *properties = json_object_get(schema, "properties");
	const json_t *required = json_object_get(schema, "required");
	size_t n_keys = 0;
	size_t n_required = 0;

	ck_assert(json_is_false(json_object_get(schema, "additionalProperties")));
	for (const struct config_key *key = keys; key->name != NULL; key++) {
		const json_t *property = json_object_get(properties, key->name);

		n_keys++;
		n_required += key->required;
		ck_assert_msg(property != NULL, "the schema lacks \"%s\"", key->name);
		ck_assert_msg(json_is_string(json_object_get(property, "description")) != 0, "%s",
			      key->name);
		ck_assert_msg(array_has(required, key->name) == key->required, "%s: required",
			      key->name);
		if (key->type == CONFIG_TYPE_OBJECT) {
			compare_object(key->keys, property);
		} else if (key->type == CONFIG_TYPE_ARRAY) {
			ck_assert_int_eq(json_integer_value(json_object_get(property, "minItems")),
					 key->minimum);
			ck_assert_int_eq(json_integer_value(json_object_get(property, "maxItems")),
					 key->maximum);
			compare_object(key->keys, json_object_get(property, "items"));
		} else {
			compare_value(key, property);
		}
	}
	ck_assert_uint_eq(json_object_size(properties), n_keys);
	ck_assert_uint_eq(json_array_size(required), n_required);
}

START_TEST(schema_says_the_same_as_the_parser)
{
	json_error_t error;
	json_t *schema = json_load_file(FANIN_SOURCE_DIR "/packaging/examples/schema.json",
					JSON_REJECT_DUPLICATES, &error);

	ck_assert_msg(schema != NULL, "%s:%d: %s", error.source, error.line, error.text);
	compare_object(config_keys, schema);
	json_decref(schema);
}
END_TEST

Suite *
suite_config(void)
{
	Suite *suite = suite_create("config");
	TCase *parsing = tcase_create("parse");
	TCase *files = tcase_create("files");
	TCase *machine = tcase_create("machine");

	tcase_add_loop_test(parsing, bad_input_is_named_with_what_was_found_and_expected, 0,
			    (int)(sizeof(bad_inputs) / sizeof(bad_inputs[0])));
	tcase_add_test(parsing, an_error_of_any_length_is_one_printable_line);
	tcase_add_test(parsing, only_address_and_ports_are_needed);
	tcase_add_test(parsing, every_key_reaches_its_field);
	tcase_add_test(parsing, routes_reach_their_fields);
	suite_add_tcase(suite, parsing);

	tcase_add_test(files, a_file_that_cannot_be_read_is_named);
	tcase_add_loop_test(files, example_is_valid, 0,
			    (int)(sizeof(examples) / sizeof(examples[0])));
	tcase_add_test(files, schema_says_the_same_as_the_parser);
	suite_add_tcase(suite, files);

	tcase_add_test(machine, a_missing_interface_is_named);
	tcase_add_test(machine, an_interface_gets_the_driver_of_the_rule);
	tcase_add_loop_test(machine, the_rule_goes_by_driver_mtu_and_queues, 0,
			    sizeof(rules) / sizeof(rules[0]));
	tcase_add_test(machine, a_tap_need_not_exist);
	tcase_add_test(machine, a_missing_pci_device_is_named);
	tcase_add_test(machine, a_missing_cpu_is_named);
	suite_add_tcase(suite, machine);
	return suite;
}
