"""Read the output of processes that a test starts."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor


def rest_of_output(process: subprocess.Popen[str], timeout_s: float) -> tuple[str, str]:
    """Wait until a process has ended; return what of stdout and stderr wasn't read before.

    After `readline()` this takes the place of `communicate(timeout=...)`. That one reads the pipe,
    and so loses the lines that `readline()` has taken from the pipe into the stream's buffer.

    Raises:
        subprocess.TimeoutExpired: the process didn't end in time; it is killed.
    """
    if process.stdin is not None:
        process.stdin.close()
        process.stdin = None  # so that a later `communicate()` doesn't flush it
    with ThreadPoolExecutor(2) as readers:  # a process waits while a pipe is full
        out, err = (
            readers.submit(stream.read if stream is not None else str)
            for stream in (process.stdout, process.stderr)
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return out.result(), err.result()
