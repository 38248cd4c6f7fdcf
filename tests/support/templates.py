"""Chat templates in the manner of published ones: a few lines each, with the marks they write."""

from __future__ import annotations

from packager.core.parsers import ChatTemplate

TOOLS = "{%- if tools %}{%- for tool in tools %}{{ tool | tojson }}{%- endfor %}{%- endif %}"
CHATML = "{{- '<|im_start|>' + message.role + '\\n' + content }}"
CALL = r"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
XML_CALL = "<tool_call><function=name><parameter=key>value</parameter></function></tool_call>"
THINKS = "{%- if '</think>' in content %}<think>{%- endif %}"
TOGGLES = "{%- if enable_thinking is defined and enable_thinking is false %}{%- endif %}"

QWEN_TOKENS = frozenset(("<tool_call>", "</tool_call>", "<think>", "</think>"))
DEEPSEEK_TOKENS = frozenset(
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<think>", "</think>")
)


def template(*parts: str, tokens: frozenset[str] | None = frozenset()) -> ChatTemplate:
    """Join parts to a template."""
    return ChatTemplate(text="\n".join(parts), tokens=tokens)


QWEN_2_5 = template(TOOLS, CALL, CHATML, tokens=QWEN_TOKENS)
QWEN_3 = template(TOOLS, CALL, CHATML, THINKS, TOGGLES, tokens=QWEN_TOKENS)
QWEN_3_THINKING = template(
    TOOLS, CALL, THINKS, r"{{- '<|im_start|>assistant\n<think>\n' }}", tokens=QWEN_TOKENS
)
QWEN_3_CODER = template(TOOLS, XML_CALL, CHATML, tokens=QWEN_TOKENS)
HERMES_3 = template(TOOLS, CALL, CHATML)
LLAMA_3_1 = template(
    TOOLS,
    r'{{- "Environment: ipython\n" }}',
    """{{- 'Respond in the format {"name": function name, "parameters": dictionary}.' }}""",
    """{{- "<|python_tag|>" + tool_call.name }}""",
    tokens=frozenset(("<|python_tag|>",)),
)
MISTRAL = template(TOOLS, '{{- "[TOOL_CALLS] [" }}', tokens=frozenset(("[TOOL_CALLS]",)))
DEEPSEEK_R1 = template(
    "{{'<｜Assistant｜><｜tool▁calls▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + '```json'}}",
    "{%- if '</think>' in content -%}",
    "{{'<｜Assistant｜><think>\\n'}}",
    tokens=DEEPSEEK_TOKENS,
)
DEEPSEEK_R1_WITH_TOOLS = template(TOOLS, DEEPSEEK_R1.text, tokens=DEEPSEEK_TOKENS)
DEEPSEEK_V3_1 = template(
    TOOLS,
    "{%- if not thinking is defined -%}{%- set thinking = false -%}{%- endif -%}",
    "{{'<｜Assistant｜></think>'}}{%- if not thinking -%}{{'</think>'}}{%- endif -%}",
    "{{'<｜tool▁calls▁begin｜>' + tool['function']['name'] + '<｜tool▁sep｜>'}}",
    tokens=DEEPSEEK_TOKENS,
)
GPT_OSS = template(TOOLS, '{{- "<|start|>assistant<|channel|>analysis<|message|>" }}')
GLM_4_5 = template(
    "[gMASK]<sop>",
    TOOLS,
    "<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>",
    r"{{ '\n<tool_call>' + tc.name }}",
    THINKS,
    TOGGLES,
    tokens=QWEN_TOKENS,
)
GLM_4_7 = template(
    GLM_4_5.text.replace(r"'\n<tool_call>' + tc.name", "'<tool_call>' + tc.name"),
    tokens=QWEN_TOKENS,
)
GRANITE_3 = template(TOOLS, "{{- '<|start_of_role|>assistant<|tool_call|>' }}")
GRANITE_3_2 = template(TOOLS, "<|tool_call|>", "Here is my thought process:")
GRANITE_4 = template(TOOLS, CALL, "{{- '<|start_of_role|>' }}")
KIMI_K2 = template(
    TOOLS,
    "<|tool_calls_section_begin|>",
    tokens=frozenset(("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")),
)
KIMI_K2_THINKING = template(
    KIMI_K2.text, "<think></think>", tokens=(KIMI_K2.tokens or frozenset()) | QWEN_TOKENS
)
MINIMAX_M2 = template(
    TOOLS,
    "{%- set toolcall_begin_token = '<minimax:tool_call>' -%}",
    "{{- '<think>' ~ '\\n' }}",
    tokens=frozenset(("<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>")),
)
JAMBA = template(TOOLS, "<tool_calls>", tokens=frozenset(("<tool_calls>", "</tool_calls>")))
SEED_OSS = template(
    TOOLS,
    "<seed:tool_call><function=name><parameter=key>",
    "<seed:think>",
    tokens=frozenset(("<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>")),
)
NEMOTRON_3 = template(TOOLS, XML_CALL, TOGGLES, "truncate_history_thinking", tokens=QWEN_TOKENS)
GEMMA_4 = template(
    TOOLS,
    "{{- '<|tool_call>call:' + function['name'] }}{{- '<|channel>thought' -}}",
    tokens=frozenset(("<|tool_call>", "<|channel>")),
)
LFM_2 = template(
    TOOLS,
    "<|tool_call_start|>",
    tokens=frozenset(("<|tool_call_start|>", "<|tool_call_end|>")),
)
COMMAND_R7B = template(TOOLS, "{{ '<|START_ACTION|>' }}")
PHI_4_MINI = template(TOOLS, "{{- '<|tool_call|>' + (tool_call['function'] | tojson) }}")
NEMOTRON_NANO_2 = template(TOOLS, "<TOOLCALL>")
PLAIN = template("{% for message in messages %}{{ message.content }}{% endfor %}")
UNKNOWN = template(TOOLS, "[[call the tool]]")
