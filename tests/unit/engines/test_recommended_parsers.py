"""Parsers of tool calls and of reasoning, chosen by the chat template and the model's type."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import pytest

from packager.catalog.parsers import What, dialects, names_tokens
from packager.core.model import ModelFiles
from packager.core.parsers import ChatTemplate
from packager.core.request import BuildRequest
from packager.core.traits import EngineTraits
from packager.engines.parsers import Parsers, choose_parsers
from packager.engines.schema import find_schema, shipped_versions
from packager.engines.vllm.traits import parsers_of
from tests.support import templates as t
from tests.support.cases import cases
from tests.support.headers import TINY, model_of
from tests.support.places import ROOT


def named(what: Literal["tool", "reasoning"], engine: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in dialects()[what] for name in row.names[engine]))


# Of vLLM 0.33.0 and SGLang 0.5.23, as far as the table names them.
VLLM = EngineTraits(
    who="vLLM 0.33.0",
    parses_by_token=True,
    tool_parsers=named("tool", "vllm"),
    reasoning_parsers=named("reasoning", "vllm"),
)
SGLANG = EngineTraits(
    who="SGLang 0.5.23",
    tool_parsers=named("tool", "sglang"),
    reasoning_parsers=named("reasoning", "sglang"),
)


def model(model_type: str, template: ChatTemplate | None) -> ModelFiles:
    return replace(model_of(TINY | {"model_type": model_type}), chat_template=template)


def chosen(
    found: ModelFiles, engine: str = "vllm", able: EngineTraits = VLLM, **asked: object
) -> Parsers:
    request = BuildRequest.model_validate({"model": "m", "instance": "local", **asked})
    requested: dict[What, str | None] = {
        "tool": request.tool_call_parser,
        "reasoning": request.reasoning_parser,
    }
    return choose_parsers(requested, request.engine_options or {}, found, engine, able)


def names(found: Parsers) -> tuple[str, str]:
    return (found.tool.name if found.tool else "", found.reasoning.name if found.reasoning else "")


@cases("chosen", template=None)
def test_the_parser_is_the_one_of_the_templates_marks(
    model_type: str, template: str | None, vllm: list[str], sglang: list[str]
) -> None:
    found = model(model_type, template and getattr(t, template))

    assert names(chosen(found)) == tuple(vllm)
    assert names(chosen(found, "sglang", SGLANG)) == tuple(sglang)


def test_the_type_alone_chooses_no_parser_for_another_dialect() -> None:
    other = t.template(
        t.TOOLS, "<｜Assistant｜></think>{% if thinking %}", tokens=t.DEEPSEEK_TOKENS
    )

    assert names(chosen(model("deepseek_v3", other))) == ("", "")
    assert names(chosen(model("deepseek_v3", other), "sglang", SGLANG)) == ("", "")


def test_the_reason_names_the_mark_and_the_model() -> None:
    found = chosen(model("qwen3", t.QWEN_3))

    assert found.tool is not None
    assert found.reasoning is not None
    assert found.tool.reason == (
        "the chat template writes <tool_call> and the model is of type 'qwen3'"
    )
    assert found.reasoning.reason == (
        "the chat template writes <think> and the model is of type 'qwen3'"
    )
    assert "vLLM 0.33.0 docs/features/tool_calling.md" in found.tool.source
    assert found.findings == ()


@cases("not_chosen")
def test_where_none_is_chosen_a_note_says_why_and_how_to_ask(
    model_type: str, template: str, tokens: str | None, reason: str
) -> None:
    shown: ChatTemplate = getattr(t, template)
    if tokens:
        shown = replace(shown, tokens=frozenset() if tokens == "none" else None)
    found = chosen(model(model_type, shown))

    (note,) = found.findings
    assert found.tool is None
    assert (note.severity, note.code) == ("note", "parser-not-chosen")
    assert reason in note.message
    assert "--tool-call-parser" in note.hint


def test_reasoning_of_a_model_that_nobody_knows_is_noted() -> None:
    found = chosen(model("smollm3", t.template(t.CHATML, t.THINKS, t.TOGGLES)))

    (note,) = found.findings
    assert found.reasoning is None
    assert note.message == (
        "no parser for reasoning is chosen: the chat template writes <think> and the model is of "
        "type 'smollm3', which is not in packager's table"
    )
    assert "--reasoning-parser" in note.hint


def test_a_version_without_the_parser_gets_none_and_says_so() -> None:
    old = replace(VLLM, who="vLLM 0.10.2", tool_parsers=("hermes", "qwen3_coder", "glm45"))

    coder = chosen(model("qwen3_moe", t.QWEN_3_CODER), able=old)
    glm = chosen(model("glm4_moe", t.GLM_4_7), able=old)
    kimi = chosen(model("kimi_k2", t.KIMI_K2), able=old)

    assert names(coder) == ("qwen3_coder", "")
    assert names(glm)[0] == "glm45"
    assert kimi.tool is None
    assert "vLLM 0.10.2 has no parser 'kimi_k2' yet" in kimi.findings[0].message


def test_a_version_whose_list_nobody_knows_gets_none() -> None:
    able = replace(VLLM, tool_parsers=None)

    found = chosen(model("qwen2", t.QWEN_2_5), able=able)

    assert found.tool is None
    assert "which parsers vLLM 0.33.0 has is not known" in found.findings[0].message


def test_a_family_that_takes_none_is_left_alone() -> None:
    assert chosen(model("qwen3", t.QWEN_3), "tgi", EngineTraits(who="TGI")) == Parsers()


def test_off_turns_each_off() -> None:
    found = model("qwen3", t.QWEN_3)

    assert names(chosen(found, tool_call_parser="off")) == ("", "qwen3")
    assert names(chosen(found, reasoning_parser="off")) == ("hermes", "")
    assert chosen(found, tool_call_parser="off", reasoning_parser="off").findings == ()


@cases("asked_for", engine_options={})
def test_what_is_asked_for_wins_over_the_template_and_an_engine_option_over_all(
    tool_call_parser: str, engine_options: dict[str, str], name: str, reason: str
) -> None:
    asked = {"tool_call_parser": tool_call_parser, "engine_options": engine_options}
    found = chosen(model("qwen3", t.QWEN_3), **asked)

    assert found.tool is not None
    assert (found.tool.name, found.tool.reason) == (name, reason)


@pytest.mark.parametrize(
    ("able", "asked", "hint"),
    [
        (VLLM, "hermess", "did you mean 'hermes'?"),
        (EngineTraits(who="TGI"), "hermes", "leave tool-call-parser out"),
    ],
    ids=["a typing error", "a family that takes none"],
)
def test_a_name_that_the_version_lacks_is_refused(
    able: EngineTraits, asked: str, hint: str
) -> None:
    (error,) = chosen(model("qwen3", None), able=able, tool_call_parser=asked).findings

    assert (error.severity, error.code) == ("error", "parser-unknown")
    assert error.message == f"{able.who} has no parser {asked!r} for tool calls"
    assert error.hint == hint


def test_a_template_is_searched_and_never_run() -> None:
    """What would be an endless loop, or an attack, in Jinja2 is only text here."""
    hostile = t.template(
        "{% for _ in range(10**12) %}{% endfor %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% if " * 20_000,
        t.TOOLS,
        t.CALL,
    )

    assert names(chosen(model("qwen2", hostile))) == ("hermes", "")


def test_only_templates_with_a_token_of_the_table_need_the_tokenizer() -> None:
    assert names_tokens(t.MISTRAL.text)
    assert names_tokens("<think>")
    assert not names_tokens(t.PLAIN.text)


def test_every_row_says_who_writes_so_and_where_it_was_read() -> None:
    rows = [row for group in dialects().values() for row in group]

    assert len({kind for row in rows for kind in row.model_types}) >= 25
    for row in rows:
        assert row.marks
        assert row.models
        assert re.search(r"\d{4}-\d\d-\d\d", row.source)
        assert any(row.names.values()) or row.instead, row.name


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("what", ["tool", "reasoning"])
def test_every_parser_of_the_table_is_in_a_shipped_versions_list(
    engine: str, what: Literal["tool", "reasoning"]
) -> None:
    option = {"tool": "tool-call-parser", "reasoning": "reasoning-parser"}[what]
    listed = {
        name
        for version in shipped_versions(engine)
        for name in parsers_of(find_schema(engine, version), option) or ()
    }
    assert set(named(what, engine)) <= listed


def test_the_page_counts_the_rows() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    tool, reasoning = (len(dialects()[what]) for what in ("tool", "reasoning"))  # type: ignore[index]

    assert f"{tool} ways of writing calls and {reasoning} of writing reasoning" in page
