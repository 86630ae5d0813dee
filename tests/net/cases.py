#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The net tests: real processes in network namespaces, one function per claim. tests/unit/test_net.c runs each of them.

usage: cases.py --list | cases.py NAME...      --list prints each name with the most seconds it may take
"""

import sys
import time
import traceback

from support import CASES, CaseFailed, LabError
from lab import Interrupted

import case_allreduce  # noqa: F401
import case_by_name  # noqa: F401
import case_collectives  # noqa: F401
import case_control  # noqa: F401
import case_demo  # noqa: F401
import case_doctor  # noqa: F401
import case_flare  # noqa: F401
import case_handlers  # noqa: F401
import case_instructions  # noqa: F401
import case_jobs  # noqa: F401
import case_levels  # noqa: F401
import case_man  # noqa: F401
import case_manager  # noqa: F401
import case_manager_trees  # noqa: F401
import case_memif  # noqa: F401
import case_network  # noqa: F401
import case_observe  # noqa: F401
import case_observe_manager  # noqa: F401
import case_packets  # noqa: F401
import case_pktgen  # noqa: F401
import case_routing  # noqa: F401
import case_switching  # noqa: F401
import case_waits  # noqa: F401


def run_case(name):
    """Exit status of one case: 0 if its claim holds."""
    function, _ = CASES[name]
    started = time.monotonic()
    try:
        function()
    except CaseFailed as failure:
        print(f"{name}: {failure}")
        return 1
    except LabError as failure:
        where = traceback.extract_tb(failure.__traceback__)[1]
        print(f"{name}: {failure} (line {where.lineno} of {where.name})")
        return 1
    except Interrupted as interruption:
        print(f"{name}: {interruption} after {time.monotonic() - started:.1f} s")
        return 1
    print(f"{name}: ok, {time.monotonic() - started:.1f} s")
    return 0


def main(arguments):
    if arguments == ["--list"]:
        for name, (_, seconds) in CASES.items():
            print(name, seconds)
        return 0
    unknown = [name for name in arguments if name not in CASES]
    if not arguments or unknown:
        print(f"cases.py: found {unknown or 'no name'}, expected --list or names that it prints", file=sys.stderr)
        return 2
    return max(run_case(name) for name in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
