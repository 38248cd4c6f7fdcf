"""Tool calls of an image whose model has a template for tools: the protocol, not the quality."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.live.building import build
from tests.live.servers import SMALL_MODEL, run_inside, served
from tests.support.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

COMPACT = {"backend": "xgrammar", "disable_any_whitespace": True}
CLIENT = Path(__file__).parent / "openai_tools.py"
# As Hermes and Qwen2.5 write: tools as JSON in the system's turn, calls between <tool_call> marks.
TEMPLATE = """\
{%- if tools %}{{ 'Answer with <tool_call>{"name": name, "arguments": {}}</tool_call>: ' }}
{%- for tool in tools %}{{ tool.function.name }}{% endfor %}{{ '\\n' }}{% endif %}
{%- for message in messages %}{{ message.role }}: {{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function.name }}</tool_call>
{%- endfor %}{{ '\\n' }}{% endfor %}{{ 'assistant: ' }}"""


def test_openais_client_makes_tool_calls_and_answers_them(
    packager: Packager, engine: str, serving_base: str, tmp_path: Path
) -> None:
    """Without a parser, `auto` is answered with status 400."""
    model, image = tmp_path / "model", "packager-test:tools"
    shutil.copytree(TINY, model)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    build(
        packager,
        *(f"docker:{image}", "--served-name", "tools", "--tool-call-parser", "hermes"),
        # A model that was never taught calls would fill them with white space.
        *("--engine-option", f"structured-outputs-config={json.dumps(COMPACT)}"),
        base=serving_base,
        model=model,
    )

    with served(engine, image, **SMALL_MODEL) as (container, url):
        bridged = container.attrs["HostConfig"]["NetworkMode"] != "host"
        inside = "http://127.0.0.1:8080" if bridged else url
        words = ["python3", "-c", CLIENT.read_text(), inside, "tools"]
        status, out, err = run_inside(container, words)
        assert status == 0, (out, err, container.logs(tail=40).decode())

    found = json.loads(out.splitlines()[-1])
    kind, name, arguments = found["named"]
    assert (kind, name) == ("function", "get_weather")
    assert arguments in ({"unit": "C"}, {"unit": "F"})
    assert found["streamed"][0] == "get_weather", found["streamed"]
    assert json.loads(found["streamed"][1]) == arguments
    assert set(found["required"]) == {"get_weather"}
    assert found["auto"] == "chat.completion"
    assert found["after the tool answered"] == "assistant"
