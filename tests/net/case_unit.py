# SPDX-License-Identifier: BSD-3-Clause
"""The switch does all its work within its systemd unit: system calls, capabilities and files'
modes.
"""

import stat
import sys
from pathlib import Path

from tests.net.support import (MIB, Lab, LabError, case, expect, expect_equal, program, run,
                               run_exact_job, running_lab)
from lab.namespaces import SOURCE_DIR

UNIT = SOURCE_DIR / "packaging" / "systemd" / "fanin-switch.service"
RESTRICTED = Path(__file__).with_name("restricted.py")


class UnitLab(Lab):
    """The switch runs under its unit's restrictions, or under the same with other words."""

    changed = ("", "")

    def _spawn(self, namespace, name, arguments, user=None):
        if name == "switch":
            unit = self.directory / "fanin-switch.service"
            unit.write_text(UNIT.read_text().replace(*self.changed))
            arguments = [sys.executable, RESTRICTED, unit, *arguments]
        return super()._spawn(namespace, name, arguments, user)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def works_under_its_unit(transport, **config):
    token_options = {"metrics": {"listen": "127.0.0.1:9464"},
                     "memory": {"megabytes": 256, **config}}
    with running_lab(3, transport, base=UnitLab, config=token_options) as lab:
        for handler in ("single", "multi", "tree"):
            run_exact_job(lab, f"{handler} under the unit", handler=handler, bytes=MIB)
        for verb in (["ports"], ["stats"], ["jobs"], ["drops"], ["routes"]):
            lab.ctl(*verb)
        expect_equal(oct(mode(lab.socket_path)), "0o660", "mode of the control socket")
        if transport == "memif":
            expect_equal(oct(mode(lab.memif_path)), "0o660", "mode of the memif socket")
        expect_equal(lab.switch.stop(), 0, f"exit status ({lab.switch.last_words()})")


@case()
def a_switch_with_af_xdp_works_under_its_unit():
    works_under_its_unit("af_xdp", hugepages="never")


@case()
def a_switch_with_packet_sockets_works_under_its_unit():
    works_under_its_unit("af_packet", hugepages="never")


@case()
def a_switch_with_memif_and_hugepages_works_under_its_unit():
    works_under_its_unit("memif", hugepages="auto")


@case()
def what_a_unit_takes_away_is_missed():
    """The cases above would notice a missing right: without bpf() or the packet sockets the switch
    does not start.
    """
    text = UNIT.read_text()
    for old, new, transport in (("@system-service bpf", "@system-service", "af_xdp"),
                                (" AF_PACKET", "", "af_packet")):
        expect(old in text, f"the unit does not say {old}")
        with UnitLab(1, transport) as lab:
            lab.changed = (old, new)
            try:
                lab.start_switch()
            except LabError:
                continue
            expect(False, f"the switch started without {old}")


@case()
def the_unit_leaves_little_to_attack():
    with Lab(1, "af_packet") as lab:
        path = lab.directory / "fanin-switch.service"
        path.write_text(UNIT.read_text().replace("@sbindir@/fanin-switch", program("fanin-switch")))
        done = run(["systemd-analyze", "security", "--offline=true", "--threshold=45", "--no-pager",
                    path], check=False)
        last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
        expect_equal(done.returncode, 0,
                     f"exit status of systemd-analyze security, which says: {last}")


@case()
def the_programs_are_built_hardened():
    """The programs are position-independent, resolve everything at start, and detect overruns of
    the stack and of buffers.
    """
    for name in ("fanin-switch", "fanin-manager", "fanin-server", "faninctl", "fanin-perf",
                 "fanin-pktgen"):
        flags = run(["readelf", "--wide", "--dynamic", program(name)]).stdout
        expect("NOW" in flags and "PIE" in flags, f"the dynamic flags of {name}:\n{flags}")
        expect("GNU_RELRO" in run(["readelf", "--wide", "--program-headers", program(name)]).stdout,
               f"{name} has no RELRO")
        symbols = run(["readelf", "--wide", "--dyn-syms", program(name)]).stdout
        expect("__stack_chk_fail" in symbols, f"{name} is without stack protector")
        expect("__snprintf_chk" in symbols, f"{name} is without _FORTIFY_SOURCE")
