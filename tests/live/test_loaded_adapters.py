"""Adapters that PEFT makes, by packager's judgement and by what engines make of them.

An engine's own manager loads each adapter as PEFT saved it, and as packager would package it.  What
is then in its slots is compared with what PEFT adds to the same rows of the base; of what is no
product of two matrices PEFT itself says so, by its answers.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from packager.core.errors import PackagerError
from packager.core.findings import errors_in
from packager.core.image import Blob
from packager.images.blobs import BlobReader
from packager.models.adapters.rewriting import rewrite_adapter
from packager.models.local import LocalSource
from packager.models.reference import parse_model_reference
from packager.models.safetensors import read_weights_header
from packager.pipeline.planning.adapters import choose_adapters
from tests.live.changed_adapters import change_adapter
from tests.live.tool_programs import documents_in
from tests.support.adapters import read_adapter
from tests.support.cases import read_tables
from tests.support.doubles.containers import with_traits
from tests.support.headers import facts_of
from tests.support.vllm_packages import peft_site, run_beside, sglang_site, vllm_sites

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

CORPUS = read_tables(__file__)
CASES: Mapping[str, Any] = CORPUS["cases"]
LISTS = ("attention", "mlp", "every")
ENGINES = [(family, version) for family, all_of in CORPUS["engines"].items() for version in all_of]
AGREED = 0.98
READER = BlobReader()


@dataclass(frozen=True)
class Judged:
    """An adapter as packager and an engine judge it."""

    name: str
    planned: str  # `as it is`, `rewritten`; or why it is refused
    is_refused: bool
    original: str  # what the engine says of PEFT's own files; "" loads it as PEFT does
    packaged: str  # and of those that packager writes

    @property
    def is_agreed(self) -> bool:
        """Return whether both say the same."""
        if self.is_refused:
            return bool(self.original)
        return not self.packaged and (self.planned == "rewritten" or not self.original)


@pytest.fixture(scope="module")
def made(serving_base: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Make the models, let PEFT make the adapters, and change some; give what PEFT says of each."""
    del serving_base
    place = tmp_path_factory.mktemp("adapters")
    site = peft_site()
    bases = dict.fromkeys(case["base"] for case in CASES.values())
    run_beside(site, "tiny_architectures.py", str(place / "models"), "--wide", *bases)
    (place / "cases.json").write_text(json.dumps(list(arguments())))
    words = (str(place / name) for name in ("cases.json", "models", "made"))
    found = {one["name"]: one for one in documents_in(run_beside(site, "peft_adapters.py", *words))}
    assert {name: one["failed"] for name, one in found.items() if "failed" in one} == {}
    for name, case in CASES.items():
        if "change" in case:
            change_adapter(place / "made" / name, case["change"])
    return {"place": place, "told": found}


def arguments() -> Iterator[dict[str, Any]]:
    """Yield the cases with the lists that they name."""
    for name, case in CASES.items():
        config = {
            key: CORPUS[value] if isinstance(value, str) and value in LISTS else value
            for key, value in case["config"].items()
        }
        yield {"rows": True, **case, "name": name, "config": {"r": 8, "lora_alpha": 16, **config}}


@pytest.fixture(scope="module")
def judged(
    made: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], tuple[Judged, ...]]:
    """Judge every adapter by packager and by an engine's version, once."""

    @functools.cache
    def ask(family: str, version: str) -> tuple[Judged, ...]:
        place = tmp_path_factory.mktemp(family)
        planned = {name: packaged(made["place"], name, family, version, place) for name in CASES}
        order = [
            {
                "name": f"{name} {kind}",
                "base": str(made["place"] / "models" / CASES[name]["base"]),
                "place": str(files / name),
                "rank": 512 if family == "vllm" else None,  # the largest; SGLang's are adapters'
                "rows": str(made["place"] / "made" / f"{name}.rows"),
            }
            for name in sorted(CASES, key=lambda one: str(CASES[one]["base"]))
            for kind, files in (("original", made["place"] / "made"), ("packaged", place))
            if kind == "original" or not planned[name][1]
        ]
        (place / "order.json").write_text(json.dumps(order))
        said = {one["name"]: one for one in documents_in(engine(family, version, place))}
        return tuple(rows(planned, said, made["told"]))

    return ask


def rows(
    planned: Mapping[str, tuple[str, bool]],
    said: Mapping[str, Mapping[str, Any]],
    told: Mapping[str, Mapping[str, Any]],
) -> Iterator[Judged]:
    """Yield what both say of adapters whose base the engine's version reads."""
    for name, (plan, is_refused) in planned.items():
        original = said[f"{name} original"]
        if "unread" in original:
            continue
        is_whole = told[name]["is_plain"] and not CASES[name].get("broken")
        packaged = {} if is_refused else said[f"{name} packaged"]
        yield Judged(name, plan, is_refused, words(original, is_whole), words(packaged, is_whole))


def words(said: Mapping[str, Any], is_whole: bool) -> str:
    if "refused" in said:
        return f"refused: {said['refused']}"
    found = list(said.get("differs", ()))
    return "; ".join(found if is_whole or found else ["in silence: not all that was trained"])


def packaged(place: Path, name: str, family: str, version: str, output: Path) -> tuple[str, bool]:
    """Plan an adapter for an engine's version, and write what would be packaged."""
    base = LocalSource().facts(parse_model_reference(str(place / "models" / CASES[name]["base"])))
    found = facts_of(base, "ml.g6.xlarge", family=family)
    container = with_traits(replace(found.container, engine_version=version, version=version))
    try:
        adapter = read_adapter(place / "made" / name, "one")
        chosen = choose_adapters(replace(found, container=container, adapters=(adapter,)))
    except PackagerError as error:
        return error.message, True
    if errors := errors_in(chosen.findings):
        return errors[0].message, True
    assert chosen.plan is not None
    rewrite = chosen.plan.adapters[0].rewrite
    files = adapter.files
    if rewrite is not None:
        files = rewrite_adapter(
            adapter, rewrite, lambda file: read_weights_header(file, READER.read)
        )
    (output / name).mkdir()
    assert (slots := chosen.plan.rank) >= adapter.max_rank, slots
    for file in files:
        content = file.content if isinstance(file.content, Blob) else Blob((file.content,))
        (output / name / file.path).write_bytes(READER.read(content))
    return "as it is" if rewrite is None else "rewritten", False


def engine(family: str, version: str, place: Path) -> str:
    """Return what an engine's version prints about all adapters of an order."""
    site = sglang_site() if family == "sglang" else vllm_sites()[version]
    program = "sglang_adapters.py" if family == "sglang" else "engine_adapters.py"
    return run_beside(site, program, "cuda", str(place / "order.json"))


def test_adapters_are_many_of_many_architectures(made: Mapping[str, Any]) -> None:
    assert len(CASES) >= 40
    assert len({one["architecture"] for one in made["told"].values()}) >= 10


@pytest.mark.parametrize(("family", "version"), ENGINES)
def test_none_is_loaded_wrongly_in_silence(
    judged: Callable[[str, str], tuple[Judged, ...]], family: str, version: str
) -> None:
    found = judged(family, version)

    assert {one.name: one.packaged for one in found if not one.is_refused and one.packaged} == {}


@pytest.mark.parametrize(("family", "version"), ENGINES)
def test_packager_judges_as_the_engine_loads(
    judged: Callable[[str, str], tuple[Judged, ...]], family: str, version: str
) -> None:
    found = judged(family, version)

    others = {one.name: one for one in found if not one.is_agreed}
    assert len(found) >= 40
    assert all("in silence" not in one.packaged for one in others.values())
    assert len(others) <= (1 - AGREED) * len(found), others
    assert sorted(others) == sorted(CORPUS["otherwise"].get(family, {}).get(version, {}))
