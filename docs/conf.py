"""The site: `make site`, which runs `sphinx-build -W --keep-going docs site`.

The pages are the Markdown that GitHub shows. What GitHub and MyST write differently is translated when a page is read
(tools/site_pages.py), and the plain text of docstrings when the API pages are made (tools/site_api.py). Nothing is
loaded from elsewhere, so the site also works from a disk.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import site_api  # noqa: E402
import site_pages  # noqa: E402

from support.drawing import COLOURS  # noqa: E402

project = "scratchformer"
html_title = "scratchformer"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx.ext.mathjax", "sphinx_copybutton"]
exclude_patterns = ["lessons/README.md", "_*"]  # the index of the lessons on GitHub; in the site it is index.md
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!scratchformer).*|.*\.[A-Z]")]  # names of other packages, and type variables
smartquotes_action = "q"

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_type_aliases = {"Array": "Array"}
autodoc_mock_imports = ["cupy", "cupyx", "mpi4py", "ml_dtypes"]
add_module_names = False
viewcode_follow_imported_members = False
python_use_unqualified_type_names = True
toc_object_entries = False  # every page carries the whole table of contents

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_favicon = "_static/icon.svg"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_sidebars = {
    "**": [
        f"sidebar/{part}.html" for part in ("brand", "search", "scroll-start", "explorer", "navigation", "scroll-end")
    ]
}
html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {
        "color-background-primary": COLOURS["paper"][0],
        "color-foreground-primary": COLOURS["ink"][0],
        "color-brand-primary": "#2560c8",
        "color-brand-content": "#2560c8",
        "color-brand-visited": "#2560c8",
    },
    "dark_css_variables": {
        "color-background-primary": COLOURS["paper"][1],
        "color-background-secondary": "#1b222a",
        "color-foreground-primary": COLOURS["ink"][1],
        "color-sidebar-caption-text": COLOURS["soft"][1],
        "color-brand-primary": COLOURS["forward"][1],
        "color-brand-content": COLOURS["forward"][1],
        "color-brand-visited": COLOURS["forward"][1],
    },
}
copybutton_selector = ":is(.highlight-python, .highlight-console, .highlight-bash, .highlight-sh) pre"
copybutton_prompt_text = "$ "

# One file of MathJax, which draws formulas as SVG: no fonts, and it also runs from file://.
(mathjax,) = find_spec("sphinx-mathjax-offline").submodule_search_locations
html_static_path.append(f"{mathjax}/static/mathjax/tex-svg.js")
mathjax_path = "tex-svg.js"
mathjax3_config = {"options": {"enableMenu": False}, "svg": {"fontCache": "global"}}


def setup(app):
    site_pages.setup(app)
    site_api.setup(app)
