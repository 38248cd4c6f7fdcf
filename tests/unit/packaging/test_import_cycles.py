"""No module imports itself by way of others: type-only imports and those in functions count."""

from __future__ import annotations

from collections.abc import Mapping

import grimp


def on_a_cycle(imports: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the modules on a cycle, or between two: what is left without all leaves and roots."""
    left = frozenset(imports)
    while True:
        imported = frozenset().union(*(imports[one] & left for one in left))
        kept = frozenset(one for one in left if imports[one] & left and one in imported)
        if kept == left:
            return left
        left = kept


def test_modules_import_each_other_in_one_direction() -> None:
    graph = grimp.build_graph(
        "packager", "artifact_cache", cache_dir=None, exclude_type_checking_imports=False
    )

    found = on_a_cycle(
        {one: frozenset(graph.find_modules_directly_imported_by(one)) for one in graph.modules}
    )

    assert len(graph.modules) > 400
    assert sorted(found) == []


def test_a_cycle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}

    assert on_a_cycle({one: frozenset(others) for one, others in imports.items()}) == {"b", "c"}
