"""Values made by `packager.core.values` are those that the standard library makes."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pytest

import packager
from packager.core.values import dataclass
from tests.support.cases import read_tables

T = TypeVar("T")
Maker = Callable[..., Any]


def places(make: Maker) -> type:
    @make(frozen=True, slots=True)
    class Size:
        """Has fields of every kind that is given by its place."""

        width: int
        height: int = 2
        unit: ClassVar[str] = "mm"
        notes: list[str] = field(default_factory=list)
        depth: int = field(default=1, kw_only=True)
        key: str = field(kw_only=True)

    return Size


def keywords(make: Maker) -> type:
    @make(frozen=True, slots=True, kw_only=True)
    class Model:
        name: str
        tags: Mapping[str, int] = field(default_factory=dict)
        secret: str = field(default="", repr=False)
        seen: int = field(default=0, compare=False)
        place: tuple[int, ...] = field(default=(), hash=False)

    return Model


def derived(make: Maker) -> type:
    @make(frozen=True, slots=True)
    class Box:
        width: int
        area: int = field(init=False)
        label: str = field(init=False, default="box")
        parts: list[int] = field(init=False, default_factory=lambda: [1])
        unset: int = field(init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.width < 0:
                raise ValueError("negative")
            object.__setattr__(self, "area", self.width**2)

    return Box


def inherited(make: Maker, make_base: Maker | None = None) -> type:
    @(make_base or make)(frozen=True, slots=True, kw_only=True)
    class Base(Protocol[T]):
        first: T
        second: int = 2

        def double(self) -> int:
            return 2 * self.second

    @make(frozen=True, slots=True, kw_only=True)
    class Sub(Base[int], Generic[T]):
        second: int = 3
        third: T

    return Sub


def own(make: Maker) -> type:
    @make(frozen=True, slots=True)
    class Own:
        name: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and str(self.name).lower() == str(other.name).lower()

        def __repr__(self) -> str:
            return "<own>"

    return Own


def hashed(make: Maker) -> type:
    @make(frozen=True, slots=True)
    class Hashed:
        name: str

        def __hash__(self) -> int:
            return 7

    return Hashed


def itself(make: Maker) -> type:
    @make(frozen=True, slots=True)
    class Itself:
        self: int
        cls: int = 1
        name: str = ""

    return Itself


def empty(make: Maker) -> type:
    @make(frozen=True, slots=True)
    class Empty:
        pass

    return Empty


def ordered(make: Maker) -> type:
    @make(frozen=True, slots=True, order=True)
    class Ordered:
        number: int

    return Ordered


def open_(make: Maker) -> type:
    @make(slots=True)
    class Open:
        number: int

    return Open


def bare(make: Maker) -> type:
    @make
    class Bare:
        number: int = 1

    return Bare


DEFINED = (
    *(places, keywords, derived, inherited, own),
    *(hashed, itself, empty, ordered, open_, bare),
)

# Arguments, right and wrong, that say something about one of them at least.
CALLS = [(row.get("values", []), row.get("named", {})) for row in read_tables(__file__)["calls"]]


def told(action: Callable[[], object]) -> object:
    """Return the value of an action, or the type and message of its error."""
    try:
        return action()
    except Exception as error:
        return type(error), str(error)


def described(cls: type, values: Sequence[Any], named: dict[str, Any]) -> list[object]:
    """Return what methods and operators say of a value, comparable between two classes."""
    made = told(lambda: cls(*values, **named))
    if isinstance(made, tuple):
        return [made]
    again: Any = cls(*values, **named)
    names = [one.name for one in fields(again)]
    return [
        repr(made),
        made == again,
        made != again,
        made == object(),
        told(lambda: hash(made) == hash(again)),
        told(lambda: asdict(again)),
        told(lambda: astuple(again)),
        [told(lambda name=name: getattr(made, name)) for name in names],  # type: ignore[misc]
        [told(lambda name=name: setattr(made, name, 1)) for name in names],  # type: ignore[misc]
        [told(lambda name=name: delattr(made, name)) for name in names],  # type: ignore[misc]
        isinstance(told(lambda: setattr(made, "other", 1)), tuple),
        repr(told(lambda: replace(again, **{names[0]: 9} if names else {}))),
        told(lambda: replace(again, wrong=1)),
        told(lambda: copy.copy(again) == again),
        told(lambda: copy.deepcopy(again) == again),
        told(lambda: again < again),
    ]


@pytest.mark.parametrize("define", DEFINED, ids=lambda one: one.__name__)
def test_a_value_does_what_the_standard_library_does(define: Callable[[Maker], type]) -> None:
    ours, theirs = define(dataclass), define(dataclasses.dataclass)

    for values, named in CALLS:
        assert described(ours, values, named) == described(theirs, values, named), (values, named)
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)  # type: ignore[attr-defined]
    assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]
    assert [one.name for one in fields(ours)] == [one.name for one in fields(theirs)]
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)


def test_values_of_both_kinds_inherit_from_each_other() -> None:
    """An installed package may go beyond one of packager's values."""
    theirs = inherited(dataclasses.dataclass)
    for made in (
        inherited(dataclass, dataclasses.dataclass),
        inherited(dataclasses.dataclass, dataclass),
    ):
        for values, named in CALLS:
            assert described(made, values, named) == described(theirs, values, named)


@pytest.mark.parametrize("first", [repr, hash, lambda one: one == one, copy.copy])
def test_any_method_may_be_the_first(first: Callable[[object], object]) -> None:
    """None of them waits for another: each is written when it is called."""
    values = [define(dataclass)("a") for define in (own, hashed)]

    assert [first(one) for one in values] == [first(one) for one in values]


def test_values_that_differ_are_different() -> None:
    model = keywords(dataclass)

    one, other = model(name="a"), model(name="b")
    assert one != other
    assert one == model(name="a", seen=5)
    assert len({own(dataclass)("a"), own(dataclass)("b")}) == 2
    assert one.tags is not other.tags
    assert itself(dataclass)(self=1).self == 1  # the first call of all


def test_a_class_may_go_beyond_one_that_is_frozen() -> None:
    """As exceptions with fields do: what it adds is its own."""

    class Named(own(dataclass)):  # type: ignore[misc]
        def __init__(self, name: str, more: int) -> None:
            super().__init__(name)
            self.more = more

    made = Named("a", 3)
    assert (made.name, made.more) == ("a", 3)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        made.name = "b"
    del made.more
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del made.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A value that another process gets."""

    name: str
    count: int = 1


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_values_go_to_other_processes(protocol: int) -> None:
    assert pickle.loads(pickle.dumps(Sent(name="a", count=2), protocol)) == Sent(name="a", count=2)


def test_methods_are_written_when_they_are_called() -> None:
    """What makes a start short: a class that no command asks costs nothing but its slots."""
    model = keywords(dataclass)
    before = {name: vars(model)[name] for name in ("__init__", "__repr__", "__eq__", "__hash__")}

    made = model(name="a")
    written = [name for name, method in before.items() if vars(model)[name] is not method]
    assert written == ["__init__"]
    assert repr(made) == repr(model(name="a"))
    written = [name for name, method in before.items() if vars(model)[name] is not method]
    assert written == ["__init__", "__repr__"]


def test_packagers_own_values_are_made_so() -> None:
    """Findings are below core: theirs are the standard library's."""
    root = Path(packager.__file__).parent
    wrong = []
    for path in root.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "frozen=True, slots=True" not in source:
            continue
        imported = {
            alias.name: node.module
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        if imported.get("dataclass") != "packager.core.values":
            wrong.append(path.relative_to(root).as_posix())
    assert sorted(wrong) == ["core/findings.py", "core/values.py"]
