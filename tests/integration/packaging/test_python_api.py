"""`from packager import plan, build`: the page's example, and what the commands do."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

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

SCRATCH = {"instance": "local", "base": "scratch"}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep records and caches of these builds below the test's directory."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def python(code: str) -> str:
    return run_python("-c", code, cwd=Path.cwd(), env={"PYTHONPATH": str(ROOT)}).stdout


def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = (ROOT / "docs/python-api.md").read_text(encoding="utf-8")
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    assert python(code) == printed


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

    record = packager.build(model=TINY, **SCRATCH, max_batch=4, output=["oci:two"])

    assert record.digest == json.loads(done.out)["digest"]
    assert [image.target for image in record.images] == ["oci:two"]
    assert (tmp_path / "two.record.json").exists()


def test_a_plan_that_cannot_work_raises_all_findings() -> None:
    with pytest.raises(PlanRejected) as caught:
        packager.plan(model=TINY, instance="ml.g5.xlarge", tp_degree=2, max_total_tokens=10**6)

    codes = {found.code for found in caught.value.findings if found.severity == "error"}
    assert codes == {"tp-not-allowed", "shape-over-positions"}


@cases("wrong_fields")
def test_a_wrong_field_is_a_usage_error(fields: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        packager.plan(model=TINY, instance="ml.g5.xlarge", **fields)

    assert caught.value.message == message


def test_outputs_are_named_once() -> None:
    with pytest.raises(UsageError, match="invalid field 'outputs'"):
        packager.build(model=TINY, **SCRATCH, output="oci:a", outputs=("oci:b",))


def test_a_path_is_never_taken_for_the_name_of_a_hub_s_model() -> None:
    with pytest.raises(NotFound, match=re.escape("no directory './nowhere/model'")):
        packager.plan(model=Path("nowhere/model"), instance="ml.g5.xlarge")


def test_warnings_go_to_the_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = tmp_path / "out.record.json"
    record.mkdir()  # where the record's copy would be

    with caplog.at_level(logging.WARNING, logger="packager"):
        packager.build(model=TINY, **SCRATCH, output="oci:out")

    assert [one.name for one in caplog.records] == ["packager"]
    assert "a copy of its record is not" in caplog.text
