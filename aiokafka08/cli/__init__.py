"""The path of the entry point, `aiokafka08.cli.main`; the command line is in `_tools/cli`."""
