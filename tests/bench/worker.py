"""Measures one case of one client in this process, and prints the result as one line of JSON.

Called by `tests.bench.run`: `python -m tests.bench.worker '{"client": …}'`, in the client's own
environment, so that nothing but the standard library may be imported here.
"""

from __future__ import annotations

import importlib
import json
import sys

from tests.bench.cases import values


def main(arguments: str) -> None:
    """Do what the JSON arguments say."""
    job = json.loads(arguments)
    function = getattr(importlib.import_module(f"tests.bench.clients.{job['client']}"), job["call"])
    options = job.get("options", {})
    if job["produces"]:
        made = values(job["messages"], job["value_bytes"])
        measurement = function(job["bootstrap"], job["topic"], made, job["compression"], **options)
    else:
        measurement = function(job["bootstrap"], job["topic"], job["messages"], **options)
    print(json.dumps(measurement.as_dict()))


if __name__ == "__main__":
    main(sys.argv[1])
