"""Run seeds of the mixed scenario: `python -m tests.simulation --help`."""

import sys

from tests.simulation.runner import main

if __name__ == "__main__":
    sys.exit(main())
