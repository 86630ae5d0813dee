# SPDX-License-Identifier: BSD-3-Clause
"""A laboratory of network namespaces: one holds fanin-switch, the others a host each, joined by
veth pairs. With the transport memif there are no namespaces: hosts are processes that share memory
with the switch.

The demo, the net tests and the benchmarks use it as a context manager. All that it makes carries
this process's id in its name and is removed on leaving the block, also after an exception, SIGINT,
SIGTERM or SIGHUP; what a killed process left behind is removed by the next one. Main thread only:
it enters namespaces by moving the calling thread.
"""

import contextlib
import ctypes
import ctypes.util
import functools
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent.parent
BUILD_DIR = Path(os.environ.get("FANIN_BUILD_DIR", SOURCE_DIR / "build"))
NETNS_DIR = Path("/run/netns")

SWITCH_IP = "10.77.0.254"
SWITCH_MAC = "02:fa:00:00:00:fe"
UDP_PORT = 21930
HOST_INTERFACE = "fanin0"
MAX_HOSTS = 16
DEFAULT_MTU = {"auto": 9000, "af_xdp": 3474, "af_packet": 9000, "udp": 1500, "memif": 9000}
WITHOUT_RIGHTS = ("auto", "udp")  # transports whose hosts are user nobody
# Hosts on UDP sockets need no rights, and have none.
NOBODY = "nobody"

COMMIT_LEN = 40  # of the names of directories with an older commit's programs

CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
PR_SET_PDEATHSIG = 1

OWN_PID = os.getpid()  # children inherit the number

libc = ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6", use_errno=True)


class LabError(Exception):
    """Something in the laboratory could not be made; the text is one line for people."""


class Interrupted(BaseException):
    """A signal asked this process to end. Not an Exception, so that no handler for failures
    swallows it.
    """

    def __init__(self, signum):
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum


@functools.lru_cache(maxsize=None)
def programs(build):
    """Returns the paths of all files of a build by name, the first one of each name."""
    paths = {}
    for directory, below, names in os.walk(build):
        # Directories with objects of programs, or of tests that configure a build.
        below[:] = sorted(entry for entry in below if not entry.endswith(".p")
                          and not entry.startswith("meson-") and len(entry) != COMMIT_LEN)
        for name in names:
            paths.setdefault(name, os.path.join(directory, name))
    return paths


def program(name, build=BUILD_DIR):
    """Returns the path of a built program, wherever its build directory has it: older commits have
    other rooms.
    """
    if name not in programs(build):
        programs.cache_clear()  # it may have been built since
    path = programs(build).get(name)
    if path is None:
        raise LabError(f"{build} has no {name}: run ./dev build first")
    return path


def module(name):
    """Returns the command that runs a module of this tree in any directory, before its arguments.
    """
    return ["env", f"PYTHONPATH={SOURCE_DIR}", "/usr/bin/python3", "-m", name]


def wait_until(condition, timeout, what):
    """Polls until condition() is true and returns its value; LabError after timeout seconds."""
    deadline = time.monotonic() + timeout
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise LabError(f"timed out after {timeout:g} s of waiting for {what}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


# A program that has not ended after this many times its duration on an idle machine has stopped.
PATIENCE = 3


def run(arguments, check=True, timeout=60, **options):
    """
    Runs a short command to its end; LabError with its output if it fails. timeout: maximum seconds
    on an idle machine.
    """
    try:
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              text=True, timeout=PATIENCE * timeout, **options)
    except FileNotFoundError as error:
        raise LabError(f"{error.filename}: not found; the commands of ./dev install what is missing") from error
    if check and done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise LabError(f"{' '.join(map(str, arguments))}: {words}")
    return done


def system_call(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


@contextlib.contextmanager
def inside(namespace):
    """Moves this thread, and the processes that it starts, into a network namespace for the length
    of the block; None: nowhere.
    """
    if namespace is None:
        yield
        return
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(NETNS_DIR / namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            system_call(libc.setns(there, CLONE_NEWNET), f"entering {namespace}")
        finally:
            os.close(there)
        try:
            yield
        finally:
            system_call(libc.setns(home, CLONE_NEWNET), "returning from a network namespace")
    finally:
        os.close(home)


def die_with_parent():
    """In a child: ends it when this process ends, even if that was killed before the kernel knew.
    The child gets all signals.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != OWN_PID:
        os._exit(1)


def note_fork():
    """In a fork of this process that continues without exec: its children die with it."""
    global OWN_PID
    OWN_PID = os.getpid()


def private_sys(user=None):
    """Between fork and exec: a /sys that shows this network namespace, with a bpffs that goes with
    the process. user: see drop_rights.

    `ip netns exec` does the same but starts by remounting /, which fails in a chroot; and programs
    that pin into the machine's own bpffs and are killed would leave their pins behind.
    """
    die_with_parent()
    system_call(libc.unshare(CLONE_NEWNS), "unshare")
    system_call(libc.mount(b"none", b"/sys", None, MS_REC | MS_PRIVATE, None),
                "making /sys private")
    # In a container that may not mount these two the machine's own serve as well.
    if libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None) == 0:
        libc.mount(b"bpf", b"/sys/fs/bpf", b"bpf", 0, None)
    if user is not None:
        drop_rights(user)


def drop_rights(user):
    """Between fork and exec: becomes a user, an entry of pwd, in no group but its own."""
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    # A process that becomes another user has lost this setting.
    die_with_parent()


# The capability to pass directories that are closed to others, and no other one.
PASSES_DIRECTORIES = "-all,+dac_read_search"


def is_closed(path):
    """True if a directory on the way to a program is closed to others."""
    return any(not parent.stat().st_mode & 0o001 for parent in Path(path).resolve().parents)


def as_user(user, arguments, closed=True):
    """Returns the command line by which a user starts a program. closed: in a directory that is
    closed to others, as a checkout may be.
    """
    rights = PASSES_DIRECTORIES if closed else "-all"
    return ["setpriv", "--reuid", user.pw_name, "--regid", str(user.pw_gid), "--clear-groups",
            "--inh-caps", rights,
            "--ambient-caps", rights, "--bounding-set", rights, *arguments]


def user_of(options):
    """Returns the user that runs fanin-perf with these options; None: this process's."""
    return NOBODY if options.get("transport") in WITHOUT_RIGHTS else None


def ports_text(transport):
    """Returns the kind of the switch's ports, and the hosts' user if it is not this process's."""
    ports = {"auto": "ports as the switch chooses",
             "udp": "af_packet ports"}.get(transport, f"{transport} ports")
    if transport in WITHOUT_RIGHTS:
        return f"{ports}, hosts without rights (user {NOBODY})"
    return ports


def long_options(options):
    """Returns a program's long options from a dictionary, with _ for -; True for one without a
    value.
    """
    arguments = []
    for option, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + option.replace("_", "-"))
        if value is not True:
            arguments.append(value)
    return arguments


class Control:
    """A client of the switch's control socket: one JSON object per line."""

    def __init__(self, path, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(str(path))
            self.stream = self.socket.makefile("rw", encoding="utf-8", newline="\n")
            self.greeting = json.loads(self.stream.readline())
        except BaseException:
            self.socket.close()
            raise
        self.last_id = 0
        self._send({"hello": self.greeting["protocol"]})

    def _send(self, message):
        self.stream.write(json.dumps(message) + "\n")
        self.stream.flush()

    def ask(self, command, **arguments):
        """Returns the result of a command; LabError if the switch refuses it or is gone."""
        self.last_id += 1
        try:
            self._send({"id": self.last_id, "cmd": command, "args": arguments})
            line = self.stream.readline()
        except OSError as error:
            raise LabError(f"control socket: {error}") from error
        if not line:
            raise LabError(f"the switch closed the control socket instead of answering {command}")
        reply = json.loads(line)
        if not reply["ok"]:
            raise LabError(f"{command}: {reply['error']['message']}")
        return reply["result"]

    def close(self):
        self.socket.close()


class Process:
    """A program that the laboratory started; its output goes to files, so no pipe can fill up.
    user: the program's; None: this process's.
    """

    def __init__(self, lab, name, arguments, namespace, user=None):
        self.name = name
        self.stdout_path = lab.directory / f"{name}.out"
        self.stderr_path = lab.directory / f"{name}.err"
        entry = None
        if user is not None:
            lab.directory.chmod(0o711)
            entry = pwd.getpwnam(user)
            if any(is_closed(argument) for argument in arguments if argument.startswith("/")):
                arguments, entry = as_user(entry,
                                           ["setpriv", "--pdeathsig", "KILL", *arguments]), None
        with open(self.stdout_path, "wb") as out, open(self.stderr_path,
                                                       "wb") as err, inside(namespace):
            self.popen = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=err,
                                          preexec_fn=functools.partial(private_sys, entry),
                                          cwd=lab.directory)
        self.pid = self.popen.pid

    def running(self):
        return self.popen.poll() is None

    def wait(self, timeout):
        """Returns the exit status; LabError if it is still running after timeout seconds."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"{self.name} (pid {self.pid}) is still running after "
                           f"{timeout:g} s") from error

    def stop(self, signum=signal.SIGTERM, timeout=5):
        """Ends it, by force if necessary. May be called again."""
        if self.running():
            self.popen.send_signal(signum)
            try:
                self.popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        return self.popen.wait()

    def stdout(self):
        return self.stdout_path.read_text(errors="replace")

    def stderr(self):
        return self.stderr_path.read_text(errors="replace")

    def last_words(self):
        lines = (self.stderr().strip() or self.stdout().strip()).splitlines()
        return lines[-1] if lines else f"no message, exit status {self.popen.poll()}"


def dead_leftovers(names):
    """Returns the names fanin-PID-* whose process no longer exists."""
    for name in names:
        match = re.fullmatch(r"fanin-(\d+)-.+", name)
        if match and not Path("/proc", match.group(1)).exists():
            yield name


def ip_in(namespace, *arguments, check=True):
    """Runs ip in a namespace. Not `ip -n`: it remounts / as `ip netns exec` does, which fails in a
    chroot.
    """
    with inside(namespace):
        return run(["ip", *arguments], check=check)


def links_of(namespace):
    done = ip_in(namespace, "-o", "link", "show", "type", "veth", check=False)
    return re.findall(r"^\d+: ([^@:]+)", done.stdout, re.MULTILINE)


def remove_namespace(name):
    # Its links disappear some time later, but a look right after this call must find none. A
    # namespace that was half made can't be entered.
    with contextlib.suppress(OSError):
        for link in links_of(name):
            ip_in(name, "link", "del", link, check=False)
    run(["ip", "netns", "del", name], check=False)


def remove_leftovers():
    """Removes the leftovers of processes that were killed."""
    if NETNS_DIR.exists():
        for name in dead_leftovers(sorted(os.listdir(NETNS_DIR))):
            remove_namespace(name)
    for name in dead_leftovers(os.listdir(tempfile.gettempdir())):
        shutil.rmtree(Path(tempfile.gettempdir(), name), ignore_errors=True)


class Lab:
    """
    One switch namespace and `hosts` host namespaces, each host's fanin0 on a port h0, h1, ... of
    the switch.

    transport: kind of the switch's ports: af_xdp, af_packet or memif; udp: as af_packet, with hosts
    on UDP sockets; or auto: switch and hosts choose. mtu: of all links. config: keys that replace
    those of the switch's configuration file. keep_logs: keep the directory with logs. name: tells
    several laboratories of one process apart.
    """

    # at the ends of all links; None: on if the switch's ports are on packet sockets
    offloads = None
    switch_launcher = ()  # a command that starts the switch, without the switch's own
    # Set by tests to replace the transport that laboratories ask for; see tests/net/over_udp.py
    instead = None

    def __init__(self, hosts=4, transport="af_xdp", mtu=None, config=None, keep_logs=False,
                 name=None):
        if os.geteuid() != 0:
            raise LabError("network namespaces need root: run this with sudo")
        if not 1 <= hosts <= MAX_HOSTS:
            raise LabError(f"found {hosts} hosts, expected 1 to {MAX_HOSTS}")
        if self.instead is not None:
            transport, mtu = self.instead.network(transport, mtu)
        self.hosts = hosts
        self.transport = transport
        self.mtu = mtu or DEFAULT_MTU[transport]
        self.overrides = config or {}
        self.keep_logs = keep_logs
        self.prefix = f"fanin-{os.getpid()}" + (f"-{name}" if name else "")
        self.switch_namespace = None if transport == "memif" else f"{self.prefix}-sw"
        self.directory = self.socket_path = self.memif_path = None
        self.namespaces = []
        self.processes = []
        self.controls = []
        self.control = None  # the switch's own
        self.old_handlers = {}
        self.switch = None
        self.spawned = 0
        self.build = BUILD_DIR  # that programs come from; another build for a comparison

    # ---- life

    def __enter__(self):
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.old_handlers[signum] = signal.signal(signum, self._interrupt)
        try:
            remove_leftovers()
            self.directory = Path(tempfile.mkdtemp(prefix=("fanin-logs-" if self.keep_logs else "")
                                                   + self.prefix + "-"))
            self.socket_path, self.memif_path = self.directory / "switch.sock", self.directory / "memif.sock"
            if self.transport != "memif":
                self._make_namespaces()
                self._make_links()
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
        """Removes everything, in reverse order. May be called twice; signals wait until it is done.
        """
        signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        try:
            self._close()
        finally:
            for signum, handler in self.old_handlers.items():
                signal.signal(signum, handler)
            self.old_handlers = {}
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _close(self):
        while self.controls:
            self.controls.pop().close()
        switches = self.switch_processes()
        for process in reversed(self.processes):
            if process.running():
                process.popen.send_signal(signal.SIGTERM if process in switches else signal.SIGKILL)
        while self.processes:
            self.processes.pop().stop()
        while self.namespaces:
            remove_namespace(self.namespaces.pop())
        if self.directory is not None and not self.keep_logs:
            shutil.rmtree(self.directory, ignore_errors=True)

    # ---- topology

    def host_namespace(self, host):
        return None if self.transport == "memif" else f"{self.prefix}-h{host}"

    @staticmethod
    def host_ip(host):
        return f"10.77.0.{host + 1}"

    @staticmethod
    def host_mac(host):
        return f"02:77:00:00:00:{host + 1:02x}"

    @staticmethod
    def switch_interface(host):
        return f"sw-h{host}"

    def namespaces_wanted(self):
        return [self.switch_namespace] + [self.host_namespace(host) for host in range(self.hosts)]

    def _make_namespaces(self):
        for name in self.namespaces_wanted():
            self.namespaces.append(name)
            run(["ip", "netns", "add", name])
            with inside(name):
                # Router solicitations and the like would only disturb the counters.
                for scope in ("all", "default"):
                    path = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
                    if path.exists():
                        path.write_text("1")
                run(["ip", "link", "set", "lo", "up"])

    def _make_links(self):
        for host in range(self.hosts):
            self._make_link(host)

    def _make_link(self, host):
        there = self.host_namespace(host)
        self._join(self.switch_namespace, self.switch_interface(host), there, HOST_INTERFACE,
                   self.host_mac(host))
        ip_in(there, "address", "add", f"{self.host_ip(host)}/24", "dev", HOST_INTERFACE)

    def _join(self, here, port, there, interface, mac=None):
        """Makes a link between two namespaces, up at both ends. mac: of the interface there."""
        address = ["address", mac] if mac else []
        # One queue at each end: an AF_XDP socket is bound to queue 0 and must see every frame.
        ip_in(here, "link", "add", "name", port, "mtu", str(self.mtu), "numtxqueues", "1",
              "numrxqueues", "1", "type", "veth",
              "peer", "name", interface, *address, "mtu", str(self.mtu), "numtxqueues", "1",
              "numrxqueues", "1", "netns", there)
        for namespace, device in ((here, port), (there, interface)):
            with inside(namespace):
                # veth passes frames without checksums and larger than the MTU. Packet ports handle
                # these, but no real link would carry them, and AF_XDP passes them on unchanged.
                if not (self.transport in ("af_packet", *WITHOUT_RIGHTS)
                        if self.offloads is None else self.offloads):
                    run(["ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off", "gro",
                         "off"])
                run(["ip", "link", "set", device, "up"])

    # ---- the switch

    def vdev(self, host):
        return self.device(self.switch_interface(host))["vdev"]

    def device(self, interface):
        """Returns the key that names the device of a port on a kernel interface."""
        if self.transport == "auto":
            return {"interface": interface}
        if self.transport == "af_xdp":
            # Busy polling makes each poll a system call that runs the interface's NAPI: on veth
            # this is three times slower than leaving the work to the sender's own softirq.
            return {"vdev": f"net_af_xdp,iface={interface},busy_budget=0"}
        return {"vdev": f"net_af_packet,iface={interface},qdisc_bypass=1"}

    def port(self, host):
        """Returns a host's port, as in the configuration."""
        if self.transport == "memif":
            device = {"memif": host}
        elif self.transport == "auto":
            device = self.device(self.switch_interface(host))
        else:
            device = {"vdev": self.vdev(host)}
        return {"name": self.port_of(host), **device, "mtu": self.mtu}

    @staticmethod
    def port_of(host):
        """Returns the name of the port that a host is behind."""
        return f"h{host}"

    def ports(self):
        return [self.port(host) for host in range(self.hosts)]

    def config(self):
        """Returns the switch's configuration, as it goes into the file."""
        config = {
            "name": "lab",
            "address": {"ip": SWITCH_IP, "mac": SWITCH_MAC, "udp_port": UDP_PORT},
            "control": {"socket": str(self.socket_path)},
            "memif": {"socket": str(self.memif_path)},
            "workers": [{"lcore": 1 if (os.cpu_count() or 1) > 1 else 0}],
            "ports": self.ports(),
        }
        config.update(self.overrides)
        return config

    def switch_processes(self):
        """Returns the switch's processes that remove something when they end."""
        return [self.switch]

    def start_switch(self, timeout=60):
        """Starts fanin-switch and returns once its control socket answers."""
        path = self.directory / "switch.json"
        path.write_text(json.dumps(self.config(), indent=2) + "\n")
        self.switch = self._spawn(self.switch_namespace, "switch",
                                  [*self.switch_launcher, program("fanin-switch", self.build),
                                   "--config", str(path)])
        wait_until(self._switch_answers, timeout, "the switch's control socket")
        return self.switch

    def _switch_answers(self):
        if not self.switch.running():
            raise LabError(f"fanin-switch did not start: {self.switch.last_words()}")
        try:
            control = Control(self.socket_path)
        except OSError:
            return False
        self.controls.append(control)
        self.control = control
        control.ask("version")
        return True

    def ctl(self, *arguments, check=True):
        """Runs faninctl with these arguments and returns the result of subprocess.run."""
        return run([program("faninctl", self.build), "-s", str(self.socket_path),
                    *map(str, arguments)], check=check)

    def create_job(self, members=None, *options):
        """Creates a job of these hosts (default: all) with faninctl; returns {"id", "key", ...}."""
        members = range(self.hosts) if members is None else members
        arguments = []
        for host in members:
            arguments += ["--member", f"{self.port_of(host)}:{self.host_ip(host)}"]
        return json.loads(self.ctl("-j", "jobs", "create", *arguments, *map(str, options)).stdout)

    def frames(self):
        """Returns the frames and bytes that all ports together have received and sent, as the
        switch counts them.
        """
        ports = self.control.ask("ports.list")["ports"]
        return {"rx": sum(port["rx_frames"] for port in ports),
                "tx": sum(port["tx_frames"] for port in ports),
                "rx_bytes": sum(port["rx_bytes"] for port in ports),
                "tx_bytes": sum(port["tx_bytes"] for port in ports),
                "rx_missed": sum(port["rx_missed"] for port in ports),
                "tx_dropped": sum(port["tx_dropped"] for port in ports)}

    def drops(self):
        """Returns the drop counters by name, including zeros."""
        return {drop["name"]: drop["count"] for drop in self.control.ask("drops")["drops"]}

    # ---- the hosts

    def _spawn(self, namespace, name, arguments, user=None):
        # A signal in between would leave a process that this object does not know.
        signal.pthread_sigmask(signal.SIG_BLOCK, self.old_handlers)
        try:
            process = Process(self, name, list(map(str, arguments)), namespace, user)
            self.processes.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self.old_handlers)
        return process

    def spawn(self, host, arguments, name=None, user=None):
        """Starts a program on a host. user: the program's; None: this process's."""
        if self.instead is not None:
            arguments, user = self.instead.program(arguments, user)
        self.spawned += 1
        return self._spawn(self.host_namespace(host), f"{name or 'program'}-{self.spawned}-h{host}",
                           arguments, user)

    def perf_command(self, host, job, rank, size, **options):
        """Returns the command of fanin-perf as one rank, at AF_XDP ports with AF_XDP unless told
        otherwise. options: its long options, with _ for -; True for one without a value.
        """
        arguments = [program("fanin-perf", self.build), "--job", job["id"], "--key", job["key"],
                     "--rank", rank, "--size", size,
                     "--json"]
        options = {"switch": SWITCH_IP,
                   **({"transport": "af_xdp"} if self.transport == "af_xdp"
                      and "memif" not in options else {}), **options}
        if self.transport == "memif":
            options = {"memif": f"{self.memif_path}:{host}", "address": self.host_ip(host),
                       **options}
        return [*arguments, *long_options(options)]

    def spawn_perf(self, host, job, rank, size, **options):
        """Starts fanin-perf as one rank, on UDP sockets without rights. options: as for
        perf_command.
        """
        return self.spawn(host, self.perf_command(host, job, rank, size, **options), "perf",
                          user_of(options))

    @staticmethod
    def perf_report(process):
        """Returns the output of a fanin-perf that has ended; an error object of the same shape if
        it printed nothing.
        """
        try:
            return json.loads(process.stdout())
        except ValueError:
            return {"ok": False, "error": {"code": "no_report", "message": process.last_words(),
                                           "missing": []}}


class WireLab(Lab):
    """Links whose frames are as on a physical link: for programs that receive from packet sockets
    and support no super-frames, as DPDK's do.
    """

    offloads = False


def report_interruption(error):
    """Reports an Interrupted and returns the exit status that a shell expects."""
    print(f"\n{error}; everything is removed", file=sys.stderr)
    return 128 + error.signum
