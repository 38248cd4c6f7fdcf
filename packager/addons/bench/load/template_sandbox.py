"""Prints request templates in Jinja's sandbox; also a program, because a template may never end.

    python template_sandbox.py SECONDS BYTES

It reads orders, a line of JSON each, and answers each with a line.  An order that takes more
seconds of processor time or more memory ends the program: nothing inside of it can stop a filter
that is at work.  It needs the standard library and Jinja2 alone.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

MAX_BODY = 16 * 1024 * 1024  # characters
_STEP = "__step__"
_FAILURES = (TypeError, ValueError, ArithmeticError, LookupError, RecursionError, MemoryError)


def answer(order: Mapping[str, Any], render_s: float) -> dict[str, Any]:
    """Return the names that a template uses, or what it prints of values; `fault` if it fails."""
    from jinja2 import TemplateError, meta

    source, values = order["source"], order.get("values")
    try:
        if values is None:
            used = meta.find_undeclared_variables(_environment().parse(source))
            _compiled(source)
            return {"names": sorted(used)}
    except (TemplateError, *_FAILURES) as error:
        return {"fault": f"is not Jinja2: {_told(error)}"}
    pieces: list[str] = []
    size = 0
    try:
        for piece in _compiled(source).generate({**values, _STEP: _stepper(render_s)}):
            size += len(piece)
            if size > MAX_BODY:
                return {"fault": f"prints over {MAX_BODY} characters"}
            pieces.append(piece)
    except (TemplateError, *_FAILURES) as error:
        return {"fault": f"fails: {_told(error)}"}
    return {"printed": "".join(pieces)}


def _told(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "'it takes too much memory'"
    return repr(str(error)[:200] or type(error).__name__)


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Bounded(ImmutableSandboxedEnvironment):
        """Refuses what makes a short template a long text, or a long computation.

        Each turn of a loop, call of a macro and joined text is a step.
        """

        intercepted_binops = frozenset(("*", "**", "+"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            numbers = isinstance(left, int | float) and isinstance(right, int | float)
            if operator == "+" and not numbers:
                return context[_STEP](super().call_binop(context, operator, left, right))
            if operator == "**" or not numbers:
                raise SecurityError(f"{operator} is for numbers, and powers are not computed")
            return super().call_binop(context, operator, left, right)

        def _generate(self, source: nodes.Template, *given: Any, **more: Any) -> str:
            for joined in [*source.find_all(nodes.Concat)]:
                joined.nodes = [_step(nodes.Concat(joined.nodes))]
            blocks: list[Any] = [*source.find_all((nodes.For, nodes.Macro, nodes.CallBlock))]
            for block in blocks:
                block.body.insert(0, nodes.Output([_step(nodes.Const(""))]))
            source.set_environment(self)
            return super()._generate(source, *given, **more)

    def _step(value: nodes.Expr) -> nodes.Expr:
        return nodes.Call(nodes.Name(_STEP, "load"), [value], [], None, None)

    return Bounded(autoescape=True)


def _stepper(render_s: float) -> Callable[[Any], Any]:
    """Return a function that passes a value on, and ends a template that takes too long."""
    ends_s = time.process_time() + render_s

    def step(value: Any) -> Any:
        if time.process_time() > ends_s:
            raise ValueError(f"it takes over {render_s:g} s")
        if isinstance(value, str | list | tuple) and len(value) > MAX_BODY:
            raise ValueError(f"it makes over {MAX_BODY} characters")
        return value

    return step


@lru_cache(maxsize=16)
def _compiled(source: str) -> Template:
    made: Template = _environment().from_string(source)
    return made


def main(render_s: float, most_bytes: int) -> None:
    """Answer orders until there are no more."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, render_s + 1)  # the signal ends the process
        said = answer(json.loads(line), render_s)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
