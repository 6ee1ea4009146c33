"""A SPARK_HOME with which Spark's Python processes start sooner.

Spark puts `python/lib/pyspark.zip` in front of each process's path. Python keeps no bytecode of an
archive, so each process compiles 200 modules: that of a stream takes 1.3 CPU-s to start. Here
`pyspark.zip` is a folder that links to the installed package, whose bytecode is kept: 0.75 CPU-s.
Everything else is a link.

Invariant: a home is complete or absent. It is made under another name.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import tempfile
from pathlib import Path


def pyspark_folder() -> Path | None:
    """Return where pyspark is installed; None if it isn't."""
    spec = importlib.util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def shared_home_path(pyspark: Path) -> Path:
    """Return where the home of all tests is, or would be: in pyspark's folder.

    It is shared because a JVM maps an archive of classes only with the jars at the same path.
    """
    return pyspark / f"aiokafka08-home-{importlib.metadata.version('pyspark')}"


def shared_home(pyspark: Path) -> Path:
    """Return the home of all tests; make it if it isn't there."""
    home = shared_home_path(pyspark)
    if not home.is_dir():
        partial = Path(tempfile.mkdtemp(dir=pyspark, prefix="aiokafka08-"))
        try:
            make_home(partial, pyspark)
            partial.chmod(0o755)  # for other users, too
            partial.rename(home)
        except OSError:
            if not home.is_dir():  # else another process of the tests was first
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return home


def make_home(home: Path, pyspark: Path) -> None:
    """Fill an empty folder with links; without `work`, to which a local cluster writes."""
    modules = home / "python" / "lib" / "pyspark.zip"
    modules.mkdir(parents=True)
    (modules / "pyspark").symlink_to(pyspark)
    for path in (pyspark / "python" / "lib").iterdir():
        if path.name != "pyspark.zip":
            (modules.parent / path.name).symlink_to(path)
    for path in pyspark.iterdir():
        if path.name not in {"python", "work"} and not path.name.startswith("aiokafka08-"):
            (home / path.name).symlink_to(path)
