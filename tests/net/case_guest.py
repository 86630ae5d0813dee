# SPDX-License-Identifier: BSD-3-Clause
"""Cases of this list on Debian's own kernel, in a guest (see guest.py): their claims hold there,
too.
"""

import json

from tests.net.guest import Guest
from lab.namespaces import module
from tests.net.support import case, expect, expect_equal

SECONDS = 300
OUTPUT_LINES = 15
DEMO = [*module("lab.demo"), "--json", "--hosts", "2", "--bytes", "1M", "--iters", "2"]


def expect_success(guest, arguments):
    """Runs a program in the guest; returns its output."""
    done = guest.run(arguments)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-OUTPUT_LINES:])
        raise guest.failure(f"{arguments[1]}, on Linux {guest.release}, ended with "
                            f"{done.returncode}:\n{last}\nThe guest was still there")
    return done.stdout


def run_cases(guest, *names):
    print(expect_success(guest, [*module("tests.net.cases"), *names]), end="")


def run_demo(guest, transport):
    result = json.loads(expect_success(guest, [*DEMO, "--transport", transport]))
    expect_equal([result[key] for key in ("ok", "mismatches", "in_network", "transport")],
                 [True, 0, True, transport], f"a demonstration: {result}")


def make_guest(name):
    return Guest(name, SECONDS - 10)


@case(SECONDS, thorough=True)
def hosts_on_udp_sockets_have_exact_sums_on_debians_own_kernel():
    with make_guest("udp") as guest:
        expect(guest.release.startswith("6.1."),
               f"Debian's kernel is {guest.release}: another one than these cases are about")
        run_cases(guest, "whether_packets_leave_one_by_one_depends_on_the_kernel_and_is_told")
        run_demo(guest, "udp")


@case(SECONDS, thorough=True)
def kernel_interfaces_are_ports_on_debians_own_kernel():
    with make_guest("ports") as guest:
        run_cases(guest, "super_frames_of_others_pass_packet_ports_whole",
                  "tcp_leaves_other_ports_as_frames_with_right_checksums",
                  "a_port_follows_what_its_interface_takes", "fragments_pass_packet_ports")
        run_demo(guest, "af_xdp")
