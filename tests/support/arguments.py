"""Types of command-line arguments, for `argparse`."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected an integer >= 1")
    return number


def positive_number(text: str) -> float:
    if not (number := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text}: expected a number > 0")
    return number
