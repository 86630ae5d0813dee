# SPDX-License-Identifier: BSD-3-Clause
"""How fast this machine is right now: bounds on times are the protocol's constant and a multiple of
what is measured meanwhile.
"""

import contextlib
import subprocess
import threading
import time
from pathlib import Path

from tests.net.support import expect, program, wait_until

# What is told in time has been seen by several processes, each of which has then ended and been
# waited for.
STARTS = 20
# And what that takes on a machine at rest, where starts are too short to tell.
MIN_SECONDS = 1.0
INTERVAL_SECONDS = 0.1
# What a sleep or a start of a program takes longer than this has stood still: timers count little
# of that.
STILL_SECONDS = 0.1


def waited_seconds(pid):
    """How long a process has been ready to run without a core, by /proc/PID/schedstat; None: it has
    ended.
    """
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return None


def threads_without_core(pid):
    """Seconds that each thread of a process was ready and had no core, by its id."""
    with contextlib.suppress(OSError):
        return {task.name: waited_seconds(int(task.name)) or 0
                for task in Path(f"/proc/{pid}/task").iterdir()}
    return {}


def without_core(pids):
    """Seconds that threads of these processes were ready and had no core, of all together."""
    return sum(sum(threads_without_core(pid).values()) for pid in pids)


class Pace:
    """
    Starts a program again and again as long as the block runs, and keeps the longest time from its
    start to its end. pids: processes whose timers are measured: they count little of the time in
    which they had no core.
    """

    def __init__(self, pids=()):
        self.began = None
        self.longest = 0.0
        # seconds in which this machine has stood still, as far as this thread has seen it
        self.still = 0.0
        self._first = {pid: waited_seconds(pid) for pid in pids}
        self._last = dict(self._first)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def _measure(self):
        command = [program("fanin-perf"), "--version"]
        while True:
            started = time.monotonic()
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=True)
            took = time.monotonic() - started
            self.longest = max(self.longest, took)
            self._look()
            slept = time.monotonic()
            ended = self._ended.wait(INTERVAL_SECONDS)
            for over in (took, time.monotonic() - slept - INTERVAL_SECONDS):
                self.still += over if over > STILL_SECONDS else 0
            if ended:
                return

    def _look(self):
        for pid in self._first:
            waited = waited_seconds(pid)
            if waited is not None:
                self._last[pid] = waited

    @property
    def waited(self):
        """The longest that one of the processes had no core although it was ready to run, seconds.
        """
        return max((self._last[pid] - first for pid,
                    first in self._first.items() if first is not None), default=0.0)

    def __enter__(self):
        self.began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    @property
    def grace(self):
        """Seconds by which something may be late on this machine, known once the block has ended.
        """
        return max(MIN_SECONDS, STARTS * self.longest, self.waited, self.still)

    def expect_within(self, seconds, most, what):
        """What has taken `seconds` was to take less than `most`, and what this machine adds to
        that.
        """
        expect(seconds < most + self.grace,
               f"{what}: took {seconds:.2f} s, expected less than {most:g} s and {self.grace:.2f} "
               f"s, where a program took {self.longest:.3f} s to start and end, a thread whose "
               f"timers are measured had no core for {self.waited:.2f} s, and the machine stood "
               f"still for {self.still:.2f} s")


def wait_within(condition, most, what):
    """Waits as wait_until does, and expects that it has taken so many seconds at most, and what
    this machine adds to that.
    """
    with Pace() as pace:
        value = wait_until(condition, 60, what)
        seconds = time.monotonic() - pace.began
    pace.expect_within(seconds, most, what)
    return value
