"""Plug-ins of installed packages that cannot be used: refused by name, and harmless to the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from packager.cli.plugins.rows import BrokenPlugin, Table, departures
from packager.cli.plugins.tables import (
    BASES,
    COMPILERS,
    FAMILIES,
    QUANTIZERS,
    SINKS,
    SOURCES,
    outside_tool_directory,
)
from packager.cli.wiring.techniques import find_compilers, find_quantizer
from packager.core.errors import UsageError
from packager.core.ports import Quantizer
from tests.support.cases import cases

Install = Callable[..., None]

GOOD = """
from packager.core.ports import Quantizer

class Good(Quantizer):
    name = "good"
    tool = ""
    methods = {"good": ()}
    def check(self, facts, plan): return ()
    def step(self, facts, plan): raise NotImplementedError
"""
MODULES = {
    "good": GOOD,
    "lacks": GOOD.replace("    def step(self, facts, plan): raise NotImplementedError\n", ""),
    "other": GOOD.replace("def check(self, facts, plan)", "def check(self, facts)"),
    "more": GOOD.replace("def check(self, facts, plan)", "def check(self, facts, plan, extra)"),
    "alone": GOOD.replace("(Quantizer)", ""),
    "fails": GOOD + "    def __init__(self): raise RuntimeError('no licence')\n",
    "does not load": "raise SystemError('wrong libc')",
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a package onto the path that names `value` in an entry point of a group."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(group: str, name: str, value: str, module: str = GOOD) -> None:
        (tmp_path / "from_elsewhere.py").write_text(module)
        monkeypatch.delitem(sys.modules, "from_elsewhere", raising=False)
        place = tmp_path / "elsewhere-1.0.dist-info"
        place.mkdir(exist_ok=True)
        (place / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
        (place / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")

    return install


def test_one_that_keeps_its_port_is_used(install: Install) -> None:
    install("packager.quantizers", "good", "from_elsewhere:Good")

    assert "good" in QUANTIZERS
    assert QUANTIZERS.summaries()["good"] == "from elsewhere"
    assert find_quantizer("good").name == "good"  # type: ignore[union-attr]


@cases("broken")
def test_a_broken_one_is_refused_by_name(
    install: Install, value: str, module: str, reason: str
) -> None:
    install("packager.quantizers", "demo", value, MODULES[module])

    with pytest.raises(BrokenPlugin) as refused:
        QUANTIZERS.find("demo").make()

    assert refused.value.message.startswith("quantizer 'demo' from elsewhere cannot be used: ")
    assert reason in refused.value.message
    assert refused.value.hint == "update or uninstall that package"


@pytest.mark.parametrize(
    "table", [SOURCES, FAMILIES, BASES, SINKS, COMPILERS], ids=lambda table: table.kind
)
def test_every_open_table_refuses_a_broken_one(install: Install, table: Table[Any]) -> None:
    assert table.group
    install(table.group, "demo", "nowhere:Demo")

    with pytest.raises(BrokenPlugin, match=f"{table.kind} 'demo' from elsewhere"):
        table.find("demo")


def test_broken_compilers_are_left_out_of_auto(install: Install) -> None:
    warned: list[str] = []
    install("packager.compilers", "demo", "nowhere:Demo")

    assert list(find_compilers("auto", warned.append)) == ["vllm_cache", "neuron", "tensorrt_llm"]
    [text] = warned
    assert text.startswith("compiler 'demo' from elsewhere cannot be used")
    assert text.endswith("it is left out")


def test_a_broken_quantizer_is_met_only_where_others_have_not_the_method(install: Install) -> None:
    warned: list[str] = []
    install("packager.quantizers", "demo", "nowhere:Demo")

    known = find_quantizer("awq", warned.append)
    assert warned == []
    unknown = find_quantizer("nonsense", warned.append)

    assert known is not None
    assert unknown is not None
    assert known.name == unknown.name == "llmcompressor"
    assert [text.partition(" cannot")[0] for text in warned] == ["quantizer 'demo' from elsewhere"]


def test_ours_cannot_be_replaced(install: Install) -> None:
    install("packager.quantizers", "llmcompressor", "from_elsewhere:Good")

    assert list(QUANTIZERS) == ["llmcompressor", "stream"]
    assert QUANTIZERS.find("llmcompressor").make().name == "llmcompressor"
    assert not QUANTIZERS.is_outside("llmcompressor")


def test_an_unknown_name_lists_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="there is no output 'nowhere'") as refused:
        SINKS.find("nowhere")

    assert refused.value.hint == "choose from oci, registry, docker, dir, s3"


def test_a_tool_that_is_no_directory_is_refused(install: Install) -> None:
    install("packager.tools", "demo", "from_elsewhere:Good", MODULES["alone"])

    with pytest.raises(BrokenPlugin, match="is type, not the path of a directory"):
        outside_tool_directory("demo")
    assert outside_tool_directory("other") is None


def test_members_may_take_more_than_their_port_asks_for() -> None:
    class Wide(Quantizer):
        name = tool = ""
        methods: ClassVar[dict[str, object]] = {}

        def check(self, *given: object, **more: object) -> tuple[()]:
            return ()

        def step(self, facts: object, plan: object, extra: int = 0) -> None: ...

    assert departures(Wide(), Quantizer) == ()
