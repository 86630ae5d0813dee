# SPDX-License-Identifier: BSD-3-Clause
"""The time and the tree of a measurement, which a table's reader needs before the figures."""

import os
import time

from lab.bench.io_forwarding import machine
from lab.bench.older_build import git


def stamp_now():
    """To be taken before a measurement, whose own load is not told then. commit: None without git.
    """
    return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain")),
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine(), "load": round(os.getloadavg()[0], 2)}


def of_row(stamp):
    """The stamp of each row of a table, which tells it from older rows beside it."""
    return {name: stamp[name] for name in ("commit", "date", "load")}


def words(stamp):
    """For a table's head."""
    commit = "an unknown commit" if stamp[
        "commit"] is None else f"commit {stamp['commit'][:10]}{' with changes' if stamp['changed'] else ''}"
    return f"{commit}, {stamp['date']}, {stamp['machine']}, load average {stamp['load']:.1f} before"
