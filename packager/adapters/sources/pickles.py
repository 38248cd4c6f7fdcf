"""What can run code when it is loaded, recognised by content.

A suffix proves nothing: loaders look at the first bytes, and so do we.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path

HEAD_BYTES = 1 << 16
_RUNS_CODE = frozenset(("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "REDUCE", "NEWOBJ", "BUILD"))


def pickle_kind(path: Path) -> str:
    """Say what dangerous thing the file is; empty when it is none."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
        ends = not stream.read(1)
    kind = pickle_kind_of(head, ends=ends)
    if not kind and zipfile.is_zipfile(path):
        return "a zip archive with something in front"
    return kind


def pickle_kind_of(head: bytes, *, ends: bool) -> str:
    """Judge the first bytes of a file; `ends` says that there are no more."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "a zip archive, as torch.save writes it"
    if head.startswith(b"\x93NUMPY"):
        return "a NumPy file, which can hold pickled objects"
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and chr(head[2]) in _opcodes():
        return "a pickle"
    return "a pickle" if _is_old_pickle(head, ends=ends) else ""


def _opcodes() -> frozenset[str]:
    return frozenset(opcode.code for opcode in pickletools.opcodes)


def _is_old_pickle(head: bytes, *, ends: bool) -> bool:
    """Protocols 0 and 1 have no mark: only what reads as opcodes throughout, and calls, counts.

    Text can read as opcodes by accident (`torch==2.13.0` does, down to a STOP).
    Its stack does not add up, so no loader would get as far as a call.
    """
    runs_code = False
    stream = io.BytesIO(head)
    try:
        for opcode, _, _ in pickletools.genops(stream):
            runs_code = runs_code or opcode.name in _RUNS_CODE
        if runs_code:
            pickletools.dis(head, out=io.StringIO())  # checks every opcode against the stack
    except (ValueError, UnicodeDecodeError, OverflowError, MemoryError):
        return runs_code and not ends and stream.tell() == len(head)
    return runs_code
