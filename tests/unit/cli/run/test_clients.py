"""The lines that are printed for clients: quoted for their shell and their Python."""

from __future__ import annotations

import ast
import json
import shlex

import pytest

from packager.cli.run.clients import (
    CHAT,
    COMPLETIONS,
    ENDPOINTS,
    INVOCATIONS,
    Address,
    Endpoint,
    body_for,
    curl_line,
    python_lines,
)
from tests.support.cases import read_tables

URL = "http://127.0.0.1:8081"
NAMES = ["tiny-llama", "a b", "it's", 'say "hi"', "$(touch x)`id`", "back\\slash", "ä\n模\x1b", "'"]


def address(endpoint: Endpoint, model: str = "tiny-llama") -> Address:
    return Address(url=URL, endpoint=endpoint, model=model)


def test_the_line_is_curl_with_a_quoted_body() -> None:
    assert curl_line(address(CHAT)) == (
        "curl -sS http://127.0.0.1:8081/v1/chat/completions -H 'Content-Type: application/json' "
        """-d '{"model": "tiny-llama", "messages": [{"role": "user", """
        """"content": "What can you do?"}], "max_tokens": 64}'"""
    )


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_shell_reads_the_body_that_was_meant(endpoint: Endpoint, model: str) -> None:
    line = curl_line(address(endpoint, model))
    words = shlex.split(line)

    assert line.isascii()
    assert "\n" not in line
    assert words[:3] == ["curl", "-sS", f"{URL}{endpoint}"]
    assert json.loads(words[-1]) == body_for(endpoint, model)


@pytest.mark.parametrize("model", NAMES)
@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS])
def test_python_reads_the_name_that_was_meant(endpoint: Endpoint, model: str) -> None:
    lines = python_lines(address(endpoint, model))
    literals = [
        node.value
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.Constant)
    ]

    assert all(line.isascii() and line.isprintable() for line in lines)
    assert model in literals
    assert f"{URL}/v1" in literals


def test_the_program_asks_for_a_chat() -> None:
    assert python_lines(address(CHAT)) == read_tables(__file__)["python_lines"]


def test_a_model_without_a_chat_template_is_asked_to_go_on_writing() -> None:
    program = python_lines(address(COMPLETIONS))

    assert "answer = client.completions.create(" in program
    assert '    prompt="Once upon a time",' in program
    assert program[-1] == "print(answer.choices[0].text)"
    assert body_for(COMPLETIONS, "m", tokens=1) == read_tables(__file__)["completion"]


def test_a_server_without_openai_endpoints_has_no_program() -> None:
    assert python_lines(address(INVOCATIONS, "")) == []
    assert body_for(INVOCATIONS, "")["parameters"] == {"max_new_tokens": 64}
