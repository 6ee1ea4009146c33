"""Sphinx's settings: `nox -s docs` builds the site from these pages."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import aiokafka08

project = "aiokafka08"
author = "The aiokafka08 authors"
copyright = "The aiokafka08 authors, Apache License 2.0"
version = release = aiokafka08.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["changelog.d/*.*.md"]

myst_enable_extensions = ["colon_fence", "deflist"]
# Pages link to each other's headings by the anchors that code hosts make.
myst_heading_anchors = 4

# Docstrings mark code by single backticks.
default_role = "code"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
# Members of this package's base classes are part of a class's API; those of Python's aren't shown.
autodoc_default_options = {"inherited-members": "object, tuple, dict, BaseException"}
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Running text names options such as `--execute`: two hyphens, not a dash.
smartquotes = False

html_theme = "furo"
html_title = f"aiokafka08 {release}"
# The search index is built in: the site works from a folder, without a network.
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]


class ShowDiagrams(SphinxTransform):
    """Show the picture in docs/diagrams in place of each block of mermaid.

    `python -m tests.docs.diagrams` draws them: a reader needs neither a script nor a network.
    """

    default_priority = 10  # before the pictures of a page are collected

    def apply(self, **kwargs: object) -> None:
        """Replace the blocks of a page."""
        found = [
            block
            for block in self.document.findall(nodes.literal_block)
            if block.get("language") == "mermaid"
        ]
        for number, block in enumerate(found, 1):
            name = f"diagrams/{Path(self.env.docname).name}-{number}.svg"
            block.replace_self(nodes.image(uri=f"/{name}", alt="Diagram", width="100%"))


class NameColumns(SphinxTransform):
    """Put the name of its column into each cell of a wide table, but into the first of a row.

    `site.css` shows the names on phones, where a row is a block.
    """

    default_priority = 10

    def apply(self, **kwargs: object) -> None:
        """Name the columns of a page's tables."""
        for group in self.document.findall(nodes.tgroup):
            head, rows = group[-2], group[-1]
            assert isinstance(head, nodes.thead), "a Markdown table begins with a head"
            names = [cell.astext() for cell in head[0]]
            for row in rows:
                for name, cell in list(zip(names, row, strict=True))[1:]:
                    if not cell.astext():
                        cell.clear()  # for CSS, which hides it
                    elif name and len(names) > 2:
                        cell.insert(0, nodes.paragraph("", name, classes=["column"]))


def show_tables(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Show the Markdown tables of docstrings as they are."""
    shown: list[str] = []
    for line in lines:
        is_row, was_row = line.startswith("|"), bool(shown) and shown[-1].startswith("   |")
        if is_row != was_row:
            shown += ["", "::", ""] if is_row else [""]
        shown.append(f"   {line}" if is_row else line)
    lines[:] = shown


def link_pages(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Link to the pages that docstrings name by their paths, such as docs/brokers.md."""
    lines[:] = [re.sub(r"`?\bdocs/([\w/-]+)\.md\b`?", r":doc:`/\1`", one) for one in lines]


def setup(app: Sphinx) -> None:
    """Add what this project's pages and docstrings need."""
    app.add_transform(ShowDiagrams)
    app.add_transform(NameColumns)
    app.connect("autodoc-process-docstring", show_tables)
    app.connect("autodoc-process-docstring", link_pages)
