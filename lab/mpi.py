# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs on the hosts of a network, run by Open MPI's or MPICH's mpirun, through a door of
Fanin or without it. The doors are "openmpi" and "mpich", libraries to preload, and "component", a
component of Open MPI.
"""

import json
import os
import pwd
import re

from lab.fabric import MANAGER_IP, MANAGER_PORT
from lab.namespaces import NOBODY, WITHOUT_RIGHTS, LabError, as_user, ip_in, is_closed, wait_until

MANAGEMENT_INTERFACE, MANAGEMENT_NETWORK = "mgmt0", "10.79.0.0/24"
DOORS = ("openmpi", "component", "mpich")


def preload_library(lab, kind):
    return lab.build / "bindings" / "mpi" / f"libfanin-mpi-{kind}.so"


def component_path(lab):
    """Returns where Open MPI looks for components: among its own, and in the build."""
    return f"SYSTEM_DEFAULT:{lab.build / 'bindings' / 'mpi'}"


def component_is_built(lab):
    return (lab.build / "bindings" / "mpi" / "mca_coll_fanin.so").exists()


def mpi_of(kind):
    """Returns the MPI of a door: "openmpi" or "mpich"."""
    return "openmpi" if kind == "component" else kind


def at_end(process):
    """True if the last line of the test programs has come."""
    return re.search(r"^cases.*\n", process.stdout(), re.MULTILINE) is not None


class MpiHosts:
    """
    The hosts of a Fabric whose manager runs, named p0, p1, ... for mpirun and reached over the
    management network. If hosts need no rights, all their programs run as user nobody.
    """

    def __init__(self, fabric):
        self.fabric = fabric
        self.runs = 0
        # The ranks' output.
        self.sessions = fabric.directory / "sessions"
        self.sessions.mkdir()
        self.sessions.chmod(0o1777)
        fabric.directory.chmod(0o711)
        (fabric.directory / "hosts").write_text(
            f"127.0.0.1 localhost\n{MANAGER_IP} mpirun\n" +
            "".join(f"{fabric.management_ip(host)} p{host}\n" for host in range(fabric.hosts)))
        command = ["sh", "-c", "$*"]
        if fabric.transport in WITHOUT_RIGHTS:
            command = as_user(pwd.getpwnam(NOBODY), command, is_closed(fabric.build))
        # In place of ssh: enters the host's network with its own /sys, where UCX looks for devices,
        # and its name, by which MPI tells hosts apart.
        agent = fabric.directory / "agent"
        agent.write_text("#!/bin/sh\nwhile [ \"${1#p}\" = \"$1\" ]; do shift; "
                         "done\nname=$1\nshift\n"
                         f"exec nsenter --net=/run/netns/{fabric.prefix}-h${{name#p}} unshare "
                         f"--uts --mount sh -c 'mount -t sysfs sysfs /sys; hostname \"$0\"; exec "
                         f"{' '.join(command[:-1])} \"{command[-1]}\"' \"$name\" \"$@\"\n")
        agent.chmod(0o755)
        # The kernel reports a link that comes up within a second; UCX uses no link before.
        for host in range(fabric.hosts):
            wait_until(lambda host=host: "state UP" in ip_in(fabric.host_namespace(host), "link",
                                                             "show", MANAGEMENT_INTERFACE).stdout,
                       10,
                       f"{MANAGEMENT_INTERFACE} of host {host}")

    def _environment(self, kind, preload, more):
        found = {"FANIN_MANAGER": f"{MANAGER_IP}:{MANAGER_PORT}",
                 "FANIN_TOKEN": self.fabric.token_file.read_text().strip(),
                 "FANIN_MPI_INTERFACE": "fanin0", "FANIN_MPI_TRANSPORT": self.fabric.transport}
        found.update({name: str(value) for name, value in more.items()})
        if preload and kind != "component":
            found["LD_PRELOAD"] = str(preload_library(self.fabric, kind))
        return found

    def _openmpi(self, ranks, environment):
        hosts = ",".join(f"p{host}:{n}" for host, n in enumerate(ranks))
        names = [argument for name in environment
                 for argument in ("-x", name
                                  if name != "LD_PRELOAD" else f"{name}={environment[name]}")]
        return ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "-n", str(sum(ranks)),
                "-H", hosts, "--map-by", "slot",
                "--mca", "plm_rsh_agent", self.fabric.directory / "agent", "--mca",
                "orte_tmpdir_base", self.sessions,
                "--mca", "oob_tcp_if_include", MANAGEMENT_NETWORK, "--mca", "pml", "ob1", "--mca",
                "btl",
                "tcp,vader,self" if max(ranks) > 1 else "tcp,self", "--mca", "btl_tcp_if_include",
                MANAGEMENT_NETWORK,
                "--mca", "btl_vader_single_copy_mechanism", "none", "--mca", "mpi_yield_when_idle",
                "1", *names]

    def _mpich(self, ranks, environment):
        hosts = ",".join(f"p{host}:{n}" for host, n in enumerate(ranks))
        # MPICH's UCX uses the devices that it is told, not the links to the switch.
        environment = {"UCX_NET_DEVICES": MANAGEMENT_INTERFACE,
                       "UCX_TLS": "tcp,self,sysv" if max(ranks) > 1 else "tcp,self", **environment}
        names = [argument for name,
                 value in environment.items() for argument in ("-genv", name, value)]
        return ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec",
                self.fabric.directory / "agent", "-localhost", MANAGER_IP,
                "-n", str(sum(ranks)), "-hosts", hosts, *names]

    def start(self, kind, program, *arguments, preload=True, ranks_per_host=1, launcher=(), **more):
        """
        Starts mpirun of a door's MPI, with the door or, without preload, alone. ranks_per_host: of
        each host, or one number for all. more: further variables of the ranks' environment.
        launcher: a command before the program.
        """
        self.runs += 1
        if preload and kind == "component":
            # mpirun of Open MPI 5.0 would have PMIx look there, too, which warns of what it finds.
            launcher = ("env", f"OMPI_MCA_mca_base_component_path={component_path(self.fabric)}",
                        *launcher)
        environment = self._environment(kind, preload, more)
        ranks = [ranks_per_host] * self.fabric.hosts if isinstance(ranks_per_host,
                                                                   int) else ranks_per_host
        command = self._openmpi(ranks,
                                environment) if mpi_of(kind) == "openmpi" else self._mpich(
                                    ranks, environment)
        # mpirun itself must run without the library, but must pass it on.
        own = [f"{name}={value}" for name, value in environment.items() if name != "LD_PRELOAD"]
        command = ["unshare", "--mount", "--uts", "sh", "-c",
                   'hostname mpirun; mount --bind "$0" /etc/hosts && exec "$@"',
                   self.fabric.directory / "hosts", "env", *own, *command, *launcher, program,
                   *arguments]
        return self.fabric._spawn(self.fabric.management, f"mpirun-{self.runs}",
                                  [str(part) for part in command])

    def run(self, kind, program, *arguments, timeout=60, done=None, **options):
        """
        Runs it to its end. Returns the ranks' output. done: with MPICH, tells whether a process has
        done its work. Debian's MPICH hangs in MPI_Finalize over UCX's TCP, whatever the program and
        with the library or without, and is then ended.
        """
        process = self.start(kind, program, *arguments, **options)
        if kind == "mpich" and done is not None:
            wait_until(lambda: done(process) or not process.running(), timeout,
                       f"the end of {process.name}")
            if done(process):
                # The output before mpirun reports that it was ended.
                printed = process.stdout()
                process.stop()
                self.fabric.processes.remove(process)
                return printed
        status = process.wait(timeout)
        self.fabric.processes.remove(process)
        if status != 0:
            raise LabError(f"{process.name}: exit status {status}: {process.stderr()[-2000:]}")
        return process.stdout()

    def run_reported(self, kind, program, *arguments, **options):
        """Runs it with the library's report. Returns (the ranks' output, whose last line has
        "cases", the report).
        """
        path = self.sessions / f"report-{self.runs}.json"
        printed = self.run(kind, program, *arguments, FANIN_MPI_REPORT="json",
                           FANIN_MPI_REPORT_FILE=path,
                           done=lambda process: at_end(process) and path.exists()
                           and path.read_text().endswith("\n"), **options)
        report = json.loads(path.read_text())
        os.unlink(path)
        return printed, report
