"""Small changes of Python code, each of which tests should notice, and how they are sampled.

A site's `id` is made of its file's path, the text of the function (or statement of a module or
class) around it, its place therein and the operator: it stays the same while that text does, and
so does a sample.  Left out is what a running program does not do or nobody would notice:
annotations, docstrings, imports, `Literal[...]`, flags of dataclasses, code for type checkers.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TEXT = "text"  # the operator of strings: there are so many that they are a quarter at most
_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NEGATED = {ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn}  # by a change of `_COMPARE`
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_NO_BEHAVIOUR = {"Literal", "TypeVar", "NewType", "ParamSpec", "dataclass", "overload"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One possible change of one file."""

    id: str
    file: str
    number: int  # of all sites of the file
    operator: str
    line: int
    before: str
    after: str
    lines: tuple[int, int]  # first and last line of the statement, or of the head of a block
    deferred: bool  # in the body of a function: not run by an import
    names: tuple[str, ...]  # for what an import runs: the names that depend on it


@dataclass(slots=True)
class _Found:
    operator: str
    node: ast.AST
    before: str
    after: str
    lines: tuple[int, int]
    deferred: bool
    names: tuple[str, ...]
    unit: ast.AST
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a walk is."""

    unit: ast.stmt | None = None
    statement: ast.stmt | None = None
    deferred: bool = False
    default: bool = False
    names: tuple[str, ...] = ()


def sites(file: str, text: str) -> list[Site]:
    """Return all sites of a file, in the order of its text."""
    made = []
    units: dict[int, str] = {}
    places: Counter[tuple[str, str]] = Counter()  # those of equal functions go on counting
    for number, found in enumerate(_find(ast.parse(text))):
        unit = units.get(id(found.unit))
        if unit is None:
            segment = ast.get_source_segment(text, found.unit) or ""
            unit = units[id(found.unit)] = _digest(file, segment)
        places[unit, found.operator] += 1
        made.append(
            Site(
                id=_digest(unit, found.operator, str(places[unit, found.operator])),
                file=file,
                number=number,
                operator=found.operator,
                line=getattr(found.node, "lineno", found.lines[0]),
                before=found.before,
                after=found.after,
                lines=found.lines,
                deferred=found.deferred,
                names=found.names,
            )
        )
    return made


def mutated(text: str, number: int) -> ast.Module:
    """Return the tree of a file with one change; lines stay where they are."""
    tree = ast.parse(text)
    next(found for n, found in enumerate(_find(tree)) if n == number).apply()
    return ast.fix_missing_locations(tree)


def sample(found: Iterable[Site], count: int, seed: str) -> list[Site]:
    """Choose sites by the digests of their ids; of strings a quarter at most, where others are."""
    ranked = sorted(found, key=lambda site: _digest(seed, site.id))
    texts = [site for site in ranked if site.operator == TEXT]
    others = [site for site in ranked if site.operator != TEXT]
    enough = min(len(texts), max(count // 4, count - len(others)))
    return others[: count - enough] + texts[:enough]


def product_files(root: Path) -> Iterator[str]:
    """Yield the paths of the packages' modules."""
    for top in ("packager", "artifact_cache"):
        for path in sorted((root / top).rglob("*.py")):
            yield path.relative_to(root).as_posix()


def room_of(file: str) -> str:
    """Return the room of a module: `packager/core`, `packager/api`, `artifact_cache`."""
    top, first, *_ = file.split("/")
    return top if top != "packager" else f"{top}/{first.removesuffix('.py')}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _find(tree: ast.Module) -> Iterator[_Found]:
    """Walk a module; what is yielded may be applied before the next is asked for, or never."""
    for statement in tree.body:
        yield from _statement(statement, tree.body, _Place())


def _statement(node: ast.stmt, siblings: list[ast.stmt], place: _Place) -> Iterator[_Found]:
    if _is_left_out(node):
        return
    unit = place.unit or (node if not isinstance(node, ast.ClassDef) else None)
    names = place.names if place.deferred or unit is place.unit else _bound_names(node)
    place = _Place(unit, node, place.deferred, names=names)
    if unit is not None:
        yield from _changes_of_statement(node, siblings, place)
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_params"}:
            continue
        inner = place
        if isinstance(node, _FUNCTIONS) and name == "body":
            inner = _Place(unit, node, True)
        elif isinstance(node, ast.ClassDef):
            inner = _Place(place.unit, node, place.deferred, names=(node.name,))
            if name != "body":
                inner = _Place(node, node, place.deferred, names=(node.name,))
        for field in value if isinstance(value, list) else [value]:
            if isinstance(field, ast.stmt):
                yield from _statement(field, value, inner)
            elif isinstance(field, ast.AST):
                yield from _inside(field, node, name, inner)


def _inside(node: ast.AST, parent: ast.AST, name: str, place: _Place) -> Iterator[_Found]:
    """Walk an expression, or a part of a statement that holds statements."""
    if isinstance(node, ast.expr):
        if isinstance(node, (ast.Call, ast.Subscript)) and _last_name(node) in _NO_BEHAVIOUR:
            return
        yield from _changes_of_expression(node, parent, name, place)
    if isinstance(node, ast.Lambda):
        yield from _inside(node.args, node, "args", place)
        deferred = _Place(place.unit, place.statement, True, names=place.names)
        yield from _inside(node.body, node, "body", deferred)
        return
    for field_name, value in ast.iter_fields(node):
        if field_name == "annotation":
            continue
        inner = place
        if isinstance(node, ast.arguments) and field_name in {"defaults", "kw_defaults"}:
            inner = _Place(place.unit, place.statement, place.deferred, True, place.names)
        for field in value if isinstance(value, list) else [value]:
            if isinstance(field, ast.stmt):  # of handlers and cases
                yield from _statement(field, value, place)
            elif isinstance(field, ast.AST):
                yield from _inside(field, node, field_name, inner)


def _changes_of_statement(
    node: ast.stmt, siblings: list[ast.stmt], place: _Place
) -> Iterator[_Found]:
    if isinstance(node, ast.Return) and not _is_none(node.value):
        yield _found(
            "return", node, place, "return None", _put(siblings, node, ast.Return(value=None))
        )
    elif isinstance(node, ast.Break):
        yield _found("break", node, place, "continue", _put(siblings, node, ast.Continue()))
    elif isinstance(node, ast.Continue):
        yield _found("break", node, place, "break", _put(siblings, node, ast.Break()))
    elif isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC:
        other = _ARITHMETIC[type(node.op)]()
        after = copy.copy(node)
        after.op = other
        yield _found("arithmetic", node, place, ast.unparse(after), _set(node, "op", other))
    if _can_be_dropped(node):
        yield _found("drop", node, place, "pass", _put(siblings, node, ast.Pass()))
    if isinstance(node, ast.If) and _can_be_negated(node.test):
        yield _negation(node.test, node, "test", place)


def _changes_of_expression(
    node: ast.expr, parent: ast.AST, name: str, place: _Place
) -> Iterator[_Found]:
    def change(operator: str, after: ast.expr) -> _Found:
        operator = "default" if place.default else operator
        return _found(operator, node, place, _text(after), _replace(parent, name, node, after))

    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                after = copy.copy(node)
                after.ops = [*ops[:index], _COMPARE[type(op)](), *ops[index + 1 :]]
                yield change("compare", after)
        case ast.BoolOp():
            after_bool = copy.copy(node)
            after_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield change("and-or", after_bool)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield change("not", operand)
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            if place.deferred or not isinstance(op, ast.BitOr):  # else a union of types
                after_binary = copy.copy(node)
                after_binary.op = _ARITHMETIC[type(op)]()
                yield change("arithmetic", after_binary)
        case ast.Constant(value=bool(value)):
            yield change("boolean", ast.Constant(not value))
        case ast.Constant(value=int(value) | float(value)):
            yield change("number", ast.Constant(value + 1))
        case ast.Constant(value=str(value)):
            yield change(TEXT, ast.Constant("" if value else "XX"))
        case ast.IfExp() if _can_be_negated(node.test):
            yield _negation(node.test, node, "test", place)
    if isinstance(parent, ast.comprehension) and name == "ifs" and _can_be_negated(node):
        yield _negation(node, parent, "ifs", place)


def _negation(test: ast.expr, parent: ast.AST, name: str, place: _Place) -> _Found:
    after = ast.UnaryOp(ast.Not(), test)
    return _found("negate", test, place, _text(after), _replace(parent, name, test, after))


def _found(
    operator: str, node: ast.stmt | ast.expr, place: _Place, after: str, apply: Callable[[], None]
) -> _Found:
    assert place.unit is not None
    assert place.statement is not None
    statement = place.statement
    if hasattr(statement, "body"):  # its head, as far as the expression goes
        lines = (statement.lineno, max(statement.lineno, node.lineno))
        if node is not statement:
            lines = (min(statement.lineno, node.lineno), node.end_lineno or node.lineno)
    else:
        lines = (statement.lineno, statement.end_lineno or statement.lineno)
    return _Found(
        operator=operator,
        node=node,
        before=_text(node),
        after=after if len(after) <= 90 else after[:87] + "...",
        lines=lines,
        deferred=place.deferred,
        names=() if place.deferred else place.names,
        unit=place.unit,
        apply=apply,
    )


def _put(siblings: list[ast.stmt], node: ast.stmt, after: ast.stmt) -> Callable[[], None]:
    def apply() -> None:
        siblings[siblings.index(node)] = ast.copy_location(after, node)

    return apply


def _set(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def _replace(parent: ast.AST, name: str, node: ast.expr, after: ast.expr) -> Callable[[], None]:
    def apply() -> None:
        new = ast.copy_location(after, node)
        value = getattr(parent, name)
        if isinstance(value, list):
            value[next(n for n, one in enumerate(value) if one is node)] = new
        else:
            setattr(parent, name, new)

    return apply


def _text(node: ast.AST) -> str:
    text = ast.unparse(node).split("\n")[0]
    return text if len(text) <= 90 else text[:87] + "..."


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring, or `...`
    if isinstance(node, ast.If) and {"TYPE_CHECKING", "__name__"} & set(_names_in(node.test)):
        return True
    if isinstance(node, _FUNCTIONS):
        return any(_last_name(one) == "overload" for one in node.decorator_list)
    return "__all__" in _bound_names(node)


def _can_be_dropped(node: ast.stmt) -> bool:
    """Return whether a statement does something; without a plain name all that follows breaks."""
    if isinstance(node, ast.Assign):
        return all(isinstance(one, (ast.Attribute, ast.Subscript)) for one in node.targets)
    return isinstance(node, (ast.Expr, ast.AugAssign, ast.Raise, ast.Delete, ast.Assert))


def _can_be_negated(test: ast.expr) -> bool:
    """Return whether no other operator negates the same."""
    if isinstance(test, ast.Compare):
        return len(test.ops) > 1 or type(test.ops[0]) not in _NEGATED
    return not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _is_none(node: ast.expr | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _bound_names(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement gives something to."""
    if isinstance(node, _SCOPES):
        return (node.name,)
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    return tuple(name for target in targets for name in _names_in(target))


def _names_in(node: ast.expr) -> Iterator[str]:
    return (one.id for one in ast.walk(node) if isinstance(one, ast.Name))


def _last_name(node: ast.expr) -> str:
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
