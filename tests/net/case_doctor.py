# SPDX-License-Identifier: BSD-3-Clause
"""faninctl doctor finds each fault of a machine or an interface, and nothing else."""

import json
import os
import re
from pathlib import Path

from tests.net import firewall
from tests.net.support import Lab, case, expect, expect_equal, program, run, run_exact_job
from lab.namespaces import BUILD_DIR, HOST_INTERFACE, NOBODY, SOURCE_DIR, inside, ip_in

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
DRIVERS = LIBRARIES / "dpdk" / "pmds-23.0"
CPU = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
FLAGS = "flags : fpu avx avx2 f16c avx512f avx512dq avx512bw avx512vl\n"
ALL_CAPABILITIES = "CapInh:\t0\nCapEff:\t000001ffffffffff\n"
LIMITS = "Max locked memory         {0}            {0}            bytes\n"
NFT, IPTABLES = "usr/sbin/nft", "usr/sbin/iptables-save"
BRIDGE = "sys/class/net/br0/bridge"
RP_FILTER = "proc/sys/net/ipv4/conf/{}/rp_filter"
UDP = "  sl  local_address rem_address\n  12: 00000000:{:04X} 00000000:0000 07\n"



def prints(text):
    return f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n"


def nft_prints(*rules, policy="accept", more=()):
    """Makes the program nft of a machine with one chain; rules: lists of expressions, in nft's
    format. more: of another chain.
    """
    where = {"family": "inet", "table": "filter"}
    chains = [{"chain": {**where, "name": "input", "type": "filter", "hook": "input", "prio": 0,
                         "policy": policy}},
              {"chain": {**where, "name": "more"}}]
    return prints(json.dumps({"nftables": [{"metainfo": {"json_schema_version": 1}}, *chains] + [
        {"rule": {**where, "chain": chain, "expr": expressions}} for chain,
        list_ in (("input", rules), ("more", more)) for expressions in list_]}))


def compare(right, key=None, field=None, protocol="ip", op="=="):
    left = {"payload": {"protocol": protocol,
                        "field": field}} if field else {
                            "ct": {"key": "state"}} if key == "state" else {"meta": {"key": key}}
    return {"match": {"op": op, "left": left, "right": right}}


ACCEPT, DROP, COUNTER = {"accept": None}, {"drop": None}, {"counter": {"packets": 0, "bytes": 0}}
UDP_PORT = {"field": "dport", "protocol": "udp"}
ESTABLISHED = [compare(["established", "related"], "state", op="in"), ACCEPT]
# A firewall's effects on a job's results, in nft's format of rules.
FIREWALLS = [
    ("ok", nft_prints()),
    ("ok", nft_prints(ESTABLISHED, [compare("10.77.0.254", field="saddr"), ACCEPT], policy="drop")),
    ("ok", nft_prints([compare({"set": [53, {"range": [21000, 22000]}]}, **UDP_PORT), ACCEPT],
                      policy="drop")),
    ("ok", nft_prints([compare("udp", "l4proto"), {"jump": {"target": "more"}}], [DROP],
                      more=([compare("lo", "iifname", op="!="), ACCEPT],))),
    ("ok", nft_prints([compare(21931, **UDP_PORT), DROP], [compare("tcp", "l4proto"), DROP],
                      [compare("224.0.0.251", field="daddr"), DROP])),
    ("ok", nft_prints([{"vmap": {"key": {"meta": {"key": "iifname"}},
                                 "data": {"set": [["eth1", ACCEPT]]}}}], policy="drop")),
    ("ok", nft_prints([{"limit": {"rate": 3, "per": "second"}}, DROP])),
    # nft leaves out that a rule is about packets of TCP, or IPv6.
    ("ok", nft_prints([compare(22, field="dport", protocol="tcp", op="!="), DROP],
                      [compare("::1", field="saddr", protocol="ip6", op="!="), DROP])),
    ("ok", nft_prints([compare({"set": ["lo", "eth1"]}, "iifname"), ACCEPT], policy="drop")),
    ("ok", nft_prints([compare("10.77.0.254", field="saddr"), {"goto": {"target": "more"}}],
                      [DROP])),
    ("warning", nft_prints(policy="drop")),
    ("warning", nft_prints(ESTABLISHED, [compare("lo", "iif"), ACCEPT],
                           [compare("@ports", field="dport", protocol="tcp"), ACCEPT],
                           [COUNTER, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}])),
    ("warning", nft_prints([{"vmap": {"key": {"ct": {"key": "state"}},
                                      "data": {"set": [["established", ACCEPT]]}}}],
                           policy="drop")),
    ("warning", nft_prints([compare(21930, **UDP_PORT), COUNTER, DROP])),
    ("warning", nft_prints([compare({"prefix": {"addr": "224.0.0.0", "len": 4}}, field="daddr"),
                            {"goto": {"target": "more"}}], more=([DROP],))),
    ("warning", nft_prints([compare("multicast", "pkttype"), DROP])),
    ("warning", nft_prints([compare({"set": ["lo"]}, "iifname"), ACCEPT], policy="drop")),
    # firewalld has such rules.
    ("warning", nft_prints(ESTABLISHED,
                           [{"match": {"op": "in", "left": {"ct": {"key": "status"}},
                                       "right": "dnat"}}, ACCEPT],
                           [{"jump": {"target": "more"}}],
                           [{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}],
                           more=([compare(22, field="dport", protocol="tcp"), ACCEPT],))),
    ("note", "#!/bin/sh\nexit 1\n"),
    ("note", None),
]
IPTABLES_SAVE = "*filter\n:INPUT {} [0:0]\n:more - [0:0]\n-A INPUT -i lo -j ACCEPT\n" \
    "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -p icmp -j ACCEPT\n{}\nCOMMIT"
IPTABLES_FIREWALLS = [
    ("ok", "ACCEPT", ""),
    ("ok", "DROP", "-A INPUT -s 10.77.0.254/32 -p udp -m comment --comment \"the switch\" -j ACCEPT"),
    ("ok", "ACCEPT", "-A INPUT ! -s 10.77.0.0/24 -p udp -j DROP"),
    ("ok", "ACCEPT", "-A INPUT -p udp -m udp --dport 53 -j DROP"),
    # ufw has such rules: packets to a group return.
    ("ok", "DROP", "-A more -m addrtype --dst-type MULTICAST -j RETURN\n-A more -j DROP\n-A INPUT "
                   "-j more\n-A INPUT -s 10.77.0.254/32 -p udp -j ACCEPT"),
    ("warning", "DROP", "-A more -m addrtype --dst-type MULTICAST -j RETURN\n-A more -j DROP\n-A "
                        "INPUT -j more"),
    ("warning", "DROP", "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT"),
    ("warning", "ACCEPT", "-A INPUT -p udp -m multiport --dports 53,21000:22000 -j REJECT "
                          "--reject-with icmp-port-unreachable"),
    ("warning", "ACCEPT", "-A INPUT -d 224.0.0.0/4 -j more\n-A more -j LOG --log-prefix \"a "
                          "b\"\n-A more -j DROP"),
    ("warning", "ACCEPT", "-A INPUT ! -p tcp -j DROP"),
]

# A machine without a fault. A Path becomes a link to it.
GOOD = {
    "proc/sys/kernel/osrelease": "6.12.0-amd64\n",
    "proc/cpuinfo": "processor : 0\n" + FLAGS,
    f"{NODES}/node0/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
    f"{NODES}/node0/hugepages/hugepages-2048kB/free_hugepages": "256\n",
    f"{NODES}/node1/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
    f"{NODES}/node1/hugepages/hugepages-1048576kB/free_hugepages": "1\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    f"{CPU}/isolated": "2-3\n",
    f"{CPU}/nohz_full": "2-3\n",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/smt/active": "0\n",
    "proc/net/softnet_stat": "000c0ffe 00000000 00000001 00000000\n0000beef 00000000 00000000 "
                             "00000000\n",
    "proc/sys/net/core/netdev_max_backlog": "1000\n",
    "proc/sys/net/core/rmem_max": "4194304\n",
    RP_FILTER.format("all"): "0\n",
    RP_FILTER.format(HOST_INTERFACE): "0\n",
    f"{BRIDGE}/multicast_snooping": "1\n",
    f"{BRIDGE}/multicast_querier": "1\n",
    NFT: nft_prints(),
    "proc/self/mounts": "none / ext4 rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n",
    "proc/self/status": ALL_CAPABILITIES,
    "proc/self/limits": LIMITS.format("unlimited"),
    "proc/net/udp": UDP.format(21931),
    "proc/net/udp6": UDP.format(53),
    "proc/self/schedstat": "1 2 3\n",
    **{str(path)[1:]: path for path in (
        *(LIBRARIES / name for name in ("librte_eal.so.23", "libbpf.so.1", "libxdp.so.1")),
        *(DRIVERS / f"librte_net_{name}.so.23" for name in ("af_packet", "af_xdp", "memif")))},
    str(LIBRARIES / "libfanin.so.0")[1:]: BUILD_DIR / "hostlib" / "libfanin.so.0",
}


def without_capability(number):
    return {"proc/self/status": f"CapEff:\t{0x1ffffffffff & ~(1 << number):016x}\n"}


# (check, state, differences from the good machine, None: missing; other affected checks)
FAULTS = [
    ("kernel", "problem", {"proc/sys/kernel/osrelease": "5.10.0-28-amd64\n"}),
    ("kernel", "problem", {"proc/sys/kernel/osrelease": None}),
    ("cpu_isa", "warning", {
        "proc/cpuinfo": "flags : fpu avx avx2x f16c avx512f avx512dq avx512bw\n"}),
    ("hugepages", "warning", {f"{NODES}/node0/hugepages/hugepages-2048kB/free_hugepages": "0\n"}),
    ("hugepages", "warning", {f"{NODES}/node0/hugepages/hugepages-2048kB/free_hugepages": "255\n",
                              f"{NODES}/node1/hugepages/hugepages-1048576kB/free_hugepages": "0\n"}),
    ("transparent_hugepages", "warning",
     {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n"}),
    ("clock_source", "warning",
     {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"}),
    ("isolated_cpus", "warning", {f"{CPU}/isolated": "\n"}),
    ("nohz_full", "warning", {f"{CPU}/nohz_full": "(null)\n"}),
    ("cpu_governor", "warning", {f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave\n"}),
    ("smt", "warning", {f"{CPU}/smt/active": "1\n"}),
    ("backlog", "warning", {"proc/net/softnet_stat": "000c0ffe 00000000 00000001\n0000beef "
                                                     "0000002a 00000000\n"}),
    ("rmem_max", "warning", {**without_capability(12), "proc/sys/net/core/rmem_max": "212992\n"}),
    ("firewall", "warning", {NFT: nft_prints(policy="drop")}),
    ("igmp_snooping", "note", {f"{BRIDGE}/multicast_querier": "0\n"}),
    ("bpffs", "warning", {"proc/self/mounts": "none /sys/fs/bpf tmpfs rw 0 0\n"}),
    ("bpffs", "warning", {"proc/self/mounts": None}),
    ("cap_net_raw", "problem", without_capability(13)),
    ("cap_net_admin", "problem", without_capability(12)),
    ("cap_bpf", "problem", {
        "proc/self/status": f"CapEff:\t{0x1ffffffffff & ~(1 << 39 | 1 << 21):016x}\n"}),
    ("cap_ipc_lock", "warning", without_capability(14)),
    ("cap_sys_admin", "warning", without_capability(21)),
    ("memlock", "warning", {**without_capability(14), "proc/self/limits": LIMITS.format(8388608)}),
    ("udp_port", "warning", {"proc/net/udp": UDP.format(21930)}),
    ("udp_port", "warning", {"proc/net/udp6": UDP.format(21930)}),
    ("libfanin", "note", {str(LIBRARIES / "libfanin.so.0")[1:]: None}),
    # A library whose version is another one: it has no version of Fanin's.
    ("libfanin", "warning", {str(LIBRARIES / "libfanin.so.0")[1:]: LIBRARIES / "libbpf.so.1"}),
    ("dpdk", "problem", {str(LIBRARIES / "librte_eal.so.23")[1:]: None}),
    ("dpdk_drivers", "problem", {str(DRIVERS / "librte_net_af_xdp.so.23")[1:]: None}),
    ("libbpf", "problem", {str(LIBRARIES / "libbpf.so.1")[1:]: None}),
    ("libxdp", "problem", {str(LIBRARIES / "libxdp.so.1")[1:]: None}),
    ("profile", "note", {"proc/self/schedstat": None}),
]
# A fault that affects more than one check.
ALSO = {"memlock": {"cap_ipc_lock"}, "cap_bpf": {"cap_sys_admin"}, "cap_net_admin": {"firewall"},
        "rmem_max": {"cap_net_admin", "firewall"}}
# The parts of a machine that matter for each kind of host.
NEEDED = {"udp": {"kernel", "cpu_isa", "transparent_hugepages", "clock_source", "cpu_governor",
                  "backlog", "rmem_max", "firewall", "igmp_snooping", "udp_port", "libfanin",
                  "profile"}}
NEEDED["af_packet"] = NEEDED["udp"] | {"cap_net_raw"}
NEEDED["af_xdp"] = NEEDED["af_packet"] | {"bpffs", "cap_net_admin", "cap_bpf", "cap_ipc_lock",
                                          "cap_sys_admin", "memlock", "libbpf", "libxdp"}

# Faults of an interface: the state, and the command that causes it.
INTERFACE_FAULTS = {
    "link": ("problem", ["ip", "link", "set", "DEV", "down"]),
    "mtu": ("problem", ["ip", "link", "set", "DEV", "mtu", "570"]),
    "tx_offloads": ("problem", ["ethtool", "-K", "DEV", "tx", "on"]),
    "vlan_offload": ("warning", ["ethtool", "-K", "DEV", "txvlan", "on"]),
    "membership": ("problem", ["sh", "-c", "echo 0 > /proc/sys/net/ipv4/igmp_max_memberships"]),
}
# A veth has no large-receive-offload that could be turned on.
OTHER_CHECKS = {"interface", "driver", "queues", "rss", "rx_offloads", "rp_filter"}


def make_tree(lab, name, changes):
    root = lab.directory / name
    for path, content in {**GOOD, **changes}.items():
        if content is None:
            continue
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            place.symlink_to(content)
        else:
            place.write_text(content)
            place.chmod(0o755)
    return root


def examine(root, *arguments):
    """Returns the findings by interface and name, and the exit status."""
    done = run([program("faninctl"), "-j", "doctor", *arguments], check=False,
               env={**os.environ, "FANIN_SYSFS_ROOT": str(root)})
    return findings_of(done.stdout, done.returncode), done.returncode


def findings_of(text, status):
    verdict = json.loads(text)
    expect_equal(verdict["ok"], status == 0, f"ok with the exit status {status}")
    for finding in verdict["findings"]:
        expect_equal("do" in finding, finding["state"] != "ok", f"something to do in {finding}")
        expect(finding["found"] and finding["expected"],
               f"{finding} does not say what was found and expected")
        expect("DEV" not in finding.get("do", ""), f"{finding} does not name the interface")
    return {(finding.get("interface"), finding["name"]): finding for finding in verdict["findings"]}


def states(findings, interface=None):
    return {name: finding["state"] for (where, name),
            finding in findings.items() if where == interface}


@case(sanitized=True)
def doctor_finds_each_fault_of_a_machine():
    with Lab(1) as lab, inside(lab.host_namespace(0)):
        findings, status = examine(make_tree(lab, "good", {}))
        expect_equal(status, 0, "exit status for a good machine")
        good = states(findings)
        expect_equal({name: state for name, state in good.items() if state != "ok"}, {},
                     "findings in a good machine")
        expect_equal(set(good), {check for check, _, _ in FAULTS}, "checks that have a fault here")
        expect("fanin-perf --profile" in findings[None, "profile"]["found"],
               f"who finds it slow is told where to look: {findings[None, 'profile']}")
        for number, (check, state, changes) in enumerate(FAULTS):
            findings, status = examine(make_tree(lab, f"bad-{number}", changes))
            bad = states(findings)
            hit = {name for name in bad if bad[name] != "ok"}
            expect_equal(hit, {check} | ALSO.get(check, set()), f"checks that {changes} hits")
            expect_equal(bad[check], state, f"state of {check} with {changes}")
            expect_equal(status, 1 if "problem" in bad.values() else 0,
                         f"exit status with {changes}")
        findings, _ = examine(make_tree(lab, "ports", {}), "--udp-port", "21931")
        expect_equal(states(findings)["udp_port"], "warning", "a port in use that was named")


@case()
def doctor_finds_each_fault_of_an_interface():
    with Lab(1) as lab:
        there = lab.host_namespace(0)
        root = make_tree(lab, "good", {})
        # The other end is in this namespace, too.
        ip_in(there, "link", "add", "name", "many", "numrxqueues", "2", "numtxqueues", "2", "type",
              "veth", "peer", "name",
              "other", "numrxqueues", "2", "numtxqueues", "2")
        ip_in(there, "link", "add", "name", "bridge", "type", "bridge")
        with inside(there):
            run(["ethtool", "-K", HOST_INTERFACE, "txvlan", "off"])
            findings, status = examine(root, "--driver", "af_xdp", HOST_INTERFACE)
            good = states(findings, HOST_INTERFACE)
            expect_equal({name: state for name, state in good.items() if state != "ok"}, {},
                         "findings in a good interface")
            expect_equal(status, 0, "exit status for a good interface")
            expect_equal(set(good), set(INTERFACE_FAULTS) | OTHER_CHECKS, "checks of an interface")
            expect_equal(findings[HOST_INTERFACE, "driver"]["found"],
                         "veth, and AF_XDP is asked for", "the driver that is asked for")
            findings, _ = examine(root, "many", "bridge")
            for name in ("many", "bridge"):
                expect_equal({check for check,
                              state in states(findings, name).items() if state != "ok"} - {"link"},
                             set(), f"what {name} lacks for packet sockets")
                expect("packet sockets, hosts on udp, by default" in findings[
                    name, "driver"]["found"], f"the default of {name}: {findings[name, 'driver']}")
            findings, _ = examine(root, "--driver", "af_xdp", "many", "bridge", "none")
            expect_equal(states(findings, "many")["queues"], "warning", "two queues")
            expect_equal(states(findings, "many")["rss"], "warning", "two queues without RSS")
            expect_equal(states(findings, "bridge")["driver"], "warning", "the driver of a bridge")
            expect_equal(states(findings, "none"), {"interface": "problem"},
                         "an interface that there is not")
            for check, (state, command) in INTERFACE_FAULTS.items():
                run([HOST_INTERFACE if word == "DEV" else word for word in command])
                findings, status = examine(root, "--driver", "af_xdp", HOST_INTERFACE)
                expect_equal(states(findings, HOST_INTERFACE)[check], state,
                             f"{check} after {' '.join(command)}")
                expect_equal(status, 1, f"exit status after {' '.join(command)}, with the link down")
            findings, status = examine(root)
            expect(not any("problem" in states(findings, name).values()
                           for name in (HOST_INTERFACE, "many", "bridge")),
                   "an interface that was not named is a problem")
            expect_equal(states(findings, HOST_INTERFACE)["link"], "warning",
                         "the link of an interface that was not named")
            expect_equal(status, 0, "exit status without named interfaces")


@case()
def doctor_reads_firewalls():
    with Lab(1) as lab, inside(lab.host_namespace(0)):
        machines = [(state, {NFT: script}) for state, script in FIREWALLS]
        # The kernel's own rules, while nft has none, or is missing.
        machines += [(state, {IPTABLES: prints(IPTABLES_SAVE.format(policy, rules)), NFT: nft})
                     for state, policy, rules in IPTABLES_FIREWALLS for nft in (nft_prints(), None)]
        for number, (state, changes) in enumerate(machines):
            findings, _ = examine(make_tree(lab, f"firewall-{number}", changes), "--transport",
                                  "udp")
            finding = findings[None, "firewall"]
            expect_equal(finding["state"], state, f"{finding['found']}: the firewall of {changes}")


@case()
def doctor_demands_of_a_host_what_its_transport_needs():
    nothing = {"proc/self/status": "CapEff:\t0000000000000000\n",
               "proc/sys/kernel/osrelease": "5.7.0\n",
               f"{NODES}/node0/hugepages/hugepages-2048kB/free_hugepages": "0\n",
               **{path: None for path in GOOD if path.startswith("usr/lib")}}
    problems = {"udp": set(), "af_packet": {"kernel", "cap_net_raw"},
                "af_xdp": {"kernel", "cap_net_raw", "cap_net_admin", "cap_bpf", "libbpf", "libxdp"}}
    with Lab(1) as lab:
        root = make_tree(lab, "nothing", nothing)
        for transport, wanted in problems.items():
            with inside(lab.host_namespace(0)):
                findings, status = examine(root, "--transport", transport, HOST_INTERFACE)
            found = states(findings)
            expect_equal(set(found), NEEDED[transport], f"checks of a host with {transport}")
            expect_equal({name for name in found if found[name] == "problem"}, wanted,
                         f"problems of a host with {transport}")
            expect_equal(status, 1 if wanted else 0, f"exit status of a host with {transport}")
            expect_equal(states(findings, HOST_INTERFACE)["rp_filter"], "ok", "rp_filter")
        for number, (changes, wanted) in enumerate((({HOST_INTERFACE: "1"}, "warning"),
                                                    ({"all": "1"}, "warning"),
                                                    ({"all": "1", HOST_INTERFACE: "2"}, "ok"))):
            tree = make_tree(lab, f"filter-{number}",
                             {RP_FILTER.format(name): value for name, value in changes.items()})
            with inside(lab.host_namespace(0)):
                findings, _ = examine(tree, "--transport", "udp", HOST_INTERFACE)
            expect_equal(states(findings, HOST_INTERFACE)["rp_filter"], wanted,
                         f"rp_filter of {changes}")


@case()
def doctor_finds_what_keeps_results_away_from_a_host():
    """In a namespace with all of these faults: as a user without rights, and as one who may see the
    firewall.
    """
    with Lab(1) as lab:
        here = lab.host_namespace(0)
        ip_in(here, "link", "add", "name", "bridge", "type", "bridge")
        firewall.drop_groups(here)
        with inside(here):
            Path("/", RP_FILTER.format(HOST_INTERFACE)).write_text("1", encoding="ascii")
        for user, seen in ((NOBODY, "note"),
                           (None, "warning" if Path("/usr/sbin/nft").exists() else "note")):
            done = lab.spawn(0, [program("faninctl"), "-j", "doctor", "--transport", "udp",
                                 HOST_INTERFACE], "doctor", user)
            status = done.wait(60)
            findings = findings_of(done.stdout(), status)
            machine, interface = states(findings), states(findings, HOST_INTERFACE)
            expect_equal((machine["firewall"], machine["igmp_snooping"], interface["rp_filter"],
                          interface["membership"]),
                         (seen, "note", "warning", "ok"),
                         f"what {user or 'root'} is told: {findings}")
            expect("bridge" in findings[None, "igmp_snooping"]["found"], "the bridge is not named")
            expect(not any(name.startswith("cap_") for name in machine),
                   f"a host over udp is asked for rights: {sorted(machine)}")


@case()
def doctor_knows_which_kernels_make_super_frames_at_packet_ports():
    with Lab(1) as lab, inside(lab.host_namespace(0)):
        for release, arguments, wanted in (("6.1.0", ["--driver", "af_packet"], "warning"),
                                           ("6.2.0", ["--driver", "af_packet"], "ok"),
                                           ("6.1.0", ["--driver", "af_xdp"], "ok"),
                                           ("6.1.0", [], "warning"),
                                           ("6.1.0", ["--transport", "udp"], "ok"),
                                           ("5.10.0", ["--driver", "af_packet"], "problem"),
                                           ("7.0.0", ["--driver", "af_packet"], "ok")):
            tree = make_tree(lab, f"kernel-{release}-{len(arguments)}-{arguments[-1:]}",
                             {"proc/sys/kernel/osrelease": f"{release}-amd64\n"})
            findings, _ = examine(tree, *arguments)
            expect_equal(states(findings)["kernel"], wanted, f"Linux {release} for {arguments}")


OFFLOADS = ("tx_offloads", "vlan_offload")


@case()
def doctor_knows_which_driver_wants_offloads():
    """Ports on packet sockets need them on, at both ends of a veth; AF_XDP ports need them off at
    the host's end; without a driver a veth is checked by the rule.
    """
    states_wanted = {
        ("on", "af_packet"): ("ok", "ok"), ("on", "af_xdp"): ("problem", "warning"),
        ("on", None): ("ok", "ok"),
        ("off", "af_packet"): ("warning", "ok"), ("off", "af_xdp"): ("ok", "ok"),
        ("off", None): ("warning", "ok"),
    }
    with Lab(1, "af_packet", 1500) as lab:
        root = make_tree(lab, "good", {})
        ends = {HOST_INTERFACE: lab.host_namespace(0),
                lab.switch_interface(0): lab.switch_namespace}
        for (value, driver), wanted in states_wanted.items():
            for interface, namespace in ends.items():
                with inside(namespace):
                    run(["ethtool", "-K", interface, "tx", value, "tso", value, "txvlan", value])
                    findings, status = examine(root, *(["--driver", driver] if driver else []),
                                               interface)
                # The switch's own end is where AF_XDP sends complete frames.
                here = wanted if interface == HOST_INTERFACE or driver != "af_xdp" else ("ok", "ok")
                found = states(findings, interface)
                expect_equal(tuple(found[check] for check in OFFLOADS), here,
                             f"{interface} with offloads {value}, {driver}")
                expect_equal(status, 1 if "problem" in here else 0,
                             f"exit status of {interface} with offloads {value}, {driver}")


@case()
def doctor_finds_no_fault_where_a_switch_runs():
    """On its own ends of veth pairs, with the kernel's offloads and without bpffs: a job runs, so
    nothing is a problem.
    """
    with Lab(2, "af_packet", 1500) as lab:
        lab.start_switch()
        run_exact_job(lab, "with offloads at the switch's ends")
        root = make_tree(lab, "no-bpffs", {"proc/self/mounts": None})
        interface = lab.switch_interface(0)
        with inside(lab.switch_namespace):
            for driver in ("af_packet", "af_xdp"):
                findings, status = examine(root, "--driver", driver, interface)
                expect_equal(status, 0, f"exit status beside a switch that runs: {findings}")
                for check in OFFLOADS:
                    expect_equal(states(findings, interface)[check], "ok",
                                 f"{check} of the switch's own end, {driver}")
            # A bridge passes frames of other machines unchanged.
            run(["ip", "link", "add", "name", "bridge", "type", "bridge"])
            run(["ip", "link", "set", interface, "master", "bridge"])
            findings, status = examine(root, "--driver", "af_xdp", interface)
            expect_equal((states(findings, interface)["tx_offloads"], status), ("problem", 1),
                         "tx_offloads of a bridge's port")


@case()
def doctor_answers_people():
    with Lab(1) as lab, inside(lab.host_namespace(0)):
        environment = {**os.environ,
                       "FANIN_SYSFS_ROOT": str(make_tree(lab, "bad", {f"{CPU}/smt/active": "1\n"}))}
        done = run([program("faninctl"), "doctor", HOST_INTERFACE], check=False, env=environment)
        expect(re.search(r"^warning +smt +CPUs share cores\n +expected: .*\n +do: echo off",
                         done.stdout, re.MULTILINE),
               f"the finding on smt in:\n{done.stdout}")
        counted = re.search(r"^ok: (\d+), warnings: (\d+), problems: (\d+), notes: (\d+)$",
                            done.stdout, re.MULTILINE)
        expect(counted, f"the sum in:\n{done.stdout}")
        for state, number in zip(("ok", "warning", "problem", "note"), counted.groups()):
            expect_equal(len(re.findall(rf"^{state} ", done.stdout, re.MULTILINE)), int(number),
                         f"lines with {state}")
        for arguments in (["--udp-port", "0"], ["--udp-port", "x"], ["--driver", "memif"],
                          ["--transport", "tcp"], ["--bogus"]):
            done = run([program("faninctl"), "doctor", *arguments], check=False)
            expect_equal(done.returncode, 2, f"exit status for {arguments}")
        # For this machine itself the test only knows that every check has an answer.
        done = run([program("faninctl"), "-j", "doctor"], check=False)
        expect(done.returncode in (0, 1), f"exit status {done.returncode}: {done.stderr}")
        told = {finding["name"] for finding in json.loads(done.stdout)["findings"]}
        expect(told >= {check for check, _, _ in FAULTS},
               f"findings in this machine: {sorted(told)}")
    manual = (SOURCE_DIR / "docs" / "man" / "faninctl.1").read_text()
    for check in {check for check, _, _ in FAULTS} | set(INTERFACE_FAULTS) | OTHER_CHECKS:
        expect(check in manual, f"faninctl(1) does not name {check}")
