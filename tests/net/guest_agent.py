# SPDX-License-Identifier: BSD-3-Clause
"""Runs in a guest (see guest.py) and starts what is asked for, one program after the other. On the
virtio-serial port that its first argument names comes a JSON object per line for each, and one goes
back with its exit status and output. The first line says that it is there."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLEANUP_SECONDS = 30  # from SIGTERM to SIGKILL


def open_port(name):
    """
    The port's device. udev, which would name it, does not run here, and would also have known what
    stands behind /dev/net/tun.
    """
    subprocess.run(["modprobe", "-a", "virtio_console", "tun"], check=True)
    while True:
        for path in Path("/sys/class/virtio-ports").glob("*/name"):
            if path.read_text().strip() == name:
                return open(f"/dev/{path.parent.name}", "r+b", buffering=0)
        time.sleep(0.01)


def end(process):
    for signum, seconds in ((signal.SIGTERM, CLEANUP_SECONDS), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def run(arguments, seconds):
    """
    What becomes of a program. Its output goes to files: what it leaves behind may hold them open.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       cwd="/", start_new_session=True)
        except OSError as error:
            return {"status": 127, "stdout": "", "stderr": f"{arguments[0]}: {error.strerror}\n"}
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            end(process)
            status = None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return {"status": status, "stdout": texts[0], "stderr": texts[1]}


def main():
    os.environ.update({"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                       "PYTHONDONTWRITEBYTECODE": "1"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with open_port(sys.argv[1]) as port:
        def answer(what):
            data = json.dumps(what).encode() + b"\n"
            while data:
                data = data[port.write(data):]
        answer({})
        for line in port:
            answer(run(**json.loads(line)))


main()
