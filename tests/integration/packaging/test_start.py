"""Starting is light, and the import contract holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.processes import run_program, run_python

HEAVY = {
    *("pydantic", "jinja2", "rich", "urllib3", "docker"),
    *("huggingface_hub", "requests", "rfc8785"),
}


def modules_after(*arguments: str) -> set[str]:
    """Top-level modules loaded by one run of the command line."""
    return {name.partition(".")[0] for name in all_modules_after(*arguments)}


def all_modules_after(*arguments: str) -> set[str]:
    """All modules loaded by it."""
    code = (
        "import sys\n"
        "from packager.cli.app import run\n"
        f"run({list(arguments)!r})\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    return set(run_python("-c", code).stderr.split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_loads_no_heavy_module(arguments: tuple[str, ...]) -> None:
    assert not modules_after(*arguments) & HEAVY


@pytest.mark.parametrize("line", ["", "pl", "--he"])
def test_completing_a_command_loads_none_and_nothing_heavy(line: str) -> None:
    """A shell asks at each press of a key; options and values take the command itself."""
    code = (
        "import os, sys\n"
        "os.environ['_PACKAGER_COMPLETE'] = 'bash'\n"
        f"sys.argv = ['packager', 'packager {line}', '']\n"
        "from packager.cli.app import main\n"
        "main()\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = run_python("-c", code)
    loaded = set(done.stderr.split())
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert not {"packager.cli.commands.plan", "packager.catalog.instances", "packaging"} & loaded
    assert done.stdout


def test_planning_talks_to_no_engine_and_no_registry() -> None:
    loaded = modules_after(
        "plan", "--model", str(ROOT / "examples/tiny-llama"), "--instance", "g5.xlarge"
    )

    assert not loaded & {"docker", "urllib3", "huggingface_hub", "requests", "boto3"}


def test_programs_wait_for_nothing_that_they_do_not_ask_for(tmp_path: Path) -> None:
    """Templates, TLS, displays, keys and reports took a tenth of the start of each command."""
    asked = (
        *("--model", str(ROOT / "examples/tiny-llama"), "--family", "vllm", "--format", "json"),
        *("--instance", "ml.g5.xlarge"),
    )
    output = ("--base", "scratch", "--output", f"oci:{tmp_path / 'image'}")
    planned = all_modules_after("plan", *asked)
    built = all_modules_after("build", *asked, *output)

    assert "packager.images.tee" in built - planned
    for loaded in (planned, built):
        assert not loaded & {"jinja2", "ssl", "http.client", "urllib.request"}
        assert not loaded & {"packager.cli.meter", "packager.core.reports.charts"}
        assert "packager.images.erofs.metadata" not in loaded
    assert not built & {"packager.pipeline.report", "packager.optimize.keys.documents"}
    assert not planned & {"packager.core.record", "packager.core.bench", "packager.pipeline.tree"}


def test_mounting_starts_with_what_it_uses() -> None:
    """A mount takes less time than importing what it does not need: requests, tables, planners."""
    code = (
        "import sys\n"
        "from packager.addons.nodes.commands.mount import mount\n"
        "from packager.addons.nodes.wiring.node_caches import node_image_services_for\n"
        "from packager.cli.wiring.settings import Settings\n"
        "node_image_services_for(Settings())\n"
        "print(*sys.modules)\n"
    )
    loaded = {*run_python("-c", code).stdout.split()}

    assert "packager.addons.nodes.mounts.mounts" in loaded
    assert not loaded & {"pydantic", "jinja2", "urllib3", "packager.core.plan"}


def test_the_import_contract_holds() -> None:
    run_program(Path(sys.executable).with_name("lint-imports"), "--no-cache")


def test_documents_get_their_validators_when_one_is_read() -> None:
    """Building them all took a tenth of the start of each command."""
    code = (
        "import packager.cli.commands.build, packager.addons.bench.commands.draft_measure\n"
        "import packager.addons.fleet.commands.warm, pydantic\n"
        "todo = [pydantic.BaseModel]\n"
        "for model in todo:\n"
        "    todo += model.__subclasses__()\n"
        "ours = [m for m in todo if m.__module__.startswith(('packager', 'artifact_cache'))]\n"
        "print(len(ours) > 30, *[m.__name__ for m in ours if m.__pydantic_complete__])\n"
        "parsed = [m for m in ours if m.model_config.get('use_attribute_docstrings')]\n"
        "assert not parsed, f'the sources of {parsed} would be parsed'\n"
    )
    printed = run_python("-c", code).stdout.split()
    assert printed == ["True", "Resources"]  # an instance of it is a default


def test_ending_looks_for_no_garbage() -> None:
    """Going through all that a command had made took a tenth of a second of its end."""
    code = (
        "import gc, sys\n"
        "from packager.cli.app import main\n"
        "sys.argv = ['packager', '--version']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    print(gc.get_freeze_count() > 10_000, file=sys.stderr)\n"
    )
    assert run_python("-c", code).stderr.split() == ["True"]
