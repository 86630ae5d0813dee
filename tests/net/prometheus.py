# SPDX-License-Identifier: BSD-3-Clause
"""Reads Prometheus' text format 0.0.4 strictly: whatever a scraper could stumble over is a
CaseFailed.
"""

import http.client
import re

from tests.net.support import expect, expect_equal
from lab.namespaces import inside

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?(e[+-]?\d+)?|Inf)|NaN")
# That Prometheus gives samples by itself: those of the same name become exported_job and so on.
TAKEN = {"job", "instance"}
ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Family:
    """The samples of one metric: {(suffix, ((label, value), ...)): number}."""

    def __init__(self, name, text):
        self.name, self.text, self.type, self.samples = name, text, None, {}

    def add(self, suffix, labels, number):
        key = (suffix, labels)
        expect(key not in self.samples, f"{self.name}: {labels} twice")
        self.samples[key] = number

    def check(self):
        expect(re.fullmatch(r"fanin_[a-z0-9_]*[a-z]", self.name), f"metric name {self.name}")
        expect(self.text and self.type, f"{self.name} lacks HELP or TYPE")
        expect_equal(self.name.endswith("_total"), self.type == "counter",
                     f"{self.name} ends like a counter")
        if self.type != "gauge":
            expect(all(number >= 0 for number in self.samples.values()), f"{self.name} is negative")
        if self.type == "histogram":
            for labels in {without_bound(labels) for suffix,
                           labels in self.samples if suffix == "_bucket"}:
                self.check_histogram(labels)

    def check_histogram(self, labels):
        buckets = [(float(dict(found)["le"]), number) for (suffix, found),
                   number in self.samples.items()
                   if suffix == "_bucket" and without_bound(found) == labels]
        bounds, counts = zip(*buckets)
        expect_equal(list(bounds), sorted(set(bounds)), f"order of {self.name}'s buckets")
        expect_equal(list(counts), sorted(counts), f"{self.name}'s buckets, which are cumulative")
        expect_equal(bounds[-1], float("inf"), f"last bucket of {self.name}")
        expect(("_sum", labels) in self.samples, f"{self.name}{labels} has no _sum")
        expect_equal(counts[-1], self.samples.get(("_count", labels)), f"{self.name}_count{labels}")


def without_bound(labels):
    return tuple(label for label in labels if label[0] != "le")


def read_labels(text, line):
    labels = []
    at = 0
    while at < len(text):
        match = LABEL.match(text, at)
        expect(match, f"labels of '{line}'")
        value = re.sub(r'\\[\\"n]', lambda escape: ESCAPED[escape.group()], match.group(2))
        labels.append((match.group(1), value))
        at = match.end()
    names = {name for name, _ in labels}
    expect_equal(len(names), len(labels), f"different labels of '{line}'")
    expect(not names & TAKEN, f"'{line}' has a label that is Prometheus' own")
    return tuple(labels)


def read_number(text, line):
    expect(NUMBER.fullmatch(text), f"value of '{line}'")
    return float(text)


def parse(text):
    """The families of an exposition by name."""
    families = {}
    family = None
    expect(text.endswith("\n"), "the last line does not end")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            expect(name not in families, f"{name} has two families")
            family = families[name] = Family(name, words)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            expect(family is not None and family.name == name and family.type is None,
                   f"'{line}' does not follow its HELP")
            expect(kind in ("counter", "gauge", "histogram"), f"'{line}'")
            family.type = kind
        else:
            match = SAMPLE.fullmatch(line)
            expect(match and family is not None and family.type,
                   f"'{line}' is no sample of a family")
            name, labels, number = match.groups()
            suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",)
            suffix = name[len(family.name):]
            expect(name.startswith(family.name) and suffix in suffixes,
                   f"'{line}' stands in the family {family.name}")
            family.add(suffix, read_labels(labels or "", line), read_number(number, line))
    for family in families.values():
        family.check()
    return families


def request(namespace, address, method, path):
    """(status, content type, body) of a request within a switch's namespace."""
    with inside(namespace):
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type"), response.read().decode()
        finally:
            connection.close()


def scrape(namespace, address):
    """The metrics of the switch in a namespace: families by name."""
    status, kind, text = request(namespace, address, "GET", "/metrics")
    expect_equal((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"),
                 "status and content type")
    return parse(text)
