"""Write the pages of docs/reference that are made from the code: `python -m tests.docs`."""

from __future__ import annotations

from tests.docs.pages import FOLDER, PAGES


def main() -> None:
    """Write each page whose text has changed."""
    for name, render in PAGES.items():
        path, text = FOLDER / name, render()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"{path.relative_to(FOLDER.parents[1])} written")


if __name__ == "__main__":
    main()
