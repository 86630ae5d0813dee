# SPDX-License-Identifier: BSD-3-Clause
"""The other end reports TLS failures in words: faninctl, the manager as a client of switches,
hosts.
"""

import time

from tests.net.support import Lab, case, expect, program, reports_of, run, wait_until
from tests.net.case_by_name import spawn_by_name
from lab.namespaces import inside
from tests.net.manager_lab import MANAGER_PORT, SWITCH_PORT, Manager, control_over_tcp
from tests.net.pace import Pace

SWITCH_AT = f"127.0.0.1:{SWITCH_PORT}"
CA_CONFIG = """
[ca]
default_ca = own
[own]
database = {directory}/index
serial = {directory}/serial
new_certs_dir = {directory}
default_md = sha256
policy = any
unique_subject = no
copy_extensions = copy
[any]
commonName = supplied
"""


class Authority:
    """A CA whose certificates may have any period of validity."""

    def __init__(self, directory, name):
        self.directory = directory / name
        self.directory.mkdir()
        (self.directory / "index").write_text("")
        (self.directory / "serial").write_text("01\n")
        self.config = self.directory / "ca.conf"
        self.config.write_text(CA_CONFIG.format(directory=self.directory))
        self.pem, self.key = self.directory / "ca.pem", self.directory / "ca.key"
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-out", self.pem, "-keyout", self.key])

    def issue(self, name, address, years=("20240101", "20700101")):
        """Issues a certificate for an address; returns {"certificate", "key"} in the form of the
        configurations.
        """
        pem, key, request = (self.directory / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-subj", f"/CN={name}",
             "-addext", f"subjectAltName=IP:{address}", "-keyout", key, "-out", request])
        run(["openssl", "ca", "-batch", "-notext", "-config", self.config, "-cert", self.pem,
             "-keyfile", self.key, "-in", request,
             "-out", pem, "-startdate", f"{years[0]}000000Z", "-enddate", f"{years[1]}000000Z"])
        return {"certificate": str(pem), "key": str(key)}


def expired(authority, name, address):
    return authority.issue(name, address, ("20200101", "20210101"))


def expect_words(lab, arguments, words, what, namespace):
    """Expects faninctl to fail at once with these words; without words, to succeed."""
    with Pace() as pace, inside(namespace):
        done = run([program("faninctl"), *map(str, arguments)], check=False)
        seconds = time.monotonic() - pace.began
    if words is None:
        expect(done.returncode == 0, f"{what}: faninctl failed: {done.stderr.strip()}")
        return
    expect(done.returncode == 1 and words in done.stderr,
           f"{what}: '{done.stderr.strip()}' does not say '{words}'")
    # A switch that expects TLS closes the connection of a client that does not speak it after 5 s.
    pace.expect_within(seconds, 6, what)


def switch_error(manager):
    return manager.ask("topology")["switches"][0]["error"]


@case(120)
def what_is_wrong_with_the_tls_of_a_switch_is_said_in_words():
    """faninctl reports the fault, and so does the manager, whose log has it once."""
    with Lab(1, "af_packet") as lab:
        right, other = Authority(lab.directory, "right"), Authority(lab.directory, "other")
        plain = "the other side does not speak TLS"
        kinds = (("good", right.issue("good", "127.0.0.1"),
                  {right.pem: None, other.pem: "unable to get local issuer certificate",
                                                            None: "does it expect TLS"}),
                 ("expired", expired(right, "expired", "127.0.0.1"),
                  {right.pem: "certificate has expired"}),
                 ("elsewhere", right.issue("elsewhere", "10.1.2.3"),
                  {right.pem: "IP address mismatch"}),
                 ("plain", None, {right.pem: plain, None: None}))
        for kind, files, expected in kinds:
            control = control_over_tcp(lab)
            lab.overrides = {"control": control | ({"tls": files} if files else {})}
            lab.start_switch()
            for ca, words in expected.items():
                what = f"a switch with TLS {kind}, for the CA {ca}"
                expect_words(lab, ["-s", SWITCH_AT, "--token-file", control["token_file"],
                                   *(["--ca", ca] if ca else []), "ports"],
                             words, what, lab.switch_namespace)
                entry = {"name": "lab", "control": SWITCH_AT,
                         "token_file": control["token_file"]} | ({"ca": str(ca)} if ca else {})
                manager = Manager(lab, {"switches": [entry], "links": [], "hosts": []},
                                  database=f"{kind}-{ca.parent.name if ca else 'none'}.db").start()
                if words is None:
                    manager.wait_up("lab")
                else:
                    wait_until(lambda: words in switch_error(manager), 60,
                               f"{what}: the manager to say '{words}'")
                    logged = [line for line in manager.process.stderr().splitlines()
                              if words in line]
                    expect(len(logged) == 1 and "switch lab is not reached" in logged[0],
                           f"{what}: the log has {logged}")
                manager.stop()
            lab.switch.stop()


@case(120)
def what_is_wrong_with_the_tls_of_a_manager_is_said_in_words():
    """faninctl reports the fault, and so does the program on a host."""
    with Lab(2, "af_packet") as lab:
        lab.start_switch()
        right, other = Authority(lab.directory, "right"), Authority(lab.directory, "other")
        address = lab.host_ip(0)
        kinds = (("good", right.issue("good", address),
                  {right.pem: None, other.pem: "unable to get local issuer certificate",
                                                        None: "does it expect TLS"}),
                 ("expired", expired(right, "expired", address),
                  {right.pem: "certificate has expired"}),
                 ("plain", None, {right.pem: "does not speak TLS", None: None}))
        topology = {"switches": [{"name": "lab", "control": str(lab.socket_path)}], "links": [],
                    "hosts": [{"ip": lab.host_ip(1), "switch": "lab", "port": "h1"}]}
        for kind, files, expected in kinds:
            socket_path = lab.directory / f"{kind}.sock"
            manager = Manager(lab, topology, host=0, database=f"{kind}.db", socket=str(socket_path),
                              **({"tls": files} if files else {})).start(wait=False)
            wait_until(lambda: "switch lab is up" in manager.process.stderr(), 60,
                       "the manager to reach its switch")
            for ca, words in expected.items():
                what = f"a manager with TLS {kind}, for the CA {ca}"
                expect_words(lab, ["--manager", f"{address}:{MANAGER_PORT}", "--token-file",
                                   manager.token_file,
                                   *(["--ca", ca] if ca else []), "topology"], words, what,
                             lab.host_namespace(0))
                conf = lab.directory / "fanin.conf"
                conf.write_text(f"manager = {address}\ntoken_file = {manager.token_file}\n" +
                                (f"tls = yes\nca = {ca}\n" if ca else ""))
                report = reports_of(lab,
                                    [spawn_by_name(lab, 1, environment={"FANIN_CONF": conf},
                                                   size=1)], 60)[0]
                error = report.get("error") or {}
                if words is None:
                    expect(report.get("ok"), f"{what}: {report}")
                else:
                    expect(error.get("code") == "manager" and words in error["message"],
                           f"{what}: the host says {error}")
            manager.stop()
