#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what users see of a commit and of this tree: names, options, keys, metrics and texts
that programs print, the public headers, the packet's structs, man pages, units and examples of
configurations. For changes that are to change none of it.
"""

import argparse
import ast
import collections
import difflib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Texts that a file of another room had before are the same: only tests are no part of it.
TESTS = re.compile(r"(.*/)?tests/.*|examples/.*")
LITERALS = (".c", ".cc", ".h", ".py")
# Headers that others build against, in the folders of older commits, too.
DECLARATIONS = re.compile(r"(hostlib/include/.*|.*torch/include/.*|wire/[^/]*|protocols/(\w+)/\2)\.h")
VERBATIM = ("docs/man/", "packaging/", "configs/")
# A comment, a character, or a string of C.
C_TOKEN = re.compile(
    r"/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])+'|\"((?:\\.|[^\"\\\n])*)\"|#\s*include[^\n]*|[^\s\"'/]+|\s+|.", re.S)


def files_of_commit(commit):
    """{path: text} of the commit's files."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True,
                             stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: tar.extractfile(member).read().decode(errors="replace")
                for member in tar if member.isfile()}


def files_of_tree():
    """{path: text} of what git would commit of this tree."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                            check=True, stdout=subprocess.PIPE, text=True)
    return {name: (ROOT / name).read_text(errors="replace") for name in listed.stdout.splitlines()
            if (ROOT / name).is_file()}


def c_strings(text):
    """Strings of C code; neighbors are one."""
    whole = None
    for token in C_TOKEN.finditer(text):
        if token.group(1) is not None:
            whole = (whole or "") + token.group(1)
        elif whole is not None and not token.group(
                0).isspace() and not token.group(0).startswith(("/*", "//")):
            yield whole
            whole = None
    if whole is not None:
        yield whole


def python_strings(text):
    """Strings of Python code, those with expressions in them as they stand there, but no docstrings;
    neighbors are one.
    """
    tree = ast.parse(text)
    parts = {id(part) for node in ast.walk(tree)
             if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield ast.unparse(node)[2:-1]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace("\n", "\\n")


def strings(path, text):
    """Strings that the program of this file may print or understand, and others; not those of
    assertions of the compiler.
    """
    if path.endswith(".py"):
        return list(python_strings(text))
    return list(c_strings(re.sub(r"static_assert\([^;]*;", "", text)))


def declarations(text):
    """The declarations of C code, a line each however they are wrapped, without comments."""
    bare = re.sub(r"/\*.*?\*/|//[^\n]*|\\\n", " ", text, flags=re.S)
    bare = re.sub(r"^\s*(#.*)$", "\x00\\1\x00", bare, flags=re.M)
    pieces = (re.sub(r"\s+", " ", re.sub(r"([(\[]) | ([,)\]])", r"\1\2", " ".join(piece.split())))
              for piece in re.split("\x00|(?<=[;{}])", bare))
    return [piece for piece in pieces if piece]


def surface(files):
    """{section: lines} of what users see."""
    found = collections.defaultdict(list)
    for path, text in sorted(files.items()):
        name = path.rpartition("/")[2]  # a file that only moves is the same
        if DECLARATIONS.fullmatch(path):
            found[name] += declarations(text)
        if path.startswith(VERBATIM) and name != "meson.build":
            found[name] += text.splitlines()
        if path.endswith(LITERALS) and not TESTS.fullmatch(path):
            found["names and texts in the code"] += [literal for literal in strings(path, text)
                                                     if not literal.endswith((".h", ".c"))]
    found["names and texts in the code"] = sorted(set(found["names and texts in the code"]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="to compare this tree with")
    commit = parser.parse_args().commit
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "-q", "--verify", commit + "^{commit}"],
                      stdout=subprocess.DEVNULL, check=False).returncode != 0:
        parser.error(f"'{commit}' is no commit of {ROOT}")
    before, after = surface(files_of_commit(commit)), surface(files_of_tree())
    n_changed = 0
    for section in sorted(set(before) | set(after)):
        changed = [line for line in difflib.unified_diff(before[section], after[section], n=0,
                                                         lineterm="")
                   if not line.startswith(("---", "+++", "@@"))]
        n_changed += len(changed)
        if changed:
            print(f"{section}:")
            print("\n".join("  " + line for line in changed))
    print(f"{n_changed} lines differ in {len(set(before) | set(after))} sections"
          if n_changed else "what users see is the same")
    return 1 if n_changed else 0


if __name__ == "__main__":
    sys.exit(main())
