"""The program of README.md and every fenced block of the guides run on the embedded cluster, as the
page says, and so does the test in examples/.

A Python block with tests is a file for pytest, named by its first line if that is a comment. A
named block without tests is a module for them; an unnamed one is a program. A block of `sh` is a
command.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml

from aiokafka08 import testing
from aiokafka08.testing import LINES, EmbeddedCluster
from tests.support.environments import as_users
from tests.support.paths import ROOT

GUIDES = [
    *("services", "values", "failures", "ingestion", "handover", "tls"),
    *("tuning", "guarantees"),
]
"""The guides with tests in them, but the one with a conftest."""
PAGES = [
    "docs/testing.md",
    "docs/monitoring.md",
    *(f"docs/guides/{name}.md" for name in GUIDES),
]
"""The pages whose tests run in one process of pytest: its start takes as long as a page's tests."""
PROGRAMS = ROOT / "examples/guides"
"""Tests and programs that pages link to. They run beside the programs that the pages print, which
some of the tests import."""
ADDRESS = "kafka1:9092"
"""The address of README's cluster."""


class Block(NamedTuple):
    language: str
    text: str

    @property
    def name(self) -> str | None:
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named and named[1]

    @property
    def tests(self) -> int:
        return len(re.findall(r"^(?:async )?def test_", self.text, re.MULTILINE))


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page; a program that it includes from examples/ is a block, too."""
    text = (ROOT / page).read_text()
    found = [Block(*one) for one in re.findall(r"^```(.*?)\n(.*?)^```$", text, re.M | re.S)]
    for number, (language, _) in enumerate(found):
        if language.startswith("{literalinclude} "):
            path = (ROOT / page).parent / language.split()[1]
            found[number] = Block("python", f"# {path.name}\n{path.read_text()}")
    assert {block.language for block in found} <= {"python", "sh", "ini", "nginx", "yaml"}
    return found


def run_pytest(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.RunResult:
    """Run the tests in the folder, with the plugin enabled as for an installed package."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plugins = ("-p", "aiokafka08.testing.pytest_plugin", "-p", "pytest_asyncio.plugin")
    settings = ("-o", "asyncio_default_fixture_loop_scope=function", "-W", "error")
    return pytester.runpytest_subprocess(*plugins, *settings, "--strict-markers")


def only_the_seed_that_fails(test: str) -> tuple[str, str]:
    """Return test_billing.py for the seed that finds lost orders in docs/testing.md, and its id.

    Each seed is an hour of outages, and takes seconds of CPU time.
    """
    text = (ROOT / "docs/testing.md").read_text()
    [named] = re.findall(r"^    FAILED test_billing.py::(\S+)$", text, re.MULTILINE)
    seed = int(named.rpartition("=")[2].rstrip("]"))
    assert "seeds=3" in test
    return test.replace("seeds=3", f"seeds=1, first={seed}"), named


@pytest.mark.timeout(240)
@pytest.mark.parametrize("pages", [PAGES, ["docs/guides/uvloop.md"]], ids=["most", "uvloop"])
def test_tests_on_pages_pass(
    pages: list[str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = 0
    for page in pages:
        written = [block for block in blocks(page) if block.language == "python"]
        tests = sum(block.tests for block in written)
        assert tests or "examples/guides/test_" in (ROOT / page).read_text(), f"{page} has no test"
        expected += tests
        for number, block in enumerate(written):
            if block.tests or block.name:
                name = block.name or f"test_{Path(page).stem}_{number}.py"
                if (PROGRAMS / name).exists():
                    assert block.text == f"# {name}\n{(PROGRAMS / name).read_text()}"
                    continue
                assert not (pytester.path / name).exists(), f"{page}: another block named {name}"
                (pytester.path / name).write_text(block.text)
    for path in PROGRAMS.glob("*.py") if pages == PAGES else ():
        text = path.read_text()
        if path.name == "test_billing.py":
            text, _ = only_the_seed_that_fails(text)
        (pytester.path / path.name).write_text(text)
        expected += Block("python", text).tests
    outcomes = run_pytest(pytester, monkeypatch).parseoutcomes()
    assert outcomes.keys() == {"passed"}, outcomes
    assert outcomes["passed"] >= expected


def test_logs_that_users_copy_have_times() -> None:
    found = 0
    for path in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py"), ROOT / "README.md"]:
        for call in re.findall(r"\bbasicConfig\(.{,90}", path.read_text(), re.DOTALL):
            assert "%(asctime)s" in call, f"{path}: {call}"
            found += 1
    assert found >= 5


@pytest.mark.timeout(240)
def test_seed_finds_the_orders_that_automatic_commits_lose(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """test_billing.py fails with automatic commits, at the seed that docs/testing.md names."""
    service = (PROGRAMS / "billing.py").read_text()
    assert "enable_auto_commit=False" in service
    lossy = service.replace("enable_auto_commit=False", "enable_auto_commit=True")
    (pytester.path / "billing.py").write_text(lossy)
    test, named = only_the_seed_that_fails((PROGRAMS / "test_billing.py").read_text())
    (pytester.path / "test_billing.py").write_text(test)
    result = run_pytest(pytester, monkeypatch)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: assert {b'order *'} == set()"])
    assert f"FAILED test_billing.py::{named}" in result.stdout.str()


@pytest.mark.parametrize(
    ("page", "plugins"),
    [
        ("examples/test_my_service.py", []),
        ("docs/guides/services.md", ["-p", "pytest_asyncio.plugin", "--collect-only"]),
        ("docs/guides/ingestion.md", ["-p", "pytest_asyncio.plugin"]),
    ],
)
def test_tests_in_examples_run_in_place(page: str, plugins: list[str]) -> None:
    """With the named packages only: not with the plugins that this project's tests need."""
    [command] = re.findall(r"\bpytest (examples/\S+\.py)", (ROOT / page).read_text())
    own = ["-p", "aiokafka08.testing.pytest_plugin", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", *own, *plugins, command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=as_users(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()


def test_probes_of_kubernetes_are_paths_of_the_service() -> None:
    [deployment] = [
        yaml.safe_load(block.text)
        for block in blocks("docs/guides/services.md")
        if block.language == "yaml"
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    service = (ROOT / "examples/service.py").read_text()
    for probe in ("livenessProbe", "readinessProbe"):
        assert f'@app.get("{container[probe]["httpGet"]["path"]}")' in service
    for variable in container["env"]:
        assert f'os.environ.get("{variable["name"]}"' in service


def test_program_of_readme_sends_a_message_and_reads_until_ctrl_c() -> None:
    [block] = blocks("README.md")
    program = block.text
    assert ADDRESS in program
    with EmbeddedCluster() as cluster:
        program = program.replace(ADDRESS, cluster.bootstrap_servers)
        with subprocess.Popen(
            [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as process:
            assert process.stdout is not None
            try:
                said = [process.stdout.readline() for _ in range(2)]
                assert process.poll() is None
                process.send_signal(signal.SIGINT)
                assert process.wait(30) == 0
            finally:
                process.kill()
    assert said == ["0 0\n", "0 b'k' b'hello'\n"]


def test_testing_page_names_lines_methods_and_faults() -> None:
    page = (ROOT / "docs/testing.md").read_text()
    written = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    handles = {name for name in dir(EmbeddedCluster) if not name.startswith("_")}
    module: ModuleType = testing  # type checkers don't see its `__all__`
    effects = set(module.__all__) - {"LINES", "LoggedMessage", "NodeInfo", "Offsets", "Recorded"}
    assert {*handles, *effects} - written == set()
    assert all(f'`"{line}"`' in page for line in LINES)


def test_command_on_testing_page_runs_until_ctrl_c() -> None:
    [block] = [block for block in blocks("docs/testing.md") if block.language == "sh"]
    command = shlex.split(block.text.replace("--port 9092", "--port 0"))
    assert command[0] == "python"
    with subprocess.Popen(
        [sys.executable, *command[1:]], stderr=subprocess.PIPE, text=True, cwd=ROOT, env=as_users()
    ) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        finally:
            process.kill()
    promised = re.search(
        r"Its log, on standard error, has `(.*?)`", (ROOT / "docs/testing.md").read_text(), re.S
    )
    assert promised is not None
    ports = re.compile(r":\d+")
    assert ports.sub(":", promised[1]) in ports.sub(":", said)
