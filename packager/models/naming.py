"""Names of models that no hub names: what they are served, listed and labelled as.

A name ends up in images, labels and answers of servers: it is the last part of a path, never
the path itself.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

NAMELESS = "model"  # the root of a file system, or a name without one usable character

_MOST = 128  # characters that a request takes
_REFUSED = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_LEADING = re.compile(r"^[^A-Za-z0-9]+", re.ASCII)
# A snapshot in a hub cache is named by its commit: the repository is in the directory above.
_SNAPSHOT = re.compile(r"models--(?:.+--)?(?P<name>[^/]+)/snapshots/[0-9a-f]{40}$", re.ASCII)


def name_of_directory(path: Path) -> str:
    """Return the name of a model in a directory; of a hub cache's snapshot, the repository's."""
    snapshot = _SNAPSHOT.search(path.as_posix())
    return usable_name(snapshot["name"] if snapshot else path.name)


def name_of_prefix(bucket: str, prefix: str) -> str:
    """Return the name of a model below a prefix: its last part, or else the bucket."""
    return usable_name(prefix.rstrip("/").rpartition("/")[2] or bucket)


def usable_name(text: str) -> str:
    """Return a name for clients, of letters, digits, `.`, `_` and `-` only.

    Accents are dropped, a run of other characters becomes one `-`.
    """
    plain = "".join(
        character
        for character in unicodedata.normalize("NFKD", text)
        if not unicodedata.combining(character)
    )
    name = _LEADING.sub("", _REFUSED.sub("-", plain))[:_MOST].rstrip("-")
    return name or NAMELESS
