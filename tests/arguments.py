"""Types of command-line arguments, for `argparse`."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected an integer >= 1")
    return number
