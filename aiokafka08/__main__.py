"""`python -m aiokafka08`: the command line, as the console script `aiokafka08`."""

import sys

from aiokafka08.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
