"""Values as notebooks and Python's prompt show them: a line, and a report as plain HTML."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from packager.core.reports.report import Report

Value = TypeVar("Value", bound="NotebookValue")

_REPORTS: dict[type, Callable[[Any], Report]] = {}


class NotebookValue:
    """A value whose `repr` is one line, and which a notebook shows as its report."""

    __slots__ = ()

    @abstractmethod
    def short_words(self) -> str:
        """Return what it is, in a line."""
        ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.short_words()}>"

    __str__ = __repr__

    def _repr_html_(self) -> str | None:
        make = _REPORTS.get(type(self))
        if make is None:
            return None  # a notebook shows the line
        from packager.core.reports.page import fragment_html  # templates are loaded when needed

        return fragment_html(make(self))


def show_with(kind: type[Value], make_report: Callable[[Value], Report]) -> None:
    """Register the report that notebooks show values of a class with."""
    _REPORTS[kind] = make_report
