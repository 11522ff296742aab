"""What the command line reads: seeds, numbers, JSON files. Everything wrong gets one clear sentence."""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

_LARGEST_FILE = 10 * 2**20


class UsageError(Exception):
    """Bad input on the command line: shown in one line, exit status 2."""


def parse_seeds(text: str) -> list[int]:
    """Seeds such as ``0``, ``0,3,7`` or ``0..15`` (both ends included).

    Raises:
        argparse.ArgumentTypeError: if the text is none of these.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or len(part) > 40:
            raise argparse.ArgumentTypeError(
                f"seeds are whole numbers such as 0, 0,3,7 or 0..15, but {part!r} is not"
            )
        low, high = int(first), int(last) if dots else int(first)
        if high < low or high - low >= 10_000 or high >= 2**63:
            raise argparse.ArgumentTypeError(
                f"a range of seeds ascends, holds at most 10000 and ends below 2^63, but is {part!r}"
            )
        seeds += range(low, high + 1)
    return list(dict.fromkeys(seeds))


def parse_one_seed(text: str) -> int:
    """One seed.

    Raises:
        argparse.ArgumentTypeError: if the text is not a whole number from 0 to 2^63 - 1.
    """
    seeds = parse_seeds(text)
    if len(seeds) != 1:
        raise argparse.ArgumentTypeError(f"this command takes one seed, but {text!r} names {len(seeds)}")
    return seeds[0]


def _whole_number(low: int, high: int, sentence: str) -> Callable[[str], int]:
    """A parser of whole numbers from low to high; the sentence says what they are for."""

    def parse(text: str) -> int:
        if not text.isdecimal() or len(text) > 12 or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{sentence}, but got {text!r}")
        return int(text)

    return parse


parse_clones = _whole_number(4, 2**20, f"truth takes a whole number of clones from 4 to {2**20}")
parse_steps = _whole_number(1, 100_000, "a fit takes a whole number of steps from 1 to 100000")
parse_jobs = _whole_number(1, 64, "the ladder takes 1 to 64 workers")
parse_bulk_clones = _whole_number(1, 2**24, f"an ensemble takes a whole number of clones from 1 to {2**24}")
parse_first_clone = _whole_number(0, 2**32 - 1, f"the first clone has a whole number from 0 to {2**32 - 1}")
parse_chunk = _whole_number(1, 2**20, f"a chunk takes a whole number of clones from 1 to {2**20}")


def parse_window(text: str) -> tuple[int, int]:
    """A window such as ``128:256``: from tick 128 to the one before tick 256.

    Raises:
        argparse.ArgumentTypeError: if the text is none, or the window holds fewer than 2 ticks.
    """
    start, colon, stop = text.partition(":")
    if not (start.isdecimal() and colon and stop.isdecimal() and len(text) <= 40):
        raise argparse.ArgumentTypeError(f"a window is START:STOP in ticks, such as 128:256, but is {text!r}")
    if int(stop) - int(start) < 2:
        raise argparse.ArgumentTypeError(f"a window must hold at least 2 ticks, but is {text!r}")
    return int(start), int(stop)


def read_json(path: str) -> Any:
    """JSON from a file, or from standard input if the path is ``-``.

    Raises:
        UsageError: if it cannot be read, is larger than 10 MiB, or is not JSON.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_LARGEST_FILE + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > _LARGEST_FILE:
        raise UsageError(f"{path} is larger than {_LARGEST_FILE // 2**20} MiB, the most that is read")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error or 'nested too deeply'}") from error
