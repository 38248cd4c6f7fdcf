"""Damaged configurations are checked or refused, and findings stay inside the file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from packager.addons.check.reading import read_document
from packager.addons.check.targets import parse_target
from packager.addons.check.text import NotReadable, decode
from packager.addons.check.values import KINDS
from packager.addons.check.verdicts import judge
from tests.support.places import ROOT

FILES = sorted((ROOT / "examples" / "check").iterdir())
PIECES = [
    *(b"'", b'"', b"\\", b"\n", b"$", b"`", b"(", b"{", b"}", b"[", b"]", b":", b"=", b"|", b"- "),
    *(b"--", b"-O", b"-cc.a.b", b"\x00", b"\xff", b"&a", b"*a", b"<<: ", b"1e999", b"#", b"~"),
    *(b"\xe2\x80\xa8", b"\xf0\x9f\x92\xa9", b"--speculative-config.method=", b"SM_VLLM_"),
]
TARGETS = [parse_target(text) for text in ("vllm:0.27.1", "vllm:0.23.0", "lmi:13", "sglang:0.5.5")]
DAMAGES = 40


def damaged(data: bytes, chance: random.Random) -> bytes:
    text = bytearray(data)
    for _ in range(chance.randint(1, 10)):
        at = chance.randrange(len(text) + 1)
        if chance.random() < 0.6:
            text[at:at] = chance.choice(PIECES)
        else:
            del text[at : at + chance.randint(1, 20)]
    return bytes(text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_damaged_file_is_checked_or_refused(path: Path) -> None:
    chance = random.Random(path.name)
    for number in range(DAMAGES):
        data = damaged(path.read_bytes(), chance)
        kind = chance.choice((None, None, *KINDS))
        try:
            report = judge([read_document(path.name, data, kind)], asked=[TARGETS[number % 4]])
        except NotReadable:
            continue
        lines = decode(path.name, data).split("\n")
        for remark in report.remarks:
            assert 1 <= remark.place.line <= len(lines)
            assert 1 <= remark.place.column <= len(lines[remark.place.line - 1]) + 1
