"""`from packager import plan, build`: what the commands of their names do."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import packager
from packager.core.errors import NotFound, PlanRejected, UsageError
from packager.pipeline.report_plan import plan_document
from tests.integration.packaging.test_start import HEAVY
from tests.support.cases import cases_of
from tests.support.commandline import TINY, packager_in
from tests.support.places import ROOT
from tests.support.processes import run_python

cases = cases_of(__file__)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep records and caches of these builds below the test's directory."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python(code: str) -> str:
    return run_python("-c", code, cwd=Path.cwd(), env={"PYTHONPATH": str(ROOT)}).stdout


def test_importing_packager_loads_none_of_its_modules_but_the_version() -> None:
    loaded = python("import sys, packager; print(*sys.modules)").split()

    assert {name for name in loaded if name.startswith(("packager", "artifact_cache"))} == {
        "packager", "packager.core", "packager.core.version",
    }  # fmt: skip
    assert not {name.partition(".")[0] for name in loaded} & (HEAVY | {"click"})


@cases("imported")
def test_build_can_be_called_whatever_was_imported_before(first: str) -> None:
    code = f"{first}\nimport packager.pipeline.pipeline\nassert packager.pipeline.pipeline.build\n"
    code += "try:\n    build(model='m', instance='local', output=())\n"
    code += "except packager.errors.UsageError as error:\n    print(error)\n"

    assert python(code) == "no output is given\n"


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ImportError):
        from packager import no_such_name  # type: ignore[attr-defined]  # noqa: F401


def test_a_plan_is_the_one_that_the_command_prints(tmp_path: Path) -> None:
    asked = ("--model", str(TINY), "--instance", "ml.g5.xlarge", "--draft", "ngram:3")
    done = packager_in(tmp_path)("plan", *asked, "--format", "json")

    found = packager.plan(model=TINY, instance="ml.g5.xlarge", draft="ngram:3")

    told = json.loads(done.out)
    expected = json.loads(json.dumps(plan_document(found)))
    assert {name: told[name] for name in expected} == expected


def test_an_image_is_the_one_that_the_command_writes(tmp_path: Path) -> None:
    asked = ("--model", str(TINY), "--instance", "local", "--base", "scratch", "--max-batch", "4")
    done = packager_in(tmp_path)("build", *asked, "--output", "oci:one", "--format", "json")

    record = packager.build(TINY, "local", base="scratch", max_batch=4, output=["oci:two"])

    assert record.digest == json.loads(done.out)["digest"]
    assert [image.target for image in record.images] == ["oci:two"]
    assert (tmp_path / "two.record.json").exists()


def test_a_plan_that_cannot_work_raises_all_findings() -> None:
    with pytest.raises(PlanRejected) as caught:
        packager.plan(model=TINY, instance="ml.g5.xlarge", tp_degree=2, max_total_tokens=10**6)

    codes = {found.code for found in caught.value.findings if found.severity == "error"}
    assert codes == {"tp-not-allowed", "shape-over-positions"}


@cases("wrong_fields")
def test_a_wrong_field_is_a_usage_error(fields: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        packager.plan(TINY, "ml.g5.xlarge", **fields)

    assert caught.value.message == message


def test_outputs_are_named_once() -> None:
    with pytest.raises(UsageError, match="invalid field 'outputs'"):
        packager.build(TINY, "local", base="scratch", output="oci:a", outputs=("oci:b",))  # type: ignore[call-arg]


def test_a_path_is_never_taken_for_the_name_of_a_hub_s_model() -> None:
    with pytest.raises(NotFound, match=re.escape("no directory './nowhere/model'")):
        packager.plan(model=Path("nowhere/model"), instance="ml.g5.xlarge")


def test_warnings_go_to_the_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = tmp_path / "out.record.json"
    record.mkdir()  # where the record's copy would be

    with caplog.at_level(logging.WARNING, logger="packager"):
        packager.build(TINY, "local", base="scratch", output="oci:out")

    assert [one.name for one in caplog.records] == ["packager"]
    assert "a copy of its record is not" in caplog.text


def test_values_are_short_in_a_prompt_and_tables_in_a_notebook(tmp_path: Path) -> None:
    chosen = packager.plan(TINY, "ml.g5.xlarge")
    built = packager.build(TINY, "local", base="scratch", output="oci:out")

    assert repr(chosen) == (
        "<Plan 'tiny-llama' on ml.g5.xlarge: vllm 0.27.1, TP 1, bf16, 256 requests of 1024 tokens>"
    )
    assert repr(built) == f"<BuildRecord 'tiny-llama' in oci:out: {built.digest}>"
    for value, shown in ((chosen, "<td>vllm 0.27.1"), (built, built.digest)):
        page = value._repr_html_() or ""
        assert shown in page or "with vLLM 0.27.1" in page
        assert not re.search("<(script|style|svg|h1)", page)  # of a part of somebody's page


def test_names_of_models_are_escaped_in_a_notebook(tmp_path: Path) -> None:
    built = packager.build(
        TINY, "local", base="scratch", output="oci:out<b>", served_name="a/b", progress=None
    )

    page = built._repr_html_() or ""

    assert "oci:out&lt;b&gt;" in page
    assert "out<b>" not in page


def test_progress_is_told_and_may_fail(tmp_path: Path) -> None:
    told: list[packager.Event] = []

    def note(event: packager.Event) -> None:
        told.append(event)
        raise RuntimeError("a broken display")

    packager.build(TINY, "local", base="scratch", output="oci:out", progress=note)

    assert {type(event).__name__ for event in told} >= {"StagesEvent", "ImageEvent", "LayerEvent"}


def test_functions_that_wait_are_awaited_beside_each_other(tmp_path: Path) -> None:
    async def both() -> list[str]:
        made = (
            packager.aio.build(TINY, "local", base="scratch", output=f"oci:{n}", max_batch=n)
            for n in (4, 8)
        )
        return [record.digest for record in await asyncio.gather(*made)]

    one, other = asyncio.run(both())

    assert one != other
    assert packager.push("oci:4", ["oci:copy"])[0].digest == one


@cases("wrong_loads")
def test_wrong_keywords_of_a_benchmark_are_usage_errors(fields: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        packager.bench("http://127.0.0.1:9", **fields)


@pytest.mark.extended  # mypy reads packager once
def test_a_checker_finds_wrong_keywords_and_passes_a_user_s_program(tmp_path: Path) -> None:
    right = """
import packager
from packager import bench, build, evaluate, plan, push, run, tune

def seen(event: packager.Event) -> None:
    print(event)

chosen = plan("m", "local", max_batch=4, quantize="fp8")
size: int = chosen.tp_degree
record = build("m", "local", output=["oci:a"], progress=seen, engine_options={"seed": "1"})
places: list[str] = [str(one) for one in push("oci:a", "oci:b", view="weights")]
with run("m", port=8080, env={"A": "1"}) as server:
    text: str = server.ask("hello")
figures = bench("http://localhost:1", concurrency=(1, 2), ttft_ms=100.0)
loads = figures.variants[0].loads
worse: bool = evaluate("m", "n").is_measurable
best: str | None = tune("m", "local", goal="cost", vary={"quantize": ["awq"]}).best

async def later() -> str:
    return (await packager.aio.build("m", "local", output="oci:a", max_batch=2)).digest
"""
    wrong = """
import packager
packager.plan("m", "local", max_bach=4)
packager.plan("m", "local", max_batch="4")
packager.build("m", "local")
packager.bench("u", concurency=(1,))
packager.tune("m", "local", goal="speed")
packager.aio.build("m", "local", output="oci:a", outpt="b")
"""
    (tmp_path / "right.py").write_text(right)
    (tmp_path / "wrong.py").write_text(wrong)
    cache = ROOT / ".mypy_cache"
    words = ("-m", "mypy", "--strict", "--cache-dir", str(cache), "right.py", "wrong.py")

    done = run_python(*words, cwd=tmp_path, env={"MYPYPATH": str(ROOT)}, status=None)

    lines = re.findall(r"^(\w+)\.py:(\d+): error", done.stdout, re.MULTILINE)
    assert sorted(set(lines)) == [("wrong", str(line)) for line in range(3, 9)], done.stdout
