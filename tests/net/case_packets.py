# SPDX-License-Identifier: BSD-3-Clause
"""Bad packets of every kind are counted under their own names and touch no running job; the
dissector decodes good ones.
"""

import random
import re
import shutil
import socket
import struct
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

from tests.net.frames import (ANSWER, CONTRIBUTION, HEADER_LEN, JOIN, JOIN_ACK, LEAVE, MULTICAST,
                              PROBE, PROBE_ACK, QUERY, REFUSED, RESULT, REWRITE_DELIVERY, SPARSE,
                              SPARSE_KNOWN, SPARSE_RESULT, TYPES, WRITE, RawPort, header, job_key,
                              packet, write_pcap)
from tests.net.support import (KIB, MIB, case, dissect, expect, expect_equal, expect_exact,
                               job_entry, reports_of, run, running_lab, start_ranks,
                               wait_for_results, wait_until)
from lab.namespaces import SOURCE_DIR, UDP_PORT, WireLab

FLOATS = struct.pack("<16f", *range(16))


class Liar:
    """Makes packets that are right for one member of one job except for the caller's changes."""

    def __init__(self, lab, job, host, rank):
        self.lab, self.host = lab, host
        self.job = job
        self.fields = {"job": job["id"], "rank": rank}

    def make(self, packet_type, payload=b"", outer=None, **changes):
        fields = {**self.fields, "key": job_key(self.job, packet_type), **changes}
        lower = {"src_mac": self.lab.host_mac(self.host), "src_ip": self.lab.host_ip(self.host),
                 **(outer or {})}
        return packet(header(packet_type, fields.pop("job"), fields.pop("key"), payload, **fields),
                      **lower)

    def contribution(self, payload=FLOATS, outer=None, **changes):
        shape = {"dtype": "f32", "op": "sum", "count": len(payload) // 4}
        return self.make(CONTRIBUTION, payload, outer, **{**shape, **changes})


def send_and_count(lab, port, name, frame):
    """Sends a frame and expects it to raise exactly its own counter."""
    before = lab.drops()
    port.send(frame)
    wait_until(lambda: lab.drops()[name] > before[name], 60, f"a packet to be counted as {name}")
    after = lab.drops()
    # These counters are ignored: the job that runs meanwhile may raise them, and so may the answer
    # of the host's kernel to a refusal for which no process of the host waits.
    aside = {"tx_full", "local_unhandled"} - {name}
    changed = {key: after[key] - before[key] for key in after if after[key] != before[key]
               and key not in aside}
    expect_equal(changed, {name: 1}, f"drop counters that a packet for {name} raised")


def malformed(liar, epoch):
    """Returns (counter, frame) of packets that fail the validation of a single packet."""
    good = liar.contribution(epoch=epoch)
    content = good[42:]
    body = join_body(1, 4, 3474)

    def sent(**lower):
        return packet(content, liar.lab.host_mac(liar.host), liar.lab.host_ip(liar.host), **lower)
    return [
        ("frame_truncated", good[:-20]),
        ("frame_truncated", good[:60]),
        ("ip_header_invalid", sent(version_ihl=0x44)),
        ("ip_header_invalid", sent(version_ihl=0x65)),
        ("ip_options", sent(version_ihl=0x46, options=bytes(4))),
        ("ip_checksum", sent(bad_checksum=0x1000)),
        ("ip_fragment", sent(fragment=0x2000)),
        ("ip_fragment", sent(fragment=0x0010)),
        ("udp_length", sent(udp_len=8 + len(content) - 1)),
        ("header_truncated", packet(content[:HEADER_LEN - 1], liar.lab.host_mac(liar.host),
                                    liar.lab.host_ip(liar.host))),
        ("version_unsupported", liar.contribution(version=1)),
        ("version_unsupported", liar.contribution(version=1)),
        ("version_unsupported", liar.contribution(version=2)),
        ("version_unsupported", liar.contribution(version=4)),
        ("version_unsupported", liar.make(LEAVE, version=2)),
        ("version_unsupported", liar.make(JOIN, body[:23], version=2)),
        ("type_unknown", liar.make(99)),
        ("type_unknown", liar.make(0)),
        ("flags_unknown", liar.contribution(flags=0x8000)),
        ("reserved_nonzero", liar.contribution(root=1)),
        ("reserved_nonzero", liar.contribution(number=1)),
        ("extension_unknown", liar.contribution(extension=1, extension_len32=1)),
        ("dtype_unknown", liar.contribution(dtype=77)),
        ("op_unknown", liar.contribution(op=63)),
        ("dtype_unknown", liar.contribution(dtype=128, op=128)),
        ("dtype_unknown", liar.contribution(dtype=193, op=128)),
        ("op_unknown", liar.contribution(dtype=136, op=12)),
        ("op_unknown", liar.contribution(op=65)),
        ("rank_unknown", liar.contribution(op="copy", root=4096)),
        ("count_invalid", liar.contribution(count=15)),
        ("count_invalid", liar.contribution(dtype=136, op=128, count=len(FLOATS) // 4)),
        ("count_invalid", liar.contribution(count=65535)),
        ("body_invalid", liar.make(JOIN, body[:-1])),
        ("body_invalid", liar.make(LEAVE, b"\0")),
        ("count_invalid", liar.make(QUERY, epoch=epoch)),
        ("count_invalid", liar.make(SPARSE, FLOATS, dtype="f32", op="sum", count=16, epoch=epoch,
                                    members=100)),
        ("count_invalid", liar.make(SPARSE, FLOATS, dtype="f32", op="sum", count=16, epoch=epoch)),
        ("body_invalid", liar.make(ANSWER, bytes(71), epoch=epoch)),
        ("body_invalid", liar.make(PROBE_ACK, bytes(15), epoch=epoch)),
        ("direction_wrong", liar.make(RESULT, FLOATS, dtype="f32", op="sum", count=16,
                                      epoch=epoch)),
        ("direction_wrong", liar.make(ANSWER, bytes(96), epoch=epoch)),
        ("direction_wrong", liar.make(PROBE, epoch=epoch)),
        ("local_unhandled", packet(b"", liar.lab.host_mac(liar.host), liar.lab.host_ip(liar.host),
                                   dst_port=9)),
        ("local_unhandled", packet(bytes(20), liar.lab.host_mac(liar.host),
                                   liar.lab.host_ip(liar.host), protocol=6)),
    ]


def foreign(liar, epoch):
    """Returns (counter, frame) of well-formed packets that no member of the job would send."""
    return [
        ("job_unknown", liar.contribution(job=4711, epoch=epoch)),
        ("rank_unknown", liar.contribution(rank=63, epoch=epoch)),
        ("rank_unknown", liar.contribution(rank=65535, epoch=epoch)),
        ("port_wrong", liar.contribution(rank=(liar.fields["rank"] + 1) % 4, epoch=epoch)),
        ("source_wrong", liar.contribution(epoch=epoch, outer={"src_ip": "10.77.0.99"})),
        ("key_wrong", liar.contribution(key=job_key(liar.job, CONTRIBUTION) ^ 1, epoch=epoch)),
        ("key_wrong", liar.contribution(key=int(liar.job["key"], 16), epoch=epoch)),
        ("key_wrong", liar.contribution(key=job_key(liar.job, RESULT), epoch=epoch)),
        ("key_wrong", liar.contribution(key=0, epoch=epoch)),
        ("epoch_stale", liar.contribution(epoch=epoch + 1000)),
        ("job_unknown", liar.make(QUERY, job=4711, epoch=epoch, number=1)),
        ("rank_unknown", liar.make(QUERY, rank=63, epoch=epoch, number=1)),
        ("key_wrong", liar.make(QUERY, key=job_key(liar.job, QUERY) ^ 1, epoch=epoch, number=1)),
        ("epoch_stale", liar.make(QUERY, epoch=epoch + 1000, number=1)),
    ]


def send_beside_a_job(make_frames):
    """Sends frames from host 1 while a job of four hosts runs; the job has to stay exact."""
    with running_lab(4) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=60)
        wait_for_results(lab, job, 100)
        epoch = job_entry(lab, job)["epoch"]
        with RawPort(lab.host_namespace(1)) as port:
            for name, frame in make_frames(Liar(lab, job, 1, 1), epoch):
                send_and_count(lab, port, name, frame)
        expect_exact(reports_of(lab, ranks), "the job beside bad packets")


@case(120, sanitized=True)
def malformed_packets_are_counted_and_touch_no_job():
    send_beside_a_job(malformed)


@case(120)
def foreign_packets_are_counted_and_touch_no_job():
    send_beside_a_job(foreign)


@case()
def a_member_on_another_port_is_an_impostor():
    with running_lab(3) as lab:
        job = lab.create_job([0, 1])
        impostor = Liar(lab, job, 0, 0)
        with RawPort(lab.host_namespace(2)) as port:
            send_and_count(lab, port, "port_wrong", impostor.contribution(epoch=1))
            send_and_count(lab, port, "port_wrong",
                           impostor.make(JOIN, join_body(1, 2, 3474)))
        expect_equal([member["joined"] for member in job_entry(lab, job)["members"]],
                     [False, False], "joined")


def join_body(nonce, size, mtu, cookie=0, address="0.0.0.0", path=0):
    return struct.pack("<QHHIQ4sB3x", nonce, size, UDP_PORT, mtu, cookie, socket.inet_aton(address),
                       path)


def is_answer(packet_type):
    return lambda frame: (len(frame) >= 42 + HEADER_LEN and frame[12:14] == b"\x08\x00"
                          and frame[23] == 17 and
                          frame[34:36] == UDP_PORT.to_bytes(2, "big") and frame[43] == packet_type)


def join_by_hand(lab, job, port, liar, size, later=b""):
    """
    Joins a member from a raw socket, with the cookie, and returns the epoch of the switch's answer.
    later: bytes that a later version has appended to the body.
    """
    cookie = 0
    for _ in range(2):
        port.send(liar.make(JOIN, join_body(0x1234 + liar.host, size, lab.mtu, cookie) + later))
        answer, _ = port.wait_for(is_answer(JOIN_ACK))
        cookie = struct.unpack_from("<Q", answer, 42 + HEADER_LEN + 36)[0]
    expect_equal(struct.unpack_from("<I", answer, 46)[0], job["id"], "job in the JOIN_ACK")
    return struct.unpack_from("<I", answer, 50)[0]


def refusal_of(port, frame):
    """Sends a frame, and returns the fields of the REFUSED that answers it: version, reason,
    contributions, progress, members and UDP port.
    """
    port.send(frame)
    answer, _ = port.wait_for(is_answer(REFUSED))
    version, reason, contributions = answer[
        42], *struct.unpack_from("<H", answer, 64), *struct.unpack_from("<H", answer, 56)
    progress, members = *struct.unpack_from("<4s", answer, 70), *struct.unpack_from("<Q", answer,
                                                                                    82)
    return version, reason, contributions, socket.inet_ntoa(
        progress), members, struct.unpack_from(">H", answer, 36)[0]


@case()
def a_host_of_the_version_before_is_told_both_versions():
    with running_lab(2) as lab:
        job = lab.create_job()
        liars = [Liar(lab, job, host, host) for host in range(2)]
        with RawPort(lab.host_namespace(0)) as first, RawPort(lab.host_namespace(1)) as second:
            for _ in range(2):
                found = refusal_of(first,
                                   liars[0].make(JOIN, join_body(7, 2, lab.mtu)[:24], version=2,
                                                 outer={"src_port": 40001}))
                expect_equal(found, (2, 8, 3, "0.0.0.0", 7, 40001), "what an older host is told")
            found = refusal_of(second,
                               liars[1].make(JOIN, join_body(8, 2, lab.mtu)[:24], version=2, key=1))
            expect_equal(found[:3], (2, 22, 3), "what an older stranger is told")
            # Behind an address translator the JOIN comes from another address than it states.
            found = refusal_of(first,
                               liars[0].make(JOIN, join_body(7, 2, lab.mtu, address="192.168.0.9")))
            expect_equal(found[:5], (3, 21, 0, lab.host_ip(0), 7),
                         "what a host behind a translator is told")
            line = f"job {job['id']}: refused the host of rank 0 at {lab.host_ip(0)}: its packets have version 2, those of this switch 3"
            wait_until(lambda: line in lab.switch.stderr(), 30, "the line in the log")
            expect_equal(lab.switch.stderr().count("its packets have version"), 1,
                         "lines about older hosts")
            # The job runs all the same.
            for port, liar in ((first, liars[0]), (second, liars[1])):
                join_by_hand(lab, job, port, liar, 2)
            expect(join_by_hand(lab, job, first, liars[0], 2) != 0, "found no run, expected one")


@case()
def contributions_that_do_not_fit_the_job_are_refused():
    with running_lab(2) as lab:
        job = lab.create_job(None, "--payload", 1024, "--slots", 8)
        liars = [Liar(lab, job, host, host) for host in range(2)]
        with RawPort(lab.host_namespace(0)) as first, RawPort(lab.host_namespace(1)) as second:
            send_and_count(lab, first, "job_not_active", liars[0].contribution(epoch=1))
            send_and_count(lab, first, "size_mismatch",
                           liars[0].make(JOIN, join_body(1, 5, lab.mtu)))
            join_by_hand(lab, job, first, liars[0], 2)
            join_by_hand(lab, job, second, liars[1], 2)
            epoch = join_by_hand(lab, job, first, liars[0], 2)
            first.send(liars[0].contribution(epoch=epoch))
            wait_until(lambda: job_entry(lab, job)["stats"]["contributions"] == 1, 60,
                       "the good contribution")
            bad = [
                ("collective_mismatch", second, liars[1].contribution(epoch=epoch, op="max")),
                ("collective_mismatch", second, liars[1].contribution(FLOATS[:32], epoch=epoch)),
                ("payload_too_long", second, liars[1].contribution(bytes(2048), epoch=epoch)),
                ("operation_unsupported", second,
                 liars[1].contribution(epoch=epoch, op="band", block=1)),
                ("operation_unsupported", second,
                 liars[1].contribution(epoch=epoch, op=255, block=1)),
                ("operation_unsupported", second,
                 liars[1].contribution(epoch=epoch, op=128, block=1)),
                ("operation_unsupported", second,
                 liars[1].contribution(epoch=epoch, dtype=128 + 16, op=128, count=len(FLOATS) // 16,
                                       block=1)),
                ("block_out_of_window", second, liars[1].contribution(epoch=epoch, block=8)),
                ("block_out_of_window", second,
                 liars[1].contribution(epoch=epoch, block=0x7fffff00)),
            ]
            for name, port, frame in bad:
                port.arrived()
                send_and_count(lab, port, name, frame)
                port.wait_for(is_answer(REFUSED))
            second.send(liars[1].contribution(epoch=epoch))
            answer, _ = first.wait_for(is_answer(RESULT))
        expect_equal(struct.unpack_from("<16f", answer, 96),
                     tuple(2.0 * value for value in range(16)), "the sum")


@case()
def a_join_may_be_longer_than_this_version_knows_it():
    with running_lab(2) as lab:
        job = lab.create_job()
        with RawPort(lab.host_namespace(0)) as port:
            join_by_hand(lab, job, port, Liar(lab, job, 0, 0), 2, later=b"x")
        wait_until(lambda: [member["joined"]
                            for member in job_entry(lab, job)["members"]] == [True, False], 60,
                   "a member with a body of 25 bytes to be joined")


@case(sanitized=True)
def garbage_does_no_harm():
    random.seed(7)
    with running_lab(2) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=40)
        wait_for_results(lab, job, 100)
        liar = Liar(lab, job, 0, 0)
        good = liar.contribution(epoch=1)
        with RawPort(lab.host_namespace(0)) as port:
            for _ in range(2000):
                frame = bytearray(good[:random.randrange(15, len(good))]
                                  if random.random() < 0.5 else good)
                for _ in range(random.randrange(1, 8)):
                    # The key stays, so the packets get far; the epoch is one that the job does not
                    # have.
                    place = random.choice([index for index in range(12, len(frame))
                                           if not 74 <= index < 82])
                    if 50 <= place < 54:
                        continue
                    frame[place] = random.randrange(256)
                port.send(bytes(frame))
        expect_exact(reports_of(lab, ranks), "the job beside garbage")
        expect(lab.switch.running(), "the switch ended")


def lua_reasons():
    text = (SOURCE_DIR / "wire" / "fanin.lua").read_text()
    table = re.search(r"reason_names = \{(.*?)\n\}", text, re.DOTALL).group(1)
    return re.findall(r'"(\w+)"', table)


def names_in(header_file):
    text = (SOURCE_DIR / "wire" / header_file).read_text()
    return re.findall(r'^\s*X\(\w+, "(\w+)"', text, re.MULTILINE)


def dissected(lab, frames, *fields, display_filter=None, snap_len=65535, types=None):
    path = lab.directory / "capture.pcap"
    write_pcap(path, frames, snap_len)
    arguments = ["-T", "fields"]
    for field in fields:
        arguments += ["-e", field]
    if types is not None:
        arguments += ["-o", f"fanin.types:{types}"]
    if display_filter is not None:
        arguments += ["-Y", display_filter]
    return [line.split("\t") for line in dissect(path, *arguments).splitlines()]


@case()
def the_dissector_knows_every_reason():
    expect_equal(lua_reasons(), names_in("reasons.h"), "reasons in wire/fanin.lua")
    text = (SOURCE_DIR / "wire" / "fanin.lua").read_text()
    for name in names_in("types.h"):
        expect(f'"{name}"' in text, f"wire/fanin.lua does not know {name}")


@case()
def a_capture_of_a_job_is_dissected():
    with running_lab(2, "af_packet", mtu=1500, base=WireLab) as lab:
        # A socket on each end of the link sees the frames that arrive there.
        with RawPort(lab.host_namespace(0)) as down, \
                RawPort(lab.switch_namespace, lab.switch_interface(0)) as up:
            job = lab.create_job(None, "--accumulate", "f32")
            expect_exact(reports_of(lab, start_ranks(lab, job, bytes=16 * KIB)), "the captured job")
            liar = Liar(lab, job, 0, 0)
            down.send(liar.make(JOIN, join_body(1, 9, 1500)))
            wait_until(lambda: lab.drops()["size_mismatch"] == 1, 60, "a refusal")
            frames = up.arrived() + down.arrived()
        rows = dissected(lab, frames, "fanin.type", "fanin.job", "fanin.block", "fanin.dtype",
                         "fanin.op", "fanin.count",
                         "fanin.key", "fanin.reason", "fanin.join.handler", "fanin.join.size",
                         "fanin.element.float",
                         "fanin.join.flags.wide", display_filter="fanin")
        by_type = {}
        for row in rows:
            by_type.setdefault(int(row[0]), []).append(row)
        for packet_type in (CONTRIBUTION, RESULT, JOIN, JOIN_ACK, LEAVE, REFUSED):
            expect(packet_type in by_type,
                   f"no packet of type {packet_type} in the capture, found {sorted(by_type)}")
        # On a busy machine the switch probes a host: without a key, because the host's port may
        # belong to another process by now.
        wrong = [row for row in rows if int(row[1]) != job["id"] or
                 int(row[6], 16) != (0 if int(row[0]) == PROBE else job_key(job, int(row[0])))]
        expect_equal(wrong, [], "packets of another job, or with another key")
        payload = job["payload_bytes"]
        blocks = -(-16 * KIB // payload)
        for packet_type in (CONTRIBUTION, RESULT):
            found = {int(row[2]) for row in by_type[packet_type]}
            expect(found >= set(range(blocks)),
                   f"found blocks {found}, expected 0 to {blocks - 1} among them")
            expect_equal({(row[3], row[4]) for row in by_type[packet_type] if row[5] != "0"},
                         {("11", "1")},
                         "data type and operator")
            expect_equal(max(int(row[5]) for row in by_type[packet_type]), payload // 4, "elements")
            expect(all(row[10] for row in by_type[packet_type] if row[5] != "0"),
                   "elements were not decoded")
        expect_equal({row[8] for row in by_type[JOIN_ACK]}, {"single"}, "handler in JOIN_ACK")
        expect_equal({row[11] for row in by_type[JOIN_ACK]}, {"1"},
                     "accumulation in f32 in JOIN_ACK")
        expect("2" in {row[9] for row in by_type[JOIN]}, "size in JOIN")
        expect("size_mismatch" in {lua_reasons()[int(row[7])] for row in by_type[REFUSED]},
               "reason in REFUSED")
        bad = dissected(lab, frames, "frame.number",
                        display_filter="_ws.malformed || fanin.bad_length || fanin.truncated || "
                                       "fanin.bad_type || fanin.bad_version || fanin.bad_reserved")
        expect_equal(bad, [], "frames that the dissector finds fault with")
        errors = dissected(lab, frames, "_ws.lua.text", display_filter="_ws.lua.error")
        expect_equal(errors, [], "errors of the dissector")


def tagged(packet_type, payload, **changes):
    """Returns a packet with a tag whose nonce is bytes 0 to 15 and whose code is bytes 16 to 31;
    nobody checks them here.
    """
    fields = {"flags": 8, **changes}
    return packet(header(packet_type, 7, 1, payload + bytes(range(32)), **fields),
                  "02:fa:00:00:01:01", "10.77.0.1")


@case()
def tags_are_dissected_behind_the_payload():
    ack = struct.pack("<QHHHH4s16sQIQ80x", 5, 1, 2, 8, 1024, bytes([239, 0, 0, 1]), b"single", 9, 4,
                      0x1122334455667788)
    shape = {"dtype": "f32", "op": "sum"}
    frames = [tagged(CONTRIBUTION, FLOATS, count=16, **shape), tagged(JOIN_ACK, ack),
              tagged(CONTRIBUTION, b"", count=0, **shape), tagged(QUERY, b"", number=1),
              # This JOIN_ACK is of a job without tags.
              packet(header(JOIN_ACK, 7, 1, ack[:44] + bytes(92)), "02:fa:00:00:01:01",
                     "10.77.0.1")]
    short = packet(header(CONTRIBUTION, 7, 1, bytes(31), flags=8, count=0, **shape),
                   "02:fa:00:00:01:01", "10.77.0.1")
    frames = list(enumerate(frames))
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        rows = dissected(place, frames, "fanin.flags.tagged", "fanin.tag.nonce", "fanin.tag.code",
                         "fanin.element.float",
                         "fanin.join.instance", "fanin.join.flags.tagged")
        tag = ["1", bytes(range(16)).hex(), bytes(range(16, 32)).hex()]
        floats = ",".join(str(value) for value in range(16))
        expect_equal(rows, [tag + [floats, "", ""], tag + ["", "0x1122334455667788", "1"],
                            tag + ["", "", ""],
                            tag + ["", "", ""], ["0", "", "", "", "0x0000000000000000", "0"]],
                     "flag, nonce, code, elements, instance and the job's flag")
        faults = "_ws.malformed || _ws.lua.error || fanin.bad_length || fanin.bad_flags || fanin.bad_tag"
        expect_equal(dissected(place, frames, "frame.number", display_filter=faults), [],
                     "frames with faults")
        expect_equal(dissected(place, [(0, short)], "frame.number", display_filter="fanin.bad_tag"),
                     [["1"]],
                     "a frame that is too short for its tag")
        text = dissected(place, frames, "_ws.col.Info")
        expect("tagged" in text[1][0] and "tagged" not in text[4][0],
               f"summaries of JOIN_ACK: {text[1]}, {text[4]}")


FAULTS = ("_ws.lua.error", "fanin.truncated", "fanin.bad_version", "fanin.bad_type",
          "fanin.bad_flags",
          "fanin.bad_reserved", "fanin.bad_length", "fanin.bad_tag", "fanin.bad_job",
          "fanin.bad_rank", "fanin.bad_dtype",
          "fanin.bad_op", "fanin.bad_extension", "fanin.bad_state", "fanin.bad_job_flags",
          "fanin.bad_handler")


def by_hand(packet_type, payload=b"", job=7, **changes):
    return packet(header(packet_type, job, 1, payload, **changes), "02:fa:00:00:01:01", "10.77.0.1")


def ack_body(state=1, size=2, handler=b"single", flags=4):
    return struct.pack("<QHHHH4s16sQIQII64xHB5xQ", 5, state, size, 8, 1024, bytes([239, 0, 0, 1]),
                       handler, 9, flags, 3, 16, 1, 8, 1,
                       1)


def faults_of(place, frames):
    """Returns the names of the faults that the dissector finds in each frame."""
    rows = dissected(place, list(enumerate(frames)), *FAULTS, "frame.number")
    return [{fault.removeprefix("fanin.bad_") for fault, value in zip(FAULTS, row) if value}
            for row in rows]


@case()
def the_dissector_flags_what_is_unknown():
    shape = {"dtype": "f32", "op": "sum", "count": 16}
    frames = [
        (set(), by_hand(JOIN_ACK, ack_body(), rank=1)),
        (set(), by_hand(CONTRIBUTION, FLOATS, rank=1, **shape)),
        ({"op"}, by_hand(CONTRIBUTION, FLOATS, **{**shape, "op": 63})),
        ({"op"}, by_hand(CONTRIBUTION, FLOATS, **{**shape, "op": 65})),
        ({"op"}, by_hand(CONTRIBUTION, FLOATS, **{**shape, "op": 0})),
        (set(), by_hand(CONTRIBUTION, FLOATS, **{**shape, "op": "copy", "root": 1})),
        ({"reserved"}, by_hand(CONTRIBUTION, FLOATS, root=1, **shape)),
        ({"dtype"}, by_hand(CONTRIBUTION, FLOATS, **{**shape, "dtype": 77})),
        ({"extension"}, by_hand(CONTRIBUTION, FLOATS, extension=1, **shape)),
        ({"extension"}, by_hand(CONTRIBUTION, FLOATS, extension_len32=1, **shape)),
        # The job has two ranks, as its JOIN_ACK said; other jobs may have as many ranks as any job.
        ({"rank"}, by_hand(CONTRIBUTION, FLOATS, rank=2, **shape)),
        ({"rank"}, by_hand(QUERY, rank=2, number=1)),
        (set(), by_hand(CONTRIBUTION, FLOATS, job=8, rank=4095, **shape)),
        ({"rank"}, by_hand(CONTRIBUTION, FLOATS, job=8, rank=4096, **shape)),
        ({"rank"}, by_hand(CONTRIBUTION, FLOATS, rank=1, **{**shape, "op": "copy", "root": 2})),
        ({"job"}, by_hand(LEAVE, job=0)),
        (set(), by_hand(LEAVE, job=65535)),
        ({"job"}, by_hand(LEAVE, job=65536)),
        ({"state"}, by_hand(JOIN_ACK, ack_body(state=3))),
        ({"job_flags"}, by_hand(JOIN_ACK, ack_body(flags=16))),
        ({"handler"}, by_hand(JOIN_ACK, ack_body(handler=b"sixteen_letters_"))),
        (set(), by_hand(JOIN_ACK, ack_body(handler=b"fifteen_letters"))),
        ({"state"}, by_hand(ANSWER, bytes(88), count=4, number=1)),
        # A later version's bodies may be longer.
        (set(), by_hand(JOIN, join_body(1, 2, 1500) + b"x")),
        ({"length"}, by_hand(JOIN, join_body(1, 2, 1500)[:-1])),
        # The packets of joining are known in the form of the version before, too.
        (set(), by_hand(JOIN, join_body(1, 2, 1500)[:24], version=2)),
        ({"length"}, by_hand(JOIN, join_body(1, 2, 1500)[:23], version=2)),
        (set(), by_hand(REFUSED, version=2, count=8, contributions=3)),
        ({"version"}, by_hand(LEAVE, version=2)),
        ({"version"}, by_hand(JOIN, join_body(1, 2, 1500), version=4)),
        (set(), by_hand(JOIN_ACK, ack_body() + b"later")),
        ({"length"}, by_hand(CONTRIBUTION, FLOATS[:-1], **shape)),
        ({"length"}, by_hand(LEAVE, b"x")),
    ]
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        found = faults_of(place, [frame for _, frame in frames])
        for number, (expected, _) in enumerate(frames):
            expect_equal(found[number], expected, f"faults of frame {number + 1}")
        names = dissected(place, list(enumerate(frame for _, frame in frames)),
                          "fanin.join.handler", "fanin.later",
                          display_filter="fanin.join.handler || fanin.later")
        expect_equal(names, [["single", ""], ["single", ""], ["single", ""],
                             ["sixteen_letters_", ""],
                             ["fifteen_letters", ""], ["", "78"], ["single", b"later".hex()]],
                     "names and later fields")


def set_bytes(ranks, n_ranks):
    """Returns a set of ranks as a body has it in a job of so many ranks."""
    return sum(1 << rank for rank in ranks).to_bytes((n_ranks + 63) // 64 * 8, "little")


@case()
def sets_of_ranks_are_dissected():
    fixed = ack_body(size=1000)[:136]
    joined = set_bytes([0, *range(64, 128), 999], 1000)
    missing, gone = set_bytes([3, 70, *range(900, 904)], 1000), set_bytes([70, 998], 1000)
    answer = bytes(64) + struct.pack("<HB5x", 1, 2)
    frames = [by_hand(JOIN_ACK, fixed + joined),
              by_hand(ANSWER, answer + missing + gone, count=1, number=1),
              by_hand(PROBE_ACK, set_bytes([65], 1000) + set_bytes([64], 1000) + b"later")]
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        expect_equal(faults_of(place, frames), [set()] * 3, "faults")
        rows = dissected(place, list(enumerate(frames)), "_ws.col.Info", "fanin.join.joined",
                         "fanin.answer.missing",
                         "fanin.probe_ack.silent", "fanin.later")
        expect(rows[1][0].endswith("late 3 900-903, ended 70, silent 998"),
               f"the summary of an ANSWER: {rows[1][0]}")
        expect(rows[2][0].endswith("ended 65, silent 64"),
               f"the summary of a PROBE_ACK: {rows[2][0]}")
        expect_equal([row[1:] for row in rows],
                     [[joined.hex(), "", "", ""], ["", missing.hex(), "", ""],
                      ["", "", set_bytes([64], 1000).hex(), b"later".hex()]],
                     "sets, and what is behind them")


def shard_members(span, number, total, form):
    return form << 48 | total << 40 | number << 32 | span


@case()
def shards_are_dissected():
    listed = struct.pack("<2i2H", 7, -8, 900, 3)
    long_list = struct.pack("<2i2I", 7, -8, 70000, 3)
    mapped = struct.pack("<2iQI", 7, -8, 1 << 63 | 2, 128)
    shape = {"dtype": "i32", "op": "sum", "count": 2}
    sets = set_bytes([], 64)
    answer = bytes(64) + struct.pack("<HB5x", 1, 0) + sets + sets + struct.pack("<Q", 0x29)
    frames = [by_hand(SPARSE, listed, members=shard_members(1000, 5, 6, 0), **shape),
              by_hand(SPARSE, long_list, members=shard_members(70001, 0, 0, 0), **shape),
              by_hand(SPARSE_RESULT, mapped, members=shard_members(1000, 1, 0, 1), **shape),
              by_hand(QUERY, struct.pack("<Q", 0x31), number=1),
              by_hand(ANSWER, answer, number=1),
              by_hand(SPARSE_KNOWN, listed, members=1 << 56 | shard_members(1000, 5, 6, 0),
                      **shape)]
    wrong = [by_hand(SPARSE, listed[:-1], members=shard_members(1000, 0, 1, 0), **shape),
             by_hand(SPARSE, mapped[:-8], members=shard_members(1000, 0, 1, 1), **shape),
             by_hand(SPARSE, struct.pack("<2iQI", 7, -8, 1, 0),
                     members=shard_members(1000, 0, 1, 1), **shape),
             by_hand(SPARSE, listed, members=shard_members(1000, 0, 1, 2), **shape)]
    reserved = by_hand(SPARSE, listed, members=1 << 57 | shard_members(1000, 0, 1, 0), **shape)
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        rows = dissected(place, list(enumerate(frames)), "fanin.shard.span", "fanin.shard.number",
                         "fanin.shard.total",
                         "fanin.shard.form", "fanin.element.int", "fanin.shard.index",
                         "fanin.shards")
        expect_equal(rows[:3], [["1000", "5", "6", "0", "7,-8", "900,3", ""],
                                ["70001", "0", "0", "0", "7,-8", "70000,3", ""],
                                ["1000", "1", "0", "1", "7,-8", "129,191", ""]], "shards")
        expect_equal([int(row[6], 16) for row in rows[3:5]], [0x31, 0x29], "bitmaps of shards")
        whole = dissected(place, list(enumerate(frames)), "fanin.shard.whole")
        expect_equal([row[0] for row in whole[:3] + whole[5:]], ["0", "0", "0", "1"],
                     "shards of blocks that are whole")
        expect_equal(faults_of(place, [reserved]), [{"reserved"}], "a bit that means nothing")
        expect_equal(faults_of(place, frames), [set()] * len(frames), "faults")
        expect_equal(faults_of(place, wrong), [{"length"}] * len(wrong), "faults of wrong shards")
        text = dissected(place, list(enumerate(frames)), "_ws.col.Info")
        expect(text[0][0].endswith("i32 sum x2 of 1000, shard 5 of 6"),
               f"the summary of a shard: {text[0][0]}")


@case()
def writes_to_a_region_are_dissected_with_their_address():
    frames = [by_hand(WRITE, b"abc", members=0x1000, count=1),
              by_hand(REWRITE_DELIVERY, b"abc", members=0x2000, number=1),
              by_hand(MULTICAST, b"abc", members=3)]
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        rows = dissected(place, list(enumerate(frames)), "fanin.address", "fanin.members")
        expect_equal([[int(field, 16) if field else None for field in row] for row in rows],
                     [[0x1000, None], [0x2000, None], [None, 3]],
                     "addresses and members")


def min_of(row):
    """Returns the smallest payload and shape that a packet's type asks for."""
    if row.payload == "elements":
        return {"payload": FLOATS, "dtype": "f32", "op": "sum", "count": 16}
    if row.payload == "shard":
        return {"payload": b"", "dtype": "f32", "op": "sum", "members": 100}
    # A JOIN_ACK of zeros would belong to a job without ranks.
    return {"payload": ack_body()[:row.body_len] if row.code == JOIN_ACK else bytes(row.body_len)}


@case()
def the_dissector_knows_every_type_of_packet():
    frames = [by_hand(row.code, number=int(row.number == "nonzero"), **min_of(row))
              for row in TYPES]
    frames += [by_hand(200, FLOATS, number=1), by_hand(99)]
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        rows = dissected(place, list(enumerate(frames)), "fanin.type", "fanin.direction",
                         "fanin.payload", "_ws.col.Info")
        expect_equal(faults_of(place, frames), [set()] * len(TYPES) + [{"type"}] * 2,
                     "faults of a packet of each type")
        # One byte less than the body has.
        shorter = [by_hand(row.code, min_of(row)["payload"][:-1]) for row in TYPES
                   if row.payload == "body"]
        expect_equal(faults_of(place, shorter), [{"length"}] * len(shorter),
                     "faults of bodies that are too short")
        numbered = [by_hand(row.code, number=1, **min_of(row)) for row in TYPES]
        expected = [{"reserved"} if row.number == "zero" else set() for row in TYPES]
        expect_equal(faults_of(place, numbered), expected, "faults of packets with a number")
    expect_equal([row[:2] for row in rows],
                 [[str(row.code), row.direction] for row in TYPES] + [["200", ""], ["99", ""]],
                 "types and directions")
    for found, row in zip(rows, TYPES):
        expect(found[3].startswith(f"{row.name} job 7"),
               f"found {found[3]!r}, expected a summary of {row.name}")
    expect(rows[-2][3].startswith("type 200 (not of this version) job 7"),
           f"the summary of an unknown type: {rows[-2][3]!r}")
    expect_equal(rows[-2][2], FLOATS.hex(), "the payload of an unknown type")


@case()
def the_dissector_is_told_of_other_types():
    types = "192 ACKED_ACK up, 200 OTHER down elements,255 LAST up"
    elements = {"dtype": "f32", "op": "sum", "count": 16}
    frames = list(enumerate([by_hand(192), by_hand(200, FLOATS, block=3, **elements),
                             by_hand(255, b"any", number=9), by_hand(193)]))
    fields = ("fanin.type", "fanin.direction", "fanin.payload", "fanin.element.float",
              "fanin.bad_type", "_ws.col.Info")
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        told = dissected(place, frames, *fields, types=types)
        faults = dissected(place, frames, "frame.number", types=types,
                           display_filter=" || ".join(("_ws.malformed", *FAULTS)))
        # Rows that can't be read, and codes that are not free, change nothing.
        odd = dissected(place, frames, *fields,
                        types="1 MINE down,192 LOWER sideways,193,300 X up,200 b down")
        untold = dissected(place, frames, *fields)
    expect_equal([row[:2] for row in told],
                 [["192", "up"], ["200", "down"], ["255", "up"], ["193", ""]],
                 "types and directions")
    expect_equal(told[1][3], ",".join(str(value) for value in range(16)),
                 "elements of a type that is told to have some")
    expect_equal(told[2][2], b"any".hex(), "the payload of one that is not")
    expect_equal(faults, [["4"]], "frames with faults, one of them of an undeclared type")
    for row, start in zip(told,
                          ("ACKED_ACK job 7", "OTHER job 7 block 3 f32 sum x16", "LAST job 7",
                           "type 193 (not of this version)")):
        expect(row[5].startswith(start), f"a summary: found {row[5]!r}, expected {start!r}")
    expect_equal(odd, untold, "what the dissector shows if the types can't be read")


MADE_OF_PACKETS = ("wire/fanin.lua", "docs/protocol.md")


def make_tables(root, *options):
    """Runs wire/packets.py on a source tree. Returns its exit status and what it prints."""
    result = run([sys.executable, SOURCE_DIR / "wire" / "packets.py", "--root", root, *options],
                 check=False)
    return result.returncode, result.stdout + result.stderr


@case()
def the_tables_of_packet_types_are_up_to_date():
    expect_equal(make_tables(SOURCE_DIR, "--check"), (0, ""),
                 "wire/packets.py --check; what ./dev fmt mends")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for name in ("wire/packets.h", "wire/wire.h", *MADE_OF_PACKETS):
            (root / name).parent.mkdir(exist_ok=True)
            shutil.copy(SOURCE_DIR / name, root / name)
        rows = root / "wire" / "packets.h"
        text = rows.read_text()
        before = [(root / name).read_text() for name in MADE_OF_PACKETS]
        rows.write_text(text.replace("X(QUERY, 10, UP, BLOCK, DATA,",
                                     "X(QUERY, 77, DOWN, BLOCK, BODY(join),"))
        status, told = make_tables(root, "--check")
        expect(status == 1 and all(name in told for name in MADE_OF_PACKETS),
               f"a changed row: status {status}, {told}")
        expect_equal([(root / name).read_text() for name in MADE_OF_PACKETS], before,
                     "tables after --check")
        expect_equal(make_tables(root)[0], 0, "status of writing the tables")
        expect_equal(make_tables(root, "--check"), (0, ""), "wire/packets.py --check behind that")
        expect('[77] = { name = "QUERY", direction = "down", body_len = 32,' in (
            root / "wire" / "fanin.lua").read_text(),
               "the dissector has not got the changed row")
        expect("| 77 | QUERY | down | block | 32 bytes or more |" in (root / "docs"
                                                                      / "protocol.md").read_text(),
               "docs/protocol.md has not got the changed row")
        rows.write_text(text)
        make_tables(root)
        expect_equal([(root / name).read_text() for name in MADE_OF_PACKETS], before,
                     "tables of the old rows")
        # wire/packets.py reports rows that can't be read, and writes nothing.
        n_rows = len(re.findall(r"^\s*X\(", text, re.MULTILINE))
        expect(n_rows >= 22, f"{n_rows} rows of packet types")
        for old, new, complaint in (("X(QUERY, 10, UP,", "X(QUERY, 10, SIDEWAYS,",
                                     f"{n_rows} rows, of which {n_rows - 1}"),
                                    ("BODY(join)", "BODY(nothing_like_it)", "static_assert")):
            rows.write_text(text.replace(old, new))
            status, told = make_tables(root)
            expect(status == 2 and complaint in told,
                   f"rows that can't be read: status {status}, {told}")
        rows.write_text(text)
        (root / "wire" / "fanin.lua").write_text(before[0].replace("-- end packet types",
                                                                   "-- gone"))
        status, told = make_tables(root)
        expect(status == 2 and "fanin.lua" in told, f"a missing mark: status {status}, {told}")


@case(long=True)
def what_a_capture_cut_off_is_no_fault():
    shape = {"dtype": "f32", "op": "sum", "count": 16}
    frames = list(enumerate([by_hand(CONTRIBUTION, FLOATS, **shape), by_hand(JOIN_ACK, ack_body()),
                             tagged(CONTRIBUTION, FLOATS, **shape), by_hand(QUERY, number=1)]))
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        # Cut off within the Ethernet, UDP and Fanin headers; after all of these; in the payload; in
        # the tag.
        for snap_len in (42, 44, 60, 96, 96 + 17, 96 + 64 + 5):
            faults = dissected(place, frames, "frame.number",
                               display_filter=" || ".join(("_ws.malformed", *FAULTS)),
                               snap_len=snap_len)
            expect_equal(faults, [], f"frames cut off at {snap_len} bytes that the dissector finds "
                                     "fault with")
            snapped = dissected(place, frames, "frame.number", display_filter="fanin.snapped",
                                snap_len=snap_len)
            expected = [[str(number + 1)] for number, frame in frames if len(frame) > snap_len > 42]
            expect_equal(snapped, expected,
                         f"frames that are said to be cut off at {snap_len} bytes")
        rows = dissected(place, frames, "fanin.job", "fanin.element.float", snap_len=96 + 17)
        expect_equal(rows, [["7", "0,1,2,3"], ["7", ""], ["7", "0,1,2,3"], ["7", ""]],
                     "job, and elements that are there")
        rows = dissected(place, frames, "fanin.type", "fanin.job", snap_len=60)
        expect_equal(rows, [["1", "7"], ["6", "7"], ["1", "7"], ["10", "7"]],
                     "type and job of half a header")


@case()
def small_floats_are_shown_as_numbers():
    values = [0.0, 1.0, -2.0, 0.5, 65504.0, 2.0 ** -24, -2.0 ** -14, float("inf"), float("-inf")]
    halves = struct.pack(f"<{len(values)}e", *values)
    # bf16 is the upper half of f32.
    brains = [1.0, -2.5, 2.0 ** 127, 2.0 ** -133, float("inf")]
    upper = b"".join(struct.pack("<f", value)[2:] for value in brains)
    frames = [by_hand(CONTRIBUTION, halves, dtype=9, op="sum", count=len(values)),
              by_hand(CONTRIBUTION, upper, dtype=10, op="sum", count=len(brains)),
              by_hand(CONTRIBUTION, b"\x01\x7e", dtype=9, op="sum", count=1)]
    with tempfile.TemporaryDirectory() as directory:
        place = SimpleNamespace(directory=Path(directory))
        rows = dissected(place, list(enumerate(frames)), "fanin.element.float")
    # The dissector shows fifteen digits.
    for row, expected, name in ((rows[0], values, "f16"), (rows[1], brains, "bf16")):
        expect_equal(row[0].split(","), [f"{value:.15g}" for value in expected],
                     f"elements of {name}")
    expect("nan" in rows[2][0].lower(), f"found {rows[2]}, expected what is no number")


@case()
def a_capture_of_a_broadcast_shows_who_brings_no_data():
    with running_lab(2, "af_packet", mtu=1500, base=WireLab) as lab:
        with RawPort(lab.switch_namespace, lab.switch_interface(0)) as root, \
                RawPort(lab.switch_namespace, lab.switch_interface(1)) as other:
            ranks = start_ranks(lab, lab.create_job(), bytes=4 * KIB, collective="broadcast",
                                dtype="i32")
            expect_exact(reports_of(lab, ranks), "the captured broadcast")
            frames = root.arrived() + other.arrived()
        found = {tuple(row) for row in dissected(lab, frames, "fanin.rank", "fanin.flags.empty",
                                                 "fanin.op", "fanin.root",
                                                 display_filter=f"fanin.type == {CONTRIBUTION} && "
                                                                "fanin.count > 0")}
        expect_equal(found, {("0", "0", "64", "0"), ("1", "1", "64", "0")},
                     "rank, empty, operator and root of the contributions")
        text = dissected(lab, frames, "_ws.col.Info", display_filter="fanin.flags.empty == 1")
        expect("copy of rank 0" in text[0][0] and "(empty)" in text[0][0], f"a summary: {text[0]}")
        bad = dissected(lab, frames, "frame.number",
                        display_filter="_ws.malformed || fanin.bad_length || fanin.bad_flags")
        expect_equal(bad, [], "frames that the dissector finds fault with")
