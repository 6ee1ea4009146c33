"""Tests, examples and sessions don't depend on the settings of the user who runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from examples.demo.user_settings import forget_user_settings
from tests.support.paths import ROOT

TESTS = (
    "tests/_tools/cli/test_look.py::test_internal_topic_is_marked",
    "tests/_tools/cli/test_kcat.py::test_flags_without_effect_are_noted",
    "tests/headers/test_producer_headers.py",
)


def test_only_variables_that_say_how_to_run_are_kept() -> None:
    environment = {
        "AIOKAFKA08_IMPL": "python",
        "AIOKAFKA08_CONFIG": "prod.toml",
        "AIOKAFKA08_BOOTSTRAP_SERVERS": "prod:9092",
        "KAFKA_OPTS": "-Dx",
        "KCAT_CONFIG": "kcat.conf",
        "HOME": "home",
    }
    forget_user_settings(environment)
    assert environment == {
        "AIOKAFKA08_IMPL": "python",
        "AIOKAFKA08_CONFIG": os.devnull,
        "KCAT_CONFIG": os.devnull,
        "HOME": "home",
    }


def test_tests_pass_whatever_the_users_settings_are(tmp_path: Path) -> None:
    """The files in HOME are broken, and the variables name brokers that don't exist."""
    for name in ("aiokafka08/config.toml", "kcat.conf"):
        path = tmp_path / ".config" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not [TOML")
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    variables |= {
        "HOME": str(tmp_path),
        "AIOKAFKA08_CONFIG": "/no such file.toml",
        "KCAT_CONFIG": "/no such file",
        "AIOKAFKA08_PROFILE": "p",
        "AIOKAFKA08_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "AIOKAFKA08_HEADERS": "wrong",
    }
    variables.pop("XDG_CONFIG_HOME", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
