"""Interpreter of pickle opcodes that tracks imports and calls but builds no values.

Code can run where something is called, or imported and then changed.  Text ends at the first
character that is not an opcode, so that long files cost nothing.
"""

from __future__ import annotations

import pickletools
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import BinaryIO, Protocol

MAX_INSTRUCTIONS = 1_000_000  # no text reads as so many
PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Instruction:
    name: str
    argument: int  # bytes; negative: see pickletools, which has a name for each


INSTRUCTIONS: MappingProxyType[int, _Instruction] = MappingProxyType(
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
_MOVES = frozenset(("MARK", "STOP", "POP", "POP_MARK", "DUP"))
_MEMO_GET = frozenset(("GET", "BINGET", "LONG_BINGET"))
_MEMO = _MEMO_GET | frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_IMPORTS = frozenset(("GLOBAL", "EXT1", "EXT2", "EXT4"))
_CALLS = {"REDUCE": 2, "BUILD": 2, "NEWOBJ": 2, "NEWOBJ_EX": 3, "APPEND": 2, "SETITEM": 3}
_FILLS = frozenset(("APPENDS", "SETITEMS", "ADDITEMS"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_FROM_MARK = frozenset(("TUPLE", "LIST", "DICT", "FROZENSET"))


def runs_code(stream: BinaryIO, most: int | None = None) -> bool:
    """Check whether a file, read as a pickle from its start, runs code.

    Also true for more than `MAX_INSTRUCTIONS`, which no harmless file has.  With
    `most`, no more bytes are read: a line of zeros in weights has gigabytes.
    """
    stream.seek(0)
    return _Machine(stream if most is None else _Start(stream, most)).runs_code()


class _Ended(Exception):
    """A loader would give up here."""


class _RunsOn(Exception):
    """Content that no harmless file has."""


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
        """Execute one opcode; return whether it runs what was imported."""
        code = self._stream.read(1)
        instruction = INSTRUCTIONS.get(code[0]) if code else None
        if instruction is None:
            raise _Ended
        name = instruction.name
        argument = self._argument(instruction)
        stack = self._stack
        if name in _CALLS:
            imported = stack[-_CALLS[name]] == _IMPORTED
            if not imported and name in ("REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX"):
                raise _Ended  # no other value can be called
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
        """Apply an opcode to stack and memo."""
        stack = self._stack
        if name in _MOVES:
            self._move(name)
        elif name in _MEMO:
            self._use_memo(name, argument)
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
        elif name in _IMPORTS:
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

    def _move(self, name: str) -> None:
        """Change the stack without values: marks, what is dropped, the end of one pickle."""
        stack = self._stack
        if name == "MARK":
            self._outer.append(stack)
            self._stack = []
        elif name == "STOP":  # old torch files are several pickles
            self._stack, self._outer, self._memo, self._is_first = [], [], {}, False
        elif name == "POP" and stack:
            stack.pop()
        elif name == "DUP":
            stack.append(stack[-1])
        else:  # POP_MARK, and POP of an empty stack
            self._to_mark()

    def _use_memo(self, name: str, argument: int) -> None:
        if name in _MEMO_GET:
            self._stack.append(self._memo[argument])
        else:
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = self._stack[-1]

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
        """Skip the argument; return it where it is a short number."""
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
        """Skip a line of any length; return its beginning and end, without blanks."""
        first = piece = self._stream.readline(PIECE)
        while not piece.endswith(b"\n"):
            last, piece = piece, self._stream.readline(PIECE)
            if not piece:
                raise _Ended
            if len(piece) < 8:
                piece = last[-8:] + piece
        return first.lstrip(), piece.rstrip()
