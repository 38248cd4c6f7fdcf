"""Shipped text files: `templates/` and `containers/`, and tables beside the code.

In a wheel the two are inside the package (`packager/_share/`); in a checkout they are at the root
of the repository.  Only this module decides which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent


def share_dir(name: str) -> Path:
    """Return the directory of shipped text files `name` (`templates`, `containers`)."""
    installed = PACKAGE / "_share" / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def read_shipped(path: Path) -> dict[str, Any]:
    """Read a shipped TOML file, which is right; those of others are `core.documents`'."""
    try:
        from tomli import loads  # those of `tomllib`, compiled: they take a third of the time
    except ImportError:  # in the Python of a tool, which has none of packager's requirements
        from tomllib import loads

    return loads(path.read_text(encoding="utf-8"))
