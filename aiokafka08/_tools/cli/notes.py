"""Show a line to the user, on stderr, where it disturbs no data."""

from __future__ import annotations

import contextlib
import re
import sys


def note(text: str, prefix: str = "aiokafka08: ") -> None:
    """Print a line on stderr; nothing happens if that is closed.

    Args:
        text: the line.
        prefix: what comes before it (default "aiokafka08: ").
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{prefix}{text}\n")
        sys.stderr.flush()


def in_options(text: str) -> str:
    """Return a text of the clients without their arguments and methods.

    It names flags for the arguments about ZooKeeper, and where to begin for `seek()`.
    """
    text = text.replace("zookeeper_connect='host:2181/chroot'", "--zookeeper host:2181/chroot")
    text = text.replace("zookeeper_check='warn'", "-X zookeeper.check=warn")
    text = text.replace(
        "Check zookeeper_connect, its chroot, and bootstrap_servers",
        "Check --zookeeper, its chroot, and -b",
    )
    text = text.replace("zookeeper_connect: kazoo", "--zookeeper: kazoo")
    text = re.sub(r"\bseek\(\) to (\d+) skips it", r"to begin at offset \1 skips it", text)
    text = text.replace("a seek() past it", "to begin behind it")
    text = text.replace("seek() past it", "begin behind it").replace("seek() to ", "begin at ")
    return text.replace("'aiokafka08[zookeeper]'", "'aiokafka08[cli,zookeeper]'")
