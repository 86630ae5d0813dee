#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""fanin-pktgen against fanin-switch on veth pairs in network namespaces. Unknown arguments go to
fanin-pktgen.
"""

import argparse
import sys

from lab.bench.gathered import Gathered
from lab.namespaces import MAX_HOSTS, Interrupted, LabError, WireLab, report_interruption


def main():
    parser = argparse.ArgumentParser(prog="./dev bench pktgen", allow_abbrev=False,
                                     description=__doc__)
    parser.add_argument("--links", type=int, default=4, choices=range(1, MAX_HOSTS + 1),
                        metavar="N",
                        help="veth pairs, with a host each unless --hosts says more (default 4)")
    parser.add_argument("--transport", default="af_packet", choices=("af_packet", "af_xdp"))
    parser.add_argument("--mtu", type=int, help="of all links (default 9000, with af_xdp 3442)")
    options, others = parser.parse_known_args()
    # The generator's buffers are a little smaller than the switch's: see
    # lab/bench/io_forwarding.py.
    mtu = options.mtu or (3442 if options.transport == "af_xdp" else None)
    try:
        with WireLab(options.links, options.transport, mtu) as lab:
            lab.start_switch()
            process = Gathered(lab).spawn_pktgen(*others, control=str(lab.socket_path))
            status = process.popen.wait()
            sys.stdout.write(process.stdout())
            sys.stderr.write(process.stderr())
            return status
    except Interrupted as error:
        return report_interruption(error)
    except (LabError, OSError) as error:
        print(f"bench pktgen: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
