"""Which files go: by globs with a source, by the machines that serve, and never a licence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from packager.addons.nodes.slim.rules import Chooser, choose_rules, serves_gpu, shipped_rules
from packager.catalog.instances import find_instance
from packager.core.errors import UsageError
from packager.core.instance import Instance
from tests.support.cases import cases

GPU = find_instance("ml.g5.xlarge")
CPU = replace(GPU, name="local", kind="cpu", compute_capability=None)
WITH_BF16 = replace(CPU, isa=("avx2", "avx512_bf16", "avx512bw", "avx512dq", "avx512f", "avx512vl"))
WITH_AVX512 = replace(CPU, isa=("avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl"))
SITE = "opt/vllm/lib/python3.12/site-packages"


def rule_for(path: str, *instances: Instance, **asked: tuple[str, ...]) -> str | None:
    found = Chooser(choose_rules(instances, **asked)).rule_for(path)
    return found.name if found else None


@cases("gone")
def test_a_rule_takes_what_a_server_does_not_need(path: str, rule: str) -> None:
    assert rule_for(path) == rule


@cases("stays")
def test_licences_versions_and_what_compiles_at_run_time_stay(path: str) -> None:
    assert rule_for(path, GPU) is None


@cases("kernel")
def test_a_kernel_stays_where_it_can_be_run(path: str, capability: float, stays: bool) -> None:
    machine = replace(GPU, compute_capability=capability)

    assert (rule_for(path, machine) is None) == stays


def test_kernels_stay_that_one_of_several_machines_runs() -> None:
    hopper = replace(GPU, name="ml.p5.48xlarge", compute_capability=9.0)
    path = "usr/lib/libnvinfer_builder_resource_sm90.so.10"

    assert rule_for(path, GPU) == "kernels-of-other-gpus"
    assert rule_for(path, GPU, hopper) is None
    assert serves_gpu(path, hopper)


def test_without_a_machine_no_kernel_goes_and_the_reason_is_told() -> None:
    chosen = choose_rules(())

    assert Chooser(chosen).rule_for("usr/lib/libnvinfer_builder_resource_sm90.so.10") is None
    told = dict(chosen.not_applied)
    assert told["kernels-of-other-gpus"] == "depends on the machine (--instance)"
    assert told["cuda-headers"] == "not asked for (--with-rule cuda-headers)"


def test_kernels_for_processors_go_by_what_the_processor_has() -> None:
    avx512, avx2 = f"{SITE}/vllm/_C_AVX512.abi3.so", f"{SITE}/vllm/_C_AVX2.abi3.so"
    best = f"{SITE}/vllm/_C.abi3.so"

    stays = {
        machine: [rule_for(one, machine) is None for one in (best, avx512, avx2)]
        for machine in (WITH_BF16, WITH_AVX512, CPU)
    }
    assert [*stays.values()] == [[True, False, False], [True, True, False], [True, True, True]]


def test_the_c_compiler_goes_on_processors_alone_since_triton_runs_it() -> None:
    path = "usr/lib/gcc/x86_64-linux-gnu/12/cc1"

    assert rule_for(path, CPU) == "c-compiler"
    assert rule_for(path, GPU) is None
    assert rule_for(path, CPU, GPU) is None


def test_rules_are_left_out_and_added_by_name_and_files_kept_by_glob() -> None:
    header = f"{SITE}/nvidia/cublas/include/cublas.h"

    assert rule_for("usr/share/man/a", without_rules=("documentation",)) is None
    assert rule_for("usr/share/man/a", keep=("usr/share/man/**",)) is None
    assert rule_for(header, GPU) is None
    assert rule_for(header, GPU, with_rules=("cuda-headers",)) == "cuda-headers"
    with pytest.raises(UsageError, match="there is no rule 'docs' for slim bases"):
        choose_rules((), without_rules=("docs",))


def test_every_rule_has_a_reason_a_source_and_a_date() -> None:
    rules, always = shipped_rules()

    assert all(rule.why and rule.source and len(rule.date) == 10 for rule in rules)
    assert len({rule.name for rule in rules}) == len(rules)
    assert "usr/share/doc/*/copyright" in always
