"""Run seeds of the mixed scenario: `python -m tests.faults.simulation --help`."""

import sys

from tests.faults.simulation.runner import main

if __name__ == "__main__":
    sys.exit(main())
