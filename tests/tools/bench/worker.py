"""Measure one case of one client in this process, and print the result as one line of JSON.

`peers` and `growth` start it as `python -m tests.tools.bench.worker '{"client": …}'` in the
client's own environment. So this module imports only the standard library, `cases` and the client's
module.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback

from tests.tools.bench.cases import values


def main(arguments: str) -> None:
    """Run the job that the JSON arguments describe."""
    job = json.loads(arguments)
    function = getattr(
        importlib.import_module(f"tests.tools.bench.clients.{job['client']}"), job["call"]
    )
    options = job.get("options", {})
    if job["produces"]:
        count, distinct = job["messages"], job.get("distinct") or job["messages"]
        made = (values(distinct, job["value_bytes"]) * (count // distinct + 1))[:count]
        measurement = function(job["bootstrap"], job["topic"], made, job["compression"], **options)
    else:
        measurement = function(job["bootstrap"], job["topic"], job["messages"], **options)
    print(json.dumps(measurement.as_dict()))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Exception:
        # The error is the last that is printed: at the end of the interpreter futures would log
        # errors that nobody has awaited, from Python 3.13 on in many lines.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
