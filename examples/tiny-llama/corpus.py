"""The text the example models learn from, and the text they are measured on.

Everything comes from the running interpreter's own standard library, so nothing has to be
downloaded or stored.  A module is held out by a hash of its file name alone: the split never
depends on the order of files or on the other files present, and a chat always falls on the
side of the module it was made from.  Changing `HELD_OUT_PERCENT` or `is_held_out` makes
published perplexities incomparable.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

HELD_OUT_PERCENT = 5

# Tests and bundled applications would outweigh the library; the rest are tables.
SKIPPED_FOLDERS = frozenset({
    "test", "tests", "idlelib", "lib2to3", "turtledemo", "msilib",
    "encodings", "pydoc_data", "ensurepip", "site-packages", "dist-packages",
})  # fmt: skip
# Written when the interpreter was built: they hold that machine's paths, which models repeat.
BUILD_FILES = ("_sysconfigdata", "config-")

MIN_SOURCE_CHARS, MAX_SOURCE_CHARS = 500, 200_000
MIN_ANSWER_CHARS, MAX_ANSWER_CHARS = 20, 600

Message = dict[str, str]  # role and content, as chat templates take them
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One module of the standard library."""

    path: PurePosixPath  # relative to the library's root
    text: str

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Modules, and the chats made from their docstrings."""

    sources: tuple[Source, ...]
    chats: tuple[tuple[Message, ...], ...]


def read_corpora(library: Path | None = None) -> tuple[Corpus, Corpus]:
    """Read the library into a corpus to train on and a corpus that is held out."""
    sources = read_sources(library or Path(sysconfig.get_path("stdlib")))
    train = tuple(source for source in sources if not is_held_out(source.path))
    held_out = tuple(source for source in sources if is_held_out(source.path))
    return make_corpus(train), make_corpus(held_out)


def is_held_out(path: PurePosixPath) -> bool:
    digest = hashlib.sha256(str(path).encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100 < HELD_OUT_PERCENT


def read_sources(library: Path) -> tuple[Source, ...]:
    sources = []
    for file in sorted(library.rglob("*.py")):
        path = PurePosixPath(file.relative_to(library).as_posix())
        if SKIPPED_FOLDERS.intersection(path.parts) or path.name.startswith(BUILD_FILES):
            continue
        text = file.read_text(encoding="utf-8", errors="ignore")
        if MIN_SOURCE_CHARS <= len(text) <= MAX_SOURCE_CHARS:
            sources.append(Source(path, text))
    return tuple(sources)


def make_corpus(sources: tuple[Source, ...]) -> Corpus:
    return Corpus(sources, tuple(chat for source in sources for chat in make_chats(source)))


def make_chats(source: Source) -> Iterator[tuple[Message, ...]]:
    """Ask about everything in a module that has a docstring; the docstring answers."""
    for name, node in find_documented(source):
        answer = first_paragraphs(ast.get_docstring(node) or "")
        if len(answer) < MIN_ANSWER_CHARS:
            continue
        yield make_chat(ask_about(name, node, source.module), answer)
        summary = " ".join(answer.split("\n\n")[0].split())
        if summary != answer and len(summary) >= MIN_ANSWER_CHARS:
            yield make_chat(f"Briefly: {ask_about(name, node, source.module)}", summary)


def find_documented(source: Source) -> Iterator[tuple[str, Documented]]:
    """Find what people ask about: private names would be most of the chats, and read worst."""
    if any(part.startswith("_") for part in source.module.split(".")):
        return
    tree = ast.parse(source.text)
    yield source.module, tree
    yield from find_definitions(tree, prefix="")


def find_definitions(parent: Documented, prefix: str) -> Iterator[tuple[str, Documented]]:
    """Walk classes but not function bodies: nobody asks about a nested function by name."""
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_"):
            continue
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from find_definitions(node, f"{prefix}{node.name}.")


def ask_about(name: str, node: Documented, module: str) -> str:
    if isinstance(node, ast.Module):
        return f"What is the {module} module for?"
    if isinstance(node, ast.ClassDef):
        return f"What is {name} in the {module} module?"
    return f"What does {name} in the {module} module do?"


def first_paragraphs(docstring: str) -> str:
    """Keep whole paragraphs up to the limit, so that answers end where a thought ends."""
    answer = ""
    for paragraph in docstring.split("\n\n"):
        longer = f"{answer}\n\n{paragraph}".strip()
        if ">>>" in paragraph or len(longer) > MAX_ANSWER_CHARS:
            break
        answer = longer
    return answer


def make_chat(question: str, answer: str) -> tuple[Message, ...]:
    return (
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
    )
