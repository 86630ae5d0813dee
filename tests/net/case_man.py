# SPDX-License-Identifier: BSD-3-Clause
"""The man pages agree with the code: every function as declared in its header, every option of a
program's --help.
"""

import json
import re
import tempfile
from pathlib import Path

from tests.net.support import case, expect, expect_equal, program, run
from lab.namespaces import SOURCE_DIR

MAN = SOURCE_DIR / "docs" / "man"
INCLUDE = SOURCE_DIR / "hostlib" / "include"
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "RETURN VALUE", "ERRORS", "THREADS", "SEE ALSO"]
PROGRAMS = {"fanin-switch": 8, "fanin-manager": 8, "fanin-server": 8, "faninctl": 1,
            "fanin-perf": 1, "fanin-pktgen": 1}
OPTION = re.compile(r"--[a-z][a-z-]*")


def pages():
    """Returns the paths of all pages, and of those that only refer to another page."""
    return sorted(MAN.glob("*.[1-8]"))


def read_page(name):
    """Returns the page's text without escapes; the text of the other page if it only refers to one.
    """
    path = MAN / name
    expect(path.exists(), f"docs/man/{name} does not exist")
    shown = re.fullmatch(r"\.so man\d/(\S+)\n", path.read_text())
    if shown:
        path = MAN / shown.group(1)
        expect(path.exists(), f"docs/man/{name} shows {path.name}, which does not exist")
    text = path.read_text()
    for escape, meaning in ((r"\-", "-"), (r"\%", ""), (r"\&", ""), (r"\(dq", '"'), (r"\e", "\\")):
        text = text.replace(escape, meaning)
    return text


def section(page, name):
    """Returns the section's lines in one string; empty if the page does not have the section."""
    return re.split(r"^\.SH ", page.partition(f".SH {name}\n")[2], maxsplit=1, flags=re.M)[0]


def words(text):
    return " ".join(text.split())


def read_header():
    """Returns fanin.h and server.h without their comments."""
    text = "\n".join((INCLUDE / "fanin" / name).read_text() for name in ("fanin.h", "server.h"))
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def declarations():
    """Returns {name: declaration without FANIN_API} of the header's functions."""
    found = [words(text) for text in re.findall(r"^FANIN_API\b([^;]*;)", read_header(), flags=re.M)]
    return {re.search(r"(\w+)\(", text).group(1): text for text in found}


@case()
def every_function_of_the_library_has_a_man_page():
    functions = declarations()
    exported = re.findall(r"^\s*(fanin_\w+);", (SOURCE_DIR / "hostlib" / "fanin.map").read_text(),
                          flags=re.M)
    expect_equal(set(functions) ^ set(exported), set(),
                 "functions that only one of the headers and fanin.map has")
    for name, declaration in functions.items():
        page = read_page(f"{name}.3")
        names = section(page, "NAME").partition(" - ")[0]
        expect(name in words(names).split(", "), f"{name}.3: NAME has '{words(names)}' only")
        synopsis = words(section(page, "SYNOPSIS"))
        expect(f" {declaration}" in synopsis, f"{name}.3: SYNOPSIS does not have '{declaration}'")
        for wanted in SECTIONS:
            expect(section(page, wanted).strip(), f"{name}.3: no text in a section {wanted}")


@case()
def man_pages_have_every_field_and_every_constant_of_the_library():
    bodies = dict(re.findall(r"^(?:struct|enum) (\w+) \{(.*?)^\};", read_header(),
                             flags=re.M | re.S))
    for name, page in (("fanin_init_opts", "fanin_init.3"), ("fanin_join_opts", "fanin_join.3"),
                       ("fanin_report", "fanin_comm_report.3"),
                       ("fanin_server_opts", "fanin_serve.3"),
                       ("fanin_server_job_opts", "fanin_serve.3"),
                       ("fanin_server_job_stats", "fanin_serve.3"),
                       ("fanin_server_stats", "fanin_serve.3"), ("fanin_status", "fanin.3"),
                       ("fanin_dtype", "fanin.3"),
                       ("fanin_op", "fanin.3")):
        body = bodies[name]
        # All constants, except those that only FANIN_OPAQUE and FANIN_CUSTOM use.
        found = re.findall(r"(\w+);", body) or re.findall(r"\b(FANIN_(?!OPAQUE|CUSTOM)\w+)", body)
        expect(len(found) > 5, f"{name}: expected more than five fields or constants in fanin.h, "
                               f"found {found}")
        missing = set(found) - set(re.findall(r"\w+", read_page(page)))
        expect(not missing, f"{page} does not have {sorted(missing)} of {name}")


@case()
def the_example_of_the_overview_compiles():
    example = section(read_page("fanin.3"), "EXAMPLE").partition(".EX\n")[2].partition(".EE\n")[0]
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "example.c"
        source.write_text(example)
        done = run(["cc", "-std=c11", "-Wall", "-Wextra", "-fsyntax-only", f"-I{INCLUDE}",
                    str(source)], check=False)
    expect("main(void)" in example,
           f"fanin.3: expected a whole program as EXAMPLE, found {example[:200]!r}")
    expect_equal((done.returncode, done.stderr), (0, ""),
                 "what the compiler says to the example of fanin.3")


@case()
def the_examples_of_configurations_are_valid():
    page = section(read_page("fanin-switch.json.5"), "EXAMPLES")
    examples = re.findall(r"^\.EX\n(\{.*?^\}\n)\.EE", page, flags=re.M | re.S)
    macs = [json.loads(text)["address"]["mac"] for text in examples if '"routed"' in text]
    expect_equal((len(macs), len(set(macs))), (2, 2),
                 "switches and MAC addresses of the routed example")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "example.json"
        for number, text in enumerate(examples):
            config = json.loads(text)
            # The check needs the interfaces to exist.
            for port, entry in enumerate(config["ports"]):
                del entry["interface"]
                entry["vdev"] = f"net_null{port}"
            path.write_text(json.dumps(config))
            done = run([program("fanin-switch"), "--check", "--config", str(path)], check=False)
            expect_equal(done.returncode, 0,
                         f"exit status of fanin-switch --check for example {number}: "
                         f"{done.stdout}{done.stderr}")


@case()
def man_pages_are_formatted_without_a_warning():
    with tempfile.TemporaryDirectory() as directory:
        for number in range(1, 9):
            (Path(directory) / f"man{number}").symlink_to(MAN)
        for path in pages():
            # Pages that a page includes are found from here: -I wants programs beyond groff-base.
            done = run(["groff", "-man", "-ww", "-z", "-Kutf8", "-Tutf8", str(path)], check=False,
                       cwd=directory)
            expect_equal((done.returncode, done.stderr), (0, ""), f"what groff says to {path.name}")


@case()
def man_pages_are_installed_and_refer_to_pages_that_exist():
    names = [path.name for path in pages()]
    installed = re.findall(r"'(.*)',", (MAN / "meson.build").read_text())
    expect_equal(set(installed) ^ set(names), set(),
                 "pages that only one of docs/man and its meson.build has")
    for name in names:
        for title, number in re.findall(r'\b(fanin[\w.-]*) ?"?\((\d)\)', read_page(name)):
            expect(f"{title}.{number}" in names,
                   f"{name} refers to {title}({number}), which does not exist")


def help_texts(name):
    """Returns the output of a program's --help, and faninctl's help for each of its commands."""
    texts = [run([program(name), "--help"]).stdout]
    commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S", texts[0],
                          flags=re.M) if name == "faninctl" else []
    return texts + [run([program(name), "help", *command.split()]).stdout for command in commands]


@case()
def man_pages_have_every_option_of_the_programs():
    for name, number in PROGRAMS.items():
        options = {option for text in help_texts(name) for option in OPTION.findall(text)}
        expect("--help" in options,
               f"{name} --help: expected --help among its options, found {sorted(options)}")
        missing = options - set(OPTION.findall(read_page(f"{name}.{number}")))
        expect(not missing, f"{name}.{number} does not have the options {sorted(missing)} of --help")


@case()
def every_program_tells_its_version_and_those_of_its_libraries():
    """DPDK's and libfanin's: the one that it runs with and the one that it was built with."""
    own = re.search(r"version: '([\d.]+)'", (SOURCE_DIR / "meson.build").read_text()).group(1)
    header = re.search(r'FANIN_HEADER_VERSION "(.*)"', (INCLUDE / "fanin" / "fanin.h").read_text())
    expect_equal(header.group(1), own, "the version of fanin.h")
    number = r"[\d.]+(?:-rc\d+)?"
    dpdk = rf" \(DPDK ({number}); built with ({number})\)"
    libfanin = rf" \(libfanin ({number}); built with ({number})\)"
    libraries = {"fanin-switch": dpdk, "fanin-pktgen": dpdk, "fanin-perf": libfanin,
                 "fanin-server": libfanin}
    for name in PROGRAMS:
        told = run([program(name), "--version"]).stdout
        found = re.fullmatch(rf"{name} {re.escape(own)}{libraries.get(name, '')}\n", told)
        expect(found, f"{name} --version: found {told!r}")
        expect_equal(len(set(found.groups())), 1 if name in libraries else 0,
                     f"versions of the library of {name}: {told!r}")


@case()
def faninctl_takes_every_option_of_its_help():
    """With an invalid value and a missing socket: whatever else is wrong, the option is known."""
    commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?)  +\S",
                          run([program("faninctl"), "--help"]).stdout, flags=re.M)
    tried = 0
    for command in commands:
        text = run([program("faninctl"), "help", *command.split()]).stdout
        for option in set(OPTION.findall(text)) - {"--help", "--version"}:
            done = run([program("faninctl"), "-s", "/nonexistent", *command.split(), option, "x=1"],
                       check=False)
            expect("unrecognized" not in done.stderr,
                   f"faninctl {command} {option}: {done.stderr.strip()}")
            tried += 1
    expect(tried > 15, f"tried {tried} options, expected more")
