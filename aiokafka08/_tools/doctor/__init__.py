"""The rules of the command `doctor`, and the samples for them.

`gathering` takes the samples, `examination` applies the rules: one module a family of findings.
docs/doctor.md describes each code.

Invariant: nothing changes in the cluster, and nothing is guessed: unknown facts are reported as
unknown.
"""
