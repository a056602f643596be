"""Take pictures of every view and widget, at two sizes, light, dark and in forced colours, for a person to look at.

python tests/explorer/screenshots.py DIR
"""

import base64
import shutil
import sys
import tempfile
from itertools import product
from pathlib import Path

from browser import SETTLED, Browser, widgets_page

from scratchformer.explorer.model_data import describe
from scratchformer.explorer.page import WEB, write_explorer
from scratchformer.training.run import RunDirectory

TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"
MODES = {
    "light": {},
    "dark": {"prefers_color_scheme": "dark"},
    "forced": {"forced_colors": "active", "prefers_color_scheme": "dark"},
}
SIZES = (1280, 900), (390, 844)
VIEWS = "return [...document.querySelectorAll('#views a')].map((link) => link.hash)"


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    browser = Browser(shutil.which("chromium"), shutil.which("chromedriver"))
    with tempfile.TemporaryDirectory() as folder:
        explorer, widgets = Path(folder) / "explorer.html", Path(folder) / "widgets.html"
        write_explorer(explorer, *describe(RunDirectory(TINY_MODEL)))
        names = sorted(path.stem for path in (WEB / "widgets").glob("*.js") if path.stem not in ("parts", "widgets"))
        widgets.write_text(widgets_page(names), encoding="utf-8")
        browser.open(explorer.as_uri())
        pages = {view.removeprefix("#/").partition("?")[0]: explorer.as_uri() + view for view in browser.js(VIEWS)}
        for (name, address), mode in product([*pages.items(), ("widgets", widgets.as_uri())], MODES):
            for width, height in SIZES:
                browser.open(address, **MODES[mode])
                browser.size(width, height, touch=width < 400)
                browser.wait(SETTLED)
                size = browser.cdp("Page.getLayoutMetrics")["cssContentSize"] | {"width": width, "scale": 1}
                picture = browser.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip=size)["data"]
                (out / f"{name}-{width}-{mode}.png").write_bytes(base64.b64decode(picture))
    browser.driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
