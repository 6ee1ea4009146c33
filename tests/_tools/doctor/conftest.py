"""The command line's fixtures, for the tests of the command `doctor`."""

from __future__ import annotations

from tests._tools.cli.conftest import cli, folder_of_profiles

__all__ = ["cli", "folder_of_profiles"]
