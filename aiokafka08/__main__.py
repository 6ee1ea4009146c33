"""`python -m aiokafka08`: the command line, as the console script `aiokafka08`."""

from aiokafka08._tools.cli.main import run_process

if __name__ == "__main__":
    run_process()
