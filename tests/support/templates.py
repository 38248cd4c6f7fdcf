"""Chat templates in the manner of published ones: `data/models/templates.toml`."""

from __future__ import annotations

import tomllib

from packager.core.parsers import ChatTemplate
from tests.support.places import DATA

_TABLES = tomllib.loads((DATA / "models" / "templates.toml").read_text(encoding="utf-8"))
TOOLS = "{%- if tools %}{%- for tool in tools %}{{ tool | tojson }}{%- endfor %}{%- endif %}"
CALL = r"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
THINKS = "{%- if '</think>' in content %}<think>{%- endif %}"
TOGGLES = "{%- if enable_thinking is defined and enable_thinking is false %}{%- endif %}"
CHATML = "{{- '<|im_start|>' + message.role + '\\n' + content }}"
DEEPSEEK_TOKENS = frozenset(
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<think>", "</think>")
)


def template(*parts: str, tokens: frozenset[str] | None = frozenset()) -> ChatTemplate:
    """Join parts to a template."""
    return ChatTemplate(text="\n".join(parts), tokens=tokens)


def _named(name: str) -> ChatTemplate:
    row = _TABLES[name]
    return ChatTemplate(text=row["text"], tokens=frozenset(row["tokens"]))


QWEN_2_5 = _named("qwen-2-5")
QWEN_3 = _named("qwen-3")
QWEN_3_THINKING = _named("qwen-3-thinking")
QWEN_3_CODER = _named("qwen-3-coder")
HERMES_3 = _named("hermes-3")
LLAMA_3_1 = _named("llama-3-1")
MISTRAL = _named("mistral")
DEEPSEEK_R1 = _named("deepseek-r1")
DEEPSEEK_R1_WITH_TOOLS = _named("deepseek-r1-with-tools")
DEEPSEEK_V3_1 = _named("deepseek-v3-1")
GPT_OSS = _named("gpt-oss")
GLM_4_5 = _named("glm-4-5")
GLM_4_7 = _named("glm-4-7")
GRANITE_3 = _named("granite-3")
GRANITE_3_2 = _named("granite-3-2")
GRANITE_4 = _named("granite-4")
KIMI_K2 = _named("kimi-k2")
KIMI_K2_THINKING = _named("kimi-k2-thinking")
MINIMAX_M2 = _named("minimax-m2")
JAMBA = _named("jamba")
SEED_OSS = _named("seed-oss")
NEMOTRON_3 = _named("nemotron-3")
GEMMA_4 = _named("gemma-4")
LFM_2 = _named("lfm-2")
COMMAND_R7B = _named("command-r7b")
PHI_4_MINI = _named("phi-4-mini")
NEMOTRON_NANO_2 = _named("nemotron-nano-2")
PLAIN = _named("plain")
UNKNOWN = _named("unknown")
