"""`packager check` agrees with engines themselves on command lines with a model and a device.

`scripts/check-verdicts` recorded what the parser and the configuration classes of a version say.
What building layers asks first is among it: types, heads over devices, backends of attention.
Devices are pretended there: what only memory, weights and missing kernels decide is left out.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from packager.addons.check.planned import CheckedMachine, plan_remarks
from packager.addons.check.reading import read_document
from packager.addons.check.targets import parse_target
from packager.addons.check.values import CheckReport
from packager.addons.check.verdicts import judge
from packager.catalog.instances import find_instance
from packager.cli.plugins.tables import FAMILIES
from packager.engines.rules import Facts, device_facts, model_facts
from packager.models.architectures.profile import make_profile
from tests.support.cases import read_tables
from tests.support.checked import messages
from tests.support.places import DATA
from tests.support.shapes import plain

LAUNCHED = sorted((DATA / "check").glob("launched-*.jsonl"))
LAUNCHED_WITH = ("meta-llama/Meta-Llama-3.1-8B", "ml.p5.48xlarge")
FILES = sorted((DATA / "check").glob("verdicts-*.jsonl"))
# Memory, weights, classes of models and keys that plans do not read decide these: none is there.
NOT_THERE = {
    *("does-not-fit", "draft-mtp-missing", "draft-mtp-none"),
    *("config-keys", "engine-lacks-architecture"),
}
# What layers and kernels decide, of a row where they could not be asked (`open`).
OF_LAYERS = {"tp-not-allowed", "kv-dtype-unsupported", "dtype-unsupported", "attention-unsupported"}
LEAST = 0.99


@cache
def held(model: str, instance: str) -> tuple[CheckedMachine, Facts]:
    files, machine = plain(model), find_instance(instance)
    whole = CheckedMachine(
        model=files, instance=machine, family=lambda one: FAMILIES.find(one).make()
    )
    return whole, {**model_facts(make_profile(files)[0]), **device_facts(machine)}


LAUNCHES = {
    "vllm": ("vllm", "serve", "m"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path", "m"),
}


def checked(row: dict[str, Any], target: str) -> CheckReport:
    """Check a command line for `vllm:VERSION` or `sglang:VERSION`."""
    line = shlex.join([*LAUNCHES[target.partition(":")[0]], *row["words"]])
    return checked_file(f"{line}\n", target, row["model"], row["instance"])


def checked_file(text: str, target: str, model: str, instance: str) -> CheckReport:
    machine, facts = held(model, instance)
    return judge(
        [read_document("a.sh", text.encode())],
        asked=[parse_target(target)],
        facts=facts,
        planner=partial(plan_remarks, machine=machine),
    )


def differences(rows: list[dict[str, Any]], target: str) -> Iterator[str]:
    for row in rows:
        report = checked(row, target)
        errors = {one.finding.code for one in report.remarks if one.finding.severity == "error"}
        is_point = bool(errors) or report.count("warning")
        left = NOT_THERE | (OF_LAYERS if row.get("open") else set())
        if row["verdict"] == "accepted" and errors <= left and not row.get("dropped"):
            continue
        if row["verdict"] == "refused" and errors:
            continue
        silent = "silent: " if row.get("dropped") and not is_point else ""
        if row.get("dropped") and is_point:
            continue
        yield f"{silent}{row}\n    {messages(report)}"


@pytest.mark.extended
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_check_says_what_the_engine_says(file: Path) -> None:
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    name = file.stem.removeprefix("verdicts-").replace("sglang-", "sglang:")
    found = [*differences(rows, name if ":" in name else f"vllm:{name}")]

    assert len(rows) > 250
    assert not [one for one in found if one.startswith("silent: ")]
    assert len(found) <= (1 - LEAST) * len(rows), "\n".join(found)


@pytest.mark.parametrize("kind", ["A7", "A8", "A9"])
@pytest.mark.parametrize("file", LAUNCHED, ids=lambda file: file.stem)
def test_check_says_of_a_file_what_bash_and_the_engine_make_of_it(file: Path, kind: str) -> None:
    """`scripts/launch-verdicts` ran each in bash, and the engine judged the words it was given."""
    texts, version = read_tables(__file__, "launched")[kind], file.stem.removeprefix("launched-")
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for row in (row for row in rows if row["kind"] == kind):
        report = checked_file(texts[row["name"]], f"vllm:{version}", *LAUNCHED_WITH)
        is_refused = row["verdict"] == "refused" or bool(row.get("dropped"))
        is_noted = "options-unread" in {one.finding.code for one in report.remarks}

        assert bool(report.count("error")) == is_refused or is_noted, row
