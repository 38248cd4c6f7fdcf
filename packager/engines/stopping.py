"""The grace period that a server needs, with what the request says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packager.core.key_options import plain_name
from packager.core.stopping import Stopping


def stopping_of(usual: Stopping | None, options: Mapping[str, str]) -> Stopping | None:
    """Return what the server does with an option of the engine's that sets its time to drain."""
    if usual is None or not usual.option:
        return usual
    wanted = plain_name(usual.option)
    asked = next((value for name, value in options.items() if plain_name(name) == wanted), "")
    seconds = asked.isascii() and asked.isdecimal() and len(asked) < 7
    return replace(usual, drain_s=int(asked)) if seconds else usual
