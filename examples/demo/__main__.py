"""`python -m examples.demo`. Ctrl-C works from here on, also during the imports."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from examples.demo.user_settings import forget_user_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    forget_user_settings()
    try:
        from examples.demo.command import run

        return run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
