# SPDX-License-Identifier: BSD-3-Clause
"""
dpdk-testpmd on the ports of a laboratory: in the switch's place, forwarding, or at the hosts' ends,
as the load.

The load is a reflector: it sends every frame back on its link, with the MAC addresses swapped, so
that a fixed number of frames circulates. A frame that leaves end 0 is for end 1 and vice versa, and
the same holds for 2 and 3: testpmd forwards between these pairs of ports, and a learning switch
does so by the addresses.
"""

import re
import subprocess
import time

from lab.namespaces import LabError, inside, private_sys, wait_until

BURST = 32
# AF_XDP wants an mbuf and its metadata in one page, and testpmd's pools make its cache lines an odd
# number: 63. This leaves 3456 bytes for a frame, a little less than the switch has room for.
MBUF_DATA_ROOM = {"af_xdp": 3840}
DATA_ROOM = 2048 + 128


class Testpmd:
    """dpdk-testpmd with its command line on a pipe. vdevs: without their numbers. core: the
    forwarding core.
    """

    PROMPT = "testpmd> "

    def __init__(self, lab, name, namespace, vdevs, core, frame_bytes, arguments):
        # Its prompt is not buffered, but all other output is: without stdbuf the prompt comes
        # before the answer.
        command = ["stdbuf", "-oL", "dpdk-testpmd", "--in-memory", "--no-pci", "--no-telemetry",
                   f"--file-prefix={name}",
                   "-m", "256", "--lcores", f"0@{1 - core},1@{core}"]
        for index, vdev in enumerate(vdevs):
            driver, options = vdev.split(",", 1)
            command += ["--vdev", f"{driver}{index},{options}"]
        command += ["--", "-i", "--nb-cores=1", f"--burst={BURST}", f"--txpkts={frame_bytes}",
                    f"--mbuf-size={MBUF_DATA_ROOM.get(lab.transport, DATA_ROOM)}",
                    "--total-num-mbufs=32768",
                    "--no-lsc-interrupt", "--disable-link-check", *arguments]
        if lab.transport == "af_xdp":
            command.append(f"--max-pkt-len={lab.mtu + 18}")
        self.ports = len(vdevs)
        self.output = lab.directory / f"{name}.out"
        with open(self.output, "wb") as out, inside(namespace):
            self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out,
                                          stderr=subprocess.STDOUT,
                                          preexec_fn=private_sys, cwd=lab.directory)
        self.read = 0
        try:
            self.wait_for_prompt(30)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def text(self):
        return self.output.read_text(errors="replace")[self.read:]

    def wait_for_prompt(self, timeout):
        def prompted():
            if self.popen.poll() is not None:
                raise LabError("dpdk-testpmd ended: "
                               + " ".join(self.output.read_text().strip().splitlines()[-2:]))
            return self.text().endswith(self.PROMPT)
        wait_until(prompted, timeout, "dpdk-testpmd's prompt")
        text = self.text()
        self.read += len(text)
        return text

    def command(self, line, timeout=10):
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()
        return self.wait_for_prompt(timeout)

    def wait_for_links(self):
        wait_until(lambda: len(re.findall(r"Link status: up",
                                          self.command("show port info all"))) == self.ports, 10,
                   "dpdk-testpmd's links")

    def frames(self):
        """Returns the frames that all ports together have received and sent."""
        return sum(map(int, re.findall(r"[RT]X-packets:\s+(\d+)",
                                       self.command("show port stats all"))))

    def received(self):
        return sum(map(int, re.findall(r"RX-packets:\s+(\d+)",
                                       self.command("show port stats all"))))

    def close(self):
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()


def forwarder(lab, frame_bytes):
    """Starts testpmd in the switch's place, on core 1, forwarding."""
    if lab.transport == "memif":
        vdevs = [f"net_memif,role=server,id={host},socket={lab.memif_path},socket-abstract=no"
                 for host in range(lab.hosts)]
    else:
        vdevs = [lab.vdev(host) for host in range(lab.hosts)]
    process = Testpmd(lab, "forwarder", lab.switch_namespace, vdevs, 1, frame_bytes,
                      ["--forward-mode=io", "--port-topology=paired"])
    process.command("start")
    return process


def reflector(gathered, frame_bytes):
    """Starts testpmd at the hosts' ends, on core 0, and waits until its links are up."""
    lab = gathered.lab
    arguments = ["--forward-mode=macswap", "--port-topology=loop"]
    arguments += [f"--eth-peer={host},{lab.host_mac(host ^ 1)}" for host in range(lab.hosts)]
    process = Testpmd(lab, "reflector", gathered.namespace, gathered.devices(), 0, frame_bytes,
                      arguments)
    process.wait_for_links()
    return process


def teach(process, lab):
    """Lets the switch learn the reflector's addresses: each end sends one frame, and flooded frames
    go no further.
    """
    process.command("set fwd rxonly")
    process.command("set burst 1")
    # The switch's announcements may have left before the reflector was there.
    missed = lab.frames()["tx"] - process.received()
    process.command("start tx_first 1")
    wait_until(lambda: lab.frames()["rx"] >= lab.hosts
               and process.received() + missed >= lab.frames()["tx"], 5,
               "the first frames through the switch")
    process.command("stop")
    process.command(f"set burst {BURST}")
    process.command("set fwd macswap")
    learned = {entry["mac"]: entry["port"] for entry in lab.control.ask("mac.list")["entries"]}
    expected = {lab.host_mac(host): f"h{host}" for host in range(lab.hosts)}
    if learned != expected:
        raise LabError(f"the switch has learned {learned}, expected {expected}")


def circulate(process, bursts, seconds, frames):
    """Circulates this many bursts per port; returns the frames per second that frames() has
    counted.
    """
    process.command(f"start tx_first {bursts}")
    try:
        started, before = time.monotonic(), frames()
        time.sleep(seconds)
        ended, after = time.monotonic(), frames()
    finally:
        process.command("stop")
    return (after - before) / (ended - started)
