"""Files that stay what they are, whenever the power goes off."""

from __future__ import annotations

import os
from pathlib import Path


def finish(draft: Path, place: Path) -> None:
    """Give a written file its name, after its bytes are on the disk."""
    for path, flags in ((draft, os.O_RDWR), (place.parent, os.O_RDONLY)):
        if path == place.parent:
            draft.replace(place)
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
