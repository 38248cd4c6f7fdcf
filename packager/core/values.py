"""`dataclass` for values, made in a fraction of the time that the standard library's takes.

A command loads some 300 classes of values, and the standard library compiles six methods for each,
one by one: a third of the time of a build that finds everything done.  Here a frozen class with
slots gets its methods when they are first called, which most never are; all but `__init__`, which
is compiled here, are written by the standard library, and all do what its own do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, fields, make_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass


@dataclasses.dataclass(frozen=True, slots=True)
class _Empty:
    pass


_PICKLED = {name: vars(_Empty)[name] for name in ("__getstate__", "__setstate__")}  # of any class


def _make(
    given: type | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
    **others: bool,
) -> Any:
    """Make a class a dataclass, as `dataclasses.dataclass` does.

    The methods of one that is frozen and has slots, with no `others` asked, are written later;
    such a class has no `InitVar`.
    """
    if not (frozen and slots) or others:
        make = dataclasses.dataclass(frozen=frozen, slots=slots, kw_only=kw_only, **others)
    else:

        def make(cls: type) -> Any:
            return _make_frozen(cls, kw_only=kw_only)

    return make if given is None else make(given)


if not TYPE_CHECKING:
    dataclass = _make


def _make_frozen(given: type, *, kw_only: bool) -> Any:
    own = {name for name, value in vars(given).items() if value is not None}
    given.__doc__ = given.__doc__ or given.__name__  # the library asks for a signature for it
    # Frozen from the start takes twice the time: only where the library wants it of heirs.
    inherited = getattr(given, "__dataclass_params__", None)
    frozen = inherited is not None and inherited.frozen
    plain = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=frozen, slots=True, kw_only=kw_only
    )
    cls: Any = plain(given)
    told = cls.__dataclass_params__
    told.init = told.repr = told.eq = told.frozen = True
    names = frozenset(field.name for field in fields(cls))

    def __init__(self: Any, /, *values: Any, **named: Any) -> None:
        _write_init(cls)(self, *values, **named)

    def __repr__(self: Any) -> Any:
        return _write(cls, "__repr__", repr=True)(self)

    def __eq__(self: Any, other: object) -> Any:
        return _write(cls, "__eq__", eq=True)(self, other)

    def __hash__(self: Any) -> Any:
        return _write(cls, "__hash__", eq=True, unsafe_hash=True)(self)

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    methods = (__init__, __repr__, __eq__, __hash__, __setattr__, __delattr__)
    for name, method in ({method.__name__: method for method in methods} | _PICKLED).items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _write_init(cls: Any) -> Callable[..., None]:
    """Compile the method that fills the slots."""
    known: dict[str, Any] = {"__missing": MISSING}
    me = "__self" if any(field.name == "self" for field in fields(cls)) else "self"
    places, keywords, lines = [me], ["*"], []
    for number, field in enumerate(fields(cls)):
        name = value = field.name
        known[f"__put{number}"] = getattr(cls, name).__set__
        default = made = ""
        if field.default is not MISSING:
            made = f"__default{number}"
            default, known[made] = f"={made}", field.default
        elif field.default_factory is not MISSING:
            known[f"__make{number}"] = field.default_factory
            default, made = "=__missing", f"__make{number}()"
            value = f"{made} if {name} is __missing else {name}"
        if field.init:
            (keywords if field.kw_only else places).append(name + default)
        if field.init or made:
            lines.append(f"__put{number}({me}, {value if field.init else made})")
    if hasattr(cls, "__post_init__"):
        lines.append(f"{me}.__post_init__()")
    parameters = places + (keywords if len(keywords) > 1 else [])
    exec(f"def __init__({', '.join(parameters)}):\n {'; '.join(lines) or 'pass'}", known)
    method: Callable[..., None] = known["__init__"]
    method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    cls.__init__ = method
    return method


def _write(
    cls: Any, name: str, *, repr: bool = False, eq: bool = False, unsafe_hash: bool = False
) -> Callable[..., Any]:
    """Copy a method of a class with the same fields, which the standard library makes."""
    made = make_dataclass(
        cls.__name__,
        [(field.name, field.type, field) for field in fields(cls)],
        namespace={"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": "-"},
        init=False,
        repr=repr,
        eq=eq,
        unsafe_hash=unsafe_hash,
    )
    method: Callable[..., Any] = vars(made)[name]
    setattr(cls, name, method)
    return method
