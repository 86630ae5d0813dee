# SPDX-License-Identifier: BSD-3-Clause
"""Makes the kernel drop frames for want of room in a CPU's backlog, at once and whenever it is
wanted: a bridge floods one frame to another by many links, and that one floods each copy to as
many. All of them are due on one CPU before it comes to any.
"""

import math
from pathlib import Path

from tests.net.frames import BROADCAST, RawPort, ethernet
from lab.namespaces import inside, run

LIMIT = Path("/proc/sys/net/core/netdev_max_backlog")


def build(namespace, directory):
    """Two bridges in a namespace; what is sent on the interface flood0 overflows a backlog."""
    n = math.isqrt(int(LIMIT.read_text(encoding="ascii"))) + 8
    # Bridges that snoop join groups, and what they say for that is flooded as well.
    lines = [f"link add {name} type bridge mcast_snooping 0" for name in ("first", "second")]

    def link(one, other, bridge_of_one, bridge_of_other):
        lines.append(f"link add {one} type veth peer name {other}")
        lines.extend(f"link set {end} master {bridge}" for end,
                     bridge in ((one, bridge_of_one), (other, bridge_of_other)) if bridge)
        lines.extend(f"link set {end} up" for end in (one, other))
    link("flood0", "flood1", None, "first")
    for number in range(n):
        link(f"out{number}", f"in{number}", "first", "second")
        # None of these floods to another: a copy goes to the ends below only, and no way leads
        # back.
        lines.append(f"link set in{number} type bridge_slave isolated on")
        link(f"end{number}", f"last{number}", "second", None)
    lines += [f"link set {name} up" for name in ("first", "second")]
    batch = directory / "backlog.ip"
    batch.write_text("\n".join(lines) + "\n", encoding="ascii")
    with inside(namespace):
        run(["ip", "-batch", batch])


def overflow(namespace):
    with RawPort(namespace, "flood0") as port:
        port.send(ethernet(BROADCAST, "02:77:00:00:00:77", 0x88b5, bytes(46)))
