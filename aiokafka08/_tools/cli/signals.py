"""The end of a command by a signal."""


class Terminated(Exception):
    """SIGTERM has ended the command."""
