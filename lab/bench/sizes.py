# SPDX-License-Identifier: BSD-3-Clause
"""Sizes of messages in words, such as "64 KiB"."""

import argparse
import re

KIB, MIB = 1 << 10, 1 << 20


def human_bytes(count):
    for unit, size in (("MiB", MIB), ("KiB", KIB)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} bytes"


def byte_count(text):
    match = re.fullmatch(r"(\d+)(|KiB|MiB)", text)
    count = int(match.group(1)) * {"": 1, "KiB": KIB, "MiB": MIB}[match.group(2)] if match else 0
    if not 4 <= count <= 1 << 30 or count % 4 != 0:
        raise argparse.ArgumentTypeError(f"found '{text}', expected 4 to 1024MiB, a multiple of 4, "
                                         "like 64KiB")
    return count
