"""Build the documentation as a site; a broken link or anchor, or a page that docs/index.md lacks, is an error.

python -m tools.site [--into site]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.site import pages

SETTINGS: Final = Path(__file__).with_name("mkdocs.yml")


def build(into: Path) -> int:
    """Build the site in the directory `into`; return the exit status of MkDocs, which prints the errors."""
    with tempfile.TemporaryDirectory(prefix="deepcdk-site-") as folder:
        staged, config = Path(folder, "pages"), Path(folder, "mkdocs.yml")
        pages.stage(staged)
        settings = {"INHERIT": str(SETTINGS), "docs_dir": str(staged), "nav": pages.navigation(pages.index())}
        config.write_text(json.dumps(settings), encoding="utf-8")
        command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config)]
        return subprocess.run(
            [*command, "--site-dir", str(into.resolve())],
            cwd=pages.ROOT,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # about MkDocs 2, which the lock files exclude
            check=False,
        ).returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Build the site and print its location; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--into", type=Path, default=pages.ROOT / "site", help="folder to write (default: site)")
    into = parser.parse_args(argv).into
    status = build(into)
    if status == 0:
        print(f"the site's first page is {into / 'index.html'}")
        print(f"its search needs a server: python -m http.server --bind 127.0.0.1 --directory {into}")
    return status


if __name__ == "__main__":
    sys.exit(main())
