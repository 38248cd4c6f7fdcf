"""Files that an interrupted run may leave behind: whole ones, or none that is taken for one.

What torch writes is a zip, which has a checksum for every member.  All have one time: SpecForge
goes on only where it finds the model and the head as they were, and tells that by size and time.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lasting import finish


def write(place: Path, value: Mapping[str, Any]) -> None:
    """Save `value` under another name, and name it when it is on the disk."""
    draft = place.with_name(place.name + ".part")
    torch.save(dict(value), draft)
    date(draft)
    finish(draft, place)


def date(place: Path) -> None:
    """Give a file the time that all have."""
    os.utime(place, (0, 0))


def is_whole(place: Path) -> bool:
    """Say whether all bytes are those that were written."""
    try:
        with zipfile.ZipFile(place) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False
