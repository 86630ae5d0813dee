# SPDX-License-Identifier: BSD-3-Clause
"""faninctl doctor finds each thing that is wrong with a machine or an interface, and only that."""

import json
import os
import re
from pathlib import Path

from support import Lab, case, expect, expect_equal, program, run, run_exact_job
from lab import HOST_INTERFACE, SOURCE_DIR, inside, ip_in

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
DRIVERS = LIBRARIES / "dpdk" / "pmds-23.0"
CPU = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
FLAGS = "flags : fpu avx avx2 f16c avx512f avx512dq avx512bw avx512vl\n"
ALL_CAPABILITIES = "CapInh:\t0\nCapEff:\t000001ffffffffff\n"
LIMITS = "Max locked memory         {0}            {0}            bytes\n"
UDP = "  sl  local_address rem_address\n  12: 00000000:{:04X} 00000000:0000 07\n"

# A machine without a fault. A Path is linked to.
GOOD = {
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
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
    "proc/net/softnet_stat": "000c0ffe 00000000 00000001 00000000\n0000beef 00000000 00000000 00000000\n",
    "proc/sys/net/core/netdev_max_backlog": "1000\n",
    "proc/self/mounts": "none / ext4 rw 0 0\nbpf /sys/fs/bpf bpf rw 0 0\n",
    "proc/self/status": ALL_CAPABILITIES,
    "proc/self/limits": LIMITS.format("unlimited"),
    "proc/net/udp": UDP.format(21931),
    "proc/net/udp6": UDP.format(53),
    **{str(path)[1:]: path for path in (
        *(LIBRARIES / name for name in ("librte_eal.so.23", "libbpf.so.1", "libxdp.so.1")),
        *(DRIVERS / f"librte_net_{name}.so.23" for name in ("af_packet", "af_xdp", "memif")))},
}


def without_capability(number):
    return {"proc/self/status": f"CapEff:\t{0x1ffffffffff & ~(1 << number):016x}\n"}


# (check, state, what differs from the good machine; None: is not there, other checks that are hit)
FAULTS = [
    ("kernel", "problem", {"proc/sys/kernel/osrelease": "5.10.0-28-amd64\n"}),
    ("kernel", "problem", {"proc/sys/kernel/osrelease": None}),
    ("cpu_isa", "warning", {"proc/cpuinfo": "flags : fpu avx avx2x f16c avx512f avx512dq avx512bw\n"}),
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
    ("backlog", "warning", {"proc/net/softnet_stat": "000c0ffe 00000000 00000001\n0000beef 0000002a 00000000\n"}),
    ("bpffs", "warning", {"proc/self/mounts": "none /sys/fs/bpf tmpfs rw 0 0\n"}),
    ("bpffs", "warning", {"proc/self/mounts": None}),
    ("cap_net_raw", "problem", without_capability(13)),
    ("cap_net_admin", "problem", without_capability(12)),
    ("cap_bpf", "problem", {"proc/self/status": f"CapEff:\t{0x1ffffffffff & ~(1 << 39 | 1 << 21):016x}\n"}),
    ("cap_ipc_lock", "warning", without_capability(14)),
    ("cap_sys_admin", "warning", without_capability(21)),
    ("memlock", "warning", {**without_capability(14), "proc/self/limits": LIMITS.format(8388608)}),
    ("udp_port", "warning", {"proc/net/udp": UDP.format(21930)}),
    ("udp_port", "warning", {"proc/net/udp6": UDP.format(21930)}),
    ("dpdk", "problem", {str(LIBRARIES / "librte_eal.so.23")[1:]: None}),
    ("dpdk_drivers", "problem", {str(DRIVERS / "librte_net_af_xdp.so.23")[1:]: None}),
    ("libbpf", "problem", {str(LIBRARIES / "libbpf.so.1")[1:]: None}),
    ("libxdp", "problem", {str(LIBRARIES / "libxdp.so.1")[1:]: None}),
]
# A fault that shows in more than one check.
ALSO = {"memlock": {"cap_ipc_lock"}, "cap_bpf": {"cap_sys_admin"}}

# Faults of an interface: the state, and how the good one is made so.
INTERFACE_FAULTS = {
    "link": ("problem", ["ip", "link", "set", "DEV", "down"]),
    "mtu": ("problem", ["ip", "link", "set", "DEV", "mtu", "570"]),
    "tx_offloads": ("problem", ["ethtool", "-K", "DEV", "tx", "on"]),
    "vlan_offload": ("warning", ["ethtool", "-K", "DEV", "txvlan", "on"]),
    "rx_offloads": ("warning", ["ethtool", "-K", "DEV", "gro", "on"]),
}


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
    return root


def examine(root, *arguments):
    """The findings by interface and name, and the exit status."""
    done = run([program("faninctl"), "-j", "doctor", *arguments], check=False,
               env={**os.environ, "FANIN_SYSFS_ROOT": str(root)})
    verdict = json.loads(done.stdout)
    expect_equal(verdict["ok"], done.returncode == 0, f"ok with the exit status {done.returncode}")
    for finding in verdict["findings"]:
        expect_equal("do" in finding, finding["state"] != "ok", f"something to do in {finding}")
        expect(finding["found"] and finding["expected"], f"{finding} does not say what was found and expected")
        expect("DEV" not in finding.get("do", ""), f"{finding} does not name the interface")
    return {(finding.get("interface"), finding["name"]): finding for finding in verdict["findings"]}, done.returncode


def states(findings, interface=None):
    return {name: finding["state"] for (where, name), finding in findings.items() if where == interface}


@case()
def doctor_finds_each_fault_of_a_machine():
    with Lab(1) as lab, inside(lab.host_namespace(0)):
        findings, status = examine(make_tree(lab, "good", {}))
        expect_equal(status, 0, "exit status for a good machine")
        good = states(findings)
        expect_equal({name: state for name, state in good.items() if state != "ok"}, {}, "findings in a good machine")
        expect_equal(set(good), {check for check, _, _ in FAULTS}, "checks that have a fault here")
        for number, (check, state, changes) in enumerate(FAULTS):
            findings, status = examine(make_tree(lab, f"bad-{number}", changes))
            bad = states(findings)
            hit = {name for name in bad if bad[name] != "ok"}
            expect_equal(hit, {check} | ALSO.get(check, set()), f"checks that {changes} hits")
            expect_equal(bad[check], state, f"state of {check} with {changes}")
            expect_equal(status, 1 if "problem" in bad.values() else 0, f"exit status with {changes}")
        findings, _ = examine(make_tree(lab, "ports", {}), "--udp-port", "21931")
        expect_equal(states(findings)["udp_port"], "warning", "a port in use that was named")


@case()
def doctor_finds_each_fault_of_an_interface():
    with Lab(1) as lab:
        there = lab.host_namespace(0)
        root = make_tree(lab, "good", {})
        # The other end is in this namespace, too.
        ip_in(there, "link", "add", "name", "many", "numrxqueues", "2", "numtxqueues", "2", "type", "veth", "peer", "name",
              "other", "numrxqueues", "2", "numtxqueues", "2")
        ip_in(there, "link", "add", "name", "bridge", "type", "bridge")
        with inside(there):
            run(["ethtool", "-K", HOST_INTERFACE, "txvlan", "off"])
            findings, status = examine(root, HOST_INTERFACE)
            good = states(findings, HOST_INTERFACE)
            expect_equal({name: state for name, state in good.items() if state != "ok"}, {}, "findings in a good interface")
            expect_equal(status, 0, "exit status for a good interface")
            expect_equal(set(good), set(INTERFACE_FAULTS) | {"interface", "driver", "queues", "rss"}, "checks of an interface")
            findings, _ = examine(root, "many", "bridge", "none")
            expect_equal(states(findings, "many")["queues"], "warning", "two queues")
            expect_equal(states(findings, "many")["rss"], "warning", "two queues without RSS")
            expect_equal(states(findings, "bridge")["driver"], "warning", "the driver of a bridge")
            expect_equal(states(findings, "none"), {"interface": "problem"}, "an interface that there is not")
            for check, (state, command) in INTERFACE_FAULTS.items():
                run([HOST_INTERFACE if word == "DEV" else word for word in command])
                findings, status = examine(root, HOST_INTERFACE)
                expect_equal(states(findings, HOST_INTERFACE)[check], state, f"{check} after {' '.join(command)}")
                expect_equal(status, 1, f"exit status after {' '.join(command)}, with the link down")
            findings, status = examine(root)
            expect(not any("problem" in states(findings, name).values() for name in (HOST_INTERFACE, "many", "bridge")),
                   "an interface that was not named is a problem")
            expect_equal(states(findings, HOST_INTERFACE)["link"], "warning", "the link of an interface that was not named")
            expect_equal(status, 0, "exit status without named interfaces")


@case()
def doctor_finds_no_fault_where_a_switch_runs():
    """On its own ends of veth pairs, offloads as the kernel makes them, no bpffs: a job runs, so nothing is a problem."""
    with Lab(2, "af_packet", 1500) as lab:
        for host in range(2):
            with inside(lab.switch_namespace):
                run(["ethtool", "-K", lab.switch_interface(host), "tx", "on", "tso", "on", "txvlan", "on"])
        lab.start_switch()
        run_exact_job(lab, "with offloads at the switch's ends")
        root = make_tree(lab, "no-bpffs", {"proc/self/mounts": None})
        interface = lab.switch_interface(0)
        with inside(lab.switch_namespace):
            findings, status = examine(root, interface)
            expect_equal(status, 0, f"exit status beside a switch that runs: {findings}")
            for check in ("tx_offloads", "vlan_offload"):
                expect_equal(states(findings, interface)[check], "ok", f"{check} of the switch's own end")
            # What others have made passes a bridge as it is.
            run(["ip", "link", "add", "name", "bridge", "type", "bridge"])
            run(["ip", "link", "set", interface, "master", "bridge"])
            findings, status = examine(root, interface)
            expect_equal((states(findings, interface)["tx_offloads"], status), ("problem", 1), "tx_offloads of a bridge's port")


@case()
def doctor_answers_people():
    with Lab(1) as lab, inside(lab.host_namespace(0)):
        environment = {**os.environ, "FANIN_SYSFS_ROOT": str(make_tree(lab, "bad", {f"{CPU}/smt/active": "1\n"}))}
        done = run([program("faninctl"), "doctor", HOST_INTERFACE], check=False, env=environment)
        expect(re.search(r"^warning +smt +CPUs share cores\n +expected: .*\n +do: echo off", done.stdout, re.MULTILINE),
               f"the finding on smt in:\n{done.stdout}")
        counted = re.search(r"^ok: (\d+), warnings: (\d+), problems: (\d+)$", done.stdout, re.MULTILINE)
        expect(counted, f"the sum in:\n{done.stdout}")
        for state, number in zip(("ok", "warning", "problem"), counted.groups()):
            expect_equal(len(re.findall(rf"^{state} ", done.stdout, re.MULTILINE)), int(number), f"lines with {state}")
        for arguments in (["--udp-port", "0"], ["--udp-port", "x"], ["--bogus"]):
            done = run([program("faninctl"), "doctor", *arguments], check=False)
            expect_equal(done.returncode, 2, f"exit status for {arguments}")
        # Of this machine itself nothing is known but that every check has an answer.
        done = run([program("faninctl"), "-j", "doctor"], check=False)
        expect(done.returncode in (0, 1), f"exit status {done.returncode}: {done.stderr}")
        told = {finding["name"] for finding in json.loads(done.stdout)["findings"]}
        expect(told >= {check for check, _, _ in FAULTS}, f"findings in this machine: {sorted(told)}")
    manual = (SOURCE_DIR / "docs" / "man" / "faninctl.1").read_text()
    for check in {check for check, _, _ in FAULTS} | set(INTERFACE_FAULTS):
        expect(check in manual, f"faninctl(1) does not name {check}")
