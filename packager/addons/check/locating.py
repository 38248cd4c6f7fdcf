"""Places of findings: each names its setting, as rendered or as written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from packager.addons.check.values import Remark
from packager.core.findings import Finding
from packager.core.positions import Place

QUOTED = re.compile(r"'([^'\s]{1,200})'")
# What no sentence has: names of several words, or of capitals.
TELLING = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9]*(?:[-_.][A-Za-z0-9]+)+|[A-Z]{4,})", re.ASCII
)


def located(
    findings: Iterable[Finding], names: Mapping[str, Place], otherwise: Place
) -> Iterator[Remark]:
    """Yield each finding at the first setting that it names, else at the server."""
    for finding in findings:
        yield Remark(find_place(finding.message, names) or otherwise, finding)


def find_place(message: str, names: Mapping[str, Place]) -> Place | None:
    """Find the setting that a message names; `option.key` is in what `option` says."""
    words = [match[1] for match in QUOTED.finditer(message)]
    words += [match[0] for match in TELLING.finditer(message)]
    for word in words:
        while word:
            if word in names:
                return names[word]
            word = word.rpartition(".")[0]
    return None
