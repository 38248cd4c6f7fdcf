"""A tokenizer whose tokens are characters, as workers that train draft heads take one."""

from __future__ import annotations

from typing import Any, NoReturn

from jinja2 import Environment, TemplateError


class Letters:
    """A tokenizer: each character is a token, a full stop ends an answer, templates are Jinja's.

    A template may call `refuse()`.
    """

    bos_token, bos_token_id, eos_token_id = "^", ord("^"), ord(".")

    def __init__(self, template: str | None) -> None:
        self.chat_template = template

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        opening = [self.bos_token_id] if add_special_tokens else []
        return {"input_ids": opening + [ord(letter) for letter in text]}

    def apply_chat_template(
        self, messages: Any, *, tokenize: bool, add_generation_prompt: bool = False, **told: Any
    ) -> str:
        assert self.chat_template is not None
        if not messages:
            raise ValueError("transformers templates no conversation without a turn")
        made = Environment(keep_trailing_newline=True).from_string(self.chat_template)
        return made.render(
            messages=messages, add_generation_prompt=add_generation_prompt, refuse=_refuse, **told
        )


def _refuse() -> NoReturn:
    raise TemplateError("the template refuses this turn")
