# SPDX-License-Identifier: BSD-3-Clause
"""The sides of ./dev bench allreduce and latency: each function makes one program do one task, and
returns the seconds of each collective.
"""

import contextlib
from pathlib import Path
from typing import NamedTuple

from lab.namespaces import (HOST_INTERFACE, NOBODY, SWITCH_IP, SWITCH_MAC, Lab, LabError, ip_in,
                            wait_until)

from lab.bench.allreduce_rows import IN_PLACE
from lab.bench.peer_network import PEER_INTERFACE, openmpi, peer_program, tcp_arguments
from lab.bench.runs import peer_run, perf_run

WARMUP = 2
HEADERS = 54  # bytes of Fanin's, in each segment of a super-frame
SUPER_FRAME_BYTES, SUPER_FRAME_SEGMENTS = 65507, 64
BARE_WINDOW = 4  # in super-frames


class Task(NamedTuple):
    collective: str
    bytes: int  # of the vector, all ranks' parts together; 0: of a barrier
    iters: int
    in_place: bool = False
    mark: Path | None = None  # socket of cpu_times.Marks

    def words(self, *own):
        """Returns the command line of a program of bench/peers. own: arguments of this program
        only.
        """
        return [self.bytes, self.iters, WARMUP, *own, *(["in-place"] if self.in_place else []),
                *([f"mark={self.mark}"] if self.mark else [])]


def fanin(lab, task, **options):
    """Returns (seconds of each collective, reports). options: further ones for fanin-perf."""
    job = lab.create_job()
    ranks = [lab.spawn_perf(host, job, host, lab.hosts, collective=task.collective,
                            bytes=task.bytes or None, dtype="f32", op="sum", warmup=WARMUP,
                            iters=task.iters, in_place=task.in_place, mark=task.mark,
                            check_ends=True, times=True, **{"transport": lab.transport, **options})
             for host in range(lab.hosts)]
    found = perf_run(lab, ranks)
    lab.ctl("jobs", "destroy", job["id"])
    return found


def payload_of(lab):
    """Returns the payload of a job's packets."""
    job = lab.create_job()
    lab.ctl("jobs", "destroy", job["id"])
    return job["payload_bytes"]


@contextlib.contextmanager
def bare_lab(hosts, mtu):
    """Yields hosts and the running process in the middle of the bare exchange."""
    with Lab(hosts, "udp", mtu, name="bare") as lab:
        for host in range(hosts):
            ip_in(lab.host_namespace(host), "neighbour", "add", SWITCH_IP, "lladdr", SWITCH_MAC,
                  "dev", HOST_INTERFACE, "nud", "permanent")
        middle = lab._spawn(lab.switch_namespace, "middle",
                            [peer_program("exchange-middle"), SWITCH_IP,
                             *map(lab.switch_interface, range(hosts))])
        wait_until(lambda: middle.stdout() or not middle.running(), 10,
                   "the bare exchange's middle")
        if not middle.running():
            raise LabError(f"the bare exchange: {middle.last_words()}")
        yield lab


def bare_exchange(lab, payload, task):
    segments = min(SUPER_FRAME_SEGMENTS, SUPER_FRAME_BYTES // (payload + HEADERS))
    ranks = [lab.spawn(host, [peer_program("exchange-host"),
                              *task.words(host, lab.hosts, SWITCH_IP, HOST_INTERFACE, payload,
                                          segments, BARE_WINDOW)],
                       "exchange", NOBODY) for host in range(lab.hosts)]
    return peer_run(lab, ranks, "the bare exchange")


def openmpi_tcp(lab, middle, task):
    return openmpi(lab, middle, tcp_arguments(lab), task.collective, *task.words())


def openmpi_shm(lab, middle, task):
    return openmpi(lab, middle, ["-n", lab.hosts, "--oversubscribe", "--mca", "btl", "vader,self"],
                   task.collective, *task.words())


def gloo_tcp(lab, _middle, task):
    directory = lab.directory / f"gloo-{lab.spawned}"
    directory.mkdir()
    ranks = [lab.spawn(host, [peer_program("allreduce-gloo"),
                              *task.words(host, lab.hosts, PEER_INTERFACE, directory)], "gloo")
             for host in range(lab.hosts)]
    return peer_run(lab, ranks, "Gloo")


PEERS = {"openmpi-tcp": openmpi_tcp, "gloo-tcp": gloo_tcp, IN_PLACE: openmpi_tcp,
         "openmpi-shm": openmpi_shm}
