"""Run a script in a process where a fake pandas can be imported, and see whether it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_BEGIN = "import sys; sys.path.append(sys.argv[1])\n"
_END = "\nassert 'pyarrow' in sys.modules\nprint('pandas' in sys.modules)\n"


def imports_pandas(script: str, folder: Path) -> bool:
    """Run `script`, which must import pyarrow; `folder` holds the fake."""
    (folder / "pandas.py").write_text("__version__ = '3.0.0'\n")
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + script + _END, folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout in ("True\n", "False\n"), done.stderr
    return done.stdout == "True\n"
