"""The command line of the differential test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.differential.__main__ import main


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--seeds", "0", "argument --seeds: 0: expected an integer >= 1"),
        ("--seeds", "many", "argument --seeds: invalid positive value: 'many'"),
        ("--at-once", "0", "argument --at-once: 0: expected an integer >= 1"),
        ("--line", "0.8", "argument --line: invalid choice: '0.8'"),
        ("--brokers", "2", "argument --brokers: invalid choice: 2"),
        ("--case", "missing", "argument --case: missing: FileNotFoundError"),
    ],
)
def test_wrong_option_ends_before_a_broker_starts(
    option: str, value: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([option, value])
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Case(1, (", "SyntaxError"),
        ("Cas(1, ())", "NameError"),
        ("17", "expected a text like Case"),
    ],
)
def test_text_that_is_no_case_is_refused(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "case"
    file.write_text(text)
    with pytest.raises(SystemExit, match="2"):
        main(["--case", str(file)])
    assert complaint in capsys.readouterr().err
