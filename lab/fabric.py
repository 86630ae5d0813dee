# SPDX-License-Identifier: BSD-3-Clause
"""
A laboratory with several switches: each fanin-switch and each host has a network namespace of its
own.

A Topology names switches, the hosts at each, and the links between switches. Hosts are numbered
consecutively; those of switch number i are in the subnet 10.77.i.0/24, whose gateway 10.77.i.254 is
the switch. Switches without hosts have an address of that form as well. A host may be linked to a
second switch, with an address in that switch's subnet, too. Links between switches are routed ports
named to-NAME at each end; every switch has a route to each other's subnet by all shortest paths.
Parameter servers are in their switch's subnet as well, at ports with their names.
"""

import json
import os
import secrets
from dataclasses import dataclass, field

from lab.bridged import make_bridge
from lab.namespaces import (HOST_INTERFACE, UDP_PORT, Control, Lab, LabError, inside, ip_in,
                            long_options, program, run, user_of, wait_until)

START_SECONDS = 60
MANAGER_IP = "10.79.0.254"
MANAGER_PORT = 21932
MANAGEMENT_MTU = 1500
SECOND_INTERFACE = "fanin1"
FIRST_SERVER = 201  # last number of its address


@dataclass
class Topology:
    """
    hosts: {switch: number of hosts at it}, in order; links: pairs of switches; second: {host: its
    second switch}; servers: {parameter server: its switch}.
    """
    name: str
    hosts: dict
    links: list = field(default_factory=list)
    second: dict = field(default_factory=dict)
    servers: dict = field(default_factory=dict)

    def __post_init__(self):
        self.switches = list(self.hosts)
        self.switch_of = [switch for switch, count in self.hosts.items() for _ in range(count)]

    def switches_of(self, host):
        return [self.switch_of[host]] + ([self.second[host]] if host in self.second else [])

    def add_servers(self, count, switches):
        """Adds parameter servers s0, s1, ... to these switches in turns. Returns the topology."""
        self.servers = {f"s{i}": switches[i % len(switches)] for i in range(count)}
        return self

    def neighbors(self, switch):
        return [b if a == switch else a for a, b in self.links if switch in (a, b)]

    def distances(self, switch):
        """Returns {switch: links to it} of all reachable switches."""
        distances, queue = {switch: 0}, [switch]
        for here in queue:
            for peer in self.neighbors(here):
                if peer not in distances:
                    distances[peer] = distances[here] + 1
                    queue.append(peer)
        return distances


def deal(hosts, leaves, in_order=False):
    """Returns the number of hosts of each leaf, in runs: about the same for all. in_order: numbers
    for which a reproducible sum keeps the order of ranks, by repeatedly halving a power of two of
    them; the last leaves may get fewer, or none.
    """
    if not in_order:
        return [hosts // leaves + (i < hosts % leaves) for i in range(leaves)]
    width = 1
    while width * leaves < hosts:
        width *= 2
    return [max(0, min(width, hosts - i * width)) for i in range(leaves)]


def leaf_spine(leaves=2, spines=2, hosts=8, dual_homed=False, first=None, in_order=False):
    """
    Links every leaf to every spine; deals the hosts to the leaves in runs: see deal.

    first: the preferred one for a tree, among equal spines, or of a pair of leaves.

    dual_homed: each leaf is a pair of leaves, leaf0 and leaf1, leaf2 and leaf3, ..., and hosts are
    linked to both. A list of numbers: only these hosts are.
    """
    per_leaf = 2 if dual_homed else 1
    names = {}
    pairs = {}
    for i in range(0, leaves * per_leaf, per_leaf):
        pair = sorted((f"leaf{i + k}" for k in range(per_leaf)), key=lambda leaf: leaf != first)
        pairs[pair[0]] = pair[-1]
        for leaf in sorted(pair):
            names[leaf] = deal(hosts, leaves, in_order)[i // per_leaf] if leaf == pair[0] else 0
    links = [(leaf, f"spine{k}") for leaf in names for k in range(spines)]
    names.update(dict.fromkeys(sorted((f"spine{i}" for i in range(spines)),
                                      key=lambda spine: spine != first), 0))
    topology = Topology("leaf-spine", names, links)
    for host in range(hosts) if dual_homed is True else dual_homed or []:
        topology.second[host] = pairs[topology.switch_of[host]]
    return topology


def single(hosts=4):
    """One switch."""
    return Topology("single", {"switch0": hosts})


def tree3(hosts=16, in_order=False):
    """Three levels: a core, two aggregation switches below it, and two leaves below each of these.
    in_order: see deal.
    """
    names = {f"leaf{i}": count for i, count in enumerate(deal(hosts, 4, in_order))}
    names.update({"agg0": 0, "agg1": 0, "core": 0})
    return Topology("tree3", names,
                    [(f"leaf{i}", f"agg{i // 2}") for i in range(4)]
                    + [("agg0", "core"), ("agg1", "core")])


class Fabric(Lab):
    """config: keys that replace those of every switch's configuration file. See Lab for the rest.
    """

    def __init__(self, topology, transport="af_packet", mtu=None, config=None, keep_logs=False,
                 name=None):
        if transport == "memif":
            raise LabError("several switches are linked by veth: expected transport auto, af_xdp, "
                           "af_packet or udp")
        super().__init__(len(topology.switch_of), transport, mtu, config, keep_logs, name)
        self.topology = topology
        self.switches = {}  # name: Process
        self.servers = {}  # name: Process
        self.controls_of = {}  # name: Control, of switches and servers
        self.management = self.manager = self.token_file = None

    # ---- addresses

    def index_of(self, switch):
        return self.topology.switches.index(switch)

    def switch_ip(self, switch):
        return f"10.77.{self.index_of(switch)}.254"

    def switch_mac(self, switch):
        return f"02:fa:00:00:01:{self.index_of(switch) + 1:02x}"

    def subnet(self, switch):
        return f"10.77.{self.index_of(switch)}.0/24"

    def host_ip(self, host, switch=None):
        """Returns the host's address at a switch; None: at its first one."""
        return f"10.77.{self.index_of(switch or self.topology.switch_of[host])}.{host + 1}"

    @staticmethod
    def second_mac(host):
        return f"02:77:00:00:01:{host + 1:02x}"

    def switch_ns(self, switch):
        return f"{self.prefix}-{switch}"

    def socket_of(self, switch):
        return self.directory / f"{switch}.sock"

    def server_ip(self, server):
        number = list(self.topology.servers).index(server)
        return f"10.77.{self.index_of(self.topology.servers[server])}.{FIRST_SERVER + number}"

    def server_mac(self, server):
        return f"02:77:00:00:02:{list(self.topology.servers).index(server) + 1:02x}"

    def server_ns(self, server):
        return f"{self.prefix}-{server}"

    # ---- links

    def namespaces_wanted(self):
        return ([self.switch_ns(switch) for switch in self.topology.switches] +
                [self.server_ns(server) for server in self.topology.servers] +
                [self.host_namespace(host) for host in range(self.hosts)])

    def _make_links(self):
        for host, switch in enumerate(self.topology.switch_of):
            self._join(self.switch_ns(switch), f"h{host}", self.host_namespace(host),
                       HOST_INTERFACE, self.host_mac(host))
            there = self.host_namespace(host)
            ip_in(there, "address", "add", f"{self.host_ip(host)}/24", "dev", HOST_INTERFACE)
            ip_in(there, "route", "add", "default", "via", self.switch_ip(switch))
        for host, switch in self.topology.second.items():
            there = self.host_namespace(host)
            self._join(self.switch_ns(switch), f"h{host}", there, SECOND_INTERFACE,
                       self.second_mac(host))
            ip_in(there, "address", "add", f"{self.host_ip(host, switch)}/24", "dev",
                  SECOND_INTERFACE)
            # The kernel uses this route when the first one's link is down.
            ip_in(there, "route", "add", "default", "via", self.switch_ip(switch), "metric", "100")
        for a, b in self.topology.links:
            self._join(self.switch_ns(a), f"to-{b}", self.switch_ns(b), f"to-{a}")
        for server, switch in self.topology.servers.items():
            there = self.server_ns(server)
            self._join(self.switch_ns(switch), server, there, HOST_INTERFACE,
                       self.server_mac(server))
            ip_in(there, "address", "add", f"{self.server_ip(server)}/24", "dev", HOST_INTERFACE)
            ip_in(there, "route", "add", "default", "via", self.switch_ip(switch))

    # ---- the switches

    def ports_of(self, switch):
        """Returns the ports of a switch: {name: True if it leads to another switch}."""
        ports = {f"h{host}": False for host in range(self.hosts)
                 if switch in self.topology.switches_of(host)}
        ports.update({f"to-{peer}": True for peer in self.topology.neighbors(switch)})
        ports.update({server: False for server,
                      at in self.topology.servers.items() if at == switch})
        return ports

    def routes_of(self, switch):
        """Returns the routes of a switch, as in its configuration."""
        routes = []
        for target in self.topology.switches:
            distances = self.topology.distances(target)
            via = [{"port": f"to-{peer}", "ip": self.switch_ip(peer)}
                   for peer in self.topology.neighbors(switch)
                   if distances.get(peer, -1) == distances.get(switch, 0) - 1]
            if via:
                routes.append({"prefix": self.subnet(target), "via": via})
        return routes

    def switch_config(self, switch):
        """Returns the configuration of a switch, as it goes into its file."""
        cpus = os.cpu_count() or 1
        config = {
            "name": switch,
            "address": {"ip": self.switch_ip(switch), "mac": self.switch_mac(switch),
                        "udp_port": UDP_PORT},
            "control": {"socket": str(self.socket_of(switch))},
            "memory": {"hugepages": "never", "megabytes": 256},
            # More switches than cores: an idle one sleeps.
            "idle": {"policy": "sleep"},
            "limits": {"max_jobs": 16, "slots": 2048},
            "workers": [{"lcore": self.index_of(switch) % cpus}],
            "ports": [{"name": name, **self.device(name), "mtu": self.mtu, "routed": routed}
                      for name, routed in self.ports_of(switch).items()],
            "routes": self.routes_of(switch),
        }
        config.update(self.overrides)
        return config

    def switch_processes(self):
        return list(self.switches.values()) + list(self.servers.values())

    def launch(self, switch):
        """Starts one switch, without waiting for it."""
        path = self.directory / f"{switch}.json"
        path.write_text(json.dumps(self.switch_config(switch), indent=2) + "\n")
        self.switches[switch] = self._spawn(self.switch_ns(switch), switch,
                                            [program("fanin-switch", self.build), "--config",
                                             str(path)])

    def server_config(self, server):
        """Returns the configuration of a parameter server, as it goes into its file."""
        return {"name": server, "address": {"ip": self.server_ip(server), "udp_port": UDP_PORT},
                "control": {"socket": str(self.socket_of(server))},
                "limits": {"max_jobs": 16, "megabytes": 64}}

    def launch_server(self, server):
        """Starts one parameter server, without waiting for it."""
        path = self.directory / f"{server}.json"
        path.write_text(json.dumps(self.server_config(server), indent=2) + "\n")
        self.servers[server] = self._spawn(self.server_ns(server), server,
                                           [program("fanin-server", self.build), "--config",
                                            str(path)])

    def start(self):
        """Starts all switches and servers and returns once their control sockets answer."""
        for switch in self.topology.switches:
            self.launch(switch)
        for server in self.topology.servers:
            self.launch_server(server)
        for name in [*self.topology.switches, *self.topology.servers]:
            self.await_switch(name)

    def await_switch(self, switch, timeout=START_SECONDS):
        wait_until(lambda: self._answers(switch), timeout, f"{switch}'s control socket")

    def process_of(self, name):
        """Returns the process of a switch or a server."""
        return self.switches.get(name) or self.servers[name]

    def _answers(self, switch):
        if not self.process_of(switch).running():
            raise LabError(f"{switch} did not start: {self.process_of(switch).last_words()}")
        try:
            control = Control(self.socket_of(switch))
        except OSError:
            return False
        self.controls.append(control)
        self.controls_of[switch] = control
        control.ask("version")
        return True

    def ask(self, switch, command, **arguments):
        return self.controls_of[switch].ask(command, **arguments)

    def ctl(self, switch, *arguments):
        """Runs faninctl with these arguments and returns its output."""
        return run([program("faninctl", self.build), "-s", str(self.socket_of(switch)),
                    *map(str, arguments)]).stdout

    def drops(self, switch):
        """Returns the drop counters of a switch by name, without zeros."""
        return {drop["name"]: drop["count"] for drop in self.ask(switch, "drops")["drops"]
                if drop["count"] != 0}

    def port_counters(self, switch):
        """Returns the entries of ports.list by the ports' names."""
        return {port["name"]: port for port in self.ask(switch, "ports.list")["ports"]}

    def next_hops(self, switch):
        """Returns {port: state} of the next hops of a switch."""
        return {hop["port"]: hop["state"] for route in self.ask(switch, "routes.list")["routes"]
                for hop in route["via"]}

    def await_next_hops(self, timeout=60):
        """Waits until all next hops of every switch have answered."""
        for switch in self.topology.switches:
            wait_until(lambda switch=switch: set(self.next_hops(switch).values()) == {"up"},
                       timeout,
                       f"the next hops of {switch}")

    # ---- the network manager, on a network of its own

    @staticmethod
    def management_ip(host):
        return f"10.79.0.{host + 1}"

    def _make_management(self):
        """Makes a bridge in the manager's namespace, and a link from each host to it."""
        self.management = f"{self.prefix}-mgmt"
        self.namespaces.append(self.management)
        run(["ip", "netns", "add", self.management])
        ip_in(self.management, "link", "set", "lo", "up")
        make_bridge(self.management, "br0", MANAGEMENT_MTU)
        for host in range(self.hosts):
            ip_in(self.management, "link", "add", "name", f"m{host}", "type", "veth", "peer",
                  "name", "mgmt0", "netns",
                  self.host_namespace(host))
            ip_in(self.management, "link", "set", f"m{host}", "master", "br0", "up")
            ip_in(self.host_namespace(host), "address", "add", f"{self.management_ip(host)}/24",
                  "dev", "mgmt0")
            ip_in(self.host_namespace(host), "link", "set", "mgmt0", "up")
        ip_in(self.management, "address", "add", f"{MANAGER_IP}/24", "dev", "br0")

    def _host_entry(self, host):
        links = [{"ip": self.host_ip(host, switch), "switch": switch, "port": f"h{host}"}
                 for switch in self.topology.switches_of(host)]
        return links[0] if len(links) == 1 else {"links": links}

    def manager_topology(self):
        """Returns the topology in the manager's format."""
        return {"switches": [{"name": switch, "control": str(self.socket_of(switch))}
                             for switch in self.topology.switches],
                "links": [{"a": f"{a}:to-{b}", "b": f"{b}:to-{a}"} for a, b in self.topology.links],
                "servers": [{"name": server, "control": str(self.socket_of(server)),
                             "switch": switch, "port": server}
                            for server, switch in self.topology.servers.items()],
                "hosts": [self._host_entry(host) for host in range(self.hosts)]}

    def start_manager(self, hosts=None, discover=False, **config):
        """
        Starts fanin-manager and returns once it knows all switches and servers. May be called again
        after the manager was killed.

        hosts: a list for the topology instead of all hosts. discover: there is no list, and the
        manager finds the hosts. config: keys that replace those of its configuration.
        """
        if self.management is None:
            self._make_management()
            self.token_file = self.directory / "token"
            self.token_file.touch(mode=0o600)
            self.token_file.write_text(secrets.token_hex(16) + "\n")
            topology = self.manager_topology()
            if hosts is not None:
                topology["hosts"] = hosts
            if discover:
                del topology["hosts"]
            (self.directory / "topology.json").write_text(json.dumps(topology, indent=2) + "\n")
        path = self.directory / "manager.json"
        path.write_text(json.dumps({
            "name": "manager", "listen": f"{MANAGER_IP}:{MANAGER_PORT}",
            "token_file": str(self.token_file),
            "database": "manager.db", "topology": "topology.json", "heartbeat_ms": 100,
            "dead_after_ms": 1000, **config},
            indent=2) + "\n")
        self.spawned += 1
        self.manager = self._spawn(self.management, f"manager-{self.spawned}",
                                   [program("fanin-manager", self.build), "--config", str(path)])
        wait_until(self._manager_knows_all, START_SECONDS, "the manager to reach all switches")

    def _manager_knows_all(self):
        if not self.manager.running():
            raise LabError(f"fanin-manager did not start: {self.manager.last_words()}")
        try:
            topology = self.ask_manager("topology")
            return all(entry["state"] == "up" or not self.process_of(entry["name"]).running()
                       for entry in topology["switches"] + topology["servers"])
        except LabError:
            return False

    def ctl_manager(self, *arguments):
        """Runs faninctl with these arguments for the manager and returns its output."""
        with inside(self.management):
            return run([program("faninctl", self.build), "--manager",
                        f"{MANAGER_IP}:{MANAGER_PORT}", "--token-file", str(self.token_file),
                        *map(str, arguments)]).stdout

    def ask_manager(self, *command):
        """Returns the output of faninctl, as JSON."""
        return json.loads(self.ctl_manager("-j", *command))

    def spawn_named(self, host, job, rank, size, **options):
        """Starts fanin-perf on a host as a rank of a job that the manager makes."""
        arguments = ["env", f"FANIN_TOKEN={self.token_file.read_text().strip()}",
                     program("fanin-perf", self.build), "--manager",
                     f"{MANAGER_IP}:{MANAGER_PORT}", "--job-name", job, "--rank", rank, "--size",
                     size, "--address",
                     self.host_ip(host), "--json"]
        return self.spawn(host, [*arguments, *long_options(options)], "perf", user_of(options))

    # ---- jobs over several switches

    def tree(self, root, hosts):
        """Returns {switch: parent}, None for the root: the shortest paths from the hosts' switches
        to the root.
        """
        parents, queue = {root: None}, [root]
        for switch in queue:
            for peer in self.topology.neighbors(switch):
                if peer not in parents:
                    parents[peer] = switch
                    queue.append(peer)
        used = {}
        for host in hosts:
            switch = self.topology.switch_of[host]
            while switch is not None and switch not in used:
                used[switch] = parents[switch]
                switch = parents[switch]
        return used

    def install(self, job, key, parents, ranks, **options):
        """Creates the job on every switch of a tree, from the root down. ranks: {host: rank}."""
        behind = {switch: set() for switch in parents}
        for host, rank in ranks.items():
            switch = self.topology.switch_of[host]
            while switch is not None:
                behind[switch].add(rank)
                switch = parents[switch]
        for switch, parent in parents.items():
            members = [{"port": f"h{host}", "ip": self.host_ip(host), "rank": rank} for host,
                       rank in ranks.items()
                       if self.topology.switch_of[host] == switch]
            members += [{"port": f"to-{child}", "ip": self.switch_ip(child),
                         "ranks": sorted(behind[child])}
                        for child, above in parents.items() if above == switch]
            above = {} if parent is None else {
                "parent": {"port": f"to-{parent}", "ip": self.switch_ip(parent),
                           "mac": self.switch_mac(parent)}}
            self.ask(switch, "jobs.create", id=job, key=key, size=len(ranks), members=members,
                     **above, **options)

    def uninstall(self, job, parents):
        for switch in parents:
            self.ask(switch, "jobs.destroy", id=job)

    def spawn_rank(self, host, job, key, rank, size, **options):
        """Starts fanin-perf on a host as a rank of an installed job, at the host's own switch."""
        return self.spawn_perf(host, {"id": job, "key": key}, rank, size,
                               **{"switch": self.switch_ip(self.topology.switch_of[host]),
                                  **options})
