#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sparse gradients of several workers, as files for fanin-perf --sparse --pattern.

Workers train one network on Fashion-MNIST, each on batches of its own. In each step a worker sends
the values with the largest magnitudes of its gradient and of what it has not sent before, and all
take the mean of what was sent. Where a worker's values are in the last step is what the files have:

  buckets.txt    the largest value of each bucket of 512
  top.txt        the largest 1 %
  words.txt      the rows of an embedding that a batch of words touches, not trained; how often
                 words occur follows Zipf's law

Needs the Debian packages python3-torch and dataset-fashion-mnist, and Debian's Python,
/usr/bin/python3; words.txt alone needs neither.
"""

import argparse
import gzip
import itertools
import random
import re
import sys
import time
from pathlib import Path

DATA = Path("/usr/share/datasets/fashion-mnist")
PACKAGES = "apt-get install python3-torch dataset-fashion-mnist"
IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049
PIXELS = 28 * 28
CLASSES = 10
LEARNING_RATE = 0.5


class GradientsError(Exception):
    """The program can't work; the text tells the user why."""


def whole_number(low, high):
    def parse(text):
        if not re.fullmatch(r"\d+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"found '{text}', expected a whole number from {low} "
                                             f"to {high}")
        return int(text)
    return parse


def number(low, high):
    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low < value <= high:
            raise argparse.ArgumentTypeError(f"found '{text}', expected a number above {low}, and "
                                             f"{high} at most")
        return value
    return parse


def sizes(text):
    if not re.fullmatch(r"\d+(,\d+)*",
                        text) or not all(0 < int(size) <= 1 << 16 for size in text.split(",")):
        raise argparse.ArgumentTypeError(f"found '{text}', expected sizes of layers like 1024,1024")
    return [int(size) for size in text.split(",")]


def parse_arguments(arguments):
    description, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(description=description, epilog=more,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("directory", type=Path, help="where the files go; is made")
    parser.add_argument("--workers", type=whole_number(1, 64), default=8, metavar="P",
                        help="default: 8")
    parser.add_argument("--only", choices=["buckets", "top", "words"], nargs="+",
                        default=["buckets", "top", "words"],
                        help="these files (default: all)")
    parser.add_argument("--hidden", type=sizes, default=[2048, 1024], metavar="N,N",
                        help="neurons of the hidden layers (default: 2048,1024; 3.7 million "
                             "values, 15 MB of f32)")
    parser.add_argument("--batch", type=whole_number(1, 60000), default=64, metavar="B",
                        help="images of a worker in a step (default: 64)")
    parser.add_argument("--steps", type=whole_number(1, 100000), default=20, metavar="N",
                        help="default: 20")
    parser.add_argument("--bucket", type=whole_number(1, 1 << 30), default=512, metavar="N",
                        help="values of a bucket (default: 512)")
    parser.add_argument("--top", type=number(0, 1), default=0.01, metavar="D",
                        help="part of the values in top.txt (default: 0.01)")
    parser.add_argument("--words", type=whole_number(1, 1 << 24), default=32768, metavar="N",
                        help="rows of the embedding (default: 32768)")
    parser.add_argument("--columns", type=whole_number(1, 65536), default=128, metavar="N",
                        help="of the embedding (default: 128)")
    parser.add_argument("--tokens", type=whole_number(1, 1 << 20), default=1024, metavar="N",
                        help="words of a worker's batch (default: 1024)")
    parser.add_argument("--zipf", type=number(0, 10), default=1.0, metavar="S",
                        help="the word of rank r occurs as r to the power of minus S (default: 1.0)")
    parser.add_argument("--seed", type=whole_number(0, 2**32 - 1), default=1)
    return parser.parse_args(arguments)


class Screen:
    """Shows progress on standard error: a line that is rewritten on a terminal, otherwise nothing.
    """

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.started = time.monotonic()

    def progress(self, what, done, total, more=""):
        if self.terminal:
            filled = 32 * done // total
            print(f"\r\033[K{what:<8} [{'#' * filled}{'.' * (32 - filled)}] {done}/{total}  "
                  f"{time.monotonic() - self.started:.0f} s{more}",
                  end="" if done < total else "\n", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- training


def import_torch():
    try:
        import torch
    except ImportError as error:
        raise GradientsError(f"PyTorch cannot be imported by {sys.executable}: {error}; expected "
                             f"Debian's: {PACKAGES}, and "
                             "/usr/bin/python3") from error
    return torch


def load_bytes(torch, name, magic, item_bytes):
    """Loads a file in the format of MNIST: a tensor of bytes, a row for each item."""
    path = DATA / name
    try:
        with gzip.open(path) as file:
            data = file.read()
    except (OSError, EOFError) as error:
        raise GradientsError(
            f"{path}: cannot be read: {error}; expected Fashion-MNIST: {PACKAGES}") from error
    header = 16 if magic == IMAGES_MAGIC else 8
    found, count = int.from_bytes(data[0:4], "big"), int.from_bytes(data[4:8], "big")
    if found != magic or len(data) != header + count * item_bytes:
        raise GradientsError(f"{path}: found {len(data)} bytes that begin with {found}, expected "
                             f"{header + count * item_bytes} that begin with {magic}")
    return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8).reshape(count, item_bytes)


def load_data(torch):
    images = load_bytes(torch, "train-images-idx3-ubyte.gz", IMAGES_MAGIC, PIXELS).float() / 255
    labels = load_bytes(torch, "train-labels-idx1-ubyte.gz", LABELS_MAGIC, 1)[:, 0].long()
    return images, labels


def make_network(torch, hidden):
    layers = []
    for inputs, outputs in itertools.pairwise([PIXELS, *hidden, CLASSES]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def largest_of_buckets(torch, vector, bucket):
    """Returns the positions of the value with the largest magnitude of each bucket, except for
    buckets of zeros.
    """
    full = len(vector) // bucket * bucket
    magnitudes = vector.abs()
    found = magnitudes[:full].reshape(-1, bucket).argmax(dim=1) + torch.arange(0, full, bucket)
    if full < len(vector):
        found = torch.cat([found, magnitudes[full:].argmax().reshape(1) + full])
    return found[magnitudes[found] > 0]


def largest(torch, vector, part):
    """Returns the positions of this part of the values, those with the largest magnitudes, in
    order.
    """
    found = vector.abs().topk(max(1, int(part * len(vector))), sorted=False).indices
    return found[vector[found] != 0].sort().values


def train(torch, options, data, name, select, screen):
    """
    Trains a network. select: returns the positions of a vector that are sent. Returns the number of
    values, the positions that each worker has sent in the last step, and the mean loss of each
    step. Every network has the same start, and workers the same batches.
    """
    torch.manual_seed(options.seed)
    network = make_network(torch, options.hidden)
    parameters = list(network.parameters())
    images, labels = data
    batches = [torch.Generator().manual_seed(options.seed * 1000 + 1 + worker)
               for worker in range(options.workers)]
    length = sum(parameter.numel() for parameter in parameters)
    unsent = [torch.zeros(length) for _ in range(options.workers)]
    losses = [0.0] * options.steps
    for step in range(options.steps):
        sent, mean, losses[step] = [], torch.zeros(length), 0.0
        for worker in range(options.workers):
            batch = torch.randint(len(images), (options.batch,), generator=batches[worker])
            loss = torch.nn.functional.cross_entropy(network(images[batch]), labels[batch])
            gradient = torch.autograd.grad(loss, parameters)
            unsent[worker] += torch.cat([part.reshape(-1) for part in gradient])
            positions = select(unsent[worker])
            mean[positions] += unsent[worker][positions] / options.workers
            unsent[worker][positions] = 0
            sent.append(positions)
            losses[step] += float(loss) / options.workers
        torch.nn.utils.vector_to_parameters(
            torch.nn.utils.parameters_to_vector(parameters).detach() - LEARNING_RATE * mean,
            parameters)
        screen.progress(name, step + 1, options.steps, f", loss {losses[step]:.3f}")
    return length, [positions.tolist() for positions in sent], losses


# ------------------------------------------------------------------- words


def touch_words(options, screen):
    """Returns the elements of the embedding that each worker's batch touches. Rows are in the order
    of their words' frequencies.
    """
    weights = list(itertools.accumulate((rank + 1) ** -options.zipf
                                        for rank in range(options.words)))
    touched = []
    for worker in range(options.workers):
        chance = random.Random(options.seed * 1000 + 1 + worker)
        rows = sorted(set(chance.choices(range(options.words), cum_weights=weights,
                                         k=options.tokens)))
        touched.append([row * options.columns + column for row in rows
                        for column in range(options.columns)])
        screen.progress("words", worker + 1, options.workers)
    return options.words * options.columns, touched


# ------------------------------------------------------------------ output


def write_places(path, title, length, places):
    """Writes a file for fanin-perf --pattern, and renames it once it is complete."""
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w", encoding="ascii") as file:
        file.write(f"# {title}\nn {length}\n")
        for mine in places:
            file.write((" ".join(map(str, mine)) or "-") + "\n")
    unfinished.replace(path)


def describe(path, length, places):
    """Returns a line of the table: densities of the workers, and of all of them together."""
    counts = [len(mine) for mine in places]
    union = len(set().union(*places))
    return (f"{path.name:<12}{length:>10}{min(counts):>9}{max(counts):>9}{100 * sum(counts) / len(counts) / length:>11.3f} %{100 * union / length:>10.3f} %{union / max(1, max(counts)):>9.2f}")


def make_all(options):
    screen = Screen()
    trained = [name for name in ("buckets", "top") if name in options.only]
    torch = import_torch() if trained else None
    data = load_data(torch) if trained else None
    options.directory.mkdir(parents=True, exist_ok=True)
    selections = {"buckets": (f"the largest value of each bucket of {options.bucket}",
                              lambda vector: largest_of_buckets(torch, vector, options.bucket)),
                  "top": (f"the largest {100 * options.top:g} %",
                          lambda vector: largest(torch, vector, options.top))}
    print(f"{'file':<12}{'n':>10}{'least':>9}{'most':>9}{'density':>13}{'union':>12}{'factor':>9}")
    for name in ("buckets", "top", "words"):
        if name not in options.only:
            continue
        if name == "words":
            title = f"rows of an embedding of {options.words} words, {options.tokens} words a worker, Zipf {options.zipf:g}"
            length, places = touch_words(options, screen)
        else:
            title = f"gradients of layers of {options.hidden} after {options.steps} steps: {selections[name][0]}"
            length, places, losses = train(torch, options, data, name, selections[name][1], screen)
            title += f"; loss {losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last"
        path = options.directory / f"{name}.txt"
        write_places(path, f"{title}; seed {options.seed}", length, places)
        print(describe(path, length, places), flush=True)


def main():
    try:
        make_all(parse_arguments(sys.argv[1:]))
    except (GradientsError, OSError) as error:
        print(f"gradients.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
