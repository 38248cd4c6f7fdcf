"""Licences as model hubs name them, in SPDX's words.

Hub ids are lower case, and some are no ids of SPDX: those stay names.
Source: huggingface.co/docs/hub/repositories-licenses and spdx.org/licenses (2026-11).
"""

from __future__ import annotations

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
