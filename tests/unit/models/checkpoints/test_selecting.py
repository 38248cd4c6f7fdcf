"""Entries of `--quantize-ignore`: which modules they select, and which are refused unmatched."""

from __future__ import annotations

import random
import re

import pytest

from packager.models.checkpoints.selecting import BadEntry, Selection, compile_entry
from tests.support.cases import cases

EXPERTS = [
    f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj"
    for layer in (0, 1, 12)
    for expert in (3, 30)
    for part in ("up", "down")
]
MODULES = ["lm_head", "model.norm", "model.layers.0.self_attn.q_proj", *EXPERTS]


@cases("an_entry_selects_modules")
def test_an_entry_selects_modules(entry: str, selected: int) -> None:
    assert len(Selection([entry]).select(MODULES)[entry]) == selected


@cases("an_entry_is_refused")
def test_an_entry_is_refused(entry: str, said: str) -> None:
    with pytest.raises(BadEntry, match=re.escape(said)):
        Selection([entry]).check_effort([f"{name}.{n}" for n in range(5000) for name in MODULES])


def test_patterns_select_what_python_matches() -> None:
    """Names that differ in digits alone are matched together, unless the pattern has digits."""
    pieces = (".*", r"\d+", r"\.", "layers", "1", "[0-9]", "[12]", "(?:0|12)", "(?!.*up)", "_proj$")
    chosen = random.Random(7)
    for _ in range(2000):
        spelled = "".join(chosen.choices(pieces, k=chosen.randint(1, 5)))
        entry = f"re:{spelled}"
        wanted = {module for module in MODULES if re.match(spelled, module)}
        assert Selection([entry]).select(MODULES)[entry] == wanted, entry


def test_what_lists_of_published_models_hold_is_cheap() -> None:
    layers = "|".join(map(str, range(61)))
    entries = [rf"re:.*\.layers\.({layers})\..*experts\..*", r"re:.*\.mlp\..*", "re:.*(q|k)_proj$"]
    modules = [
        f"model.layers.{layer}.mlp.experts.{expert}.gate_proj"
        for layer in range(61)
        for expert in range(256)
    ]

    Selection(entries).check_effort(modules)

    assert compile_entry(entries[0]).choices == 61
