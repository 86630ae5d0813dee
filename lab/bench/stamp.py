# SPDX-License-Identifier: BSD-3-Clause
"""The time and the tree of a measurement, which readers of a table need before the figures."""

import os
import time

from lab.bench.io_forwarding import machine
from lab.bench.older_build import git


def stamp_now():
    """Returns the stamp. To be called before a measurement, so that its own load is not in it.
    commit: None without git.
    """
    return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain")),
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine(), "load": round(os.getloadavg()[0], 2)}


def of_row(stamp):
    """Returns the stamp of each row of a table, which distinguishes it from older rows."""
    return {name: stamp[name] for name in ("commit", "date", "load")}


def words(stamp):
    """Returns the stamp in words, for a table's head."""
    commit = "an unknown commit" if stamp[
        "commit"] is None else f"commit {stamp['commit'][:10]}{' with changes' if stamp['changed'] else ''}"
    return f"{commit}, {stamp['date']}, {stamp['machine']}, load average {stamp['load']:.1f} before"
