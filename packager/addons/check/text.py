"""A file's bytes as text: what no reader of configurations takes is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packager.addons.check.values import Remark
from packager.core.documents import shorten
from packager.core.errors import UsageError
from packager.core.findings import Finding
from packager.core.positions import Place

MAX_BYTES = 1024 * 1024
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class NotReadable(UsageError):
    """A file is none that a server is configured by."""

    def __init__(self, file: str, reason: str, hint: str = "") -> None:
        known = "a serving.properties, an env file, a manifest, a compose file, a Dockerfile or a"
        super().__init__(
            f"{shorten(file, 200)} cannot be checked: {reason}",
            hint=hint or f"give {known} command line",
        )


def decode(file: str, data: bytes) -> str:
    """Decode text; a byte order mark goes, and `\\r\\n` ends lines as `\\n` does.

    What is not UTF-8 is read as Latin-1, as Java reads properties.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data:
        raise NotReadable(file, "it is not text in UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n")


def control_remarks(file: str, text: str) -> Iterator[Remark]:
    """Find control characters: each reader does something else with them."""
    for number, line in enumerate(text.split("\n"), start=1):
        found = CONTROL.search(line)
        if found:
            code = f"U+{ord(found[0]):04X}"
            message = f"the line has the control character {code}"
            hint = "write it in plain text"
            place = Place(file, number, found.start() + 1)
            yield Remark(place, Finding("error", "control-character", message, hint))


def carriage_returns(file: str, data: bytes) -> Iterator[Remark]:
    """Find lines of a shell's script that Windows' line ends break off: `\\` and `\\r`."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.endswith(b"\\\r"):
            message = "the line ends as Windows' do: for a shell the command ends here"
            hint = "write the file with line ends of one character, as `dos2unix` does"
            place = Place(file, number, max(len(line.decode("utf-8", "replace")) - 1, 1))
            yield Remark(place, Finding("error", "line-lost", message, hint))
