"""The rules of the command `doctor`, and what it reads for them.

`gathering` looks at a cluster through samples (`_tools.monitoring`) and `log_samples`, and
`examination` applies the rules: one module a family of findings. `finding` has their codes,
`report` prints them for people. docs/doctor.md describes each code.

Invariant: nothing changes in the cluster, and nothing is guessed: what can't be seen is reported as
unknown.
"""
