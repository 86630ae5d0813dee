/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl doctor: checks whether this machine is fit for a switch or a host, and suggests what to
 * do if not. Needs no switch. The checks are the tables below, implemented in tools/doctor_*.c.
 */
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include <linux/capability.h>

#include "control/text.h"
#include "tools/ctl.h"
#include "tools/doctor.h"

#define DEFAULT_UDP_PORT 21930
#define ROOT_VARIABLE "FANIN_SYSFS_ROOT"
#define ACTION_LEN 256

#define KERNEL_LINE "add it to the kernel's command line, for the workers' CPUs: "
#define AS_ROOT                                                                                      \
	"run it as root, or: setcap cap_net_admin,cap_net_raw,cap_bpf,cap_ipc_lock,cap_sys_nice+ep " \
	"$(command -v fanin-switch)"

const struct cli_option ctl_doctor_options[] = {
	{ "udp-port", "N", 'u', "port of Fanin's packets (default: 21930)" },
	{ "driver", "DRIVER", 'd',
	  "of the switch's port that an interface is, or leads to: af_packet or af_xdp (default: the one that is chosen for it)" },
	{ "transport", "TRANSPORT", 't',
	  "this is a host with that transport, udp, af_packet or af_xdp: look only at what it needs (default: a switch, or any host)" },
	{ 0 },
};

static const struct doctor_check machine_checks[] = {
	{ "kernel",
	  "Linux 5.11 or newer, for hosts on udp 5.7, at ports on packet sockets better 6.2: super-frames",
	  "apt install -t bookworm-backports linux-image-amd64", doctor_kernel, 0, DOCTOR_EVERYBODY,
	  0 },
	{ "cpu_isa", "AVX-512 or AVX2",
	  "nothing, or use a newer processor: sums work, but several times slower", doctor_cpu_isa,
	  0, DOCTOR_EVERYBODY, 0 },
	{ "hugepages", "512 MiB free, some on each NUMA node",
	  "echo 256 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", doctor_hugepages, 0,
	  DOCTOR_SWITCH, 0 },
	{ "transparent_hugepages", "[madvise] or [never]",
	  "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
	  doctor_transparent_hugepages, 0, DOCTOR_EVERYBODY, 0 },
	{ "clock_source", "tsc",
	  "echo tsc > "
	  "/sys/devices/system/clocksource/clocksource0/current_clocksource",
	  doctor_clock_source, 0, DOCTOR_EVERYBODY, 0 },
	{ "isolated_cpus", "those of the workers", KERNEL_LINE "isolcpus=LIST", doctor_isolated, 0,
	  DOCTOR_SWITCH, 0 },
	{ "nohz_full", "those of the workers", KERNEL_LINE "nohz_full=LIST", doctor_nohz_full, 0,
	  DOCTOR_SWITCH, 0 },
	{ "cpu_governor", "performance", "cpupower frequency-set -g performance", doctor_governor,
	  0, DOCTOR_EVERYBODY, 0 },
	{ "smt", "off, or no two workers on one core",
	  "echo off > /sys/devices/system/cpu/smt/control", doctor_smt, 0, DOCTOR_SWITCH, 0 },
	{ "backlog", "room for 10000 frames, if frames were ever dropped there",
	  "sysctl -w net.core.netdev_max_backlog=10000", doctor_backlog, 0, DOCTOR_EVERYBODY, 0 },
	{ "rmem_max", "4194304 bytes or more, or CAP_NET_ADMIN: super-frames wait in a socket",
	  "sysctl -w net.core.rmem_max=8388608", doctor_rmem_max, 0, DOCTOR_HOSTS, 0 },
	{ "firewall", "results pass: UDP from the switch to the groups 239.192.0.0/16",
	  "nft insert rule inet TABLE CHAIN ip saddr SWITCH meta l4proto udp accept, or iptables -I INPUT -p udp -s SWITCH -j ACCEPT",
	  doctor_firewall, 0, DOCTOR_HOSTS, 0 },
	{ "igmp_snooping", "off at bridges, or somebody who asks for members",
	  "if no router there does: ip link set BRIDGE type bridge mcast_querier 1",
	  doctor_igmp_snooping, 0, DOCTOR_EVERYBODY, 0 },
	{ "bpffs", "mounted on /sys/fs/bpf, for other XDP programs on AF_XDP's interfaces",
	  "mount -t bpf bpf /sys/fs/bpf", doctor_bpffs, 0, DOCTOR_XDP, 0 },
	{ "cap_net_raw", "effective; hosts on udp need none (--transport udp)", AS_ROOT,
	  doctor_capability, CAP_NET_RAW, DOCTOR_SWITCH | DOCTOR_RAW_HOSTS, DOCTOR_PROBLEM },
	{ "cap_net_admin", "effective on switches, and for AF_XDP", AS_ROOT, doctor_capability,
	  CAP_NET_ADMIN, DOCTOR_XDP, DOCTOR_PROBLEM },
	{ "cap_bpf", "effective, for AF_XDP", AS_ROOT, doctor_capability, CAP_BPF, DOCTOR_XDP,
	  DOCTOR_PROBLEM },
	{ "cap_ipc_lock", "effective, for hugepages and AF_XDP", AS_ROOT, doctor_capability,
	  CAP_IPC_LOCK, DOCTOR_XDP, DOCTOR_WARNING },
	{ "cap_sys_admin", "effective, to mount bpffs and to enter network namespaces",
	  "run it as root, or let root mount bpffs", doctor_capability, CAP_SYS_ADMIN, DOCTOR_XDP,
	  DOCTOR_WARNING },
	{ "memlock", "unlimited", "ulimit -l unlimited; in a systemd unit: LimitMEMLOCK=infinity",
	  doctor_memlock, 0, DOCTOR_XDP, 0 },
	{ "udp_port", "no socket on a switch; on a host only those of its jobs",
	  "see whose it is: ss -ulpn", doctor_udp_port, 0, DOCTOR_EVERYBODY, 0 },
	{ "libfanin", "the version of this faninctl: " FANIN_VERSION,
	  "install both from the same build, and run ldconfig", doctor_libfanin, 0, DOCTOR_HOSTS,
	  0 },
	{ "dpdk", "DPDK 22.11", "apt install librte-eal23", doctor_dpdk, 0, DOCTOR_SWITCH, 0 },
	{ "dpdk_drivers", "net_af_packet, net_af_xdp and net_memif", "apt install librte-meta-net",
	  doctor_drivers, 0, DOCTOR_SWITCH, 0 },
	{ "libbpf", "libbpf 1.0 or newer", "apt install libbpf1", doctor_libbpf, 0, DOCTOR_XDP, 0 },
	{ "libxdp", "libxdp 1", "apt install libxdp1", doctor_libxdp, 0, DOCTOR_XDP, 0 },
	{ "profile", "the kernel counts how long threads wait for a core",
	  "run a kernel with CONFIG_SCHED_INFO, or read fanin-perf --profile without that",
	  doctor_profile, 0, DOCTOR_HOSTS, 0 },
	{ 0 },
};

static const struct doctor_check interface_checks[] = {
	{ "interface", "one of this network namespace", "find its name: ip link", doctor_exists, 0,
	  DOCTOR_EVERYBODY, 0 },
	{ "link", "up", "ip link set DEV up, and look at the other end", doctor_link, 0,
	  DOCTOR_EVERYBODY, 0 },
	{ "mtu", "1500 bytes or more; AF_XDP takes up to 3474", "ip link set DEV mtu 1500",
	  doctor_mtu, 0, DOCTOR_EVERYBODY, 0 },
	{ "driver", "one with XDP of its own, if AF_XDP is asked for",
	  "name the interface, and the switch chooses; leave hosts on auto", doctor_driver, 0,
	  DOCTOR_EVERYBODY, 0 },
	{ "tx_offloads",
	  "on at ports on packet sockets, or packets go one by one; off on veth at AF_XDP ports, or checksums are wrong behind them (--driver says which)",
	  "packet socket: ethtool -K DEV tx on tso on; AF_XDP: ethtool -K DEV tx off tso off",
	  doctor_tx_offloads, 0, DOCTOR_EVERYBODY, 0 },
	{ "vlan_offload", "off on veth at AF_XDP ports, or VLAN tags get lost",
	  "AF_XDP: ethtool -K DEV txvlan off", doctor_vlan_offload, 0, DOCTOR_EVERYBODY, 0 },
	{ "rx_offloads", "large-receive-offload off: what it makes can't be passed on",
	  "ethtool -K DEV lro off", doctor_rx_offloads, 0, DOCTOR_EVERYBODY, 0 },
	{ "queues", "1, or as many as queue_count says",
	  "ethtool -L DEV combined 1 (or rx 1), or add queue_count=N to the vdev", doctor_queues, 0,
	  DOCTOR_XDP, 0 },
	{ "rss", "by addresses and ports",
	  "ethtool -N DEV rx-flow-hash udp4 sdfn, or the policy dispatch", doctor_rss, 0,
	  DOCTOR_XDP, 0 },
	{ "rp_filter", "off or loose, unless the kernel's route to the switch is by this interface",
	  "sysctl -w net.ipv4.conf.DEV.rp_filter=2", doctor_rp_filter, 0, DOCTOR_HOSTS, 0 },
	{ "membership", "a socket may join multicast groups",
	  "sysctl -w net.ipv4.igmp_max_memberships=20", doctor_membership, 0, DOCTOR_HOSTS, 0 },
	{ 0 },
};

static const char *const state_names[] = {
	[DOCTOR_OK] = "ok",
	[DOCTOR_NOTE] = "note",
	[DOCTOR_WARNING] = "warning",
	[DOCTOR_PROBLEM] = "problem",
};

/* Writes the check's action with DEV replaced by the interface's name. */
static void
write_action(const struct doctor_check *check, const char *interface, char *action)
{
	const char *from = check->action;
	const char *place;
	size_t used = 0;

	while (interface != NULL && (place = strstr(from, "DEV")) != NULL) {
		used += (size_t)snprintf(action + used, ACTION_LEN - used, "%.*s%s",
					 (int)(place - from), from, interface);
		from = place + strlen("DEV");
	}
	snprintf(action + used, ACTION_LEN - used, "%s", from);
}

/* Adds a finding to the list. most: upper bound of its severity. Returns its state. */
static enum doctor_state
examine(const struct doctor *doctor, const struct doctor_check *check, const char *interface,
	enum doctor_state most, json_t *findings)
{
	char found[DOCTOR_FOUND_LEN] = "";
	char action[ACTION_LEN];
	enum doctor_state state = check->look(doctor, check, interface, found);

	if (state > most)
		state = most;
	write_action(check, interface, action);
	text_make_printable(found);
	json_array_append_new(findings,
			      json_pack("{s:s, s:s*, s:s, s:s, s:s, s:s*}", "name", check->name,
					"interface", interface, "state", state_names[state],
					"found", found, "expected", check->expected, "do",
					state == DOCTOR_OK ? NULL : action));
	return state;
}

/*
 * Checks an interface. A named one is meant for Fanin; others may not be, so nothing about them is
 * a problem.
 */
static void
examine_interface(const struct doctor *doctor, const char *interface, bool named, json_t *findings)
{
	for (const struct doctor_check *check = interface_checks; check->name != NULL; check++) {
		enum doctor_state state;

		if ((check->roles & doctor->roles) == 0)
			continue;
		state = examine(doctor, check, interface, named ? DOCTOR_PROBLEM : DOCTOR_WARNING,
				findings);

		/* Nothing else is known about an interface that does not exist. */
		if (check->look == doctor_exists && state != DOCTOR_OK)
			return;
	}
}

static void
examine_all_interfaces(const struct doctor *doctor, json_t *findings)
{
	struct if_nameindex *list = if_nameindex();

	for (struct if_nameindex *at = list; at != NULL && at->if_name != NULL; at++) {
		if (strcmp(at->if_name, "lo") != 0)
			examine_interface(doctor, at->if_name, false, findings);
	}
	if (list != NULL)
		if_freenameindex(list);
}

static unsigned int
count(const json_t *findings, enum doctor_state state)
{
	const json_t *finding;
	unsigned int n = 0;
	size_t i;

	json_array_foreach(findings, i, finding)
		n += strcmp(ctl_string(finding, "state"), state_names[state]) == 0;
	return n;
}

static void
print_findings(const json_t *findings)
{
	const json_t *finding;
	size_t i;

	json_array_foreach(findings, i, finding) {
		const char *interface = ctl_string(finding, "interface");
		char name[64];

		snprintf(name, sizeof(name), "%s%s%s", interface, interface[0] == '\0' ? "" : " ",
			 ctl_string(finding, "name"));
		printf("%-8s %-22s %s\n", ctl_string(finding, "state"), name,
		       ctl_string(finding, "found"));
		if (strcmp(ctl_string(finding, "state"), state_names[DOCTOR_OK]) == 0)
			continue;
		printf("%-8s %-22s expected: %s\n", "", "", ctl_string(finding, "expected"));
		printf("%-8s %-22s do: %s\n", "", "", ctl_string(finding, "do"));
	}
	printf("\nok: %u, warnings: %u, problems: %u, notes: %u\n", count(findings, DOCTOR_OK),
	       count(findings, DOCTOR_WARNING), count(findings, DOCTOR_PROBLEM),
	       count(findings, DOCTOR_NOTE));
}

static json_t *
examine_machine(const struct doctor *doctor, int n_interfaces, char **interfaces)
{
	json_t *findings = json_array();

	for (const struct doctor_check *check = machine_checks; check->name != NULL; check++) {
		if ((check->roles & doctor->roles) != 0)
			examine(doctor, check, NULL, DOCTOR_PROBLEM, findings);
	}
	for (int i = 0; i < n_interfaces; i++)
		examine_interface(doctor, interfaces[i], true, findings);
	if (n_interfaces == 0)
		examine_all_interfaces(doctor, findings);
	return findings;
}

/* A word of an option and its value. */
struct choice {
	const char *word;
	int value;
};

/* Returns CTL_OK, or CTL_USAGE after reporting an error. choices: ends with one without a word. */
static int
read_choice(const struct ctl *ctl, const char *option, const char *word,
	    const struct choice *choices, int *value)
{
	char expected[128] = "";

	for (const struct choice *choice = choices; choice->word != NULL; choice++) {
		size_t used = strlen(expected);

		if (strcmp(word, choice->word) == 0) {
			*value = choice->value;
			return CTL_OK;
		}
		snprintf(expected + used, sizeof(expected) - used, "%s%s",
			 choice == choices        ? ""
			 : choice[1].word == NULL ? " or "
						  : ", ",
			 choice->word);
	}
	return ctl_usage_error(ctl, "%s: found \"%s\", expected %s", option, word, expected);
}

static int
read_option(const struct ctl *ctl, int option, const char *word, struct doctor *doctor)
{
	static const struct choice drivers[] = { { "af_packet", DOCTOR_DRIVER_AF_PACKET },
						 { "af_xdp", DOCTOR_DRIVER_AF_XDP },
						 { 0 } };
	static const struct choice transports[] = { { "udp", DOCTOR_HOST_UDP },
						    { "af_packet", DOCTOR_HOST_AF_PACKET },
						    { "af_xdp", DOCTOR_HOST_AF_XDP },
						    { 0 } };
	int64_t port = 0;
	int value = 0;
	int status = CTL_USAGE;

	if (option == 'd') {
		status = read_choice(ctl, "--driver", word, drivers, &value);
		doctor->driver = (enum doctor_driver)value;
	} else if (option == 't') {
		status = read_choice(ctl, "--transport", word, transports, &value);
		doctor->roles = (enum doctor_role)value;
	} else if (option == 'u') {
		status = ctl_number(ctl, "--udp-port", word, 1, UINT16_MAX, &port);
		doctor->udp_port = (uint16_t)port;
	}
	return status;
}

int
ctl_doctor(struct ctl *ctl, int argc, char **argv)
{
	struct doctor doctor = { .root = secure_getenv(ROOT_VARIABLE),
				 .udp_port = DEFAULT_UDP_PORT,
				 .roles = DOCTOR_EVERYBODY };
	json_t *findings, *verdict;
	bool fit;
	int option;

	while ((option = ctl_next_option(ctl, argc, argv)) != -1) {
		if (read_option(ctl, option, optarg, &doctor) != CTL_OK)
			return CTL_USAGE;
	}
	if (doctor.root == NULL)
		doctor.root = "";
	findings = examine_machine(&doctor, argc - optind, argv + optind);
	fit = count(findings, DOCTOR_PROBLEM) == 0;
	if (ctl->json) {
		verdict = json_pack("{s:b, s:O}", "ok", fit, "findings", findings);
		ctl_print_json(verdict);
		json_decref(verdict);
	} else {
		print_findings(findings);
	}
	json_decref(findings);
	return fit ? CTL_OK : CTL_FAILED;
}
