"""`packager plan` as a user runs it."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.commandline import TINY, Packager
from tests.support.places import ROOT

MODEL = ("--model", str(TINY))


def test_a_plan_tells_speed_and_cost(packager: Packager) -> None:
    done = packager("plan", *MODEL, "--instance", "ml.g5.xlarge", status=0)

    assert "costs      $1.4084/h" in done.out
    assert "predicted  question answering" in done.out


def test_a_workload_and_a_discount_can_be_chosen(packager: Packager) -> None:
    asked = ("--workload", "chat", "--discount", "0.26", "--format", "json")

    predicted = packager("plan", *MODEL, "--instance", "ml.g5.xlarge", *asked).document["predicted"]
    asked_for = [predicted["workload"][one] for one in ("name", "input_tokens", "output_tokens")]
    assert asked_for == ["chat", 550, 150]
    assert predicted["discount"] == 0.26


def test_instances_can_be_named_by_a_pattern(packager: Packager) -> None:
    done = packager("plan", *MODEL, "--instance", "g5.*", "--goal", "latency", "--format", "json")

    ranking = json.loads(done.out)
    names = [option["instance"] for option in ranking["options"]]
    assert ranking["goal"] == "latency"
    assert len(names) == 8
    assert all(name.startswith("ml.g5.") for name in names)


@pytest.mark.parametrize("instance", ["ml.g5.xlarge", "ml.g5.*"])
def test_a_page_can_be_kept(packager: Packager, instance: str) -> None:
    done = packager("plan", *MODEL, "--instance", instance, "--format", "html", status=0)

    assert done.out.startswith("<!doctype html>")
    commands = re.compile(r"<pre><code>.*?</code></pre>")
    assert str(TINY.parent) in "".join(commands.findall(done.out))  # or they could not be pasted
    assert str(TINY.parent) not in commands.sub("", done.out)


def test_a_page_of_a_relative_path_has_no_directory(packager: Packager, tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "mine")
    done = packager(
        "plan", "--model", "mine", "--instance", "ml.g5.xlarge", "--format", "html", status=0
    )

    assert str(tmp_path) not in done.out


def test_a_page_is_repeated_by_its_own_command(packager: Packager, tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "it's mine")
    moment = {"SOURCE_DATE_EPOCH": "1700000000"}
    asked = ("--discount", "0.2", "--requests-per-day", "5000", "--max-batch", "8")
    words = ("--model", "it's mine", "--instance", "ml.g5.xlarge", *asked, "--format", "html")
    first = packager("plan", *words, env=moment)
    shown = re.sub(r"</?span>", "", first.out)
    (command,) = re.findall(r"<pre><code>(packager plan .*?)</code></pre>", shown)

    program, *words = shlex.split(html.unescape(command))

    assert program == "packager"
    assert "2023-11-14 22:13 UTC" in first.out
    assert packager(*words, env=moment).out == first.out


def test_a_refused_plan_has_a_page_with_what_fits_instead(packager: Packager) -> None:
    asked = ("--instance", "ml.g5.xlarge", "--tp-degree", "3", "--format", "html")
    done = packager("plan", *MODEL, *asked, status=3)

    assert "error: the plan is rejected" in done.err
    assert done.out.startswith("<!doctype html>")
    assert "What fits instead" in done.out
    assert "--tp-degree 1</span></code>" in done.out


@cases("every_option_of_a_request_is_taken")
def test_every_option_of_a_request_is_taken(packager: Packager, options: tuple[str, str]) -> None:
    packager("plan", *MODEL, "--instance", "ml.g5.xlarge", *options, status=0)


def test_a_refreshed_price_is_what_a_plan_costs(packager: Packager, tmp_path: Path) -> None:
    offer = str(ROOT / "tests/support/data/catalog/offer-us-east-1.json")
    env = {"XDG_DATA_HOME": str(tmp_path)}
    assert packager("catalog", "refresh", "--from", offer, env=env).status == 0

    done = packager("plan", *MODEL, "--instance", "ml.g5.12xlarge", env=env)
    assert "$6.8/h (offer file, us-east-1, 2026-11-01)" in done.out


def test_a_tool_parser_is_chosen_refused_turned_off(packager: Packager, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(TINY, model)
    (model / "chat_template.jinja").write_text(
        '{% if tools %}<tool_call>{"name": x, "arguments": {}}</tool_call>{% endif %}'
    )
    words = ("plan", "--model", str(model), "--instance", "ml.g5.xlarge", "--family", "sglang")

    chosen = packager(*words)
    off = packager(*words, "--tool-call-parser", "off", "--format", "json")
    wrong = packager(*words, "--tool-call-parser", "hermess", status=3)

    assert "\ntool calls hermes: the chat template writes <tool_call>\n" in chosen.out
    assert json.loads(off.out)["tool_call_parser"] is None
    assert "SGLang 0.5.17 has no parser 'hermess' for tool calls" in wrong.err


def test_a_container_is_told_as_the_catalog_has_it_and_no_more(packager: Packager) -> None:
    """Traits of the engine, which plans are made with, were printed and could not be."""
    done = packager("plan", *MODEL, "--instance", "ml.g5.xlarge", "--format", "json")

    assert list(json.loads(done.out)["container"]) == [
        *("family", "kind", "engine", "engine_version", "version", "default_base"),
        *("least_compute_capability", "source", "date", "variant", "release", "targets"),
        *("repository", "cuda", "least_driver", "inference_ami", "platforms"),
    ]


@pytest.mark.parametrize("command", ["plan", "build", "tune"])
def test_an_id_that_is_mapped_stands_for_its_place(
    packager: Packager, tmp_path: Path, command: str
) -> None:
    own = tmp_path / "config" / "packager"
    own.mkdir(parents=True)
    (own / "jumpstart.toml").write_text(f"meta-small = '{TINY}'\n")
    dry = {
        "plan": (),
        "build": ("--dry-run", "--output", "oci:out"),
        "tune": ("--dry-run", "--goal", "cost"),
    }
    words = (command, "--instance", "local", *dry[command], "--format", "json")
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    by_option = packager(*words, "--model", "meta-tiny", "--jumpstart", f"meta-tiny={TINY}")
    by_file = packager(*words, "--model", "meta-small", env=env)

    assert (by_option.status, by_file.status) == (0, 0), by_option.err + by_file.err
    assert "tiny-llama" in by_option.out
    assert "meta-small" not in by_file.out
    assert packager(*words, "--model", "meta-tiny").status == 2
