"""What decides that a worker is another one: its own modules, and those it shares with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from packager.share import share_dir
from packager.steps.tools.definition import read_tool

TOOLS = share_dir("containers") / "tools"

# Of the workers' sources, comments included.  A change here makes every result of that tool anew,
# on every machine: hours of work.  Change it where results may differ, not for a word.
WORKERS = {
    "aiconfigurator": "8e7933e6c9e8f8e2b4373e3a17c7f6393b494c8e891ef908f186f7a5f2bebaef",
    "draft-heads": "a42617e1d7eb3c67360b9844c49a862f90ecdcad1cbbd9b4a7dbaacd0d67075b",
    "evaluate": "fe0f961345c5072352e84a1502f804807f3df13d4f18ebbf1f7138df9d7f30de",
    "llmcompressor": "483d920fa1404a3cfee835c793366c82568a351c95211d015777f6a0ab6fa1c5",
    "neuron": "ffc8917dc4cb8e57afc43b706bbc13b90f412cc4b1d83ccbf6ebbe5d8902275e",
    "specforge": "110fbecfbf68231ebe8bbb07d49347e829751bdbff8df61213f89ee2df34c442",
    "tensorrt-llm": "bf1b6b1011ca1ec8832b2fa7254c9812e6fc41cd27eb7f91803822bce68c2452",
    "vllm-cache": "1322b4dd0917fea4251e155beb3c3a4cc3eef7c912931f9d6840d5f4c5a406b9",
    "vllm-shards": "929bde99f387c0d2707cd8cdd74fe37743577845d49ddf0660e30d6a7971ddef",
}


@pytest.fixture
def helper(tmp_path: Path) -> Path:
    place = tmp_path / "common"
    place.mkdir()
    for name in ("packager_worker", "shared"):
        (place / f"{name}.py").write_text("")
    return place


def tool(place: Path, source: str) -> Path:
    place.mkdir()
    (place / "tool.toml").write_text('summary = "does something"\n')
    (place / "worker.py").write_text("import steps\n")
    (place / "steps.py").write_text(source)
    return place


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("from shared import something\n", True),
        ("def work():\n    import shared\n", True),
        ("from packager_worker import run\n# nothing is shared here\n", False),
        ("import shared_elsewhere\n", False),
    ],
)
def test_a_shared_module_belongs_to_the_workers_that_import_it(
    source: str, changes: bool, helper: Path, tmp_path: Path
) -> None:
    place = tool(tmp_path / "tool", source)
    before = read_tool("tool", place, helper).worker_digest

    (helper / "shared.py").write_text("something = 1\n")

    assert (read_tool("tool", place, helper).worker_digest != before) == changes


def test_shared_modules_import_none_of_each_other() -> None:
    names = {path.stem for path in (TOOLS / "common").glob("*.py")}

    for path in (TOOLS / "common").glob("*.py"):
        lines = path.read_text().splitlines()
        imports = {line.split()[1] for line in lines if line.startswith(("import ", "from "))}
        assert not imports & names, path.name


def test_shipped_workers_are_those_that_made_what_caches_hold() -> None:
    places = sorted(file.parent for file in TOOLS.glob("*/tool.toml"))

    assert {
        place.name: read_tool(place.name, place, TOOLS / "common").worker_digest for place in places
    } == WORKERS
