"""The command line's fixtures, for the tests of the command `doctor`."""

from __future__ import annotations

from tests._tools.cli.conftest import cli, no_settings_of_the_user

__all__ = ["cli", "no_settings_of_the_user"]
