"""The command line for the tests of the bridge."""

from tests.cli.conftest import cli, no_settings_of_the_user

__all__ = ["cli", "no_settings_of_the_user"]
