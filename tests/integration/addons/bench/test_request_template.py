"""`packager bench` against a server of a form of its own, asked by a template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from packager.addons.bench.load import template_printer
from packager.addons.bench.load.template_printer import TemplatePrinter
from packager.core.bench import BenchReport
from tests.support.commandline import Packager
from tests.support.doubles.http import Handler, serving

TEMPLATE = (
    '{"inputs": {{ text|tojson }}, "parameters": {"max_new_tokens": {{ max_tokens }}}, '
    '"stream": {{ stream|tojson }}}'
)
LOAD = ("--workload", "40:5", "--requests", "4", "--warm-up", "1", "--concurrency", "2")


@dataclass
class OwnForm:
    """A server with formatters of its own, which refuses whatever has another form."""

    asked: list[Any] = field(default_factory=list)
    url: str = ""


class _Handler(Handler):
    def do_GET(self) -> None:
        known = self.path == "/v1/models"
        self.say(200 if known else 404, body=b'{"data": [{"id": "own"}]}' if known else b"{}")

    def do_POST(self) -> None:
        double: OwnForm = self.server.double  # type: ignore[attr-defined]
        body = json.loads(self.body() or b"null")
        if self.path != "/invocations" or set(body) != {"inputs", "parameters", "stream"}:
            self.say(400, body=b'{"error": "inputs, parameters, stream"}')
            return
        double.asked.append(body)
        words = ["yes "] * body["parameters"]["max_new_tokens"]
        if body["stream"]:
            lines = [json.dumps({"data": {"said": word}}) for word in words]
            events = "".join(f"data: {line}\n\n" for line in lines)
            self.say(200, body=events.encode(), headers={"content-type": "text/event-stream"})
            return
        # As the notebook's formatter counts: by characters and words, not by tokens.
        said = {"data": {"said": "".join(words)}, "usage": {"word_count": len(words)}}
        self.say(200, body=json.dumps(said).encode())


@pytest.fixture
def server() -> Iterator[OwnForm]:
    double = OwnForm()
    with serving(_Handler, double) as running:
        double.url = running.url
        yield double


def measured(packager: Packager, server: OwnForm, *words: str, status: int = 0) -> Any:
    done = packager("bench", server.url, *LOAD, "--format", "json", *words, status=status)
    return BenchReport.model_validate_json(done.out).variants[0].loads[0]


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_requests_have_the_templates_form_and_the_text_is_where_its_field_says(
    packager: Packager, server: OwnForm, way: str
) -> None:
    words = ("--request-template", TEMPLATE, "--response-field", "data.said", way)
    load = measured(packager, server, *words)

    assert {one["parameters"]["max_new_tokens"] for one in server.asked} == {5}
    assert len({one["inputs"] for one in server.asked}) == 5
    assert {one["stream"] for one in server.asked} == {way == "--stream"}
    assert load.metrics["request_count"].avg == 4
    assert ("time_to_first_token" in load.metrics) is (way == "--stream")


def test_an_answer_without_the_field_is_a_failure(packager: Packager, server: OwnForm) -> None:
    words = ("--request-template", TEMPLATE, "--response-field", "generated_text", "--no-stream")
    done = packager("bench", server.url, *LOAD, *words)

    assert done.status != 0
    assert "its answer has no text at 'generated_text'" in done.out + done.err


def test_a_specification_finds_its_template_beside_itself(
    packager: Packager, server: OwnForm, tmp_path: Path
) -> None:
    named = "/opt/ml/input/data/template/own.jinja"
    extra = f"payload_template:{named} response_field:data.said"
    parameters = {"streaming": False, "extra_inputs": extra}
    spec = tmp_path / "workload.json"
    spec.write_text(json.dumps({"benchmark": {"type": "aiperf"}, "parameters": parameters}))

    refused = packager("bench", server.url, "--workload-spec", str(spec), status=2)
    assert f"the request template {named!r} of 'workload.json' is not here" in refused.err

    (tmp_path / "own.jinja").write_text(TEMPLATE)
    measured(packager, server, "--workload-spec", str(spec))
    assert len(server.asked) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--response-field", "a"), "--response-field is for answers to a request template"),
        (("--request-template", TEMPLATE, "--turns", "3"), "gets one text, without turns"),
        (("--request-template", TEMPLATE, "--tools"), "gets one text, without tools"),
        (("--request-template", TEMPLATE, "--prefix-tokens", "9"), "without a shared prompt"),
        (("--request-template", TEMPLATE, "--endpoint", "completions"), "not completions"),
    ],
)
def test_what_a_template_does_not_print_is_refused(
    packager: Packager, words: tuple[str, ...], said: str
) -> None:
    done = packager("bench", "http://127.0.0.1:1", *LOAD, *words, status=2)

    assert said in done.err


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{{ range(10)|slice(900000000)|list }}", "fails: 'it takes "),
        ('{{ (range(100000)|join("x"|center(9999)))|length }}', "'it takes too much memory'"),
        ("{{ text|center(900000000) }}", "fails: 'it takes too much memory'"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "fails: 'maximum recursion depth"),
    ],
    ids=["a filter without end", "a long text of short ones", "a wide text", "depth"],
)
def test_what_no_step_of_a_template_can_end_is_ended_outside(
    source: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_printer, "RENDER_S", 0.5)
    monkeypatch.setattr(template_printer, "MOST_BYTES", 256 * 1024**2)
    printer = TemplatePrinter()

    assert fault in printer.ask({"source": source, "values": {"text": "a"}})["fault"]
    assert printer.ask({"source": "{{ text }}", "values": {"text": "a"}}) == {"printed": "a"}
