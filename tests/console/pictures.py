"""Draw the console's pages for docs/guides/console.md, of the demo's cluster.

    python -m tests.console.pictures [--seconds 90] [--to docs/guides/console]

Each picture has a page on a desktop and on a phone; there is one with light and one with dark
colours. It needs chromium, the dependency group `browser`, and pillow, which matplotlib installs.
"""

from __future__ import annotations

import argparse
import io
import shutil
import time
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.console.test_command import running
from tests.support.paths import ROOT

PAGES: Final = {
    "cluster": "/",
    "topics": "/topics?sort=-rate",
    "topic": "/topics/orders",
    "messages": "/topics/orders/messages?field=item%3Dcoffee",
    "live": "/topics/payments/tail",
    "groups": "/groups?sort=-lag",
    "group": "/group?name=reports&store=kafka",
    "watch": "/watch",
}
DESKTOP: Final = (1180, 760)
PHONE: Final = (390, 760)
GAP: Final = 20


def shot(
    browser: Any, url: str, scheme: str, size: tuple[int, int], path: str
) -> tuple[Image.Image, int]:
    """Return the picture of a page as it opens, and how high its content is."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC"
    )
    page = context.new_page()
    page.goto(url)
    page.goto(f"{url.split('/?')[0]}{path}")
    if path.endswith("/tail"):
        page.locator("tbody tr").nth(20).wait_for(timeout=60_000)
    elif "/messages" in path:
        page.locator("td.value summary").nth(1).click()
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    used, data = page.evaluate("document.body.scrollHeight"), page.screenshot()
    context.close()
    return Image.open(io.BytesIO(data)).convert("RGB"), used


def beside(left: Image.Image, right: Image.Image, height: int) -> Image.Image:
    """Return two pictures as one, cut to a height; between them it is transparent."""
    size = (left.width + GAP + right.width, min(left.height, height))
    both = Image.new("RGBA", size, (0, 0, 0, 0))
    both.paste(left, (0, 0))
    both.paste(right, (left.width + GAP, 0))
    return both


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=90.0, help="how long the graphs are")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "guides" / "console")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    with running("--demo", "--listen", ":0") as (_, url), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        time.sleep(options.seconds)  # the demo's data moves meanwhile
        for name, path in PAGES.items():
            for scheme in ("light", "dark"):
                left, right = (shot(browser, url, scheme, size, path) for size in (DESKTOP, PHONE))
                both = beside(left[0], right[0], max(left[1], right[1]))
                target = options.to / f"{name}-{scheme}.webp"
                both.save(target, lossless=True, method=6)
                print(f"{target.name}: {target.stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
