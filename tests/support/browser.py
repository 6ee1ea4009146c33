"""Open pages in Debian's chromium, which playwright drives, and let axe-core judge them."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.debian_tools import MissingPackageError, skipped_if_missing


@contextmanager
def opened_browser() -> Iterator[Any]:
    """Open a browser, or skip the test. While it is open, its thread has a running event loop."""
    chromium = shutil.which("chromium")
    with skipped_if_missing("chromium, which playwright drives,", "chromium"):
        if chromium is None:
            raise MissingPackageError("not on PATH")
        if importlib.util.find_spec("axe_playwright_python") is None:
            raise MissingPackageError("the dependency group browser isn't installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield made
        made.close()


def violations(page: Any) -> list[str]:
    """Return what axe-core finds inaccessible on a page: rule, element and reason."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{rule['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for rule in Axe().run(page).response["violations"]
        for node in rule["nodes"]
    ]
