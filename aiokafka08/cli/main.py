"""The entry point of installed scripts."""

from aiokafka08._tools.cli.main import main, run_process

__all__ = ["main", "run_process"]
