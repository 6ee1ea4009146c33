"""How a command ends by a signal."""


class Terminated(Exception):
    """SIGTERM has ended the command."""
