"""Commands of the pages and what the pages show of their output.

A fenced block is of one of these languages:

- `console`: commands after `$ `, continued as in a shell, each with its output below it;
- `sh`: commands whose output is not shown;
- `python`: a script; a `text` block right below it is what it prints;
- any with `title="FILE"`: a file, written where the commands of the page run;
- anything else is never run.

A comment above a block says what is special about it, `<!-- doc: WORD; WORD -->`:

- `live NEED, NEED`: its commands need a Docker Engine with the serving base (`docker`) or tools
  (`quantizing`, `training`); `tests/live` runs them;
- `long NEED, NEED`: as `live`, for minutes, and only where `PACKAGER_DOCS=long` is set;
- `not run: REASON`: nobody can run it here;
- `varies KIND, KIND`: figures of this kind are those of the machine, and compared by their shape.

In what is shown, a line `…` stands for any lines, and `…` within a line for any text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import ROOT

RUN = ("console", "sh", "python")
OTHERS = ("text", "toml", "json", "yaml")
# Made by scripts/make-reference, which has tests of its own; decisions show nothing that is run.
GENERATED = ("reference", "decisions")

KINDS = {
    "time": r"\d[\d,.]* ?(?:ms|s|min|h)\b(?: \d+ (?:min|s)\b)?(?: ago)?|just now",
    "rate": r"\d[\d,.]*(?:/s| tokens/s| [kMGT]?B/s)",
    "size": r"\d[\d,.]* (?:[kMGT]B|[KMGT]iB|B)\b",
    "number": r"[+-]?\d[\d,.]*\d|[+-]?\d",
    "key": r"\b[0-9a-f]{64}\b|\b[0-9a-f]{12,16}\b",
    "digest": r"sha256:[0-9a-f]{12,64}",
    "date": r"\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?",
}
# Numbers last: the other kinds have numbers in them.
_ORDER = ("date", "digest", "key", "rate", "time", "size", "number")
_FENCE = re.compile(r'^( *)(`{3,})(\w*)(?: title="([^"]+)")?(.*)$')
_MARKS = re.compile(r"; (?=varies |live |long |not run: )")
_COMMENT = re.compile(r"^ *<!-- doc: (.*) -->$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a block and what the page shows below it."""

    text: str  # lines as they stand, without the prompt
    shown: tuple[str, ...] | None  # None: the page shows no output
    first: int  # index of the first line of the output, in the page
    last: int  # behind its last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int  # of its fence, from 1
    language: str
    title: str
    odd: str  # what else stands in the line of the fence
    marks: tuple[str, ...]
    indent: str
    lines: tuple[str, ...]

    @property
    def where(self) -> str:
        inside = self.page.is_relative_to(ROOT)
        return f"{self.page.relative_to(ROOT) if inside else self.page.name}:{self.line}"

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def stage(self) -> str:
        """Return who runs it: `files`, `here`, `live`, `long`, `nobody`, or `` for no commands."""
        if self.title:
            return "files"
        if self.language not in RUN:
            return ""
        words = {mark.split()[0].rstrip(":") for mark in self.marks}
        found = [("live", "live"), ("long", "long"), ("not", "nobody")]
        return next((stage for word, stage in found if word in words), "here")

    @property
    def needs(self) -> frozenset[str]:
        """Return what a live block needs."""
        told = [mark.split(" ", 1)[1] for mark in self.marks if mark.startswith(("live ", "long "))]
        return frozenset(need.strip() for needs in told for need in needs.split(","))

    @property
    def varies(self) -> frozenset[str]:
        named = [mark.removeprefix("varies ") for mark in self.marks if mark.startswith("varies ")]
        return frozenset(kind.strip() for mark in named for kind in mark.split(","))

    def commands(self) -> Iterator[Command]:
        """Yield the commands, in order."""
        if self.language == "sh":
            yield from _plain_commands(self)
        elif self.language == "console":
            yield from _console_commands(self)


def pages() -> list[Path]:
    """Return README and every page that people write."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    docs = ROOT / "docs"
    found += sorted(
        path for path in docs.rglob("*.md") if path.relative_to(docs).parts[0] not in GENERATED
    )
    return found


def blocks(page: Path, text: str | None = None) -> list[Block]:
    """Read the fenced blocks of a page; a fence that never closes is an error."""
    lines = (page.read_text(encoding="utf-8") if text is None else text).split("\n")
    found, at = [], 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if not fence:
            at += 1
            continue
        indent, ticks, language, title, odd = fence.groups()
        end = at + 1
        while lines[end] != indent + ticks:
            end += 1
        found.append(
            Block(
                page=page,
                line=at + 1,
                language=language,
                title=title or "",
                odd=odd.strip(),
                marks=_marks_above(lines, at),
                indent=indent,
                lines=tuple(line.removeprefix(indent) for line in lines[at + 1 : end]),
            )
        )
        at = end + 1
    return found


def _marks_above(lines: list[str], at: int) -> tuple[str, ...]:
    above = at - 1
    if above >= 0 and not lines[above].strip():
        above -= 1
    found = _COMMENT.match(lines[above]) if above >= 0 else None
    return tuple(_MARKS.split(found[1])) if found else ()


def _plain_commands(block: Block) -> Iterator[Command]:
    """Split a script where a line ends a command: not within a here-document."""
    held: list[str] = []
    until = ""
    for line in block.lines:
        held.append(line)
        here = re.search(r"<<'?(\w+)'?", line)
        until = here[1] if here else "" if line == until else until
        if until or line.endswith("\\"):
            continue
        if line.strip() and not line.startswith("#"):
            yield Command(text="\n".join(held), shown=None, first=0, last=0)
        held = []


def _console_commands(block: Block) -> Iterator[Command]:
    starts = [index for index, line in enumerate(block.lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        first = start
        while is_open("\n".join(block.lines[start : first + 1]).removeprefix("$ ")):
            first += 1
        first += 1
        text = "\n".join(block.lines[start:first]).removeprefix("$ ")
        shown = list(block.lines[first:end])
        while shown and not shown[-1]:  # a blank line sets the next command apart
            shown.pop()
        yield Command(
            text=text,
            shown=tuple(shown),
            first=block.line + first,
            last=block.line + first + len(shown),
        )


def is_open(text: str) -> bool:
    """Whether a command goes on in the next line."""
    if text.endswith(("\\", "|")):
        return True
    try:
        shlex.split(text)
    except ValueError:  # a quotation that is not closed
        return True
    return False


def shaped(line: str, kinds: Iterable[str]) -> str:
    """Replace figures of these kinds by their kind, and the spaces that align columns by one."""
    asked = set(kinds)
    for kind in _ORDER:
        if kind in asked:
            line = re.sub(KINDS[kind], f"<{kind}>", line)
    return re.sub(r"(?<=\S) {2,}", "  ", line) if asked else line


def agrees(shown: Iterable[str], printed: Iterable[str], kinds: Iterable[str] = ()) -> bool:
    """Whether what a page shows is what a command printed."""
    kinds = frozenset(kinds)
    pattern = "".join(_line_pattern(shaped(line, kinds)) for line in shown)
    text = "".join(f"{shaped(line, kinds)}\n" for line in printed)
    return re.fullmatch(pattern, text) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    return ".*?".join(re.escape(part) for part in line.split("…")) + r"\n"


def elided(shown: Iterable[str], printed: Iterable[str], kinds: Iterable[str] = ()) -> list[str]:
    """Leave out of new output what the page left out of the old one."""
    old, new = list(shown), list(printed)
    if not any("…" in line for line in old):
        return new
    kept: list[str] = []
    for line in new:
        like = next((one for one in old if one.strip() != "…" and _is_like(one, line, kinds)), None)
        if like is not None:
            kept.append(like if "…" in like else line)
        elif any(one.strip() == "…" for one in old) and kept[-1:] != ["…"]:
            kept.append("…")
    return kept if agrees(kept, new, kinds) else new


def _is_like(old: str, new: str, kinds: Iterable[str]) -> bool:
    """Whether a line is likely an earlier one with other figures."""
    if "…" in old:
        return agrees([old], [new], {*kinds, "number", "digest"})
    return _words(old, kinds) == _words(new, kinds)


def _words(line: str, kinds: Iterable[str]) -> str:
    """Return what is likely the same in a line when its figures changed."""
    return re.sub(r"[\d.,]+|sha256:\w+", "#", shaped(line, kinds)).partition("#")[0] or line
