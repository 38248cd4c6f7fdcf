"""Request templates: bodies of servers that have a form of their own, and where the answer is.

A template is Jinja2 that prints one JSON object, with the names that AIPerf's template endpoint
has; texts are escaped for HTML as there, so `{{ text|tojson }}` is how a text is written.  It may
come over the network: it runs in Jinja's sandbox, in a process with limits, and reads no file.
The answer's text is where a JMESPath expression says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from artifact_cache.distribution import install_command
from packager.addons.bench.load.template_printer import TemplatePrinter
from packager.addons.bench.load.template_sandbox import MAX_BODY
from packager.core.documents import NotStrict, parse_json, shorten
from packager.core.errors import UsageError
from packager.core.suggestions import nearest

MAX_TEMPLATE_BYTES = 256 * 1024
NAMED = ("nv-embedqa",)  # AIPerf's own, of embeddings
_PROBES = ("first", "second")
_TEXT_FIELDS = ("text", "content", "response", "output", "result")
_NO_OBJECTS = ("request_info",)  # AIPerf's own, with its configuration in it
_HINT = "see docs/workloads.md"
_PRINTER = TemplatePrinter()


class BadTemplate(UsageError):
    """A request template, or its response field, that cannot be used."""

    def __init__(self, what: str, hint: str = _HINT) -> None:
        super().__init__(what, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTemplate:
    """How a server of its own form is asked, and where its answer stands."""

    source: str
    response_field: str = ""  # JMESPath; "": where servers usually put a text
    model: str = ""

    def body(self, text: str, *, max_tokens: int, stream: bool) -> dict[str, Any]:
        """Return the body of one request; raise `BadTemplate`."""
        values = _values(text, max_tokens=max_tokens, stream=stream, model=self.model)
        printed: str = _asked({"source": self.source, "values": values})["printed"]
        try:
            found = parse_json(printed.encode(), max_bytes=4 * MAX_BODY)
        except (NotStrict, UnicodeEncodeError) as error:
            raise BadTemplate(
                f"the request template does not print JSON: {shorten(printed, 100)}",
                hint="write texts as {{ text|tojson }}, without quotes around them",
            ) from error
        if not isinstance(found, dict):
            raise BadTemplate(f"the request template prints no JSON object: {shorten(printed)}")
        return found

    def text_of(self, document: Any) -> str | None:
        """Return the text of an answer, or of an event of one; None where it has none."""
        if self.response_field:
            from jmespath.exceptions import JMESPathError

            try:
                found = _query(self.response_field).search(document)
            except (JMESPathError, TypeError):
                return None
            return found if isinstance(found, str) else None
        for name in _TEXT_FIELDS if isinstance(document, dict) else ():
            found = document.get(name)
            if isinstance(found, str):
                return found
            if isinstance(found, list) and found and all(isinstance(one, str) for one in found):
                return "".join(found)
        return None


def parse_template(source: str, response_field: str = "") -> RequestTemplate:
    """Check a template and its response field; raise `BadTemplate`."""
    if source.strip() in NAMED:
        raise BadTemplate(
            f"the request template {source.strip()!r} asks for embeddings, and texts are measured"
        )
    if len(source) > MAX_TEMPLATE_BYTES:
        raise BadTemplate(f"the request template has over {MAX_TEMPLATE_BYTES} characters")
    # As for AIPerf, `text` is where a text is looked for without an expression.
    response_field = "" if response_field == "text" else response_field
    template = RequestTemplate(source=source, response_field=response_field)
    for what in _unknown_names(source):
        raise BadTemplate(what)
    bodies = [template.body(text, max_tokens=1, stream=False) for text in _PROBES]
    if bodies[0] == bodies[1]:
        raise BadTemplate(
            "the request template prints the same for every prompt",
            hint="write {{ text|tojson }} where the prompt belongs",
        )
    if response_field:
        _query(response_field)
    return template


def is_inline(text: str) -> bool:
    """Check that a text is a template itself, not the place of one."""
    return "{{" in text or "{%" in text


def _asked(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the sandbox answers; raise `BadTemplate`."""
    said = _PRINTER.ask(order)
    if "fault" in said:
        raise BadTemplate(f"the request template {said['fault']}")
    return said


def _unknown_names(source: str) -> Iterator[str]:
    used = _asked({"source": source})["names"]
    known = (*_values("", max_tokens=1, stream=False, model=""),)
    for name in used:
        if name in _NO_OBJECTS:
            yield f"the request template uses {name}, an object of AIPerf's own"
        elif name not in (*known, "range", "dict", "namespace"):
            near = nearest(name, known)
            more = f"; did you mean {near!r}?" if near else f"; known: {', '.join(known)}"
            yield f"the request template uses {shorten(name)}, which no request has{more}"


def _values(text: str, *, max_tokens: int, stream: bool, model: str) -> dict[str, Any]:
    """Return what a template may print. Requests here have one text, and no picture or sound."""
    named: Mapping[str, list[str]] = {}
    media: dict[str, Any] = {}
    for kind in ("image", "audio", "video"):
        media |= {kind: None, f"{kind}s": [], f"{kind}s_by_name": named}
    turn = {
        "role": "user",
        "model": model,
        "max_tokens": max_tokens,
        "texts": [{"name": "text", "contents": [text]}],
        "images": [],
        "audios": [],
        "videos": [],
    }
    return {
        "text": text,
        "texts": [text],
        "texts_by_name": {"text": [text]},
        **media,
        "query": None,
        "queries": [],
        "passage": None,
        "passages": [],
        "model": model,
        "max_tokens": max_tokens,
        "role": "user",
        "stream": stream,
        "turn": turn,
        "turns": [turn],
    }


@lru_cache(maxsize=16)
def _query(expression: str) -> Any:
    """Return a JMESPath expression, compiled; raise `BadTemplate`."""
    try:
        import jmespath
    except ImportError as error:
        raise BadTemplate(
            "a response field needs the jmespath library",
            hint=f"install it with `{install_command('jmespath', 'bench')}`",
        ) from error
    try:
        return jmespath.compile(expression)
    except jmespath.exceptions.JMESPathError as error:
        said = shorten(str(error).partition("\n")[0], 120)
        raise BadTemplate(
            f"the response field {shorten(expression)} is not JMESPath: {said}",
            hint="write a path such as generated_text, or choices[0].text",
        ) from error
