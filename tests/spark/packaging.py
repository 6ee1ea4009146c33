"""The package as its users get it: a zip, a wheel, and Pythons with and without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from tests.support.paths import ROOT


def zipped(folder: Path) -> Path:
    """Return a zip of the package, with its pure Python files only."""
    package = folder / "aiokafka08.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in (ROOT / "aiokafka08").rglob("*.py"):
            archive.write(path, path.relative_to(ROOT))
    return package


def wheel(folder: Path) -> Path:
    """Build a wheel of the package, in a copy: other tests use the extensions built here."""
    source = folder / "source"
    ignore = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT / "aiokafka08", source / "aiokafka08", ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder / "wheels"), str(source))
    [built] = (folder / "wheels").iterdir()
    return built


def python_with(folder: Path, *packages: str) -> str:
    """Create a virtual environment with only these packages, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv" / "bin" / "python")
    pip(python, "install", *packages)
    return python


def bare_python(folder: Path, *paths: str) -> str:
    """Create a virtual environment with what is installed here, but for this package in place.

    Args:
        folder: where `venv` is made.
        paths: folders in which it finds packages first.
    """
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
    )
    [packages] = (folder / "venv" / "lib").glob("python*/site-packages")
    # A `.pth` file in a folder that is itself named by one has no effect.
    lines = [*paths, sysconfig.get_path("purelib")]
    (packages / "here.pth").write_text("".join(f"{line}\n" for line in lines))
    return str(folder / "venv" / "bin" / "python")


def pip(python: str, *arguments: str) -> None:
    """Run pip of a virtual environment."""
    subprocess.run([python, "-m", "pip", "--quiet", *arguments], check=True)
