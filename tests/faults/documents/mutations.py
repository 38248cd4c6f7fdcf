"""Damage to documents, chosen by a random number generator: equal seeds give equal bytes.

JSON is changed where its structure is known (a value of another type, a key that is gone or stands
twice, depth, huge numbers); every document also byte by byte.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[bytes, random.Random], bytes]


class _Raw:
    """Text that stands in the document as it is: what no value of Python can be written as."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


STATED = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
WORDS: tuple[Any, ...] = (
    *STATED["values"],
    *map(_Raw, STATED["raw"]),
    *("x" * 300, "y" * 100_000, _Raw("9" * 5000), _Raw("0." + "1" * 5000)),
    _Raw("[" * 3000 + "]" * 3000),
    _Raw('{"a":' * 3000 + "1" + "}" * 3000),
    _Raw("[" + "0," * 20_000 + "0]"),
    _Raw("[" * 50_000),
)


LARGEST = 100_000_000  # bytes: it is held in memory while it is read


def damage(document: bytes, chance: random.Random) -> bytes:
    """Damage a document once or a few times; now and then leave it as it is."""
    for _ in range(chance.choice((0, 1, 1, 1, 1, 2, 3, 5))):
        damaged = _damage_once(document, chance)
        if len(damaged) > LARGEST:
            break
        document = damaged
    return document


def _damage_once(document: bytes, chance: random.Random) -> bytes:
    stripped = document.lstrip()[:1]
    if stripped in (b"{", b"[") and chance.random() < 0.75:
        try:
            value = json.loads(document)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict | list):
            return _change_value(value, chance)
    if b"\n" in document and b"=" in document and stripped != b"{" and chance.random() < 0.6:
        return _change_line(document, chance)
    return chance.choice(BYTES)(document, chance)


def _change_value(document: Any, chance: random.Random) -> bytes:
    """Change one place of a JSON document, each place as likely as another."""
    places = list(_places(document, 0))
    holder, key = chance.choice(places) if places else (None, None)
    if holder is None or chance.random() < 0.02:
        return _written(chance.choice(WORDS)).encode("utf-8", "surrogatepass")
    old = holder[key]
    match chance.randrange(8):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[key] = _Raw(f"{_written(old)},{json.dumps(key)}:{_written(old)}")
        case 2:
            holder[key] = [old]
        case 3:
            holder[key] = {"value": old}
        case 4 if isinstance(holder, dict):
            word = chance.choice([word for word in WORDS if isinstance(word, str | _Raw)])
            holder[str(word)[:300]] = holder.pop(key)
        case 5 if isinstance(holder, list):
            holder[key : key + 1] = [old] * chance.choice((0, 2, 100, 5000))
        case 6 if isinstance(old, int | float) and not isinstance(old, bool):
            numbers = (old + 1, old - 1, -old, old * 2**16, float(old), str(old))
            holder[key] = chance.choice(numbers)
        case 6 if isinstance(old, str):
            texts = (old * 2, old[:-1], old[::-1], old.upper())
            holder[key] = chance.choice((*texts, f" {old}", f"{old}\n", f"{old}/../x"))
        case _:
            holder[key] = chance.choice(WORDS)
    return _written(document).encode("utf-8", "surrogatepass")


def _places(value: Any, depth: int) -> Any:
    """Yield every holder of a value with the key to it."""
    if depth > 20:
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs)[:200]:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner, depth + 1)


def _written(value: Any) -> str:
    """Write JSON as it is meant here: raw text stays raw."""
    raw: list[str] = []

    def kept(one: Any) -> str:
        raw.append(str(one))
        return f"\0raw {len(raw) - 1}\0"

    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=kept)
    except RecursionError:
        return _written_slowly(value)
    if not text.isascii():
        return _written_slowly(value)  # with escapes in its names
    for number, one in enumerate(raw):
        text = text.replace(f'"\\u0000raw {number}\\u0000"', one)
    return text


def _written_slowly(value: Any) -> str:
    if isinstance(value, _Raw):
        return str(value)
    if isinstance(value, dict):
        inner = (f"{json.dumps(key)}:{_written_slowly(one)}" for key, one in value.items())
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written_slowly, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _change_line(document: bytes, chance: random.Random) -> bytes:
    """Change one line of a document of lines: TOML, properties, metrics."""
    lines = document.split(b"\n")
    at = chance.randrange(len(lines))
    name, equals, _ = lines[at].partition(b"=")
    values = (
        *(text.encode() for text in STATED["toml"]),
        *(b"[" * 2000, b"9" * 5000, b'"""' + b"x" * 3000),
        b"[" * 500 + b"]" * 500,
        b"{a=" * 500 + b"1" + b"}" * 500,
    )
    match chance.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines.insert(at, chance.choice((b"[a]", b"[[a]]", b"[a.b.c]", b"a.b = 1", b"=", b"]")))
        case 3:
            lines[at] = b".".join([b"a"] * chance.choice((3, 190, 3000))) + b" = 1"
        case _ if equals:
            lines[at] = name + b"= " + chance.choice(values)
        case _:
            lines[at] = chance.choice(values)
    return b"\n".join(lines)


def _cut(document: bytes, chance: random.Random) -> bytes:
    return document[: chance.randrange(len(document) + 1)]


def _flip(document: bytes, chance: random.Random) -> bytes:
    data = bytearray(document)
    for _ in range(chance.choice((1, 1, 3, 20))):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _insert(document: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(document) + 1)
    short = (b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"', b"\\", b"{", b"}")
    long = (b"[" * 5000, b'{"":' * 5000, b" " * 100_000, b"9" * 10_000)
    piece = chance.choice((*short, *long, chance.randbytes(chance.randrange(64))))
    return document[:at] + piece + document[at:]


def _repeat(document: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(document) + 1)
    piece = document[start : start + chance.randrange(200)]
    return document[:start] + piece * chance.choice((2, 10, 1000)) + document[start:]


def _replace(document: bytes, chance: random.Random) -> bytes:
    del document
    long = (b"[" * 100_000, b'{"a":' * 100_000, b'"' + b"x" * 1_000_000)
    lists = (b"[" + b"1," * 500_000 + b"1]", b"[" + b"[]," * 300_000 + b"[]]")
    noise = (b"\x80\x04\x95" + chance.randbytes(50), chance.randbytes(chance.randrange(5000)))
    short = (b"", b"\n", b"null", b"[]", b"{}", b'""', b"0")
    return chance.choice((*short, *long, *lists, *noise))


def _enlarge(document: bytes, chance: random.Random) -> bytes:
    """Make it larger than any document may be, at its beginning or its end."""
    filling = chance.choice((b" ", b"\n", b"[]", b"\x00")) * chance.choice((100_000, 3_000_000))
    return document + filling if chance.random() < 0.5 else filling + document


# What damages most readers is likelier.
BYTES: tuple[Damage, ...] = (*(_cut, _flip, _insert) * 2, _repeat, _replace, _enlarge)
