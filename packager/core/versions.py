"""Comparing versions as engines write them: `0.6.3.post1`, `1.3.0rc20`, `0.27.0+4bdc8a78`.

Enough of the Python packaging rules for engine releases, without importing
`packaging`: release numbers, then pre-releases before and post-releases after.
"""

from __future__ import annotations

import re
from functools import lru_cache

PARTS = re.compile(
    r"v?(?P<release>\d{1,18}(?:\.\d{1,18})*)"
    r"(?:[._-]?(?P<pre>a|alpha|b|beta|rc|dev)[._-]?(?P<pre_number>\d{0,18}))?"
    r"(?:[._-]?post[._-]?(?P<post>\d{0,18}))?"
    r"(?:\+.*)?",
    re.ASCII | re.IGNORECASE,
)
PRE_ORDER = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "rc": 3}
FINAL = 4

VersionKey = tuple[tuple[int, ...], int, int, int]


@lru_cache(maxsize=4096)  # a ranking compares the same few thousands of times
def version_key(text: str) -> VersionKey | None:
    """Give something that sorts as the version does, or None when `text` is no version."""
    match = PARTS.fullmatch(text.strip())
    if match is None:
        return None
    release = [int(part) for part in match["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()  # 1.2 and 1.2.0 are the same version
    pre = match["pre"]
    return (
        tuple(release),
        PRE_ORDER[pre.lower()] if pre else FINAL,
        int(match["pre_number"] or 0) if pre else 0,
        int(match["post"] or 0) + 1 if match["post"] is not None else 0,
    )
