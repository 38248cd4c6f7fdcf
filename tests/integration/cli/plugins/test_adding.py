"""Plug-ins of other packages, each as `examples/plugins` and its page have it."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import cases, read_tables
from tests.support.commandline import TINY, Done, packager_in
from tests.support.documented_packages import stated_count, write_files, write_package
from tests.support.known import known
from tests.support.written_layouts import WrittenLayout

TABLES = read_tables(__file__)


MODEL = ("--model", str(TINY), "--instance")
BUILD = ("build", *MODEL, "local")
SCRATCH = (*BUILD, "--base", "scratch")
GPUS = (*MODEL, "ml.g5.12xlarge")
DEMO = ("--family", "demo", "--catalog", "site/catalog.toml")
Run = Callable[..., Done]
Install = Callable[[str], Run]


@pytest.fixture
def installed(tmp_path: Path) -> Install:
    """Install an example; return what runs `packager` with it."""

    def install(kind: str) -> Run:
        write_package(kind, tmp_path / "site")
        ours = {
            "PYTHONPATH": str(tmp_path / "site"),
            "PACKAGER_TOOLS": str(tmp_path / "tools"),
            "TEAM_BASES": str(tmp_path / "bases.json"),
            "MODEL_SHELF": str(tmp_path / "shelf"),
        }
        run = packager_in(tmp_path)
        return lambda *words: run(*words, env=ours)

    return install


@cases("pages")
@pytest.mark.extended
def test_it_is_as_many_files_as_its_page_says_and_listed_with_its_package(
    tmp_path: Path, installed: Install, kind: str, files: int, what: str, listed: dict[str, str]
) -> None:
    done = installed(kind)("list", what, "--format", "json")

    assert listed in json.loads(done.out)
    counted = len(write_package(kind, tmp_path / "again"))
    assert counted == stated_count("plug-ins.md", kind) == files


@cases("errors")
@pytest.mark.extended
def test_its_errors_are_its_own(
    tmp_path: Path, installed: Install, kind: str, command: str, status: int, told: str
) -> None:
    (tmp_path / "bases.json").write_text("{}")
    (tmp_path / "taken").mkdir()
    for revision in ("1", "2"):
        shutil.copytree(TINY, tmp_path / "shelf/tiny" / revision)

    done = installed(kind)(*command.replace("{tiny}", str(TINY)).split())

    assert (done.status, done.out) == (status, "")
    assert told in done.err


@pytest.mark.parametrize("tool", ["graph-notes", "fewer-bits"])
def test_tools_are_listed(installed: Install, tool: str) -> None:
    kind = {"graph-notes": "compiler", "fewer-bits": "quantizer"}[tool]

    assert tool in installed(kind)("tools", "list").out


@pytest.mark.extended
def test_an_image_is_built_upon_a_named_base(tmp_path: Path, installed: Install) -> None:
    (tmp_path / "bases.json").write_text(json.dumps({"small": "oci:base"}))
    run = installed("base")
    base = run(*SCRATCH, "--output", "oci:base")

    done = run(*BUILD, "--base", "team:small", "--output", "oci:out")

    assert base.status == done.status == 0, done.err
    record = json.loads((tmp_path / "out.record.json").read_text())
    assert record["base"]["reference"] == "team:small"
    assert record["base"]["digest"] == base.out.strip().partition("@")[2]


@pytest.mark.extended
def test_compiled_files_are_in_the_image_and_then_a_hit(tmp_path: Path, installed: Install) -> None:
    run = installed("compiler")
    run(*SCRATCH, "--output", "oci:base")
    build = (*BUILD, "--base", "oci:base", "--compile", "graph_notes", "--output", "oci:out")

    first = run(*build, "--record", "record.json")
    second = run(*build, "--require-cached")

    assert first.status == second.status == 0, first.err + second.err
    assert first.out == second.out
    [layer] = layers_in(tmp_path / "record.json", "compiled")
    with tarfile.open(WrittenLayout(tmp_path / "out").blob(layer)) as compiled:
        file = compiled.extractfile("opt/packager/compiled/notes.json")
        assert json.load(known(file)) == {"model_type": "llama", "tp": 1}


@pytest.mark.capability("plug-ins")
def test_weights_of_a_quantizer_are_in_the_image(tmp_path: Path, installed: Install) -> None:
    run = installed("quantizer")
    build = (*SCRATCH, "--quantize", "fewer-bits", "--output", "oci:out")

    plain = run(*SCRATCH, "--output", "oci:plain", "--record", "plain.json")
    first = run(*build, "--record", "first.json")
    second = run(*build, "--require-cached")

    assert plain.status == first.status == second.status == 0, first.err + second.err
    assert first.out == second.out
    quantized, own = (layers_in(tmp_path / f"{one}.json", "weights") for one in ("first", "plain"))
    assert quantized != own


def test_a_family_is_planned_with_what_its_traits_say(installed: Install) -> None:
    """A pipeline is its own word; what a full server does is no guess from its name."""
    run = installed("family")

    done = run("plan", *GPUS, *DEMO, "--pp-degree", "2", "--format", "json")

    [image] = run("list", "containers", *DEMO, "--format", "json").document
    assert (image["family"], image["engine_version"]) == ("demo", "1.0")
    assert done.status == 0, done.err
    plan: dict[str, Any] = json.loads(done.out)
    assert (plan["pp_degree"], plan["container"]["family"]) == (2, "demo")
    assert plan["capacity"]["beyond"] == "more are refused with status 503"


def test_a_build_renders_the_variables_of_a_family(tmp_path: Path, installed: Install) -> None:
    done = installed("family")(
        *("build", *GPUS, *DEMO, "--tp-degree", "2", "--max-total-tokens", "512"),
        *("--engine-option", "demo-color=blue", "--base", "scratch", "--output", "oci:out"),
    )

    assert done.status == 0, done.err
    config = WrittenLayout(tmp_path / "out").config
    assert sorted(config["config"]["Env"]) == TABLES["a_build_renders_the_variables_of_a_family"]


def test_rows_of_a_family_that_is_not_installed_break_nothing_else(tmp_path: Path) -> None:
    write_package("family", tmp_path / "site")

    done = packager_in(tmp_path)("plan", *GPUS, "--catalog", "site/catalog.toml", status=0)

    assert "are of family 'demo', which no installed package has; they are left out" in done.err


def test_a_build_writes_to_a_sink_beside_a_layout(tmp_path: Path, installed: Install) -> None:
    done = installed("sink")(*SCRATCH, "--output", "tar:out.tar", "--output", "oci:out")

    assert done.status == 0, done.err
    layout, archive = (line.partition("@") for line in done.out.splitlines())
    assert (archive[0], archive[2]) == ("tar:out.tar", layout[2])
    assert digests_in(tmp_path / "out.tar") == blobs_of(tmp_path / "out")
    assert [path.name for path in tmp_path.glob(".out.tar*")] == []


def test_a_build_pins_the_revision_of_a_source(tmp_path: Path, installed: Install) -> None:
    for revision in ("1", "2"):
        shutil.copytree(TINY, tmp_path / "shelf/tiny" / revision)
    words = ("build", "--model", "shelf://tiny", "--instance", "local", "--base", "scratch")

    done = installed("source")(*words, "--output", "oci:out")

    assert done.status == 0, done.err
    model = json.loads((tmp_path / "out.record.json").read_text())["model"]
    assert (model["source"], model["name"], model["revision"]) == ("other", "tiny", "2")


def layers_in(record: Path, role: str) -> list[str]:
    """Return the digests of a record's layers of a role."""
    layers = json.loads(record.read_text())["layers"]
    return [layer["digest"] for layer in layers if layer["role"] == role]


def blobs_of(layout: Path) -> set[str]:
    """Return the digests of the image's own blobs; what is attached to it has others."""
    image = WrittenLayout(layout)
    parts = (image.manifest["config"], *image.manifest["layers"])
    return {
        one.removeprefix("sha256:") for one in (image.digest, *(part["digest"] for part in parts))
    }


def digests_in(archive: Path) -> set[str]:
    """Return the digests of all blobs; their names must be the same."""
    with tarfile.open(archive) as opened:
        blobs = [member for member in opened if member.name.startswith("blobs/sha256/")]
        found = {
            member.name: hashlib.file_digest(opened.extractfile(member), "sha256").hexdigest()  # type: ignore[arg-type]
            for member in blobs
        }
    assert all(name.endswith(digest) for name, digest in found.items())
    return set(found.values())


# Machines of one's own, as docs/instances.md has them.

OWN = ("--catalog", "machines.toml")


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    assert (
        len(write_files("instances.md", tmp_path))
        == stated_count("instances.md", "instance of your own")
        == 1
    )
    run = packager_in(tmp_path)

    def plan(*words: str) -> dict[str, Any]:
        done = run("plan", *MODEL, *words, "--format", "json", status=0)
        return dict(json.loads(done.out))

    return plan


def test_a_machine_with_gpus_is_planned_and_ranked(planned: Callable[..., Any]) -> None:
    assert planned("rack-7", *OWN)["instance"]["name"] == "rack-7"
    assert '"rack-7"' in json.dumps(planned("all", *OWN))


def test_a_machine_with_unknown_neuron_cores_is_planned(planned: Callable[..., Any]) -> None:
    plan = planned("pod-1", "--tp-degree", "4", *OWN)

    assert (plan["instance"]["device"], plan["tp_degree"]) == ("NeuronCore-v9", 4)


def test_rows_of_machines_change_no_plan_for_another(planned: Callable[..., Any]) -> None:
    assert planned("ml.g5.xlarge", *OWN) == planned("ml.g5.xlarge")
