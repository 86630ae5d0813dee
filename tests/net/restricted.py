# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program under what a systemd unit takes away from it: restricted.py UNIT PROGRAM
ARGUMENTS...

System calls (SystemCallFilter=, RestrictNamespaces=, RestrictAddressFamilies=,
MemoryDenyWriteExecute=, RestrictRealtime=), capabilities, UMask= and NoNewPrivileges= are what
systemd makes of them, except that a system call that is not allowed ends the program, so that none
goes unseen, but for MAY_FAIL. Files and devices are as they are. The sets of system calls are
systemd-analyze's.
"""

import ctypes
import os
import re
import socket
import subprocess
import sys

KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
MASKED_EQUAL, EQUAL = 7, 4
EPERM, ENOSYS = 1, 38
# What a driver of DPDK does when it is loaded, which may fail: virtio's, for devices as they were
# before version 1.0.
MAY_FAIL = ("iopl",)
NAMESPACES = 0x7E020080  # all CLONE_NEW*
PROT_WRITE, PROT_EXEC = 2, 4
SCHED_BATCH_OR_OTHER = (0, 3, 5)
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24

libc = ctypes.CDLL(None, use_errno=True)
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p


class Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64),
                ("b", ctypes.c_uint64)]


def read_unit(path):
    """The settings of the section [Service]: a list of values for each name."""
    settings = {}
    for line in open(path, encoding="utf-8"):
        match = re.fullmatch(r"([A-Za-z]+)=(.*)\n", line)
        if match:
            settings.setdefault(match.group(1), []).append(match.group(2))
    return settings


def expand(names):
    """System calls of a list of names and sets."""
    calls = set()
    for name in names:
        if not name.startswith("@"):
            calls.add(name)
            continue
        text = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True,
                              capture_output=True, text=True).stdout
        calls |= expand(line.strip() for line in text.splitlines()[1:] if line.strip()
                        and not line.strip().startswith("#"))
    return calls


def allowed_calls(settings):
    calls = set()
    for line in settings["SystemCallFilter"]:
        if line.startswith("~"):
            calls -= expand(line[1:].split())
        else:
            calls |= expand(line.split())
    # systemd always allows these.
    return calls | {"execve", "exit", "exit_group", "getrlimit", "rt_sigreturn", "sigreturn",
                    "clock_gettime", "clock_nanosleep"}


class Filter:
    def __init__(self):
        self.context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(KILL)))

    def add(self, name, *arguments, action=ALLOW):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return  # another architecture's
        array = (Argument * len(arguments))(*arguments)
        done = seccomp.seccomp_rule_add_array(self.context, ctypes.c_uint32(action), number,
                                              len(arguments), array)
        if done != 0:
            raise OSError(-done, f"seccomp rule for {name}")

    def load(self):
        done = seccomp.seccomp_load(self.context)
        if done != 0:
            raise OSError(-done, "seccomp_load")


def masked(number, mask, value):
    return Argument(number, MASKED_EQUAL, mask, value)


def make_filter(settings):
    special = {}
    if settings.get("RestrictNamespaces") == ["yes"]:
        special["clone"] = [masked(0, NAMESPACES, 0)]
        special["clone3"] = ENOSYS  # glibc takes clone then
        special["unshare"] = special["setns"] = []
    if settings.get("MemoryDenyWriteExecute") == ["yes"]:
        special["mmap"] = [masked(2, PROT_WRITE | PROT_EXEC, value)
                           for value in (0, PROT_WRITE, PROT_EXEC)]
        special["mprotect"] = special["pkey_mprotect"] = [masked(2, PROT_EXEC, 0)]
    if settings.get("RestrictRealtime") == ["yes"]:
        special["sched_setscheduler"] = [Argument(1, EQUAL, value, 0)
                                         for value in SCHED_BATCH_OR_OTHER]
    families = " ".join(settings.get("RestrictAddressFamilies", [])).split()
    if families:
        special["socket"] = [Argument(0, EQUAL, 44 if name == "AF_XDP" else getattr(socket, name),
                                      0) for name in families]
    result = Filter()
    for name in sorted(allowed_calls(settings)):
        if name not in special:
            result.add(name)
        elif special[name] == ENOSYS:
            result.add(name, action=ERRNO | ENOSYS)
        else:
            for argument in special[name]:
                result.add(name, argument)
    for name in MAY_FAIL:
        result.add(name, action=ERRNO | EPERM)
    return result


def drop_capabilities(settings):
    names = " ".join(settings["CapabilityBoundingSet"]).split()
    header = open("/usr/include/linux/capability.h", encoding="utf-8").read()
    numbers = dict(re.findall(r"#define (CAP_[A-Z_]+)\s+(\d+)$", header, re.MULTILINE))
    for number in range(int(open("/proc/sys/kernel/cap_last_cap", encoding="ascii").read()) + 1):
        if str(number) not in {numbers[name]
                               for name in names} and libc.prctl(PR_CAPBSET_DROP, number, 0, 0,
                                                                 0) != 0:
            raise OSError(ctypes.get_errno(), f"dropping capability {number}")


def main(unit, *command):
    settings = read_unit(unit)
    prepared = make_filter(settings)
    os.umask(int(settings["UMask"][0], 8))
    drop_capabilities(settings)
    if settings["NoNewPrivileges"] == ["yes"] and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    prepared.load()
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
