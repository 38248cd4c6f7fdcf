"""One header of a tar, and one PAX header's records, as container engines read them.

Python's `tarfile` is more lenient than Go's `archive/tar`, by which engines unpack: it takes a
prefix out of GNU headers, and underscores in numbers.  Two readers that differ are two layers in
one digest, so what Go refuses is refused here.  All raise `ValueError` with the reason.

Source of the formats: POSIX.1-2017 pax, and GNU tar's manual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BLOCK = 512
FILE, OLD_FILE, CONTIGUOUS = b"0", b"\0", b"7"
HARD_LINK, SYMLINK, CHARACTER, BLOCK_DEVICE, DIRECTORY, FIFO = b"1", b"2", b"3", b"4", b"5", b"6"
PAX, GLOBAL_PAX, SOLARIS_PAX = b"x", b"g", b"X"
LONG_NAME, LONG_LINK, SPARSE = b"L", b"K", b"S"
_CHECKSUM = slice(148, 156)
_USTAR, _GNU = b"ustar\0", b"ustar  \0"
_OCTAL = frozenset(b"01234567")
_XATTR = b"SCHILY.xattr."
_LONGEST_NUMBER = 19  # digits of a PAX record


@dataclass(frozen=True, slots=True, kw_only=True)
class TarHeader:
    """The fields of a header, before a PAX header or a long name changes them."""

    kind: bytes
    name: bytes
    link: bytes
    mode: int
    uid: int
    gid: int
    size: int
    mtime: int
    device: tuple[int, int]
    real_size: int  # of a sparse file in GNU's old format; else `size`


def parse_header(block: bytes) -> TarHeader:
    """Parse 512 bytes."""
    stated = _number(block[_CHECKSUM])
    if stated != _sum(block) and stated != _signed_sum(block):  # counting signs takes long
        raise ValueError("a header of its tar has a wrong checksum")
    name, magic = _text(block[:100]), block[257:265]
    is_posix = magic.startswith(_USTAR)
    if is_posix and (prefix := _text(block[345:500])):
        name = prefix + b"/" + name
    with_devices = is_posix or magic == _GNU
    kind, size = block[156:157], _number(block[124:136])
    return TarHeader(
        kind=kind,
        name=name,
        link=_text(block[157:257]),
        mode=_number(block[100:108]),
        uid=_number(block[108:116]),
        gid=_number(block[116:124]),
        size=size,
        mtime=_number(block[136:148]),
        device=(_number(block[329:337]), _number(block[337:345])) if with_devices else (0, 0),
        real_size=_number(block[483:495]) if kind == SPARSE else size,
    )


def parse_pax(body: bytes) -> dict[bytes, bytes]:
    """Return the records of a PAX header."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(body):
        space = body.find(b" ", at, at + 20)
        digits = body[at:space] if space > at else b""
        end = at + int(digits) if digits.isdigit() else 0
        if not space < end <= len(body) or body[end - 1 : end] != b"\n":
            raise ValueError("a PAX header of its tar is broken")
        key, equals, value = body[space + 1 : end - 1].partition(b"=")
        if not key or not equals:
            raise ValueError("a PAX header of its tar is broken")
        found[key] = value
        at = end
    return found


def xattrs_of(pax: Mapping[bytes, bytes]) -> tuple[tuple[bytes, bytes], ...]:
    """Return a file's extended attributes, sorted.

    Those of `trusted.` are left out: engines set none from an untrusted tar, since they control
    overlay file systems.
    """
    named = {
        name.removeprefix(_XATTR): value for name, value in pax.items() if name.startswith(_XATTR)
    }
    return tuple(sorted(one for one in named.items() if not one[0].startswith(b"trusted.")))


def pax_number(text: bytes | None, otherwise: int) -> int:
    """Return a number of a PAX record; `otherwise` without one."""
    if not text:
        return otherwise
    if not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise ValueError("a number in its tar is none")
    return int(text)


def pax_time_ns(text: bytes | None, otherwise_s: int) -> int:
    """Return a time in nanoseconds; those before 1970 are 0, which is what EROFS can hold."""
    if not text:
        return max(0, otherwise_s) * 10**9
    whole, _, fraction = text.partition(b".")
    digits = whole.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _LONGEST_NUMBER or fraction.strip(b"0123456789"):
        raise ValueError("a time in its tar is none")
    if whole.startswith(b"-"):
        return 0
    return int(whole) * 10**9 + int(fraction[:9].ljust(9, b"0"))


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Return a number in octal digits, or in GNU's base-256 where they do not suffice."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big")
        bits = 8 * len(field)
        return value - (1 << bits) if field[0] & 0x40 else value - (1 << (bits - 1))
    digits = _text(field.strip(b" \0")).strip(b" ")
    if not _OCTAL.issuperset(digits):
        raise ValueError("a number in its tar is none")
    return int(digits, 8) if digits else 0


def _sum(block: bytes) -> int:
    """Return the checksum, which counts its own field as blanks."""
    return sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")


def _signed_sum(block: bytes) -> int:
    """Return the checksum as programs with signed characters wrote it."""
    counted = block[: _CHECKSUM.start] + block[_CHECKSUM.stop :]
    return _sum(block) - 256 * sum(byte >= 128 for byte in counted)
