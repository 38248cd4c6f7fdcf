"""Location of shipped text files: `templates/` and `containers/`.

In a wheel they are inside the package (`packager/_share/`); in a checkout
they stand at the root of the repository.  Nobody else may guess.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def share_dir(name: str) -> Path:
    """Return the directory of shipped text files `name` (`templates`, `containers`)."""
    installed = PACKAGE / "_share" / name
    return installed if installed.is_dir() else PACKAGE.parent / name
