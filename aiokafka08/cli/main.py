"""The entry point of installed scripts."""

from aiokafka08._tools.cli.main import run_process

__all__ = ["run_process"]
