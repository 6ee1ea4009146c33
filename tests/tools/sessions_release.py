"""Sessions of release engineering: artifacts and their checks, dependencies, the release itself.

docs/releases.md has the procedure.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nox

from tests.tools.sessions import (
    IN_UNITS,
    PROJECT,
    install,
    installed_pythons,
    run_pytest,
    selection,
)


@nox.session
def build(session: nox.Session) -> None:
    """Build and check sdist and wheels, and use each wheel elsewhere. `-- --pure`: no compiled one.

    On Linux the compiled wheels are made for each Python found, and become manylinux ones. The
    sdist is used with a C compiler and without one. `-- --suites` runs the tests marked `suite`
    with each wheel, too.
    """
    install(session, "build", project=False)
    pure, suites = (name in session.posargs for name in ("--pure", "--suites"))
    build_artifacts(session, pure=pure, suites=suites)


def build_artifacts(session: nox.Session, *, pure: bool, suites: bool) -> None:
    """Fill `dist`, check it, and use its wheels; with `suites` run these with each of them."""
    shutil.rmtree("dist", ignore_errors=True)
    pythons = {version: f"python{version}" for version in installed_pythons()}
    with tempfile.TemporaryDirectory() as folder:
        copies = {kind: str(Path(folder, kind)) for kind in ("copy", "pure")}
        for kind, copy in copies.items():
            session.run("python", "-m", "tests.tools.distribution", kind, copy)
        # Only a build that fails shows its thousands of lines.
        build = ("python", "-m", "build", "--outdir", "dist")
        session.run(*build, "--sdist", copies["copy"], silent=True)
        session.run(*build, "--wheel", copies["pure"], silent=True)
        for version, python in () if pure else pythons.items():
            build_wheel(session, python, copies["copy"], str(Path(folder, version)))
    session.run("python", "-m", "tests.tools.distribution", "check", "dist")
    artifacts = sorted(str(path.resolve()) for path in Path("dist").iterdir())
    session.run("twine", "check", "--strict", *artifacts)
    for path in artifacts:
        if path.endswith(".whl"):
            is_pure = path.endswith("-any.whl")
            tag = Path(path).name.split("-")[2].removeprefix("cp3")
            python = sys.executable if is_pure else pythons.get(f"3.{tag}", sys.executable)
            twin = "python" if is_pure else "c"
            check_installed(session, path, python, twin)
            if suites:
                run_suites(session, path, python, twin)
        else:
            check_installed(session, path, sys.executable, "python", CC="false")  # no compiler
            if not pure:
                check_installed(session, path, sys.executable, "c")


def build_wheel(session: nox.Session, python: str, source: str, folder: str) -> None:
    """Build the compiled wheel for a Python into `dist`; on Linux auditwheel makes it portable."""
    session.run(python, "-m", "venv", f"{folder}-venv", external=True)
    own = str(Path(f"{folder}-venv", "bin", "python"))
    session.run(own, "-m", "pip", "install", "--quiet", "build", external=True)
    build = (own, "-m", "build", "--outdir", folder, "--wheel", source)
    session.run(*build, external=True, silent=True)
    [wheel] = Path(folder).iterdir()
    if sys.platform == "linux":
        session.run("auditwheel", "repair", "--wheel-dir", "dist", str(wheel))
    else:
        shutil.copy(wheel, "dist")


def check_installed(
    session: nox.Session, artifact: str, python: str, impl: str, **environment: str
) -> None:
    """Install a wheel or sdist elsewhere, without extras, and run a user's tests with it."""
    users_test = Path("examples/test_my_service.py").resolve()
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        session.run(python, "-m", "venv", "venv", external=True)
        scripts = Path(folder, "venv", "Scripts" if os.name == "nt" else "bin")
        own = str(scripts / "python")
        # From its cache pip would take a wheel that it built of this sdist in another way.
        install = ("install", "--quiet", "--no-cache-dir", artifact, "pytest")
        session.run(own, "-m", "pip", *install, env=environment, external=True)
        session.run(own, "-W", "error", "-c", CHECK_INSTALLED, folder, impl, external=True)
        # Without the extra `cli` the command says what to install.
        session.run(str(scripts / "aiokafka08"), external=True, success_codes=[2])
        shutil.copy(users_test, folder)  # this project's pytest configuration doesn't apply there
        session.run(own, "-m", "pytest", "-W", "error", users_test.name, external=True)


def run_suites(session: nox.Session, wheel: str, python: str, twin: str) -> None:
    """Run the tests marked `suite`, without real brokers, with a wheel, away from the checkout."""
    requirements = nox.project.dependency_groups(PROJECT, "test-client")
    with tempfile.TemporaryDirectory() as folder:
        session.run(python, "-m", "venv", str(Path(folder, "venv")), external=True)
        own = str(Path(folder, "venv", "Scripts" if os.name == "nt" else "bin", "python"))
        session.run(own, "-m", "pip", "install", "--quiet", wheel, *requirements, external=True)
        tests = str(Path(folder, "tests"))
        session.run("python", "-m", "tests.tools.distribution", "tests", tests)
        with session.chdir(tests):
            session.run(own, "-W", "error", "-c", CHECK_INSTALLED, folder, twin, external=True)
            arguments = ("--numprocesses=2", *IN_UNITS, *selection("suite", "not real"))
            env = {"AIOKAFKA08_IMPL": twin, "PYTHONPATH": None}
            session.run(own, "-m", "pytest", *arguments, env=env, external=True)


CHECK_INSTALLED = """
import importlib.metadata, importlib.resources, importlib.util, pathlib, sys
import aiokafka08
assert pathlib.Path(aiokafka08.__file__).is_relative_to(pathlib.Path(sys.argv[1]).resolve())
assert importlib.resources.files(aiokafka08).joinpath("py.typed").is_file()
assert importlib.util.find_spec("pyspark_kafka08") is not None  # Spark looks for it
assert importlib.metadata.version("aiokafka08") == aiokafka08.__version__
from aiokafka08.protocol import twins
assert f"impl={sys.argv[2]}" in f"impl={twins.describe(twins.CONSUMER_TWINS)}"
print("aiokafka08", aiokafka08.__version__, "from", aiokafka08.__file__)
"""


@nox.session
def release(session: nox.Session) -> None:
    """Prepare a release: `-- 0.1.0` makes version, changelog, commit, tag, artifacts and checks.

    All happens in a clone: only `dist`, the branch `release/<version>` and the tag `v<version>`
    come back. It never pushes. With `--suites` each wheel runs the tests marked `suite`, too.
    """
    versions = [one for one in session.posargs if one != "--suites"]
    if len(versions) != 1:
        session.error("expected the version: nox -s release -- 0.1.0, and perhaps --suites")
    [version] = versions
    branch, tag, root = f"release/{version}", f"v{version}", str(Path.cwd())
    if git(session, "status", "--porcelain"):
        session.error("uncommitted changes: commit or stash them, since a release is of a commit")
    if git(session, "tag", "--list", tag):
        session.error(f"tag {tag} exists: choose another version, or delete the tag")
    install(session, "build", "changelog", project=False)
    with tempfile.TemporaryDirectory() as folder:
        clone = str(Path(folder, "clone"))
        git(session, "clone", "--quiet", root, clone)
        with session.chdir(clone):
            for name in ("user.name", "user.email"):
                git(session, "config", name, git(session, "-C", root, "config", name))
            git(session, "switch", "--quiet", "--create", branch)
            session.run("towncrier", "build", "--yes", "--version", version)
            session.run("python", "-m", "tests.tools.release", "version", version)
            git(session, "commit", "--quiet", "--all", "--message", f"release: {version}")
            git(session, "tag", "--annotate", tag, "--message", f"aiokafka08 {version}")
            build_artifacts(session, pure=False, suites="--suites" in session.posargs)
            # Mirrors have no advisories; the workflow audits again before it publishes.
            audit_dependencies(session, advisories=False)
            shutil.copy("build/sbom.cdx.json", "dist")
            sums = session.run("python", "-m", "tests.tools.release", "sums", "dist", silent=True)
        git(session, "fetch", "--quiet", clone, f"{branch}:{branch}", "tag", tag)
        shutil.rmtree("dist", ignore_errors=True)
        shutil.copytree(Path(clone, "dist"), "dist")
    count = len(list(Path("dist").iterdir()))
    session.log(f"Left to do, after reading {branch}:")
    missing = str(
        session.run("python", "-m", "tests.tools.release", "addresses", silent=True)
    ).strip()
    if missing:
        session.log(f"    add {missing} to [project.urls] in pyproject.toml, and begin anew")
    session.log(f"    git merge --ff-only {branch} && git push origin HEAD {tag}")
    session.log("The workflow `release` publishes the tag; docs/releases.md has the rehearsal.")
    print(f"release: version={version} artifacts={count} sha256={str(sums).strip()}", flush=True)


def git(session: nox.Session, *arguments: str) -> str:
    """Run git and return what it prints."""
    return str(session.run("git", *arguments, external=True, silent=True, log=False)).strip()


@nox.session
def audit(session: nox.Session) -> None:
    """Check the dependencies of all extras: vulnerabilities, licences; write an SBOM to `build`."""
    install(session, "build", project=False)
    audit_dependencies(session, advisories=True)


def audit_dependencies(session: nox.Session, *, advisories: bool) -> None:
    """Install this project with all extras elsewhere, check what came along, and list it.

    With `advisories` it fails where those of a dependency can't be had, else it only names these.
    """
    Path("build").mkdir(exist_ok=True)
    extras = ",".join(PROJECT["project"]["optional-dependencies"])
    with tempfile.TemporaryDirectory() as folder:
        copy = str(Path(folder, "copy"))
        session.run("python", "-m", "tests.tools.distribution", "copy", copy)
        session.run("python", "-m", "venv", folder)
        own = str(Path(folder, "Scripts" if os.name == "nt" else "bin", "python"))
        session.run(own, "-m", "pip", "install", "--quiet", "--upgrade", "pip", external=True)
        session.run(own, "-m", "pip", "install", "--quiet", f"{copy}[{extras}]", external=True)
        session.run(own, "-m", "tests.tools.release", "licences", external=True)
        [site] = Path(folder, "lib").glob("python*/site-packages")
        report = str(Path(folder, "audit.json"))
        options = ("--skip-editable", "--progress-spinner", "off", "--format", "json")
        session.run("pip-audit", "--path", str(site), *options, "--output", report)
        codes = [0] if advisories else [0, 1]
        session.run("python", "-m", "tests.tools.release", "audited", report, success_codes=codes)
        sbom = ("--output-reproducible", "--output-file", "build/sbom.cdx.json")
        session.run("cyclonedx-py", "environment", own, "--pyproject", "pyproject.toml", *sbom)


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """Run tests of the client with the lowest versions of the dependencies that are allowed."""
    session.install("uv>=0.9")
    extras = [
        f"--extra={name}" for name in PROJECT["project"]["optional-dependencies"] if name != "spark"
    ]
    pins = str(Path(session.create_tmp(), "lowest.txt"))
    session.run(
        *("uv", "pip", "compile", "pyproject.toml", "--quiet", "--output-file", pins),
        *("--resolution", "lowest-direct", "--python-version", "3.11", *extras),
    )
    requirements = nox.project.dependency_groups(PROJECT, "test-client")
    session.install(*requirements)
    # The SDK, which only the tests need, works with the API of the same version.
    [api] = re.findall(r"^opentelemetry-api(==\S+)", Path(pins).read_text(), re.MULTILINE)
    session.install("-e", ".", "-r", pins, f"opentelemetry-sdk{api}")
    suites = (
        "tests/protocol",
        "tests/headers",
        "tests/test_opentelemetry.py",
        "tests/_tools/records",
        "tests/_tools/cli/test_avro.py",
    )
    run_pytest(session, "-m", "not real", *(session.posargs or suites))


@nox.session
def wheelhouse(session: nox.Session) -> None:
    """Collect wheels for a network without PyPI: `-- --extras cli,spark,zookeeper`, `--to DIR`."""
    parser = argparse.ArgumentParser(prog="nox -s wheelhouse --")
    parser.add_argument("--extras", default="", help="such as cli,spark,zookeeper (default: none)")
    parser.add_argument("--to", default="build/wheelhouse", help="the folder (%(default)s)")
    options = parser.parse_args(session.posargs)
    known = PROJECT["project"]["optional-dependencies"]
    extras = [one for one in options.extras.split(",") if one]
    if unknown := [one for one in extras if one not in known]:
        session.error(f"--extras {','.join(unknown)}: expected some of {', '.join(known)}")
    folder = Path(options.to)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as copies:  # a build here could take modules of earlier ones
        copy = str(Path(copies, "copy"))
        session.run("python", "-m", "tests.tools.distribution", "copy", copy)
        project = f"{copy}[{','.join(extras)}]" if extras else copy
        session.run("python", "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder), project)
    session.run("python", "-m", "tests.tools.release", "pin", str(folder))
    with tempfile.TemporaryDirectory() as test:
        session.run("python", "-m", "venv", test)
        own = str(Path(test, "Scripts" if os.name == "nt" else "bin", "python"))
        offline = ("--no-index", "--find-links", str(folder), "--require-hashes")
        pins = str(folder / "requirements.txt")
        session.run(own, "-m", "pip", "install", "--quiet", *offline, "-r", pins, external=True)
        session.run(own, "-m", "pip", "check", external=True)
        session.run(own, "-c", "import aiokafka08; aiokafka08.AIOKafkaProducer", external=True)
    session.log(f"{len(list(folder.glob('*.whl')))} wheels in {folder}. In the other network:")
    session.log(
        f"    pip install --no-index --find-links {folder.name} --require-hashes "
        f"-r {folder.name}/requirements.txt"
    )
