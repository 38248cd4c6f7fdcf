"""Every golden configuration of vLLM and LMI, given to vLLM's own argument parser.

vLLM comes from the virtual environment that PACKAGER_VLLM_VENV names, else out of the
layers of the serving base, which is built where it is not there yet.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pytest

from packager.core.artifact import Artifacts
from packager.core.errors import PlanRejected
from packager.core.findings import errors_in
from packager.core.plan import Plan
from packager.core.serving import ServingConfig
from packager.engines.schema import ENGINES
from packager.optimize.drafts.dflash import read_dflash
from packager.optimize.drafts.mtp_engines import served_models
from tests.golden.cases import CASES, family_of
from tests.support import heads
from tests.support.cases import read_tables
from tests.support.engine_plans import MEDUSA_V1, plan_for
from tests.support.headers import LLAMA_3_8B
from tests.support.places import ROOT, SCRIPTS
from tests.support.processes import run_program
from tests.support.vllm_packages import python_3_11, unpacked_base

WORKER = ROOT / "tests" / "support" / "vllm_parser.py"

Judge = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]

ASKED = read_tables(__file__, "vllm")


@pytest.fixture(scope="module")
def vllm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], dict[str, str]]:
    """Return the command of an interpreter that has vLLM, and its environment."""
    interpreter, environment = _find_vllm(request, tmp_path_factory)
    return interpreter, {**environment, "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}


@pytest.fixture(scope="module")
def judge(vllm: tuple[list[str], dict[str, str]]) -> Iterator[Judge]:
    """Ask vLLM's parser about many configurations at once, in one process: it loads for long."""
    interpreter, environment = vllm
    ours, theirs = os.pipe()
    with os.fdopen(ours) as answers, tempfile.TemporaryFile() as said:
        worker = subprocess.Popen(
            [*interpreter, str(WORKER), str(theirs)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            text=True,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        questions = worker.stdin
        assert questions

        def ask(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
            questions.write(f"{json.dumps(items)}\n")
            questions.flush()
            line = answers.readline()
            if not line:
                said.seek(0)
                pytest.fail(said.read().decode()[-2000:])
            return list(json.loads(line))

        yield ask
        questions.close()
        worker.wait(60)


@pytest.mark.extended
@pytest.mark.live
def test_the_shipped_options_are_the_parsers(vllm: tuple[list[str], dict[str, str]]) -> None:
    interpreter, environment = vllm
    words = (*interpreter, SCRIPTS / "engine-options", "vllm")
    done = run_program(*words, env=environment, alone=True)
    read = json.loads(done.stdout)

    shipped = json.loads((ENGINES / f"vllm-{read['version']}.json").read_text(encoding="utf-8"))
    assert {**read, "date": ""} == {**shipped, "date": ""}


@pytest.mark.capability("check")
@pytest.mark.live
def test_vllm_accepts_every_golden_configuration_and_loses_no_key(judge: Judge) -> None:
    plans = {case.id: plan for case in CASES if (plan := _plan_of(case)) is not None}
    items = {name: _item(plan) for name, plan in plans.items()}

    answers = dict(zip(items, judge(list(items.values())), strict=True))

    assert len(answers) > 25
    for name, answer in answers.items():
        assert answer["accepted"], (name, answer["message"])
        assert answer["lost"] == [], name
        _check_values(plans[name], answer["values"])


@pytest.mark.live
def test_vllm_reads_the_sizes_of_medusa_heads_from_our_config(judge: Judge) -> None:
    (file,) = family_of("vllm").render(plan_for("vllm", draft=MEDUSA_V1), Artifacts(model=())).files

    (answer,) = judge([{"medusa": json.loads(file.data)}])

    assert file.path == "/opt/packager/draft/config.json"
    assert answer["values"] == ASKED["medusa"]


@pytest.mark.live
def test_vllm_makes_of_every_model_the_kind_of_head_that_the_table_says(judge: Judge) -> None:
    rows = [(name, row) for row in served_models()["vllm"] for name in row.models]
    items = []
    for name, _ in rows:
        is_class = name in ASKED["types"]
        said = {
            **ASKED["said"],
            "model_type": ASKED["types"].get(name, name),
            "architectures": [name if is_class else "SomeForCausalLM"],
        }
        items.append({"mtp": {**said, "text_config": said}})

    answers = judge(items)

    for (name, row), answer in zip(rows, answers, strict=True):
        assert answer["values"]["model_type"] == row.method, name
        assert answer["values"]["n_predict"] == 1, name
        assert answer["accepted"], (name, answer["values"])


@pytest.mark.live
def test_vllm_reads_heads_of_the_speculators_library_as_we_do(judge: Judge) -> None:
    drafts = (heads.peagle_of_speculators(LLAMA_3_8B), heads.dflash_of_speculators(LLAMA_3_8B))

    parallel, block = judge([{"speculators": dict(one.config)} for one in drafts])

    assert parallel["accepted"] and block["accepted"]
    assert parallel["values"] == {**ASKED["peagle"], "layers": None}
    assert block["values"] == {
        "method": "dflash",
        "num_speculative_tokens": 7,
        "layers": list(read_dflash(drafts[1]).aux_layers),
    }


@pytest.mark.extended
@pytest.mark.live
def test_what_vllm_refuses_we_refuse_first(judge: Judge) -> None:
    plans = [
        plan_for("vllm-cpu", engine_options=((name, row["value"]),))
        for name, row in ASKED["refused_by_both"].items()
    ]

    answers = judge([_item(plan) for plan in plans])

    for plan, answer in zip(plans, answers, strict=True):
        assert not answer["accepted"], plan.engine_options
        assert errors_in(family_of("vllm").check(plan)), plan.engine_options


def _find_vllm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], dict[str, str]]:
    given = os.environ.get("PACKAGER_VLLM_VENV")
    home = str(tmp_path_factory.mktemp("vllm-home"))
    environment = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
    if given:
        return [str(Path(given) / "bin" / "python")], environment
    request.getfixturevalue("serving_base")
    site = unpacked_base()
    return [python_3_11(), "-S"], environment | {"PYTHONPATH": str(site)}


def _plan_of(case: Any) -> Plan | None:
    """The case's plan, where it is one whose options this vLLM still has."""
    try:
        plan: Plan = case.plan
    except PlanRejected:
        return None
    container = plan.container
    if container.engine != "vllm" or container.variant == "hf-vllm-neuronx":
        return None
    return None if container.family == "lmi" and container.release == "14" else plan


def _item(plan: Plan) -> dict[str, Any]:
    config = family_of(plan.container.family).render(plan, Artifacts(model=()))
    if plan.container.family == "lmi":
        return {"properties": _properties(config)}
    for file in config.files:
        if file.path.endswith("command.json"):
            return {"argv": json.loads(file.data)["argv"][3:]}
    return {"argv": _argv_of(config.env)}


def _properties(config: ServingConfig) -> dict[str, str]:
    for file in config.files:
        if file.path.endswith(".properties"):
            return dict(javaproperties.loads(file.data.decode("latin-1")))
    return {
        f"option.{'entryPoint' if name == 'OPTION_ENTRYPOINT' else name[7:].lower()}": value
        for name, value in config.env.items()
        if name.startswith("OPTION_") and name != "OPTION_ENGINE"
    }


def _argv_of(env: Mapping[str, str]) -> list[str]:
    """Make the command line that sagemaker_args.py of AWS's images makes."""
    argv = ["--port", "8080"]
    for name in sorted(name for name in env if name.startswith("SM_VLLM_")):
        flag = f"--{name.removeprefix('SM_VLLM_').lower().replace('_', '-')}"
        value = env[name]
        if value.lower() == "true":
            argv.append(flag)
        elif value.lower() != "false":
            argv += [flag, shlex.split(value)[0] if value.startswith("'") else value]
    return argv


def _check_values(plan: Plan, values: Mapping[str, Any]) -> None:
    names = values["served_model_name"]
    assert (names if isinstance(names, list) else [names]) == [plan.served_name]
    assert values["tensor_parallel_size"] == plan.tp_degree
    assert values["max_model_len"] == plan.shape.max_total_tokens
    assert values["max_num_seqs"] == plan.shape.max_batch
    assert values.get("max_num_batched_tokens") == plan.max_prefill_tokens
    assert values.get("kv_cache_dtype", "auto") == plan.kv_dtype
    assert values.get("pipeline_parallel_size", 1) == plan.pp_degree
    draft = values.get("speculative_config")
    assert (draft is None) == (plan.draft is None)
    if draft is not None and plan.draft is not None:
        assert draft["method"] == ASKED["methods"].get(plan.container.engine_version, {}).get(
            plan.draft.kind, {"peagle": "eagle3"}.get(plan.draft.kind, plan.draft.kind)
        )
        assert draft["num_speculative_tokens"] == plan.draft.speculative_tokens
