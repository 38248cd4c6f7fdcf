"""Shipped text files: `templates/` and `containers/`, and tables beside the code.

In a wheel the two are inside the package (`packager/_share/`); in a checkout
they stand at the root of the repository.  Nobody else may guess.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent


def share_dir(name: str) -> Path:
    """Return the directory of shipped text files `name` (`templates`, `containers`)."""
    installed = PACKAGE / "_share" / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def read_shipped(path: Path) -> dict[str, Any]:
    """Read a shipped TOML file, which is right; those of others are `core.documents`'."""
    import tomli  # which is `tomllib`, compiled: it takes a third of the time

    return tomli.loads(path.read_text(encoding="utf-8"))
