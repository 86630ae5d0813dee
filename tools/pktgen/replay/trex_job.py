# SPDX-License-Identifier: BSD-3-Clause
"""TRex (stateless): a job's contributions without end. Host N on port N, from the first frame of
PREFIX-hN.pcap.

Only two fields of the frame change: the block counts up, so that the switch takes every packet, and
with it the UDP source port, so that receive-side scaling spreads blocks. The UDP checksum is zero
and needs no update.

    start -f trex_job.py -m 100kpps -p 0 1 2 3 -t --prefix /tmp/job
"""

import argparse
import struct

from trex_stl_lib.api import (Ether, STLPktBuilder, STLScVmRaw, STLStream, STLTXCont, STLVmFlowVar,
                              STLVmWrFlowVar)

PCAP_HEAD, FRAME_HEAD = 24, 16
UDP_SOURCE, BLOCK = 34, 58  # offsets in the frame
FIRST_PORT, PORTS = 49152, 1024


def first_frame(path):
    with open(path, "rb") as file:
        file.seek(PCAP_HEAD)
        length = struct.unpack("<4I", file.read(FRAME_HEAD))[2]
        return file.read(length)


class FaninJob:
    def get_streams(self, direction=0, tunables=(), **kwargs):
        parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
        parser.add_argument("--prefix", required=True, help="what fanin-pktgen --pcap was given")
        options = parser.parse_args(tunables)
        frame = first_frame(f"{options.prefix}-h{kwargs['port_id']}.pcap")
        fields = STLScVmRaw([
            STLVmFlowVar(name="block", min_value=0, max_value=0xffffffff, size=4, op="inc"),
            STLVmWrFlowVar(fv_name="block", pkt_offset=BLOCK, is_big=False),
            STLVmFlowVar(name="port", min_value=FIRST_PORT, max_value=FIRST_PORT + PORTS - 1,
                         size=2, op="inc"),
            STLVmWrFlowVar(fv_name="port", pkt_offset=UDP_SOURCE),
        ])
        # Both MAC addresses are the frame's, not those of TRex's configuration.
        return [STLStream(packet=STLPktBuilder(pkt=Ether(frame), vm=fields),
                          mac_src_override_by_pkt=True,
                          mac_dst_override_mode=True, mode=STLTXCont())]


def register():
    return FaninJob()
