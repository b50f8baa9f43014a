"""Takes the pictures of the site: what those see who link to it, and the one of the README.

mkdocs build && python tests/site/pictures.py
"""

import functools
import http.server
import io
import threading

from building import BROWSER, ROOT
from PIL import Image
from playwright.sync_api import Page, sync_playwright

ASSETS = ROOT / "docs" / "assets"


def save(page: Page, name: str, **options: object) -> None:
    """Take a picture of what the window shows."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    if name.endswith(".png"):
        picture = picture.quantize(64, dither=Image.Dither.NONE)
        options["optimize"] = True
    picture.save(ASSETS / name, **options)


def main() -> None:
    """Take all pictures."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(ROOT / "site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        for code, folder in (("en", ""), ("ja", "ja/")):
            size = {"width": 1200, "height": 630}
            page = browser.new_page(viewport=size, reduced_motion="reduce", color_scheme="light")
            page.goto(address + folder)
            page.add_style_tag(content=".md-header{visibility:hidden}.md-container{margin-top:-1.6rem}")
            page.wait_for_timeout(300)
            save(page, f"card.{code}.png")
        page = browser.new_page(viewport={"width": 1440, "height": 960}, reduced_motion="reduce", color_scheme="light")
        page.goto(f"{address}adam/#Adam.get_mv")
        page.evaluate("document.querySelector('.chip.y2').click()")
        page.wait_for_timeout(300)
        save(page, "readme.webp", quality=80)
        browser.close()


if __name__ == "__main__":
    main()
