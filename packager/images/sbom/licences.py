"""Licences as model hubs name them, in SPDX's words.

Hub ids are lower case, and some are no ids of SPDX: those stay names.
Source: huggingface.co/docs/hub/repositories-licenses and spdx.org/licenses (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from packager.images.sbom.components import LicenseClaim

_WORDS = """
    AFL-3.0 AGPL-3.0-only Apache-2.0 Artistic-2.0 BSD-2-Clause BSD-3-Clause BSD-3-Clause-Clear
    BSL-1.0 CC-BY-2.0 CC-BY-2.5 CC-BY-3.0 CC-BY-4.0 CC-BY-NC-2.0 CC-BY-NC-3.0 CC-BY-NC-4.0
    CC-BY-NC-ND-3.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-2.0 CC-BY-NC-SA-3.0 CC-BY-NC-SA-4.0 CC-BY-ND-4.0
    CC-BY-SA-3.0 CC-BY-SA-4.0 CC0-1.0 CDLA-Permissive-1.0 CDLA-Permissive-2.0 CDLA-Sharing-1.0
    ECL-2.0 EPL-1.0 EPL-2.0 EUPL-1.1 EUPL-1.2 GFDL-1.3-only GPL-2.0-only GPL-3.0-only ISC
    LGPL-2.1-only LGPL-3.0-only LPPL-1.3c MIT MPL-2.0 MS-PL MulanPSL-2.0 NCSA ODbL-1.0 OFL-1.1
    OSL-3.0 PDDL-1.0 PostgreSQL Python-2.0 Unlicense WTFPL Zlib
"""
_SPDX = frozenset(_WORDS.split())
_IDS = {one.lower(): one for one in _SPDX} | {
    "agpl-3.0": "AGPL-3.0-only",
    "bsd": "BSD-3-Clause",
    "gfdl": "GFDL-1.3-only",
    "gpl-2.0": "GPL-2.0-only",
    "gpl-3.0": "GPL-3.0-only",
    "lgpl-2.1": "LGPL-2.1-only",
    "lgpl-3.0": "LGPL-3.0-only",
    "odbl": "ODbL-1.0",
    "pddl": "PDDL-1.0",
}
_LONGEST = 200


def stated_license(word: str, name: str = "", link: str = "") -> LicenseClaim | None:
    """Return what a model card states; None where it states nothing.

    `other` means that `name` and `link` say which.
    """
    word, name = word.strip()[:_LONGEST], name.strip()[:_LONGEST]
    if word.lower() in ("", "unknown"):
        return None
    if word.lower() == "other":
        return LicenseClaim(name=name or "other", url=_address(link))
    found = _IDS.get(word.lower(), "")
    return LicenseClaim(id=found) if found else LicenseClaim(name=word, url=_address(link))


def _address(link: str) -> str:
    return link if link.startswith(("https://", "http://")) and len(link) < 2000 else ""


def is_spdx_id(text: str) -> bool:
    """Return whether a text is one of the ids that cards use; the list has others, too."""
    return text in _SPDX


def stated_licences(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each part of an SBOM with a licence that it states, also of what it was made from."""
    metadata = document.get("metadata")
    subject = metadata.get("component") if isinstance(metadata, dict) else None
    waiting = [subject, *_objects(document.get("components"))]
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, dict):
            continue
        for entry in _objects(one.get("licenses")):
            claim = entry.get("license")
            named = claim if isinstance(claim, dict) else {}
            word = named.get("id") or named.get("name") or entry.get("expression")
            if isinstance(word, str) and word:
                yield str(one.get("bom-ref", "")), word
        pedigree = one.get("pedigree")
        waiting += _objects(one.get("components"))
        waiting += _objects(pedigree.get("ancestors")) if isinstance(pedigree, dict) else []


def denied_licences(document: Mapping[str, Any], denied: Iterable[str]) -> list[str]:
    """Return `PART: LICENCE` of each licence of an SBOM that a pattern denies."""
    patterns = tuple(denied)
    return [
        f"{ref}: {word}" for ref, word in stated_licences(document) if is_denied(word, patterns)
    ]


def is_denied(licence: str, patterns: Iterable[str]) -> bool:
    """Return whether a licence, or what an expression leaves no other choice than, is denied."""
    wanted = [one.lower() for one in patterns]
    if "(" in licence:
        words = [one for one in re.split(r"[()\s]+", licence) if one not in ("", *_OPERATORS)]
        return any(_is_word_denied(one, wanted) for one in words)
    choices = licence.split(" OR ")
    return all(
        any(_is_word_denied(one, wanted) for one in re.split(r" AND | WITH ", choice))
        for choice in choices
    )


_OPERATORS = ("AND", "OR", "WITH")


def _is_word_denied(word: str, patterns: Iterable[str]) -> bool:
    text = word.strip().lower()
    return any(fnmatchcase(text, one) for one in patterns)


def _objects(value: object) -> list[Any]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
