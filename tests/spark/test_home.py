"""The SPARK_HOME of the tests has pyspark as a folder, so that its bytecode is kept."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tests.spark import home
from tests.spark.home import make_home, shared_home


@pytest.fixture
def pyspark(tmp_path: Path) -> Path:
    """An installed pyspark, as far as a home needs it."""
    folder = tmp_path / "pyspark"
    for name in ("jars", "bin", "work", "aiokafka08-home-0"):
        (folder / name).mkdir(parents=True)
    library = folder / "python" / "lib"
    library.mkdir(parents=True)
    for name in ("pyspark.zip", "py4j-0.10-src.zip"):
        (library / name).touch()
    return folder


def test_home_links_all_but_the_archive_of_modules(pyspark: Path, tmp_path: Path) -> None:
    made = tmp_path / "home"
    made.mkdir()
    make_home(made, pyspark)
    assert sorted(path.name for path in made.iterdir()) == ["bin", "jars", "python"]
    library = made / "python" / "lib"
    assert (library / "pyspark.zip" / "pyspark").resolve() == pyspark
    assert (library / "py4j-0.10-src.zip").resolve() == pyspark / "python/lib/py4j-0.10-src.zip"


def test_shared_home_is_made_once(pyspark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name for path in pyspark.iterdir()}
    first = shared_home(pyspark)
    monkeypatch.setattr(home, "make_home", None)
    assert shared_home(pyspark) == first
    version = importlib.metadata.version("pyspark")
    assert {path.name for path in pyspark.iterdir()} - before == {f"aiokafka08-home-{version}"}


def test_home_that_another_process_makes_first_is_kept(
    pyspark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = importlib.metadata.version("pyspark")

    def lose_the_race(partial: Path, _: Path) -> None:
        (partial / "mine").touch()
        others = pyspark / f"aiokafka08-home-{version}"
        others.mkdir()
        (others / "theirs").touch()

    monkeypatch.setattr(home, "make_home", lose_the_race)
    assert [path.name for path in shared_home(pyspark).iterdir()] == ["theirs"]
    assert sorted(path.name for path in pyspark.glob("aiokafka08-*")) == [
        "aiokafka08-home-0", f"aiokafka08-home-{version}",
    ]  # fmt: skip


def test_home_that_cannot_be_made_raises_and_leaves_nothing(
    pyspark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(partial: Path, _: Path) -> None:
        (partial / "half").touch()
        raise OSError("disk full")

    before = sorted(pyspark.iterdir())
    monkeypatch.setattr(home, "make_home", fail)
    with pytest.raises(OSError, match="disk full"):
        shared_home(pyspark)
    assert sorted(pyspark.iterdir()) == before
