"""Chat templates and added tokens, as model sources find them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from packager.core.parsers import ChatTemplate
from packager.models import chat
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from tests.support.cases import cases, read_tables
from tests.support.doubles.models import write_model

CALLS = "{% if tools %}[TOOL_CALLS]{% endif %}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_model(tmp_path / "m")
    return tmp_path / "m"


def write(path: Path, document: Any) -> None:
    path.write_text(document if isinstance(document, str) else json.dumps(document), "utf-8")


def found(model: Path) -> ChatTemplate | None:
    return LocalSource().facts(parse_model_reference(str(model))).chat_template


def test_the_field_of_the_tokenizers_configuration_is_read(model: Path) -> None:
    write(model / "tokenizer_config.json", {"chat_template": "{{ messages }}"})

    assert found(model) == ChatTemplate(text="{{ messages }}")


def test_a_file_of_its_own_wins_over_the_field(model: Path) -> None:
    write(model / "tokenizer_config.json", {"chat_template": "old"})
    write(model / "chat_template.json", {"chat_template": "newer"})
    write(model / "chat_template.jinja", "newest")

    assert found(model) == ChatTemplate(text="newest")
    (model / "chat_template.jinja").unlink()
    assert found(model) == ChatTemplate(text="newer")


def test_of_several_templates_those_for_chats_are_read(model: Path) -> None:
    rows = read_tables(__file__)["templates"]
    write(model / "tokenizer_config.json", {"chat_template": rows})

    assert found(model) == ChatTemplate(text="tools\nplain")


def test_added_tokens_are_taken_where_the_configuration_lists_them(model: Path) -> None:
    rows = {"5": {"content": "[TOOL_CALLS]"}, "6": {"content": "[INST]"}, "7": "odd"}
    write(model / "tokenizer_config.json", {"chat_template": CALLS, "added_tokens_decoder": rows})

    assert found(model) == ChatTemplate(text=CALLS, tokens=frozenset(("[TOOL_CALLS]", "[INST]")))


def test_else_they_are_read_at_the_beginning_of_the_tokenizer(model: Path) -> None:
    write(model / "tokenizer_config.json", {"chat_template": CALLS})
    added = [{"id": 5, "content": "[TOOL_CALLS]", "special": True}]
    write(
        model / "tokenizer.json",
        {"version": "1.0", "added_tokens": added, "model": {"vocab": {"x" * 9: 1}}},
    )

    assert found(model) == ChatTemplate(text=CALLS, tokens=frozenset(("[TOOL_CALLS]",)))


@cases("a_tokenizer_that_cannot_be_read_tells_of_no_tokens")
def test_a_tokenizer_that_cannot_be_read_tells_of_no_tokens(model: Path, tokenizer: str) -> None:
    write(model / "tokenizer_config.json", {"chat_template": CALLS})
    write(model / "tokenizer.json", tokenizer)

    assert found(model) == ChatTemplate(text=CALLS, tokens=None)


def test_other_templates_need_no_tokenizer(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(model / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    monkeypatch.setattr(chat, "_added", lambda _: pytest.fail("the tokenizer was read"))

    assert found(model) == ChatTemplate(text="{{ messages }}")


@cases("what_is_no_template_is_none")
def test_what_is_no_template_is_none(model: Path, path: str, content: str) -> None:
    write(model / "tokenizer_config.json", {})
    write(model / path, content)

    assert found(model) is None


def test_a_draft_has_no_template_of_its_own(model: Path) -> None:
    write(model / "tokenizer_config.json", {"chat_template": "{{ messages }}"})

    assert LocalSource(is_draft=True).facts(parse_model_reference(str(model))).chat_template is None
