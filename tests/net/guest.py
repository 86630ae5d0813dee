#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Guests: this machine's programs on Debian's own kernel, in a virtual machine that QEMU emulates.

A guest's root is this machine's, read-only, below a file system in the guest's memory: programs and
libraries are those of this machine, and what the guest writes goes with it. Its kernel is the
package that linux-image-amd64 stands for: it is unpacked in build/guest/ when the first guest is
made, and installed nowhere. CPUs are emulated (TCG), also where KVM is there: guests are the same
on every machine, and slower than it by far.

usage: guest.py [--memory MIB] [--cpus N] [--device QEMU_DEVICE]... [--append WORDS]
                [--seconds N] COMMAND [ARGUMENT]...
       runs a command as root in a guest of its own, and ends with its exit status
"""

import argparse
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.namespaces import (BUILD_DIR, PATIENCE, SOURCE_DIR, Interrupted, LabError, die_with_parent,
                            remove_leftovers, report_interruption, run)

DIRECTORY = SOURCE_DIR / "build" / "guest"  # the kernel, and consoles of guests that failed
PACKAGE = "linux-image-amd64"
AGENT = Path(__file__).resolve().parent / "guest_agent.py"
QEMU = "qemu-system-x86_64"
MEMORY_MIB = 2048
# A guest with one CPU has a clock of its own, by which each instruction takes 2 ns: on a machine
# that is busy it is not late for anything. One with several has this machine's clock, as others on
# its links have.
ONE_CPU = ["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=on"]
SEVERAL_CPUS = ["-accel", "tcg,thread=multi"]
# Without what protects against others, who aren't there: page tables that change with each system
# call cost most.
CHEAPER = "mitigations=off init_on_alloc=0"
SECONDS = 300
CONSOLE_LINES = 15
ROOT_TAG = "root"
PORT = "agent"  # of virtio-serial: see guest_agent.py
# What the root needs, before which no other module can be loaded.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")

# Process 1 of a guest. It also takes over and ends what lost its parent.
INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
# The console has the command's own words.
trap 'poweroff -f' EXIT
set -e
mount -t devtmpfs devtmpfs /dev
for module in {modules}; do insmod /modules/$module; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro {tag} /lower
mount -t tmpfs -o size=75% tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
mount --move /dev /root/dev
mkdir /root/dev/pts /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
for directory in dev/shm tmp run; do mount -t tmpfs -o mode=1777 tmpfs /root/$directory; done
# Where one of these hides them.
for directory in {directories}; do
	[ -e /root$directory ] && continue
	mkdir -p /root$directory
	mount --bind /lower$directory /root$directory
done
mkdir -p /root/usr/lib/modules/{version}
mount --bind /root{kernel}/lib/modules/{version} /root/usr/lib/modules/{version}
exec switch_root /root /bin/busybox sh -c '{agent}; /bin/busybox poweroff -f'
"""


class GuestError(LabError):
    """A guest could not be made, or has ended by itself; its last words on the console are part of
    the text.
    """


def package_name():
    """The package of Debian's present kernel."""
    found = re.search(r"Depends: (linux-image-\S+)",
                      run(["apt-cache", "depends", PACKAGE], check=False).stdout)
    return found and found.group(1)


def download_kernel(directory):
    """Unpacks the kernel's package there."""
    download = ["apt-get", "-q", "download"]
    name = package_name()
    if name is None or run([*download, name], check=False, timeout=300,
                           cwd=directory).returncode != 0:
        # apt has no lists, or older ones than its server.
        run(["apt-get", "-q", "update"], timeout=300)
        name = package_name()
        if name is None:
            raise GuestError(f"apt knows no package {PACKAGE}: guests need Debian's kernel")
        run([*download, name], timeout=300, cwd=directory)
    package = next(directory.glob("*.deb"))
    run(["dpkg", "-x", str(package), str(directory)], timeout=120)
    package.unlink()
    run(["depmod", "-b", str(directory),
         next(directory.glob("boot/vmlinuz-*")).name.removeprefix("vmlinuz-")])


def find_kernel():
    """The directory with Debian's kernel, and its release. The first call takes a while."""
    kernel = DIRECTORY / "kernel"
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with open(DIRECTORY / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kernel.exists():
            part = DIRECTORY / "kernel.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            download_kernel(part)
            part.rename(kernel)
    return kernel, next(kernel.glob("boot/vmlinuz-*")).name.removeprefix("vmlinuz-")


def module_paths(kernel, release):
    """The files of MODULES and of all that they need, in the order in which they are loaded."""
    modules = kernel / "lib/modules" / release
    needed = dict(line.split(":")
                  for line in (modules / "modules.dep").read_text(encoding="ascii").splitlines())
    paths = []
    for name in MODULES:
        path = next(path for path in needed if Path(path).name == f"{name}.ko")
        paths += [path for path in [*reversed(needed[path].split()), path] if path not in paths]
    return [modules / path for path in paths]


def write_initramfs(directory, kernel, release):
    """Makes the archive that the guest's kernel begins with; returns its path."""
    root, archive = directory / "initramfs", directory / "initramfs.cpio"
    for name in ("bin", "dev", "modules", "lower", "upper", "root"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin")
    paths = module_paths(kernel, release)
    for path in paths:
        shutil.copy(path, root / "modules")
    init = root / "init"
    init.write_text(INIT.format(modules=" ".join(path.name for path in paths), tag=ROOT_TAG,
                                kernel=kernel, version=release,
                                directories=f"{SOURCE_DIR} {BUILD_DIR}",
                                agent=f"/usr/bin/python3 {AGENT} {PORT}"), encoding="ascii")
    init.chmod(0o755)
    names = "".join(f"{path.relative_to(root)}\n" for path in sorted(root.rglob("*")))
    with open(archive, "wb") as out:
        subprocess.run(["/bin/busybox", "cpio", "-o", "-H", "newc"], input=names.encode(),
                       stdout=out, stderr=subprocess.DEVNULL,
                       check=True, cwd=root)
    return archive


class Guest:
    """
    A guest, for the length of a block. name: of the file with its console if it fails. seconds: the
    most that it lives on a machine that has nothing else to do; PATIENCE times that, it has
    stopped. memory: MiB. devices: more of QEMU's -device and other options, as a list of words.
    append: to the kernel's command line. pass_fds: that QEMU has, too, such as those of TAP
    devices.
    """

    def __init__(self, name="guest", seconds=SECONDS, memory=MEMORY_MIB, cpus=1, devices=(),
                 append="", pass_fds=()):
        self.memory, self.cpus, self.devices, self.append, self.pass_fds = memory, cpus, list(
            devices), append, tuple(pass_fds)
        self.kept_console = DIRECTORY / f"console-{name}"
        self.deadline = time.monotonic() + PATIENCE * seconds
        self.release = self.directory = self.qemu = self.channel = self.stream = None
        self.old_handlers = {}

    # ---- life

    def __enter__(self):
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.old_handlers[signum] = signal.signal(signum, self._interrupt)
        try:
            remove_leftovers()
            self.directory = Path(tempfile.mkdtemp(prefix=f"fanin-{os.getpid()}-guest-"))
            self._start()
            self._ask(None, "booting")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    @staticmethod
    def _interrupt(signum, _frame):
        raise Interrupted(signum)

    def close(self):
        """Ends the guest. May be called twice."""
        if self.qemu is not None:
            self.qemu.kill()
            self.qemu.wait()
        if self.stream is not None:
            self.stream.close()
            self.channel.close()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.qemu = self.stream = self.directory = None
        for signum, handler in self.old_handlers.items():
            signal.signal(signum, handler)
        self.old_handlers = {}

    @property
    def console_path(self):
        return self.directory / "console"

    def _start(self):
        kernel, self.release = find_kernel()
        self.channel, theirs = socket.socketpair()
        self.stream = self.channel.makefile("rw", encoding="utf-8", newline="\n")
        arguments = [
            QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial",
            f"file:{self.console_path}",
            "-machine", "q35", *(ONE_CPU if self.cpus == 1 else SEVERAL_CPUS), "-cpu", "max",
            "-smp", str(self.cpus), "-m", str(self.memory),
            "-kernel", str(kernel / f"boot/vmlinuz-{self.release}"), "-initrd",
            str(write_initramfs(self.directory, kernel, self.release)),
            "-append", f"console=ttyS0 quiet panic=-1 {CHEAPER} {self.append}",
            "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", f"virtio-9p-pci,fsdev=root,mount_tag={ROOT_TAG}",
            "-chardev", f"socket,id=agent,fd={theirs.fileno()}", "-device", "virtio-serial-pci",
            "-device", f"virtserialport,chardev=agent,name={PORT}", *self.devices]

        with theirs, open(self.directory / "qemu", "wb") as log:
            try:
                self.qemu = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log, preexec_fn=die_with_parent,
                                             pass_fds=(theirs.fileno(), *self.pass_fds))
            except FileNotFoundError as error:
                raise GuestError(f"{QEMU} is not installed: see [guest] in packages.txt") from error

    # ---- commands

    def failure(self, what):
        """
        A GuestError with the guest's last words; all that was on its console stays in build/guest/.
        """
        words = "".join(path.read_text(errors="replace")
                        for path in (self.directory / "qemu", self.console_path) if path.exists())
        words = re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|c)|\r", "", words)
        self.kept_console.write_text(words, encoding="utf-8")
        last = "\n".join(words.strip().splitlines()[-CONSOLE_LINES:])
        return GuestError(f"{what}. Its console ends so, and all of it is in "
                          f"{self.kept_console}:\n{last or 'nothing'}")

    def _ask(self, request, what):
        """Sends a request, if there is one, and returns the answer."""
        try:
            self.channel.settimeout(max(self.deadline - time.monotonic(), 0.1))
            if request is not None:
                self.stream.write(json.dumps(request) + "\n")
                self.stream.flush()
            line = self.stream.readline()
        except TimeoutError as error:
            raise self.failure(f"the guest's time is over, in the midst of {what}") from error
        except OSError:
            line = ""
        if not line:
            raise self.failure(f"the guest ended by itself, in the midst of {what}")
        return json.loads(line)

    def run(self, arguments, seconds=600):
        """
        Runs a program as root in the guest, in the root directory; returns what subprocess.run
        does. After those seconds of the guest's time its process group is ended, and returncode is
        None.
        """
        arguments = list(map(str, arguments))
        answer = self._ask({"arguments": arguments, "seconds": seconds}, shlex.join(arguments))
        return subprocess.CompletedProcess(arguments, answer["status"], answer["stdout"],
                                           answer["stderr"])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("--memory", type=int, default=MEMORY_MIB)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--append", default="")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("found no command")
    devices = [word for device in options.device for word in ("-device", device)]
    try:
        start = time.monotonic()
        with Guest("guest.py", options.seconds, options.memory, options.cpus, devices,
                   options.append) as guest:
            print(f"guest.py: Linux {guest.release} is up after {time.monotonic() - start:.1f} s",
                  file=sys.stderr)
            done = guest.run(options.command, PATIENCE * options.seconds)
    except LabError as error:
        print(f"guest.py: {error}", file=sys.stderr)
        return 1
    except Interrupted as error:
        return report_interruption(error)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return 124 if done.returncode is None else done.returncode


if __name__ == "__main__":
    sys.exit(main())
