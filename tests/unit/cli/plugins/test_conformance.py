"""Every row of every table: keeps its port, and is found under its name wherever users look."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from packager.addons.fleet.fleets.table import FLEETS
from packager.cli.app import app
from packager.cli.plugins import tables
from packager.cli.plugins.contexts import (
    BaseContext,
    ClusterContext,
    ExecutorContext,
    SinkContext,
    SourceContext,
)
from packager.cli.plugins.rows import Table, departures
from packager.cli.plugins.tables import (
    BASES,
    COMPILERS,
    DEPLOYERS,
    EXECUTORS,
    FAMILIES,
    IMAGES,
    QUANTIZERS,
    ROUTES,
    SECTIONS,
    SINKS,
    SOURCES,
    TABLES,
    TREES,
)
from packager.core import ports
from packager.core.warmup import Fleet
from packager.images.blobs import BlobReader
from packager.images.registry.clients import RegistryClients
from packager.images.target import parse_target
from tests.support.commandline import ROOT
from tests.support.known import known

# What makes an implementation of each kind, what it must be, and a page that has its name.
Make = Callable[[Any, str, Path], object]


def plain(row: Any, *_: object) -> object:
    return row.make()


def of_source(row: Any, *_: object) -> object:
    return row.make(SourceContext())


def of_base(row: Any, *_: object) -> object:
    return row.make(BaseContext(clients=RegistryClients))


def of_output(row: Any, name: str, place: Path) -> object:
    targets = {"registry": "r.example/model:1", "s3": "s3://bucket/prefix"}
    target = parse_target(targets.get(name, f"{name}:model"), SINKS)
    state = place / "digests.sqlite"
    return row.make(
        target, SinkContext(reader=BlobReader(), clients=RegistryClients, state_file=state)
    )


def of_executor(row: Any, _: str, place: Path) -> object:
    def never(*given: object) -> Any:
        pytest.fail(f"asked for {given}")

    cluster = ClusterContext(address="", given={}, version="1", exchange=never, in_image=never)
    asked = ("environments", "read", "load_image", "find_tool")
    places = {"work_dir": place, "log_dir": place}
    unasked: Any = dict.fromkeys(asked, never)
    return row.make(
        ExecutorContext(**unasked, **places, environment={}, cluster=lambda: cluster, capacity=dict)
    )


KINDS: dict[str, tuple[Table[Any], Make | None, type, str]] = {
    "source": (SOURCES, of_source, ports.ModelSource, "docs/sources.md"),
    "family": (FAMILIES, plain, ports.ContainerFamily, "docs/engine-versions.md"),
    "base": (BASES, of_base, ports.BaseSource, "docs/build.md"),
    "output": (SINKS, of_output, ports.ImageSink, "docs/build.md"),
    "quantizer": (QUANTIZERS, plain, ports.Quantizer, "docs/quantization.md"),
    "compiler": (COMPILERS, plain, ports.Compiler, "docs/compilation.md"),
    "platform": (DEPLOYERS, plain, ports.Deployer, "docs/deploy.md"),
    "executor": (EXECUTORS, of_executor, ports.Executor, "docs/tools.md"),
    "layout": (TREES, plain, ports.TreeReader, "docs/cache.md"),
    # These open a cluster or an image at once: mypy alone says that they keep their port.
    "fleet": (FLEETS, None, Fleet, "docs/warm-up.md"),
    "image": (IMAGES, None, object, "docs/layers.md"),
    "deployment": (ROUTES, None, object, "docs/bench.md"),
    "section": (SECTIONS, None, object, "docs/bench.md"),
}


def rows() -> Iterator[Any]:
    for kind, (table, *_) in KINDS.items():
        for name in table:
            yield pytest.param(kind, name, id=f"{kind} {name}")


every_row = pytest.mark.parametrize(("kind", "name"), list(rows()))


def test_every_table_is_here() -> None:
    found = [value for value in (*vars(tables).values(), FLEETS) if isinstance(value, Table)]

    assert {table.kind: table for table in found} == {
        kind: table for kind, (table, *_) in KINDS.items()
    }


@every_row
def test_it_keeps_its_port_under_its_own_name(kind: str, name: str, tmp_path: Path) -> None:
    table, make, port, _ = KINDS[kind]
    row = table.find(name)
    if make is None:
        assert callable(row.make)
        return

    made = make(row, name, tmp_path)

    assert departures(made, port) == ()
    assert getattr(made, "name", name) == name


@every_row
def test_it_says_in_one_line_what_it_is(kind: str, name: str) -> None:
    table = KINDS[kind][0]
    summary = table.find(name).summary

    assert summary == table.summaries()[name]
    assert 0 < len(summary) <= 80
    assert summary == summary.strip().rstrip(".")
    assert "\n" not in summary


@pytest.mark.parametrize("what", TABLES)
def test_packager_list_shows_the_table(what: str) -> None:
    done = CliRunner().invoke(app, ["list", what, "--format", "json"])

    assert done.exit_code == 0, done.output
    assert {row["name"]: row["what"] for row in json.loads(done.stdout)} == TABLES[what].summaries()


@every_row
def test_its_page_of_the_documentation_names_it(kind: str, name: str) -> None:
    page = (ROOT / KINDS[kind][3]).read_text()

    assert name in page or name.replace("_", "-") in page


@pytest.mark.parametrize(
    ("command", "option", "names"),
    [
        ("plan", "family", set(FAMILIES)),
        ("build", "family", set(FAMILIES)),
        ("build", "executor", set(EXECUTORS) - {"dry_run"}),
        ("warm run", "executor", set(FLEETS)),
    ],
)
def test_help_offers_what_the_table_has(command: str, option: str, names: set[str]) -> None:
    found: click.Command = app
    for word in command.split():
        assert isinstance(found, click.Group)
        inner = known(found.get_command(click.Context(found), word))
        found = inner
    parameter = next(one for one in found.params if one.name == option)
    assert isinstance(parameter.type, click.Choice)

    assert set(parameter.type.choices) == names


@pytest.mark.parametrize("kind", ["source", "output", "quantizer", "compiler", "base", "family"])
def test_kinds_that_packages_may_bring_are_documented(kind: str) -> None:
    group = KINDS[kind][0].group
    pages = [page.read_text() for page in (ROOT / "docs").glob("*.md")]

    assert group == "packager." + {"output": "sinks", "family": "families"}.get(kind, f"{kind}s")
    assert any(f'entry-points."{group}"' in page or f"`{group}`" in page for page in pages)
