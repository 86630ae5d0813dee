# SPDX-License-Identifier: BSD-3-Clause
"""
Measures the CPU time that processes of laboratories and the kernel's ksoftirqd had between two
marks of a measured loop, and the other load meanwhile.

The loop's first rank connects to a socket at each mark and waits until the times are taken
(lab/reference/mark.h). A process's time is that of its threads (/proc/PID/task/TID/schedstat,
nanoseconds), which on Linux without CONFIG_IRQ_TIME_ACCOUNTING includes the softirqs that
interrupted them. The network namespaces tell which processes are the laboratories'. Other load is
time that was neither theirs nor idle.
"""

import os
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple

from lab.namespaces import NETNS_DIR, LabError

# More other load than this means that the machine is not quiet.
BUSY_CORES = 0.25


class Moment(NamedTuple):
    seconds: float
    own: float  # CPU seconds of the laboratories' processes and ksoftirqd, since they began
    free: float  # of all cores: idle, or taken by the hypervisor


class Load(NamedTuple):
    cpu_seconds: float
    other_cores: float


def load_between(begin, end, cores):
    """Returns the load between two moments."""
    seconds, own = end.seconds - begin.seconds, end.own - begin.own
    return Load(own, max(0.0, cores - (end.free - begin.free + own) / seconds))


def process_seconds(pid):
    """Returns the CPU seconds of a process's threads."""
    return sum(int((thread / "schedstat").read_text().split()[0])
               for thread in Path("/proc", pid, "task").iterdir()) / 1e9


def own_seconds(namespaces):
    """Returns the CPU seconds of all processes in these network namespaces, given by their inodes,
    and of ksoftirqd. A process that ends meanwhile counts 0.
    """
    total = 0.0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if (os.stat(f"/proc/{pid}/ns/net").st_ino in namespaces or
                    Path("/proc", pid, "comm").read_text().startswith("ksoftirqd/")):
                total += process_seconds(pid)
        except OSError:
            continue
    return total


def free_seconds():
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(fields[i]) for i in (4, 5, 8)) / os.sysconf("SC_CLK_TCK")  # idle, iowait, steal


class Marks:
    """Listens for the marks of measured loops. labs: laboratories whose processes are counted. A
    context manager.
    """

    def __init__(self, *labs):
        self.path = labs[0].directory / "marks"
        self.namespaces = {os.stat(NETNS_DIR / name).st_ino for lab in labs
                           for name in lab.namespaces}
        self.moments = []

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.path.chmod(0o777)
        self.listener.listen()
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _listen(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.moments.append(self.take())

    def take(self):
        """Takes the times while all ranks wait. Runs in the listening thread."""
        return Moment(time.monotonic(), own_seconds(self.namespaces), free_seconds())

    def ends(self):
        """Returns the times taken at both marks of the loop that has ended."""
        moments, self.moments = self.moments, []
        if len(moments) != 2:
            raise LabError(f"found {len(moments)} marks of a measured loop, expected 2")
        return moments

    def load(self):
        """Returns the load during the loop that has ended."""
        return load_between(*self.ends(), os.cpu_count())
