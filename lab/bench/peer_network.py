# SPDX-License-Identifier: BSD-3-Clause
"""The network of Fanin's peers on the hosts of a laboratory: their links to a Linux bridge, and
mpirun over these links.
"""

from lab.bridged import make_bridge
from lab.namespaces import BUILD_DIR, LabError, ip_in, run

from lab.bench.runs import peer_run

PEER_INTERFACE = "peer0"
PEER_NETWORK = "10.78.0"


def peer_ip(host):
    return f"{PEER_NETWORK}.{host + 1}"


def peer_links(lab, mtu):
    """Makes a bridge in a namespace of its own, with a veth to each host; offloads are the kernel's
    defaults. Returns the namespace's name.
    """
    middle = f"{lab.prefix}-br"
    lab.namespaces.append(middle)
    run(["ip", "netns", "add", middle])
    ip_in(middle, "link", "set", "lo", "up")
    make_bridge(middle, "br0", mtu)
    for host in range(lab.hosts):
        ip_in(middle, "link", "add", "name", f"p{host}", "mtu", str(mtu), "type", "veth", "peer",
              "name", PEER_INTERFACE,
              "mtu", str(mtu), "netns", lab.host_namespace(host))
        ip_in(middle, "link", "set", f"p{host}", "master", "br0", "up")
        ip_in(lab.host_namespace(host), "address", "add", f"{peer_ip(host)}/24", "dev",
              PEER_INTERFACE)
        ip_in(lab.host_namespace(host), "link", "set", PEER_INTERFACE, "up")
    ip_in(middle, "address", "add", f"{PEER_NETWORK}.254/24", "dev", "br0")
    return middle


def set_peer_mtu(lab, middle, mtu):
    for host in range(lab.hosts):
        ip_in(middle, "link", "set", f"p{host}", "mtu", str(mtu))
        ip_in(lab.host_namespace(host), "link", "set", PEER_INTERFACE, "mtu", str(mtu))
    ip_in(middle, "link", "set", "br0", "mtu", str(mtu))


def mpi_files(lab):
    """Writes the files with which mpirun starts ranks in other namespaces: a list of names, and a
    script in place of ssh.
    """
    (lab.directory / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{peer_ip(host)} p{host}\n"
                                          for host in range(lab.hosts)))
    agent = lab.directory / "agent"
    agent.write_text("#!/bin/sh\nname=$1\nshift\n"
                     f"exec nsenter --net=/run/netns/{lab.prefix}-h${{name#p}} unshare --uts "
                     "sh -c 'hostname \"$0\"; exec sh -c \"$*\"' \"$name\" \"$@\"\n")
    agent.chmod(0o755)


def peer_program(name):
    path = BUILD_DIR / "lab" / "bench" / "peers" / name
    if not path.exists():
        raise LabError(f"{path} does not exist: run ./dev bench allreduce, which also installs the "
                       "packages that it may need")
    return str(path)


def openmpi(lab, middle, arguments, *task):
    """Returns the seconds of each collective. arguments: those of mpirun that say where ranks run
    and how they reach each other. task: collective-mpi's arguments.
    """
    lab.spawned += 1
    command = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"',
               lab.directory / "hosts",
               "mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "orte_tmpdir_base",
               lab.directory,
               "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1", *arguments,
               peer_program("collective-mpi"), *task]
    process = lab._spawn(middle, f"mpirun-{lab.spawned}", command)
    return peer_run(lab, [process], "Open MPI")


def tcp_arguments(lab):
    """Returns the arguments of mpirun: one rank per host; ranks use the peers' links."""
    network = f"{PEER_NETWORK}.0/24"
    return ["-H", ",".join(f"p{host}" for host in range(lab.hosts)), "--mca", "plm_rsh_agent",
            lab.directory / "agent", "--mca",
            "oob_tcp_if_include", network, "--mca", "btl", "tcp,self", "--mca",
            "btl_tcp_if_include", network]


def version_of(package):
    return run(["dpkg-query", "-W", "-f", "${Version}", package], check=False).stdout or None
