"""The directive `executed`: a page shows a command of verifair, what it prints, and the pictures it draws, made anew with the site.

    ```{executed}
    verifair reproduce cst --table 1
    ```

`make docs` gives the folder of the papers' data, `VERIFAIR_DATA`. Without one the page shows the command alone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

COLUMNS = "100"
"""Letters a line of what is printed: no wider than a page."""
CANNOT = 2
"""How verifair ends where a file or a package is missing; the page says which."""


class Executed(SphinxDirective):
    """Run the command in a folder of its own."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        command = "\n".join(self.content)
        if not (data := self.config.papers_data):
            return [nodes.literal_block(command, command, language="none")]
        source, line = self.get_source_info()
        folder = Path(self.env.app.doctreedir) / "executed" / f"{Path(self.env.docname).name}-{line}"
        shutil.rmtree(folder, ignore_errors=True)  # no picture of an earlier build is shown
        folder.mkdir(parents=True)
        options = ["--data", str(Path(data).resolve()), "--out", "."]
        made = subprocess.run(
            [sys.executable, "-m", *shlex.split(command), *options], cwd=folder, capture_output=True, text=True,
            env=os.environ | {"COLUMNS": COLUMNS, "NO_COLOR": "1"}, stdin=subprocess.DEVNULL,
        )
        if made.returncode not in (0, CANNOT):
            raise self.error(f"{source}:{line}: {command}: {made.stderr}")
        shown = f"{command}\n\n{(made.stdout if made.returncode == 0 else made.stderr).strip()}"
        pictures = sorted(folder.rglob("*.png"))
        return [nodes.literal_block(shown, shown, language="none"), *(self._picture(one) for one in pictures)]

    def _picture(self, path: Path) -> nodes.image:
        """Return the picture, named relative to the page."""
        uri = os.path.relpath(path, Path(self.env.doc2path(self.env.docname)).parent)
        return nodes.image(uri=Path(uri).as_posix(), alt=f"{path.stem.replace('-', ' ')}: ours beside the paper's", width="60%")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("papers_data", "", "env")
    app.add_directive("executed", Executed)
    return {"parallel_read_safe": True}
