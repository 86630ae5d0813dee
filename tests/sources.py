# SPDX-License-Identifier: BSD-3-Clause
"""The files of a tree, for the checks that read all of them: rooms.py, names.py, widths.py; and its
protocols that can be left out.
"""

import os
import re
import subprocess
import sys


def tree_files(root):
    """The tree's own files: what git knows or would add; all of them where there is no git."""
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(["git", "-c", f"safe.directory={os.path.abspath(root)}", "ls-files",
                                 "-co", "--exclude-standard"],
                                cwd=root, check=True, capture_output=True,
                                text=True).stdout.splitlines()
        return {path for path in listed if os.path.isfile(os.path.join(root, path))}
    files = set()
    for directory, below, names in os.walk(root):
        # Build directories have files that they made.
        below[:] = [name for name in below
                    if not os.path.exists(os.path.join(directory, name, "build.ninja"))]
        files.update(os.path.relpath(os.path.join(directory, name), root) for name in names)
    return files


def protocols_of(root):
    """The protocols that can be left out."""
    with open(os.path.join(root, "meson_options.txt"), encoding="utf-8") as file:
        choices = re.search(r"option\('without'.*?choices: \[(.*?)\]", file.read(), re.S)
    return re.findall(r"'(\w+)'", choices.group(1))


def root_of(arguments, script):
    """The tree that a check's command line names, by default this one; ends the program if it is
    wrong.
    """
    if len(arguments) > 1:
        print(f"usage: {script} [ROOT]", file=sys.stderr)
        sys.exit(2)
    if arguments:
        return arguments[0]
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
