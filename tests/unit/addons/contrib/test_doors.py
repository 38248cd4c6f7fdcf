"""What stands in contrib is reached through rows."""

from __future__ import annotations

import pytest

from packager.cli.plugins.rows import departures
from packager.cli.plugins.tables import COMPILERS, TREES
from packager.core import ports


@pytest.mark.parametrize("name", TREES)
def test_a_reader_of_trees_is_what_its_port_asks_for(name: str) -> None:
    reader = TREES.find(name).make()

    assert departures(reader, ports.TreeReader) == ()
    assert reader.name == name


def test_the_compiler_for_tensorrt_llm_is_made_by_its_row() -> None:
    compiler = COMPILERS.find("tensorrt_llm").make()

    assert type(compiler).__module__.startswith("packager.addons.contrib.")
    assert departures(compiler, ports.Compiler) == ()
