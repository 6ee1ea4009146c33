"""Run a program of this folder by `aiokafka08.compat`, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path


async def run_program(program: Path, *arguments: str, **environment: str) -> tuple[str, str]:
    """Run the program, and return its output and its log. A failure raises AssertionError."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiokafka08.compat", str(program), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        out, log = await asyncio.wait_for(process.communicate(), 100)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, log.decode()
    return out.decode(), log.decode()
