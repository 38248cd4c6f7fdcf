"""What can run code when it is loaded, recognised by content.

A suffix proves nothing: loaders look at the bytes, and so do we.  A pickle is a program for a
small machine with a stack.  The program is followed as far as a loader would get, without its
values: what is called, and what is imported and then changed, can run code.  Text ends at its first
character that is no instruction, so that long files cost nothing.

Compressed data is unpacked as far as that takes.  Archives are refused unopened: a file that is
served is never one.
"""

from __future__ import annotations

import bz2
import io
import lzma
import pickletools
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol

from packager.core.units import MIB

MAX_INSTRUCTIONS = 1_000_000  # no text reads as so many
MAX_DEPTH = 3  # compressed, in compressed, in compressed
MAX_UNPACKED = 256 * MIB
MAX_RATIO = 200  # of what is unpacked to what is read, beyond the first MiB
MAX_MEMORY = 256 * MIB  # of a decompressor
PIECE = 64 * 1024
ZSTD_PIECE = 512

_ZIP = (b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")
_LZ4 = (b"\x04\x22\x4d\x18", b"\x02\x21\x4c\x18")
_ZSTD = b"\x28\xb5\x2f\xfd"
_TAR_HEADER = 512


def pickle_kind(stream: BinaryIO) -> str:
    """Say what dangerous thing a file is; empty when it is none. Reads from its start."""
    try:
        kind = _kind(stream, _Budget(), 0)
    except _TooMuch as error:
        return str(error)
    stream.seek(0)
    if not kind and zipfile.is_zipfile(stream):
        return "a zip archive with something in front"
    return kind


def runs_code(stream: BinaryIO, most: int | None = None) -> bool:
    """Tell whether a file, read as a pickle from its start, gets as far as running code.

    True too for one of more than `MAX_INSTRUCTIONS`, which nothing harmless has.  With
    `most`, no more bytes are read: a line of zeros in weights has gigabytes.
    """
    stream.seek(0)
    return _Machine(stream if most is None else _Start(stream, most)).runs_code()


def _kind(stream: BinaryIO, budget: _Budget, depth: int) -> str:
    stream.seek(0)
    head = stream.read(_TAR_HEADER)
    if head.startswith(_ZIP):
        return "a zip archive, as torch.save writes it"
    if head.startswith(b"\x93NUMPY"):
        return "a NumPy file, which can hold pickled objects"
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and head[2] in _INSTRUCTIONS:
        return "a pickle"
    if head.startswith(b"ZF0x"):
        return "a compressed pickle, as joblib wrote it"
    if _is_tar(head):
        return "a tar archive, as torch.save once wrote it"
    if runs_code(stream):
        return "a pickle"
    for name, begins, make in _FORMATS:
        if not begins(head):
            continue
        decompressor = make()
        if decompressor is None:
            return f"{name} data, which cannot be looked into here"
        if depth == MAX_DEPTH:
            return f"{name} data, compressed {depth} times before"
        stream.seek(0)
        kind = _kind(io.BufferedReader(_Unpacked(stream, name, make, budget)), budget, depth + 1)
        if kind:
            return f"{kind}, compressed with {name}"
    return ""


def _is_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


# The machine


@dataclass(frozen=True, slots=True)
class _Instruction:
    name: str
    argument: int  # bytes; negative: see pickletools, which has a name for each


_INSTRUCTIONS: MappingProxyType[int, _Instruction] = MappingProxyType(
    {
        ord(opcode.code): _Instruction(opcode.name, opcode.arg.n if opcode.arg else 0)
        for opcode in pickletools.opcodes
    }
)
# Bytes that hold the length of an argument, and whether it has a sign.
_LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: (1, False),
    pickletools.TAKEN_FROM_ARGUMENT4: (4, True),
    pickletools.TAKEN_FROM_ARGUMENT4U: (4, False),
    pickletools.TAKEN_FROM_ARGUMENT8U: (8, False),
}
_STRINGS = frozenset(
    ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE")
    + ("BINUNICODE8",)
)
_BLANK = r"[ \t\v\f\r]*"
_NUMBERS = {
    name: re.compile(_BLANK + pattern + _BLANK, re.ASCII)
    for name, pattern in {
        "INT": r"[+-]?\d\w*",
        "LONG": r"[+-]?\d\w*",
        "FLOAT": r"[+-]?[\w.][\w.+-]*",
        "GET": r"\+?\d[\d_]*",
        "PUT": r"\+?\d[\d_]*",
    }.items()
}
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_LONGEST_LINE = 1024 * 1024  # of numbers and of names
_LONG = re.compile(rb"\s*(?:[+\-]?[\d.][\w.+\-]*\s*|[\w.]*)")  # what may still become one

_VALUE, _STRING, _IMPORTED = range(3)  # what is on the stack
_MEMO_PUT = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_MEMO_GET = frozenset(("GET", "BINGET", "LONG_BINGET"))
_CALLS = {"REDUCE": 2, "BUILD": 2, "NEWOBJ": 2, "NEWOBJ_EX": 3, "APPEND": 2, "SETITEM": 3}
_FILLS = frozenset(("APPENDS", "SETITEMS", "ADDITEMS"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_FROM_MARK = frozenset(("TUPLE", "LIST", "DICT", "FROZENSET"))


class _Ended(Exception):
    """A loader would give up here."""


class _RunsOn(Exception):
    """No harmless file goes on like this."""


class _Readable(Protocol):
    def read(self, count: int, /) -> bytes: ...

    def readline(self, count: int, /) -> bytes: ...


class _Start:
    """The first bytes of a file, as if it ended there."""

    def __init__(self, stream: BinaryIO, most: int) -> None:
        self._stream = stream
        self._left = most

    def read(self, count: int) -> bytes:
        data = self._stream.read(min(count, self._left))
        self._left -= len(data)
        return data

    def readline(self, count: int) -> bytes:
        line = self._stream.readline(min(count, self._left))
        self._left -= len(line)
        return line


class _Machine:
    """Follows a pickle without its values. What was imported taints what it is used for."""

    def __init__(self, stream: _Readable) -> None:
        self._stream = stream
        self._stack: list[int] = []
        self._outer: list[list[int]] = []  # stacks below marks
        self._memo: dict[int, int] = {}
        self._is_first = True

    def runs_code(self) -> bool:
        try:
            for _ in range(MAX_INSTRUCTIONS):
                if self._step():
                    return True
        except (_Ended, IndexError, KeyError):
            return False
        except _RunsOn:
            return True
        return True

    def _step(self) -> bool:
        """Do one instruction; true when it runs what was imported."""
        code = self._stream.read(1)
        instruction = _INSTRUCTIONS.get(code[0]) if code else None
        if instruction is None:
            raise _Ended
        name = instruction.name
        argument = self._argument(instruction)
        stack = self._stack
        if name in _CALLS:
            imported = stack[-_CALLS[name]] == _IMPORTED
            if not imported and name in ("REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX"):
                raise _Ended  # nothing else can be called
            del stack[1 - _CALLS[name] :]
            return imported
        if name in _FILLS:
            self._to_mark()
            return self._stack[-1] == _IMPORTED
        if name in ("OBJ", "INST"):
            values = self._to_mark()
            if name == "OBJ" and values[0] != _IMPORTED:
                raise _Ended
            return True
        self._change(name, argument)
        return False

    def _change(self, name: str, argument: int) -> None:
        """Do what an instruction does to stack and memo."""
        stack = self._stack
        if name == "MARK":
            self._outer.append(stack)
            self._stack = []
        elif name == "STOP":  # old torch files are several pickles
            self._stack, self._outer, self._memo, self._is_first = [], [], {}, False
        elif name == "POP" and not stack:
            self._to_mark()
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._to_mark()
        elif name == "DUP":
            stack.append(stack[-1])
        elif name in _MEMO_PUT:
            self._memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in _MEMO_GET:
            stack.append(self._memo[argument])
        elif name in _TUPLES:
            stack[-_TUPLES[name]]
            stack[-_TUPLES[name] :] = [_VALUE]
        elif name in _FROM_MARK:
            self._to_mark()
            self._stack.append(_VALUE)
        elif name == "STACK_GLOBAL":
            if stack.pop() != _STRING or stack.pop() != _STRING:
                raise _Ended
            stack.append(_IMPORTED)
        elif name in ("GLOBAL", "EXT1", "EXT2", "EXT4"):
            stack.append(_IMPORTED)
        elif name in ("PERSID", "BINPERSID"):
            self._load_persistent(name)
        elif name in ("NEXT_BUFFER", "READONLY_BUFFER"):
            raise _Ended  # files have no buffers beside them
        elif name == "PROTO":
            if argument > 5:
                raise _Ended
        elif name != "FRAME":
            stack.append(_STRING if name in _STRINGS else _VALUE)

    def _load_persistent(self, name: str) -> None:
        if self._is_first:
            raise _Ended  # only torch has them, in what follows its first pickle
        if name == "BINPERSID":
            self._stack.pop()
        self._stack.append(_IMPORTED)

    def _to_mark(self) -> list[int]:
        values, self._stack = self._stack, self._outer.pop()
        return values

    def _argument(self, instruction: _Instruction) -> int:
        """Pass over the argument; return it where it is a short number."""
        size = instruction.argument
        if not size:
            return 0
        if size > 0:
            return int.from_bytes(self._exactly(size), "little")
        if size in _LENGTHS:
            width, has_sign = _LENGTHS[size]
            length = int.from_bytes(self._exactly(width), "little", signed=has_sign)
            if length < 0:
                raise _Ended
            self._pass(length)
            return 0
        name = instruction.name
        if name in ("GLOBAL", "INST"):
            # No loader finds another module, nor a name with blanks.
            self._matching(_NAME)
            self._matching(_NAME)
        elif name == "STRING":
            return self._quoted()
        elif name in _NUMBERS:
            line = self._matching(_NUMBERS[name])
            return int(line) if name in ("GET", "PUT") else 0
        else:
            self._pass_line()
        return 0

    def _matching(self, pattern: re.Pattern[str]) -> str:
        """Read a line; one that is too long to be held counts where it begins as it should."""
        line = self._stream.readline(_LONGEST_LINE)
        if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
            raise _RunsOn if _LONG.fullmatch(line) else _Ended
        text = line.decode("utf-8", "replace")
        if not text.endswith("\n") or not pattern.fullmatch(text[:-1]):
            raise _Ended
        return text[:-1]

    def _quoted(self) -> int:
        first, last = self._pass_line()
        if not (first[:1] == last[-1:] and first[:1] in (b"'", b'"')):
            raise _Ended
        return 0

    def _exactly(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise _Ended
        return data

    def _pass(self, count: int) -> None:
        while count:
            read = len(self._stream.read(min(count, PIECE)))
            if not read:
                raise _Ended
            count -= read

    def _pass_line(self) -> tuple[bytes, bytes]:
        """Pass over a line of any length; return how it begins and ends, without blanks."""
        first = piece = self._stream.readline(PIECE)
        while not piece.endswith(b"\n"):
            last, piece = piece, self._stream.readline(PIECE)
            if not piece:
                raise _Ended
            if len(piece) < 8:
                piece = last[-8:] + piece
        return first.lstrip(), piece.rstrip()


# Compressed data


class _TooMuch(Exception):
    """What is unpacked has no end that is worth waiting for."""


@dataclass(slots=True)
class _Budget:
    """What may still be unpacked of one file."""

    left: int = field(default_factory=lambda: MAX_UNPACKED)


class _Decompressor(Protocol):
    """What bz2 and lzma make."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """A decompressor of zlib and gzip, with the manners of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """A decompressor of zstd frames, with the manners of the others."""

    def __init__(self) -> None:
        import zstandard

        self._inner: Any = zstandard.ZstdDecompressor(max_window_size=MAX_MEMORY).decompressobj()
        self._packed = self._ready = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof) and not self._ready

    @property
    def needs_input(self) -> bool:
        return not (self._ready or self._packed)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._packed

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._packed += data
        while self._packed and not self._ready and not self._inner.eof:
            # The library gives all that its input holds, 128 KiB for each 4 bytes at most.
            piece, self._packed = self._packed[:ZSTD_PIECE], self._packed[ZSTD_PIECE:]
            self._ready = self._inner.decompress(piece)
        given, self._ready = self._ready[:max_length], self._ready[max_length:]
        return given


class _Unpacked(io.RawIOBase):
    """Unpacks as it is read; going back to the start unpacks anew.

    What is damaged ends where the damage is: a loader gets as far.
    """

    def __init__(self, source: BinaryIO, name: str, make: _Make, budget: _Budget) -> None:
        self._source = source
        self._name = name
        self._make = make
        self._budget = budget
        self._restart()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if (offset, whence) == (0, io.SEEK_CUR):
            return self._unpacked
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("only the start can be gone back to")
        self._source.seek(0)
        self._restart()
        return 0

    def readinto(self, buffer: Any) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _restart(self) -> None:
        self._inner = self._new()
        self._read = self._unpacked = 0
        self._ended = False

    def _new(self) -> _Decompressor:
        made = self._make()
        assert made is not None, "it was there before"
        return made

    def _next(self, count: int) -> bytes:
        while not self._ended:
            try:
                packed = self._input()
                data = self._inner.decompress(packed, count)
            except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
                if "emory" in str(error):
                    raise _TooMuch(f"{self._name} data that takes too much memory") from error
                break
            except Exception as error:
                if type(error).__name__ != "ZstdError":
                    raise
                break
            if data:
                self._account(len(data))
                return data
        self._ended = True
        return b""

    def _input(self) -> bytes:
        if self._inner.eof:  # one stream may follow another, with zeros in between
            rest = self._inner.unused_data.lstrip(b"\0") or self._fresh().lstrip(b"\0")
            self._ended = not rest
            if rest:
                self._inner = self._new()
            return rest
        if not self._inner.needs_input:
            return b""
        data = self._fresh()
        self._ended = not data
        return data

    def _fresh(self) -> bytes:
        data = self._source.read(PIECE)
        self._read += len(data)
        return data

    def _account(self, count: int) -> None:
        self._unpacked += count
        self._budget.left -= count
        if self._budget.left < 0:
            most = f"{MAX_UNPACKED // MIB} MiB"
            raise _TooMuch(f"{self._name} data that unpacks to more than {most}")
        if self._unpacked > MIB and self._unpacked > MAX_RATIO * self._read:
            most = f"{MAX_RATIO} times its size"
            raise _TooMuch(f"{self._name} data that unpacks to more than {most}")


def _is_zlib(head: bytes) -> bool:
    plain = len(head) > 1 and head[0] & 0x0F == 8 and head[0] >> 4 <= 7 and not head[1] & 0x20
    return plain and int.from_bytes(head[:2], "big") % 31 == 0


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=MAX_MEMORY)


def _zstd() -> _Decompressor | None:
    try:
        return _Zstd()
    except ImportError:
        return None


def _is_skippable(head: bytes) -> bool:
    """A frame of zstd or lz4 that holds nothing, which may come before others."""
    return len(head) >= 8 and head[0] >> 4 == 5 and head[1:4] == b"\x2a\x4d\x18"


_Make = Callable[[], _Decompressor | None]  # None: the library is missing
_FORMATS: tuple[tuple[str, Callable[[bytes], bool], _Make], ...] = (
    ("gzip", lambda head: head.startswith(b"\x1f\x8b"), _Zlib),
    ("zlib", _is_zlib, _Zlib),
    ("bzip2", lambda head: head.startswith(b"BZh"), bz2.BZ2Decompressor),
    ("xz", lambda head: head.startswith((b"\xfd7zXZ\0", b"\x5d\0")), _xz),
    ("zstd", lambda head: head.startswith(_ZSTD) or _is_skippable(head), _zstd),
    ("lz4", lambda head: head.startswith(_LZ4), lambda: None),
)
