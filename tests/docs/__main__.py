"""Write the pages of docs/ that are made from the code: `python -m tests.docs`."""

from __future__ import annotations

from tests.docs.pages import PAGES
from tests.docs.tables import DOCS


def main() -> None:
    """Write each page whose text has changed."""
    for name, render in PAGES.items():
        path, text = DOCS / name, render()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"{path.relative_to(DOCS.parent)} written")


if __name__ == "__main__":
    main()
