# SPDX-License-Identifier: BSD-3-Clause
"""Keys of jobs come from files, standard input and the environment, and keys on a command line
don't stay visible there.
"""

import os
import socket
import subprocess
from pathlib import Path

from tests.net.support import (KIB, case, expect, expect_equal, expect_exact, job_entry, program,
                               reports_of, running_lab, wait_for_results, wait_until)
from lab.namespaces import SWITCH_IP, WireLab

from lab.bench.gathered import Gathered

KEY = "0x00c0ffee5ec2e75a"


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def key_file(lab, name, text, mode=0o600):
    path = lab.directory / name
    path.touch()
    path.chmod(mode)
    path.write_text(text)
    return path


def expect_hidden(lab, process, name):
    """Expects the process to be the running program, without the key on its command line."""
    shown = command_line(process.popen.pid)
    expect(name in shown, f"found the command line '{shown}', expected one of {name}")
    expect(KEY[2:].lstrip("0") not in shown, f"the key is in the command line: {shown}")


@case()
def no_key_stays_on_a_command_line():
    with running_lab(2, "af_packet") as lab:
        job = lab.create_job(None, "--key", KEY)
        expect_equal(job["key"], KEY, "key of the job")
        ranks = [lab.spawn_perf(host, job, host, 2, bytes=64 * KIB, iters=100000,
                                transport="af_packet") for host in range(2)]
        wait_for_results(lab, job, 100)
        for rank in ranks:
            expect_hidden(lab, rank, "fanin-perf")
            rank.stop()
        lab.ctl("jobs", "destroy", job["id"])
        job = lab.create_job(None, "--key", KEY)
        generator = Gathered(lab).spawn_pktgen(job=f"{job['id']}:{KEY}", seconds=60)
        wait_for_results(lab, job, 100)
        expect_hidden(lab, generator, "fanin-pktgen")
        generator.stop()
        # faninctl waits for an answer that does not come.
        path = lab.directory / "silent.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(60)
            process = subprocess.Popen([program("faninctl"), "--socket", str(path), "jobs",
                                        "create", f"--key={KEY}", "--member",
                                        "h0:10.77.0.1"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            try:
                connection = listener.accept()[0]
                shown = command_line(process.pid)
                connection.close()
            finally:
                process.kill()
                process.wait()
        expect("--key=xx" in shown,
               f"faninctl's command line: found '{shown}', expected the key overwritten")


@case()
def keys_come_from_files_standard_input_and_the_environment():
    with running_lab(3, "af_packet", base=WireLab) as lab:
        good = key_file(lab, "job.key", f"{KEY}\n")
        job = lab.create_job(None, "--key-file", good)
        expect_equal(job["key"], KEY, "key of the job")

        def perf(rank, *arguments, before=()):
            return lab.spawn(rank, [*before, program("fanin-perf"), "--switch", SWITCH_IP, "--job",
                                    job["id"], "--rank", rank,
                                    "--size", 3, "--json", "--check", "--bytes", 64 * KIB,
                                    "--transport", "af_packet",
                                    *arguments], "perf")

        def all_three():
            return [perf(0, "--key-file", good),
                    perf(1, "--key-file", "-", before=["sh", "-c", f'"$0" "$@" < {good}']),
                    perf(2, before=["env", f"FANIN_KEY={KEY}"])]

        reports = reports_of(lab, all_three())
        expect_exact(reports, "keys from three places")
        for text, mode, words in ((f"{KEY}\n", 0o604,
                                   "found the mode 0604, expected no access for others: chmod o="),
                                  ("c0ffee\n", 0o600,
                                   "expected a line with 0x and 1 to 16 hexadecimal digits"),
                                  (f"{KEY}0\n", 0o600, "expected a line with 0x"),
                                  ("", 0o600, "expected a line with 0x")):
            path = key_file(lab, "wrong.key", text, mode)
            process = perf(0, "--key-file", path)
            process.wait(60)
            expect_equal(process.popen.returncode, 2, f"exit status with {text!r}, {mode:o}")
            expect(words in process.stderr(), f"'{process.stderr()}' does not say '{words}'")
        for arguments, before, words in (((), ["env", "FANIN_KEY=17"],
                                          "FANIN_KEY: expected 0x and 1 to 16 hexadecimal digits"),
                                         ((), [],
                                          "--key-file is missing, or FANIN_KEY in the environment"),
                                         (("--key-file", "/nonexistent"), [],
                                          "/nonexistent: cannot open"),
                                         (("--key", KEY, "--key-file", good), [],
                                          "two ways to say the key")):
            process = perf(0, *arguments, before=before)
            process.wait(60)
            expect_equal(process.popen.returncode, 2, f"exit status with {arguments}")
            expect(words in process.stderr(), f"'{process.stderr()}' does not say '{words}'")

        gathered = Gathered(lab)
        for options in ({"key_file": good}, {}):
            if not options:
                os.environ["FANIN_KEY"] = KEY
            try:
                process = gathered.spawn_pktgen(job=job["id"], blocks=100, json=True, **options)
            finally:
                os.environ.pop("FANIN_KEY", None)
            process.wait(60)
            expect_equal(process.popen.returncode, 0,
                         f"exit status of fanin-pktgen ({process.stderr().strip()[-300:]})")
        wait_until(lambda: not any(member["joined"] for member in job_entry(lab, job)["members"]),
                   60, "all to leave")
