#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Where frames get lost between hosts and switch on a busy machine: each link's counters before and
after a job with pings and busy loops beside it.

Of each direction of a link, what one counter says went in must be what the next one says came out,
and what counters of drops between them say: "unexplained" is the rest, and should be 0.
docs/operations.md says what the counters mean.
"""

import argparse
import json
import sys
import threading
import time
from pathlib import Path

from lab.namespaces import HOST_INTERFACE, Interrupted, Lab, LabError, ip_in, report_interruption
from lab.pinger import Pings, ping_all

MIB = 1 << 20


def softnet_drops():
    """Returns the frames that the backlogs of all CPUs refused, of the whole machine."""
    rows = Path("/proc/net/softnet_stat").read_text(encoding="ascii").splitlines()
    return sum(int(row.split()[1], 16) for row in rows)


def link_counters(namespace, found):
    """Adds {"rx", "tx", "rx_dropped", "tx_dropped"} of all links of a namespace, as counters of
    "host" or "port".
    """
    for link in json.loads(ip_in(namespace, "-s", "-j", "link", "show", "type", "veth").stdout):
        side, stats = "host" if link["ifname"] == HOST_INTERFACE else "port", link["stats64"]
        for direction in ("rx", "tx"):
            for name, value in ((direction, stats[direction]["packets"]),
                                (f"{direction}_dropped",
                                 stats[direction]["dropped"] + stats[direction]["errors"])):
                found[f"{side}.{name}"] = found.get(f"{side}.{name}", 0) + value


def switch_counters(lab):
    found = {}
    for port in lab.control.ask("ports.list")["ports"]:
        for name, value in port.items():
            if isinstance(value, int) and not isinstance(value, bool) and name not in ("mtu",
                                                                                       "queues"):
                found[f"switch.{name}"] = found.get(f"switch.{name}", 0) + value
    return found


def look(lab, tries=20):
    """Returns all counters at one time, by name: read while no frame moves, unless hosts never
    rest.
    """
    for _ in range(tries):
        found = {"softnet": softnet_drops(), **switch_counters(lab)}
        for namespace in lab.namespaces:
            link_counters(namespace, found)
        if found.items() >= switch_counters(lab).items():
            break
    for name, count in lab.drops().items():
        found[f"drops.{name}"] = count
    return found


def balance(moved):
    """Returns the numbers of frames of all links together, and the frames that no counter has."""
    def of(*names):
        return sum(moved.get(name, 0) for name in names)
    socket = of("switch.rx_missed")
    return {
        # From the hosts' kernels to the switch's sockets, and out of these.
        "to_switch": {"sent": of("host.tx", "host.tx_dropped"),
                      "link_dropped": of("host.tx_dropped"),
                      "arrived": of("port.rx"), "socket_dropped": socket,
                      "received": of("switch.rx_frames"),
                      "unexplained": of("port.rx") - socket - of("switch.rx_frames")},
        # From the switch to the hosts' kernels.
        "to_hosts": {"sent": of("switch.tx_frames"), "left": of("port.tx"),
                     "link_dropped": of("port.tx_dropped"),
                     "switch_dropped": of("switch.tx_dropped"), "arrived": of("host.rx"),
                     "host_dropped": of("host.rx_dropped"),
                     "unexplained": of("switch.tx_frames") - of("port.tx") - of("switch.tx_lost")},
        "softnet_dropped": of("softnet"),
        "drops": {name: count for name,
                  count in moved.items() if name.startswith("drops.") and count},
    }


def ping_in_background(lab, options):
    """Makes each host ping the next one. Returns a thread, and the list that its figures are put
    into.
    """
    # Sockets are made here: only the main thread may enter namespaces.
    pings = Pings(lab, [(host, lab.host_ip((host + 1) % lab.hosts)) for host in range(lab.hosts)],
                  options.pings, options.size,
                  options.interval)
    figures = []
    thread = threading.Thread(target=lambda: figures.append(pings.run()))
    thread.start()
    return thread, figures


def start_busy(lab, count):
    # The loops run on the hosts, so that they end with the laboratory.
    return [lab.spawn(host % lab.hosts, ["/bin/sh", "-c", "while :; do :; done"], "busy")
            for host in range(count)]


def run_lab(options, transport):
    config = {"limits": {"slots": options.slots, "max_jobs": 1}}
    if options.memory:
        config["memory"] = {"hugepages": "never", "megabytes": options.memory}
    with Lab(options.hosts, transport, options.mtu, config) as lab:
        lab.start_switch()
        # From here on each host's address is known.
        ping_all(lab, [(host, lab.host_ip((host + 1) % lab.hosts)) for host in range(lab.hosts)],
                 count=2)
        before = look(lab)
        busy = start_busy(lab, options.busy)
        thread, figures = ping_in_background(lab, options)
        job = lab.create_job()
        started = time.monotonic()
        ranks = [lab.spawn_perf(host, job, host, lab.hosts, bytes=options.bytes,
                                iters=options.iters, transport=options.host_transport or transport,
                                check=True) for host in range(lab.hosts)]
        for rank in ranks:
            rank.wait(300)
        seconds = time.monotonic() - started
        thread.join()
        for process in busy:
            process.popen.kill()
        time.sleep(0.3)
        after = look(lab)
        moved = {name: after[name] - before.get(name, 0) for name in after}
        reports = [lab.perf_report(rank) for rank in ranks]
        return {"transport": transport, "seconds": round(seconds, 2), "pings": figures[0],
                "errors": sorted({str(report["error"]) for report in reports
                                  if report.get("error")}),
                "retransmits": sum(report.get("retransmits", 0) for report in reports),
                "ring_drops": sum(report.get("ring_drops") or 0 for report in reports),
                **balance(moved), "moved": {name: value for name, value in moved.items() if value}
                if options.all else None}


def main():
    parser = argparse.ArgumentParser(prog="lost_frames.py",
                                     description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--transport", action="append", choices=("af_packet", "af_xdp"),
                        help="of the switch's ports and of the hosts; may be repeated")
    parser.add_argument("--host-transport", choices=("af_packet", "af_xdp"),
                        help="of the hosts, if another")
    parser.add_argument("--mtu", type=int)
    parser.add_argument("--bytes", type=int, default=4 * MIB)
    parser.add_argument("--iters", type=int, default=5)
    parser.add_argument("--pings", type=int, default=200,
                        help="that each host sends (default %(default)s)")
    parser.add_argument("--interval", type=float, default=0.02,
                        help="seconds between them (default %(default)s)")
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--busy", type=int, default=4, help="busy loops (default %(default)s)")
    parser.add_argument("--slots", type=int, default=1024,
                        help="of the job: twice its window (default %(default)s)")
    parser.add_argument("--memory", type=int, help="MiB of ordinary pages for the switch")
    parser.add_argument("--all", action="store_true", help="with all counters that moved")
    options = parser.parse_args()
    try:
        for transport in options.transport or ("af_packet", "af_xdp"):
            print(json.dumps(run_lab(options, transport), indent=1), flush=True)
    except Interrupted as error:
        return report_interruption(error)
    except LabError as error:
        print(f"lost_frames: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
