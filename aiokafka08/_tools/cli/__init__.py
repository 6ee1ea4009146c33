"""The command line: `aiokafka08`, which is also `python -m aiokafka08` (extra `cli`).

Rules for all commands:

- Only data goes to stdout. Errors are one line on stderr, `aiokafka08: <text>`.
- A command works through the public clients, the admin client and the range reader. A function
  that they lack is added there.
- Reading never creates a topic.
- At import, a module of `commands/` imports click and modules of `cli` that are as light.
  Modules with network code are imported in the function that uses them, so that `--help` stays
  fast.
"""
