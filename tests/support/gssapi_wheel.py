"""Install `gssapi` into this Python, which has no wheel for Linux: `python -m` this module.

It is compiled once, against MIT's library of Debian as `tests.brokers.kdc` unpacks it, for all
releases of Python (76 s); the wheel stays in the cache of the brokers' jars. Where that isn't
possible the program says so and ends with 0: the tests of Kerberos are then skipped by name, but
fail in CI.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers.jars import cache_dir, locked
from tests.brokers.kdc import kerberos_folder, library_folder
from tests.support.debian_tools import MissingPackageError, skipped_if_missing

RELEASE = "1.12.0"
_BUILD_S = 600


def require_gssapi() -> None:
    """Skip the test without the KDC's programs or without `gssapi`; fail in CI."""
    with skipped_if_missing("MIT Kerberos", "krb5-kdc krb5-admin-server krb5-user libkrb5-dev"):
        kerberos_folder()
    if importlib.util.find_spec("gssapi") is None:
        text = f"gssapi isn't installed. {sys.executable} -m {__name__}"
        if os.environ.get("CI"):
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


def gssapi_wheel() -> Path:
    """Return the wheel, which is for all releases of Python; build it if the cache has none.

    Raises:
        MissingPackageError: it can't be built here.
    """
    folder = cache_dir() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    pattern = f"gssapi-{RELEASE}-*.whl"
    with locked(folder / "gssapi.lock"):
        if not any(folder.glob(pattern)):
            _build(folder)
    return next(folder.glob(pattern))


def _build(folder: Path) -> None:
    root, libraries = kerberos_folder(), library_folder()
    include = root / "usr/include"
    variables = {
        "GSSAPI_COMPILER_ARGS": f"-I{include}/mit-krb5 -I{include} -DHAS_GSSAPI_EXT_H",
        # The old kind of path, which the libraries that these libraries need are looked up in too.
        "GSSAPI_LINKER_ARGS": f"-L{libraries}/mit-krb5 -L{libraries} -lgssapi_krb5"
        f" -Wl,--disable-new-dtags,-rpath,{libraries}",
        "GSSAPI_MAIN_LIB": str(libraries / "libgssapi_krb5.so.2"),
        "PATH": os.pathsep.join([str(root / "usr/bin"), os.environ["PATH"]]),
    }
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir"]
    try:
        done = subprocess.run(
            [*command, f"--wheel-dir={folder}", f"gssapi=={RELEASE}"],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
        )
    except subprocess.TimeoutExpired:
        raise MissingPackageError(f"gssapi wasn't built within {_BUILD_S} s") from None
    if done.returncode:
        raise MissingPackageError(f"gssapi wasn't built: {done.stderr.strip()[-1000:]}")


def main() -> None:
    """Install the wheel, unless this Python has a gssapi that can be imported."""
    if importlib.util.find_spec("gssapi") is not None:
        return
    try:
        wheel = gssapi_wheel()
    except MissingPackageError as error:
        print(f"tests of Kerberos will be skipped: {error}", file=sys.stderr)
        return
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", str(wheel)], check=True)


if __name__ == "__main__":
    main()
