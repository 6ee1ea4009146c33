"""The site builds without a warning, and its pages of reference are those of the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

from aiokafka08 import errors
from aiokafka08._core.properties import NETWORK, PRODUCE, TLS
from aiokafka08._core.sasl.java_properties import SASL
from aiokafka08.spark.options import READ_OPTIONS, WRITE_OPTIONS
from aiokafka08.spark.properties import FETCH
from tests._tools.cli.document import generated
from tests.docs.advice import ERRORS, EVENTS, METRICS, UNSENT_ERRORS
from tests.docs.diagrams import diagrams
from tests.docs.pages import PAGES, error_classes, event_classes, metric_names
from tests.docs.spark_options import PROPERTIES, READING, WRITING
from tests.docs.tables import DOCS
from tests.support.browser import opened_browser

ROOT = DOCS.parent
COMPILED = {"DeliveryFuture", "murmur2", "partitions_of"}
"""Names of compiled twins; the pure twins have their docstrings."""
MODULES = [
    "aiokafka08",
    "aiokafka08.abc",
    "aiokafka08.admin",
    "aiokafka08.consumer",
    "aiokafka08.helpers",
    "aiokafka08.opentelemetry",
    "aiokafka08.partitioner",
    "aiokafka08.producer",
    "aiokafka08.spark",
    "aiokafka08.structs",
    "aiokafka08.testing",
    "aiokafka08.testing.history",
    "aiokafka08.testing.simulation",
]
"""The modules that programs import from."""


def public_names(module: str) -> list[str]:
    """Return `__all__` of a module; without it, the classes and functions that it defines."""
    found = importlib.import_module(module)
    own = [
        name
        for name, value in vars(found).items()
        if inspect.isclass(value) or inspect.isfunction(value)
        if value.__module__ == module and not name.startswith("_")
    ]
    return list(getattr(found, "__all__", own))


def public_methods() -> set[str]:
    """Return "Class.method" of each public class that the modules name, inherited ones too.

    Without the errors, which have a table, and the data sources, whose methods Spark calls.
    """
    classes = {
        value
        for module in MODULES
        if module != "aiokafka08.spark"
        for value in map(importlib.import_module(module).__dict__.get, public_names(module))
        if inspect.isclass(value) and not issubclass(value, BaseException)
    }
    return {
        f"{cls.__name__}.{name}"
        for cls in classes
        if cls.__name__ not in COMPILED
        for base in cls.__mro__
        if base.__module__.startswith("aiokafka08")
        for name, value in vars(base).items()
        if not name.startswith("_")
        if inspect.isfunction(value) or isinstance(value, classmethod | staticmethod | property)
    }


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_code_says(name: str) -> None:
    """`python -m tests.docs` writes it."""
    assert (DOCS / name).read_text() == PAGES[name]()


def test_each_error_and_event_has_advice_and_no_other_does() -> None:
    unsent = {one.__name__ for one in error_classes() if issubclass(one, errors.UnsentRequestError)}
    assert {one.__name__ for one in error_classes()} - unsent == ERRORS.keys()
    assert UNSENT_ERRORS.keys() <= unsent
    assert {one.__name__ for one in event_classes()} == EVENTS.keys()


def test_each_metric_has_advice_and_no_other_does() -> None:
    names = {name for some in metric_names().values() for name in some}
    assert names - {event.name for event in event_classes()} == METRICS.keys()


def test_each_option_of_spark_has_a_sentence_and_no_other_does() -> None:
    for sentences, known in ((READING, READ_OPTIONS), (WRITING, WRITE_OPTIONS)):
        named = [name for names in sentences for name in names]
        assert sorted(named) == sorted(known)
    assert {*NETWORK, *FETCH, *PRODUCE, *TLS, *SASL} == PROPERTIES.keys()


def test_each_diagram_has_a_picture_of_its_text() -> None:
    """`python -m tests.docs.diagrams` draws them."""
    found = list(diagrams())
    assert found
    old = [one.picture.name for one in found if not one.picture.read_text().endswith(one.mark)]
    assert not old
    assert {one.picture for one in found} == set((DOCS / "diagrams").glob("*.svg"))


@pytest.mark.parametrize("module", MODULES)
def test_public_names_have_docstrings(module: str) -> None:
    found = importlib.import_module(module)
    values = {name: getattr(found, name) for name in public_names(module)}
    bare = [
        name
        for name, value in values.items()
        if callable(value) and name not in COMPILED and not inspect.getdoc(value)
    ]
    assert not bare


def test_variables_of_the_environment_are_documented() -> None:
    page = (DOCS / "reference" / "environment.md").read_text()
    named = set()
    for path in (ROOT / "aiokafka08").rglob("*.py"):
        text = path.read_text()
        named |= {word for word in _words(text) if word.startswith("AIOKAFKA08_")}
    # The prefix of all, the command line's completion, and examples of properties.
    named -= {"AIOKAFKA08_", "AIOKAFKA08_COMPLETE", "AIOKAFKA08_CLIENT_ID"}
    assert not {name for name in named if f"`{name}`" not in page}
    rows = set(re.findall(r"^\| `(AIOKAFKA08_\w+)` \|", page, re.MULTILINE))
    assert rows - named == {"AIOKAFKA08_NAME_OF_PROPERTY"}  # it stands for many


def test_texts_for_users_name_pages_by_their_titles() -> None:
    """pip installs no docs/: texts for users name pages by title, comments by path."""
    titles = [path.read_text().partition("\n")[0] for path in (ROOT / "docs").rglob("*.md")]
    found = {"cli.md": generated()}
    for path in (ROOT / "aiokafka08").rglob("*.py"):
        tree = ast.parse(path.read_text())
        alone = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
        texts = [
            str(one.value)
            for one in ast.walk(tree)
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in alone
        ]
        found[str(path)] = "\n".join(texts)
    assert not [name for name, text in found.items() if re.search(r"\bdocs/[\w-]+\.md", text)]
    text = " ".join(" ".join(found.values()).split())
    named = set(re.findall(r"'([^']+)' in the documentation", text))
    assert len(named) >= 4
    assert not [one for one in named if not any(it.startswith(f"# {one}") for it in titles)]


def _words(text: str) -> set[str]:
    cleaned = "".join(one if one.isalnum() or one == "_" else " " for one in text)
    return set(cleaned.split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, without a warning."""
    folder = tmp_path_factory.mktemp("docs")
    command = ["sphinx-build", "-q", "-W", "--keep-going", "-b", "html"]
    command += ["-d", str(folder / "doctrees"), "docs", str(folder / "site")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.timeout(300)
def test_site_describes_all_public_names(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    paths = {
        name
        for kind, objects in inventory.data.items()
        if kind.startswith("py:")
        for name in objects
    }
    described = {path.rpartition(".")[2] for path in paths}
    described |= {one.__name__ for one in error_classes()}  # in a page of their own
    public = {f"{module}.{name}" for module in MODULES for name in public_names(module)}
    assert not sorted(one for one in public if one.rpartition(".")[2] not in described)
    methods = {".".join(path.split(".")[-2:]) for path in paths}
    assert not sorted(public_methods() - methods)
    assert (site / "searchindex.js").exists()
    assert "_images/design-1.svg" in (site / "design.html").read_text()


WIDE_TABLES = """
[...document.querySelectorAll("table.docutils")]
    .filter(table => !table.querySelector(".text-right"))
    .filter(table => table.scrollWidth > table.parentElement.clientWidth)
    .map(table => table.textContent.trim().slice(0, 40))
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("width", [390, 1300, 1440])
def test_page_fits_the_window(site: Path, width: int) -> None:
    """`SITE_SCREENSHOTS` names a folder for pictures, to be looked at."""
    folder = os.environ.get("SITE_SCREENSHOTS")
    pages = sorted(set(site.rglob("*.html")) - set(site.glob("_*/**/*.html")))
    assert len(pages) > 40
    with opened_browser() as browser:
        for scheme in ("light", "dark") if folder else ("light",):
            size = {"width": width, "height": 900}
            page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
            for path in pages:
                name = path.relative_to(site).with_suffix("").as_posix()
                page.goto(path.as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                if width == 390:
                    assert page.evaluate(WIDE_TABLES) == [], name
                if width == 1440:  # where the contents are beside the page, if it has headings
                    box = page.locator(".toc-drawer").bounding_box()
                    assert box is None or box["x"] + box["width"] <= width, name
                if folder:
                    file = f"{name.replace('/', '_')}-{width}-{scheme}.png"
                    page.screenshot(path=str(Path(folder, file)))


def test_program_that_starts_spark_names_its_python() -> None:
    """A reader may paste it outside an activated environment."""
    seen = 0
    text = (ROOT / "docs/spark.md").read_text()
    for program in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if "register(spark)" in program or "SparkSession" in program:
            named = program.find('os.environ.setdefault("PYSPARK_PYTHON", sys.executable)')
            assert 0 <= named < program.find("SparkSession.builder"), program
            seen += 1
    assert seen
