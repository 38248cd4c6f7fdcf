"""What `scripts/count-lines` counts in one file and in a tree.

A line of Python is counted when a token stands on it, unless it belongs to a docstring or an
import.  Other programs and templates: lines that are neither blank nor, where `#` begins a
comment, comments.  Data (TOML, JSON, CSV, JSON lines): the same.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path

TOPS = ("packager", "artifact_cache", "containers", "templates", "scripts", "benchmarks", "tests")
PRODUCT = ("packager", "artifact_cache")
DATA = {".toml", ".json", ".csv", ".jsonl"}
UNCOUNTED = {".txt", ".lock", ".md", ".log", ".gz", ".typed", ".pyc"}
HASH_COMMENTS = {"", ".toml", ".bash", ".zsh", ".fish", ".sh"}
_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
_UNCERTAIN = re.compile(r"\"\"\"|'''|\\$", re.MULTILINE)
_OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class File:
    """What one file has."""

    path: str  # in the tree
    room: str
    lines: tuple[str, ...]  # those that count, without the blanks around them
    module: str = ""  # of the product: its dotted name
    classes: tuple[tuple[str, tuple[str, ...], bool], ...] = ()  # name, bases, is a dataclass
    imports: tuple[tuple[str, str], ...] = ()  # of the product: (module, name or "")


@dataclass(slots=True)
class Room:
    """What the files of a room have together."""

    lines: int = 0
    files: int = 0
    classes: int = 0  # all
    dataclasses: int = 0
    exceptions: int = 0
    protocols: int = 0
    used_outside: set[str] = field(default_factory=set)  # public names
    chain: int = 0  # modules in the longest line of imports inside the room
    floor: int = 0  # rooms in the longest line of imports that ends here, itself included
    complex: int = 0  # functions above the limit of cyclomatic complexity
    most_complex: int | None = None  # the highest; None: none is above the limit


def room_of(path: str) -> str:
    """Return the row of the table that a file of the tree belongs to."""
    top, *rest = path.split("/")
    if Path(path).suffix in DATA:
        return f"data/{top}"
    if top == "packager":
        depth = 2 if rest[0] == "addons" else 1
        return "/".join([top, *rest[:depth]]).removesuffix(".py")
    if top == "tests":
        return f"tests/{rest[0]}" if len(rest) > 1 else "tests/top"
    return top


def read_tree(root: Path) -> list[File]:
    """Read all files that count, in two processes: parsing takes the time."""
    paths = sorted(
        path.relative_to(root).as_posix()
        for top in TOPS
        for path in (root / top).rglob("*")
        if path.suffix not in UNCOUNTED and "__pycache__" not in path.parts and path.is_file()
    )
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(partial(read_file, root), paths, chunksize=64)
        return [file for file in found if file is not None]


def read_file(root: Path, path: str) -> File | None:
    """Read one file of a tree; return None for one that does not count."""
    try:
        text = (root / path).read_text("utf-8")
    except UnicodeDecodeError:
        return None
    room = room_of(path)
    suffix = Path(path).suffix
    if room.startswith("tests/") and suffix != ".py":
        return None
    if suffix != ".py" and not re.match("#!.*python", text):
        comment = "#" if suffix in HASH_COMMENTS else None
        kept = (line.strip() for line in text.splitlines())
        return File(path, room, tuple(x for x in kept if x and not (comment and x[0] == comment)))
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return File(path, room, ())
    all_lines = text.split("\n")
    lines = tuple(all_lines[n - 1].strip() for n in sorted(code_lines(text, tree)))
    if not path.startswith(PRODUCT):
        return File(path, room, lines)
    module = re.sub(r"(/__init__)?\.py$", "", path).replace("/", ".")
    return File(path, room, lines, module, tuple(classes(tree)), tuple(imports(tree)))


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that count."""
    left_out: set[int] = set()
    for node in _statements(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, _OWNERS) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            left_out.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = text.split("\n")
    rest = [(n, line) for n, line in enumerate(lines, 1) if n not in left_out]
    if not _UNCERTAIN.search("\n".join(line for _, line in rest)):
        return {n for n, line in rest if line.strip() and line.lstrip()[0] != "#"}
    found: set[int] = set()  # a string of several lines: only tokens tell what is a comment
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return found - left_out


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and all statements in it, and no expressions."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())


def classes(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yield each class, the last parts of its bases' names, and whether it is a dataclass."""
    for node in _statements(tree):
        if isinstance(node, ast.ClassDef):
            bases = tuple(_last_name(base) for base in node.bases)
            made = any(_last_name(one) == "dataclass" for one in node.decorator_list)
            yield node.name, bases, made


def _last_name(node: ast.expr) -> str:
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what a module imports of the product, and which names of imported modules it uses."""
    places: dict[str, str] = {}  # name here: what it is elsewhere
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PRODUCT:
            for one in node.names:
                yield node.module or "", one.name
                places[one.asname or one.name] = f"{node.module}.{one.name}"
        elif isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] in PRODUCT:
                    yield one.name, ""
                    places[one.asname or one.name] = one.name
    if places:
        for attribute in ast.walk(tree):
            if isinstance(attribute, ast.Attribute):
                place = places.get(ast.unparse(attribute.value)) if _is_plain(attribute) else None
                if place:
                    yield place, attribute.attr  # only of modules: see `summarize`


def _is_plain(node: ast.Attribute) -> bool:
    value = node.value
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name)


def summarize(files: Iterable[File]) -> dict[str, Room]:
    """Add files up by room."""
    files = list(files)
    rooms: dict[str, Room] = defaultdict(Room)
    modules = {file.module: file.room for file in files if file.module}
    bases = {name: of for file in files for name, of, _ in file.classes}
    inside: dict[str, set[str]] = {module: set() for module in modules}
    across: dict[str, set[str]] = {room: set() for room in modules.values()}
    for file in files:
        room = rooms[file.room]
        room.files += 1
        room.lines += len(file.lines)
        for name, _, is_dataclass in file.classes:
            room.classes += 1
            room.exceptions += "Exception" in _ancestors(name, bases)
            room.protocols += "Protocol" in bases[name]
            room.dataclasses += is_dataclass
        for module, name in file.imports:
            if module not in modules:
                continue  # an attribute of something that is no module
            imported = f"{module}.{name}" if f"{module}.{name}" in modules else module
            if modules[imported] == file.room:
                if imported != file.module:
                    inside[file.module].add(imported)
                continue
            across[file.room].add(modules[imported])
            if imported == module and name and not name.startswith("_"):
                rooms[modules[module]].used_outside.add(name)
    chains, floors = longest_lines(inside), longest_lines(across)
    for module, room_name in modules.items():
        room = rooms[room_name]
        room.chain = max(room.chain, chains[module])
        room.floor = floors[room_name]
    return dict(rooms)


_EXCEPTIONS = {
    name
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, BaseException)
}


def _ancestors(name: str, bases: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the names of all classes above one; a built-in exception is an `Exception`."""
    waiting, seen = list(bases.get(name, ())), {name}
    while waiting:
        base = waiting.pop()
        if base in seen:
            continue
        seen.add(base)
        yield "Exception" if base in _EXCEPTIONS else base
        waiting += bases.get(base, ())


def longest_lines(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return for each node how many are on the longest path from it, itself included.

    Nodes that reach each other count together, as many as they are.
    """
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:  # first without, then against the arrows: Kosaraju's two walks
        _walk(start, graph, seen, order)
    back: dict[str, set[str]] = {node: set() for node in graph}
    for node, after in graph.items():
        for other in after:
            back[other].add(node)
    group: dict[str, str] = {}
    groups: list[list[str]] = []
    taken: set[str] = set()
    for start in reversed(order):
        members: list[str] = []
        _walk(start, back, taken, members)
        if members:
            groups.append(members)
            group.update(dict.fromkeys(members, start))
    length: dict[str, int] = {}
    for members in reversed(groups):  # what is imported comes first
        below = {group[other] for one in members for other in graph[one]} - {group[members[0]]}
        length[group[members[0]]] = len(members) + max((length[one] for one in below), default=0)
    return {node: length[group[node]] for node in graph}


def _walk(start: str, graph: Mapping[str, set[str]], seen: set[str], order: list[str]) -> None:
    """Append what is reached from a node, each after all that it reaches; no recursion."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(sorted(graph[start])))]
    while path:
        node, rest = path[-1]
        following = next((one for one in rest if one not in seen), None)
        if following is None:
            order.append(node)
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(sorted(graph[following]))))


def changed_lines(before: Iterable[File], after: Iterable[File]) -> dict[str, tuple[int, int]]:
    """Return how many counted lines were added and removed, by room."""
    old = {file.path: file for file in before}
    new = {file.path: file for file in after}
    added: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for path in old.keys() | new.keys():
        was = old[path].lines if path in old else ()
        now = new[path].lines if path in new else ()
        if was == now:
            continue
        room = (new.get(path) or old[path]).room
        blocks = SequenceMatcher(None, was, now, autojunk=False).get_matching_blocks()
        same = sum(block.size for block in blocks)
        added[room] += len(now) - same
        removed[room] += len(was) - same
    return {room: (added[room], removed[room]) for room in sorted(added.keys() | removed.keys())}
