"""The program that prints the shape of a checkout, on a small tree."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from tests.tools.shape import Lines, cython_lines, main, python_lines, shape

SEND = '''"""A module.

Of three lines.
"""

LIMIT = 1
"""An attribute."""
TEXT = """a
value"""  # behind code


class Sender:  # noqa: E501
    """A class."""

    # alone
    def send(
        self,
    ) -> None:
        pass  # type: ignore[misc]
'''
FETCH = "class Sender:\n    pass\n\n\nclass Only:\n    pass\n"
CYTHON = '''# a comment
cdef class Sender:
    """Two
    lines."""
    cdef int count  # behind

    def send(self):
        """One."""
        return self.count & 1  # noqa
'''
NOXFILE = """import nox


@nox.session
def tests(session):
    pass


@nox.session(name="bridge-rounds")
def bridge_rounds(session):
    pass


def helper():
    pass
"""
TEST = """def test_it(self, made, monkeypatch):
    self._own = made._engine.sink._queue
    made.__class__
    monkeypatch.setattr(made, "now", 1)
    patch.setattr(made, "now", 1)
"""
FILES = {
    "aiokafka08/__init__.py": "",
    "aiokafka08/loose.py": "x = 1\n" * 501,
    "aiokafka08/producer/__init__.py": "",
    "aiokafka08/producer/send.py": SEND,
    "aiokafka08/producer/_send_c.pyx": CYTHON,
    "aiokafka08/consumer/__init__.py": "",
    "aiokafka08/consumer/send.py": FETCH,
    "aiokafka08/build/made.py": "class Sender: pass\n",
    "noxfile.py": NOXFILE,
    "README.md": "five words are in here\n",
    "CHANGELOG.md": "# Two\n",
    "docs/guides/page.md": "one two three\n",
    "docs/changelog.d/README.md": "no fragment\n",
    "docs/changelog.d/1.fixed.md": "a fragment with words\n",
    "tests/__init__.py": "",
    "tests/test_send.py": TEST,
    "tests/consumer/test_fetch.py": "made._engine\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_lines_of_a_python_file(tree: Path) -> None:
    found = python_lines(tree / "aiokafka08/producer/send.py")
    assert found == Lines(total=19, code=8, docstrings=6, comments=2)


def test_lines_of_a_cython_file(tree: Path) -> None:
    found = cython_lines(tree / "aiokafka08/producer/_send_c.pyx")
    assert found == Lines(total=9, code=4, docstrings=3, comments=2)


def test_shape_of_a_small_tree(tree: Path) -> None:
    found = dataclasses.asdict(shape(tree))
    assert found == {
        "source_files": 7,
        "lines": 501 + 19 + 9 + 6,
        "code_lines": 501 + 8 + 4 + 4,
        "docstring_lines": 9,
        "comment_lines": 4,
        "docstrings_per_code": round(9 / 517, 4),
        "comments_per_code": round(4 / 517, 4),
        "classes_used_twice": {
            "Sender": ["aiokafka08/consumer/send.py", "aiokafka08/producer/send.py"]
        },
        "names_used_twice": {
            "send.py": ["aiokafka08/consumer/send.py", "aiokafka08/producer/send.py"]
        },
        "loose_modules": ["loose.py"],
        "folders": ["consumer", "producer"],
        "long_modules": {"aiokafka08/loose.py": 501},
        "sessions": ["bridge-rounds", "tests"],
        "noxfile_lines": 15,
        "docs_words": 5 + 2 + 3 + 2,
        "fragments": 1,
        "fragment_words": 4,
        "test_files": 3,
        "test_lines": 6,
        "private_accesses": 3,
        "private_worst": {"tests/test_send.py": 2, "tests/consumer/test_fetch.py": 1},
        "patched": 1,
        "patched_worst": {"tests/test_send.py": 1},
        "long_subjects": None,
    }


def test_worst_files_are_ten(tree: Path) -> None:
    for number in range(12):
        (tree / f"tests/test_{number}.py").write_text("made._x\n" * (number + 3))
    worst = shape(tree).private_worst
    assert list(worst.values()) == list(range(14, 4, -1))
    assert next(iter(worst)) == "tests/test_11.py"


def test_long_subjects_since_a_revision_are_listed(tree: Path) -> None:
    def git(*arguments: str) -> None:
        options = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *options, *arguments], cwd=tree, check=True, capture_output=True)

    git("init")
    for subject in ("a" * 80, "b" * 72, "c" * 73):
        git("commit", "--allow-empty", "-m", subject)
    assert shape(tree, "HEAD~2").long_subjects == ["c" * 73]


def test_main_prints_text_or_json(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tree)])
    printed = capsys.readouterr().out
    assert "docstrings per code        0.017" in printed
    assert "    send.py: 2: aiokafka08/consumer/send.py, aiokafka08/producer/send.py" in printed
    assert "       501 aiokafka08/loose.py" in printed
    main([str(tree), "--json"])
    assert json.loads(capsys.readouterr().out) == dataclasses.asdict(shape(tree))


@pytest.mark.parametrize("since", [None, "nothing"])
def test_main_without_checkout_or_revision_ends(
    tree: Path, tmp_path: Path, since: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tree if since else tmp_path / "docs"
    with pytest.raises(SystemExit):
        main([str(folder), *(("--since", since) if since else ())])
    assert ("--since nothing" if since else "expected a checkout") in capsys.readouterr().err
