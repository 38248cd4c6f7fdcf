"""The verdicts of LMI's own classes: djl-serving's CI configurations, and hand-picked ones.

`data/lmi_ci.jsonl` has what `scripts/lmi-verdicts` recorded of the configurations in djl-serving's
tests/integration/llm/prepare.py, by the branch of each release: 13 (0.31.0-dlc), 14 (0.32.0-dlc),
15 (0.33.0-dlc), 16 (0.34.0-dlc), 17 (0.35.0-dlc), 18, 19, 25 and 27 (0.36.0-lmiN-dlc), on
2026-11-22.  `accepted`, `dropped` and `refused` list releases, `keys` what some release drops.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from packager.catalog.containers import find_container
from packager.engines.lmi.check import check_settings
from packager.engines.lmi.options import LmiOptions, lmi_options
from packager.engines.schema import find_schema
from packager.findings import Finding
from tests.support.places import DATA

RECORDED = DATA / "engines/lmi_ci.jsonl"
VERDICTS = ("accepted", "dropped", "refused")


@cache
def release_options(release: int) -> tuple[str, LmiOptions]:
    version = find_container("lmi", "nvidia", str(release)).engine_version
    return version, lmi_options(find_schema("vllm", version), release)


def findings(settings: Mapping[str, str], release: int) -> list[Finding]:
    version, options = release_options(release)
    return list(check_settings(settings, options, vllm_version=version))


def verdict(settings: Mapping[str, str], release: int) -> str:
    errors = [one.code for one in findings(settings, release) if one.severity == "error"]
    if not errors:
        return "accepted"
    return "dropped" if set(errors) == {"key-dropped"} else "refused"


def recorded() -> Iterator[tuple[dict[str, str], int, str]]:
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        settings = row["settings"]
        if settings.get("option.tensor_parallel_degree") == "max":
            del settings["option.tensor_parallel_degree"]  # the server makes a number of it
        for said in VERDICTS:
            for release in row.get(said, ()):
                yield settings, release, said


def test_djl_servings_own_configurations_get_the_verdicts_of_its_own_classes() -> None:
    differing = [
        (release, said, found, settings)
        for settings, release, said in recorded()
        if (found := verdict(settings, release)) != said
    ]

    assert differing == []


def test_the_recorded_configurations_are_many_and_of_every_verdict() -> None:
    said = [one for _, _, one in recorded()]

    assert len(said) >= 600
    assert {one: said.count(one) > 25 for one in VERDICTS} == dict.fromkeys(VERDICTS, True)


# As scripts/lmi-verdicts of the release says, but where a comment tells otherwise.
CASES: list[tuple[int, dict[str, str], str]] = [
    (28, {"option.dtype": "bfloat16"}, "refused"),
    (28, {"option.dtype": "bf16"}, "accepted"),
    (28, {"option.max_num_seqs": "32"}, "refused"),
    (28, {"option.tensor_parallel_size": "1"}, "refused"),
    (28, {"option.quantize": "awq", "option.quantization": "awq"}, "refused"),  # one is dropped
    (27, {"option.enable_prefix_caching": "false"}, "accepted"),
    (25, {"option.enable_prefix_caching": "false"}, "dropped"),
    (17, {"option.enable_prefix_caching": "False"}, "dropped"),
    (25, {"option.enforce_eager": "false"}, "accepted"),
    (26, {"option.enforce_eager": "True"}, "accepted"),
    (27, {"option.disable_log_stats": "false"}, "refused"),
    (26, {"option.disable_log_stats": "false"}, "refused"),
    (25, {"option.disable_log_stats": "false"}, "accepted"),
    (
        27,
        {"option.enable_auto_tool_choice": "true", "option.tool_call_parser": "nonsense"},
        "refused",
    ),
    (27, {"option.quantize": "nonsense"}, "refused"),  # by vLLM's configuration
    (13, {"option.rolling_batch": "vllm", "option.quantize": "nonsense"}, "refused"),  # the same
    (27, {"option.trust_remote_code": "yes"}, "accepted"),
    (27, {"option.output_formatter": "json"}, "accepted"),
    (27, {"option.waiting_steps": "4"}, "dropped"),
    (27, {"option.adapters": "adapters"}, "dropped"),
    (27, {"option.task": "text-embedding"}, "accepted"),
    (20, {"option.task": "text-generation"}, "accepted"),
    (27, {"dtype": "bf16"}, "dropped"),  # the handler reads it; the server does not
    (27, {"load_on_device": "0"}, "dropped"),
    (27, {"gpu.maxWorkers": "1"}, "accepted"),
    (27, {"engine": "MPI"}, "refused"),
    (27, {"option.lmcache_config_file": "a.yaml"}, "accepted"),
    (27, {"option.lmcache_config_file": "a.yaml", "option.rolling_batch": "vllm"}, "dropped"),
    (18, {"option.lmcache_config_file": "a.yaml"}, "dropped"),
    (15, {"option.num_scheduler_steps": "8"}, "accepted"),
    (15, {"option.use_v2_block_manager": "true"}, "accepted"),
    (15, {"option.async_scheduling": "true"}, "dropped"),
    (15, {"option.mm_encoder_tp_mode": "data"}, "dropped"),
    (15, {"option.speculative_model": "/m"}, "dropped"),
    (14, {"option.rolling_batch": "vllm", "option.num_scheduler_steps": "8"}, "accepted"),
    (14, {"option.rolling_batch": "vllm", "option.async_scheduling": "true"}, "dropped"),
    (14, {"option.rolling_batch": "vllm", "option.speculative_config": "{}"}, "dropped"),
    (14, {"option.rolling_batch": "vllm", "option.limit_mm_per_prompt": "image=2"}, "accepted"),
    (14, {"option.rolling_batch": "vllm", "option.limit_mm_per_prompt": "two"}, "refused"),
    (13, {"option.rolling_batch": "vllm", "option.kv_cache_dtype": "fp8"}, "dropped"),
    (13, {"option.rolling_batch": "vllm", "option.limit_mm_per_prompt": "two"}, "refused"),
    (13, {"option.rolling_batch": "vllm", "option.limit_mm_per_prompt": "image=2"}, "accepted"),
    (13, {"option.rolling_batch": "vllm", "option.speculative_model": "/m"}, "refused"),
    (13, {"option.rolling_batch": "vllm", "option.cpu_offload_gb_per_gpu": "0.5"}, "refused"),
]


@pytest.mark.parametrize(
    ("release", "settings", "said"),
    CASES,
    ids=[f"{release}-{','.join(settings)}-{said}" for release, settings, said in CASES],
)
def test_a_release_reads_drops_or_refuses_as_its_own_classes_do(
    release: int, settings: dict[str, str], said: str
) -> None:
    assert verdict(settings, release) == said


@pytest.mark.parametrize(
    ("release", "settings", "message"),
    [
        (
            13,
            {},
            "LMI 13 serves with lmi-dist or a scheduler of its own where 'option.rolling_batch' "
            "is 'auto'; their keys are not checked",
        ),
        (
            28,
            {"option.rolling_batch": "disable"},
            "LMI serves with transformers, not with vLLM, where 'option.rolling_batch' is "
            "'disable' and 'option.async_mode' is not 'true'; its keys are not checked",
        ),
    ],
    ids=["lmi-dist", "transformers"],
)
def test_a_configuration_that_vllm_does_not_serve_is_said_to_be_unchecked(
    release: int, settings: dict[str, str], message: str
) -> None:
    (found,) = findings(settings | {"option.speculative_draft_model": "/m"}, release)

    assert (found.severity, found.code, found.message) == ("warning", "options-unproven", message)


@pytest.mark.parametrize(
    ("release", "dropped", "accepted"), [(14, 53, 26), (15, 41, 14)], ids=["14", "15"]
)
def test_lmi_14_and_15_borrow_no_fields_of_vllm_0_10_2(
    release: int, dropped: int, accepted: int
) -> None:
    """The numbers of fields that the borrowed table took or refused wrongly."""
    version = find_container("lmi", "nvidia", str(release)).engine_version
    schema, borrowed = find_schema("vllm", version), find_schema("vllm", "0.10.2")
    handed_on = lmi_options(schema, release).pass_through

    assert schema.proven
    assert len(borrowed.fields - schema.fields) == dropped
    assert len(schema.fields - borrowed.fields) == accepted
    assert not {f"option.{name}" for name in borrowed.fields - schema.fields} & handed_on
