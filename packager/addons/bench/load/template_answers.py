"""Answers of servers that are asked by a template: the text is where its expression says."""

from __future__ import annotations

import json
from typing import Any

from packager.addons.bench.load.answers import AnswerFailed, AnswerReader
from packager.addons.bench.load.template import RequestTemplate
from packager.core.text import quote_answer


class TemplateAnswerReader(AnswerReader):
    """Reads one answer; a stream of such a server has no end of its own but the body's."""

    def __init__(self, content_type: str, template: RequestTemplate) -> None:
        super().__init__(content_type)
        self._template = template

    def end(self, at_s: float) -> None:
        """Check the end of the body. Raises `AnswerFailed` where no text was found."""
        if self._is_whole:
            super().end(at_s)
            return
        self._take_all(self._events.end(), at_s)
        if not self.chunks:
            raise AnswerFailed("invalid", self._nothing)
        self.is_complete = True

    @property
    def _nothing(self) -> str:
        field = self._template.response_field
        return f"its answer has no text at {field!r}" if field else "its answer has no text"

    def _is_common(self, event: dict[str, Any], at_s: float) -> bool:  # noqa: ARG002
        return False

    def _take(self, event: Any, at_s: float) -> None:
        self._check(event)
        text = self._template.text_of(event)
        if text is not None:
            self._keep(text, at_s, self.output_tokens, is_reasoning=False)
        elif not self._template.response_field and isinstance(event, dict):
            super()._take(event, at_s)

    def _document(self, said: Any) -> None:
        self._check(said)
        text = self._template.text_of(said)
        if text is None and not self._template.response_field:
            super()._document(said)
        elif text is None:
            raise AnswerFailed("invalid", self._nothing)
        else:
            self._texts.append(text)

    def _check(self, said: Any) -> None:
        """Keep what it counts, where that is in OpenAI's form; raise what it says went wrong."""
        found = said if isinstance(said, dict) else {}
        if found.get("error"):
            raise AnswerFailed(
                "server", f"it broke off: {quote_answer(json.dumps(found['error']), 300)}"
            )
        usage = found.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self._count(usage)
