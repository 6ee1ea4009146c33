"""A SPARK_HOME with which Spark's Python processes start sooner.

Spark puts `python/lib/pyspark.zip` in front of each process's path. Python keeps no bytecode of an
archive, so each process compiles 200 modules: the one of a stream takes 1.3 CPU-s to start. Here
the name `pyspark.zip` stands for a folder with the installed package, of which there is bytecode:
0.75 CPU-s. All else are links.

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


def shared_home(pyspark: Path) -> Path:
    """Return the home for all tests, beside pyspark; make it if it isn't there.

    An archive of classes is mapped only with the jars in the same place.
    """
    home = pyspark / f"aiokafka08-home-{importlib.metadata.version('pyspark')}"
    if not home.is_dir():
        partial = Path(tempfile.mkdtemp(dir=pyspark, prefix="aiokafka08-"))
        make_home(partial, pyspark)
        try:
            partial.rename(home)
        except OSError:  # another process of the tests was first
            shutil.rmtree(partial)
    return home


def make_home(home: Path, pyspark: Path) -> None:
    """Fill an empty folder. A local cluster writes to its folder `work`."""
    modules = home / "python" / "lib" / "pyspark.zip"
    modules.mkdir(parents=True)
    (modules / "pyspark").symlink_to(pyspark)
    for path in (pyspark / "python" / "lib").iterdir():
        if path.name != "pyspark.zip":
            (modules.parent / path.name).symlink_to(path)
    for path in pyspark.iterdir():
        if path.name not in {"python", "work"} and not path.name.startswith("aiokafka08-"):
            (home / path.name).symlink_to(path)
