"""The site: `make docs` builds it into docs/_build from the Markdown of this folder and from docstrings."""

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))

project = "verifair"
author = "The verifair developers"
release = metadata.version("verifair")

extensions = ["sphinx.ext.autodoc", "myst_parser", "sphinx_external_toc", "sphinx_copybutton", "executed"]
root_doc = "README"
external_toc_path = "contents.yml"
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True

myst_heading_anchors = 4  # links to headings are those that GitHub makes
suppress_warnings = ["myst.xref_ambiguous"]
highlight_language = "none"  # indented blocks are commands and what they print

autodoc_default_options = {"members": True, "exclude-members": "set_fit_request"}  # scikit-learn makes that one
autodoc_member_order = "bysource"
autodoc_typehints = "description"
default_role = "code"  # as the docstrings use backticks
nitpick_ignore_regex = [("py:.*", ".*")]  # types of signatures: NumPy's, pandas', and private ones

html_theme = "furo"
html_title = "verifair"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# The colours of the audit's page: verifair/auditing/page/parts/page.css.
LIGHT, DARK = ("#1c1b19", "#1b4f8c", "#f6f4ee"), ("#e8e5dd", "#9ec5f4", "#21201d")
NAMES = ("color-brand-primary", "color-brand-content", "color-background-secondary")
html_theme_options = {
    "light_css_variables": dict(zip(NAMES, LIGHT, strict=True)), "dark_css_variables": dict(zip(NAMES, DARK, strict=True))
}


def plain(app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with backticks: bars and final underscores mean themselves, a hanging indent continues the
    line above, and "name: what it is" begins a paragraph."""
    text: list[str] = []
    for line in lines:
        if re.match(r"[A-Za-z_]+: |Raises |Sound\?", line):
            text.append("")
        written = re.sub(r"(`[^`]*`)|(\||_\b)", lambda part: part[1] or f"\\{part[2]}", line)
        goes_on = bool(text) and bool(text[-1].strip()) and not text[-1].startswith(" ")
        text.append(written.lstrip() if goes_on else written)
    lines[:] = text


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", plain)
