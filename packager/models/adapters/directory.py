"""A directory of adapters: each sub-directory that PEFT wrote, by its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from packager.core.adapters import CONFIG, check_adapter_name
from packager.core.errors import ModelRefused, NotFound
from packager.models.refusals import Incomplete, unreadable_model

MOST_LISTED = 1024


def list_adapters(directory: str) -> Mapping[str, str]:
    """Return the directories of adapters by their names, in order.

    Raises `NotFound` without the directory, `UsageError` for a name that no adapter may have, and
    `ModelRefused` for a sub-directory that is none: an adapter must not be missed in silence.
    """
    root = Path(directory).expanduser()
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"there is no directory {directory!r}", hint="give the directory that holds adapters"
        ) from None
    except OSError as error:
        raise unreadable_model(directory, os.strerror(error.errno or 0)) from error
    found: dict[str, str] = {}
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        check_adapter_name(entry.name)
        if not (root / entry.name / CONFIG).is_file():
            raise Incomplete(
                f"{entry.name!r} in {directory!r} has no {CONFIG!r}: it is no adapter",
                hint="move it elsewhere, or name the adapters one by one: --adapter NAME=DIR",
            )
        found[entry.name] = str(root / entry.name)
        if len(found) > MOST_LISTED:
            raise ModelRefused(
                f"{directory!r} holds more than {MOST_LISTED} adapters",
                hint="name those that are served: --adapter NAME=DIR",
            )
    if not found:
        hint = f"give its parent directory, or --adapter NAME={directory}"
        is_one = (root / CONFIG).is_file()
        raise Incomplete(
            f"there is no adapter below {directory!r}",
            hint=hint if is_one else "give the directory whose directories PEFT wrote",
        )
    return found
