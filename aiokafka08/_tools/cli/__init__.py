"""The command line: `aiokafka08`, which is also `python -m aiokafka08` (extra `cli`).

`main` is the entry point and turns exceptions into exit codes; `root` finds a command's module in
`commands/` by its name. `declare` has the decorators with which a command states its options, its
examples and the fields of its rows. `settings` merges flags, environment, profile and
configuration files; `connection` opens clients with the result; `output` prints rows.
`moving/` produces and consumes messages, in the formats of `_tools.records`; `kcat/` is what is
kcat's own. The rules of the command `doctor` are in `_tools.doctor`.

Rules for all commands:

- Nothing but data goes to stdout. Errors are one line on stderr, `aiokafka08: <text>`.
- A command works through the public clients, the admin client and the range reader. What they
  lack is added there.
- Reading never creates a topic.
- At import, a module of `commands/` imports click and modules of `cli` that are as light.
  What needs a network is imported in the function that uses it, so that `--help` stays fast.
"""
