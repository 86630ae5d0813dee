# SPDX-License-Identifier: BSD-3-Clause
"""A laboratory whose links all end in one namespace, in which one process plays all hosts."""

from pathlib import Path

from lab.namespaces import HOST_INTERFACE, SWITCH_IP, inside, ip_in, program, run


class Gathered:
    """
    Moves the hosts' ends of all of a laboratory's links into a namespace, where their names are
    end0, end1, ...

    With memif there is nothing to move.
    """

    def __init__(self, lab):
        self.lab = lab
        if lab.transport == "memif":
            self.namespace, self.ends = None, []
            return
        self.namespace = f"{lab.prefix}-gen"
        self.ends = [f"end{host}" for host in range(lab.hosts)]
        lab.namespaces.append(self.namespace)
        run(["ip", "netns", "add", self.namespace])
        with inside(self.namespace):
            # Router solicitations and the like would only disturb the counters; the laboratory's
            # own namespaces send none either.
            path = Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
            if path.exists():
                path.write_text("1")
        for host, end in enumerate(self.ends):
            ip_in(lab.host_namespace(host), "link", "set", HOST_INTERFACE, "down", "netns",
                  self.namespace, "name", end)
            ip_in(self.namespace, "link", "set", end, "up")

    def devices(self):
        """Returns DPDK's devices on the ends, of the same kind as the switch's ports."""
        lab = self.lab
        if lab.transport == "memif":
            return [f"net_memif,role=client,id={host},socket={lab.memif_path},socket-abstract=no,"
                    f"bsize={max(2048, lab.mtu + 64)},rsize=10,mac={lab.host_mac(host)}"
                    for host in range(lab.hosts)]
        return [lab.vdev(host).replace(lab.switch_interface(host), end) for host,
                end in enumerate(self.ends)]

    def spawn_pktgen(self, *others, **options):
        """Starts fanin-pktgen. options: its long options, with _ for -; True for one without a
        value, a list for several.
        """
        lab = self.lab
        arguments = [program("fanin-pktgen", lab.build), "--mtu", lab.mtu, "--switch", SWITCH_IP,
                     "--address", lab.host_ip(0)]
        for option, value in ({"port": self.devices()} | options).items():
            for one in value if isinstance(value, list) else [value]:
                arguments += ["--" + option.replace("_", "-")] + ([] if one is True else [one])
        lab.spawned += 1
        return lab._spawn(self.namespace, f"pktgen-{lab.spawned}", arguments + list(others))
