"""Results of a look-up: finished files, and notices for the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from artifact_cache.entry import Entry
from artifact_cache.matching import Match

NoticeCode = Literal[
    "waiting",  # another process builds the same
    "lock",  # there was no lock, so the work may be done twice
    "store",  # the store does not work, or not fully
    "corrupt",  # something broken was set aside
    "newer",  # an entry only newer versions can read
    "refused",  # an entry nobody we trust vouches for
    "larger",  # an artifact for a larger shape is used; its values are effective
    "not-stored",  # the files are good, and were not kept
    "adopted",  # another build was published first, and its files are used
]


@dataclass(frozen=True, slots=True)
class Notice:
    """Notice for the user; the build went on."""

    code: NoticeCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheResult:
    """Finished files, read-only, below `path`."""

    path: Path
    key: str  # of what was asked for, or of the larger one in `match`
    hit: bool  # nothing was built here
    stored: bool  # the next look-up will find exactly these files
    entry: Entry | None  # None when the files are not in the cache
    notices: tuple[Notice, ...]
    match: Match | None = None  # not None: `match.effective` must go into the configuration


def ignore(*_: object) -> None:
    """No-op receiver of notices or anything else that is reported."""
