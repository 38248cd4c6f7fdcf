"""Detection, by content, of files that can run code when they are loaded.

A suffix proves nothing: loaders decide by the bytes, and so does this check.  A pickle is a program
for a small machine with a stack, followed as far as a loader would get (`pickle_machine`).

Compressed data is unpacked as far as needed.  Archives are refused unopened: no served file is one.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import BinaryIO

from packager.models.pickle_machine import INSTRUCTIONS, runs_code
from packager.models.unpacking import FORMATS, TooMuch, Unpacked, UnpackingBudget

MAX_DEPTH = 3  # compressed, in compressed, in compressed

_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_TAR_HEADER = 512


def pickle_kind(stream: BinaryIO) -> str:
    """Return what dangerous thing a file is, or "". Reads from its start."""
    try:
        kind = _kind(stream, UnpackingBudget(), 0)
    except TooMuch as error:
        return str(error)
    stream.seek(0)
    if not kind and zipfile.is_zipfile(stream):
        return "a zip archive with something in front"
    return kind


def _kind(stream: BinaryIO, budget: UnpackingBudget, depth: int) -> str:
    stream.seek(0)
    head = stream.read(_TAR_HEADER)
    if head.startswith(_ZIP):
        return "a zip archive, as torch.save writes it"
    if head.startswith(b"\x93NUMPY"):
        return "a NumPy file, which can hold pickled objects"
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2] in INSTRUCTIONS:
        return "a pickle"
    if head.startswith(b"ZF0x"):
        return "a compressed pickle, as joblib wrote it"
    if _is_tar(head):
        return "a tar archive, as torch.save once wrote it"
    if runs_code(stream):
        return "a pickle"
    for name, begins, make in FORMATS:
        if not begins(head):
            continue
        decompressor = make()
        if decompressor is None:
            return f"{name} data, which cannot be looked into here"
        if depth == MAX_DEPTH:
            return f"{name} data, compressed {depth} times before"
        stream.seek(0)
        kind = _kind(io.BufferedReader(Unpacked(stream, name, make, budget)), budget, depth + 1)
        if kind:
            return f"{kind}, compressed with {name}"
    return ""


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        return False
    return True
