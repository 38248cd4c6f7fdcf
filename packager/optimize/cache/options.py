"""Options of one run for the cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MatchRule = Literal["exact", "larger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions:
    """Cache settings of the command line; None and empty mean unset."""

    shared: tuple[str, ...] = ()
    require_signed: bool | None = None
    trusted_keys: Path | None = None
    signing_key: Path | None = None
    match: MatchRule | None = None
    retry_failed: bool = False


AS_SET_UP = CacheOptions()
