"""What we quantize is what vLLM serves: an answer from a container, by the kernel it should be.

A start takes half a minute, so that three stand for all of them; `PACKAGER_SERVE=all` starts
every scheme, and those that this engine cannot load on processors, for the table in
docs/quantization.md.

Where the processor that the run is on has no kernel for a format, its plan is refused, which is
held instead of an answer.  On any machine one case is held without AVX-512: the engine is told that
there is none, and so is packager.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live.checkpoints import unpack_model
from tests.live.processors import WITHOUT_AVX512, cap_words, has_kernel, need_kernel
from tests.live.servers import small_model_words
from tests.support.cases import cases_of
from tests.support.commandline import TINY, Packager

pytestmark = [pytest.mark.live, pytest.mark.timeout(1500)]

everything = pytest.mark.skipif(
    os.environ.get("PACKAGER_SERVE") != "all", reason="PACKAGER_SERVE=all starts this too"
)

cases = cases_of(__file__)
FEW = ("--calibration-samples", "16", "--calibration-tokens", "128", "--quiet")
PACKED, INT8 = "CPUWNA16LinearKernel", "CPUInt8ScaledMMLinearKernel"
FP8 = "TorchFP8ScaledMMLinearKernel"
LACKING = "AttributeError: '_OpNamespace' '_C' object has no attribute 'cpu_gemm_wna16'"
NEEDS = {PACKED: "w4a16", INT8: "int8_w8a8", FP8: "fp8_w8a8"}
WITH_AMX = "ml.c7i.4xlarge"  # plans of it have every kernel, wherever they are made
ASK = """
import json, urllib.request
body = {"prompt": "The file is", "max_tokens": 8, "temperature": 0}
asked = urllib.request.Request("http://127.0.0.1:8080/v1/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json"})
print(urllib.request.urlopen(asked).read().decode())
"""


@pytest.fixture(autouse=True)
def fast(quantizing_fast: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantize by workers that need not load libraries."""
    for name, value in quantizing_fast.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("method", "kernel"),
    [
        pytest.param("gptq", PACKED),
        pytest.param("smoothquant", INT8, marks=pytest.mark.capability("quantize")),
        pytest.param("fp8", FP8),
        pytest.param("rtn", PACKED, marks=everything),
        pytest.param("int8", INT8, marks=everything),
        pytest.param("awq", PACKED, marks=everything),
        pytest.param("awq,symmetric", PACKED, marks=everything),
        pytest.param("gptq,asymmetric,group=64", PACKED, marks=everything),
        pytest.param("llmcompressor:rtn", PACKED, marks=everything),
        pytest.param("smoothquant,gptq", INT8, marks=everything),
        pytest.param("llmcompressor:fp8", FP8, marks=everything),
        pytest.param("fp8,kv", FP8, marks=everything),
    ],
)
def test_the_engine_serves_it_with_kernels_for_packed_weights(
    packager: Packager, engine: str, serving_base: str, method: str, kernel: str
) -> None:
    if not has_kernel(NEEDS[kernel]) or ("kv" in method and not has_kernel("fp8_kv")):
        assert refusals(packager, "--model", str(TINY), "--quantize", method)
        return
    packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", serving_base),
        *("--quantize", method, "--output", "docker:packager-test:quantized", *FEW),
        status=0,
    )

    with container("packager-test:quantized") as name:
        assert answered_tokens(name) > 0
        assert kernel in log_of(name)


def test_awq_in_the_format_of_tgi_is_served_as_a_checkpoint_of_its_own(
    packager: Packager, engine: str, serving_base: str, tmp_path: Path
) -> None:
    packager(
        *("build", "--model", str(TINY), "--instance", "ml.g5.xlarge", "--family", "tgi"),
        *("--base", "scratch", "--quantize", "awq", "--output", "oci:tgi", *FEW),
        status=0,
    )
    unpack_model(tmp_path / "tgi", tmp_path / "awq")
    if not has_kernel("w4a16"):
        assert refusals(packager, "--model", "awq") == ["processor-lacks-kernel"]
        return

    packager(
        *("build", "--model", "awq", "--instance", "local", "--base", serving_base),
        *("--output", "docker:packager-test:gemm", "--quiet"),
        status=0,
    )

    with container("packager-test:gemm") as name:
        assert answered_tokens(name) > 0
        assert PACKED in log_of(name)


def test_4_bit_weights_end_the_engine_without_avx512_and_are_not_planned_there(
    packager: Packager, engine: str, serving_base: str
) -> None:
    """The engine that is told of no AVX-512 loads its module for such processors.

    Without compiling it calls no product before the first request: it is healthy until then.
    """
    packager(
        *("build", "--model", str(TINY), "--instance", WITH_AMX, "--base", serving_base),
        *("--quantize", "gptq", "--output", "docker:packager-test:packed", *FEW),
        status=0,
    )

    with container("packager-test:packed", environment=WITHOUT_AVX512) as name:
        wait_for_error(name, LACKING)

    for method in ("awq", "gptq", "rtn"):
        asked = ("--model", str(TINY), "--quantize", method)
        assert refusals(packager, *asked, environment=WITHOUT_AVX512) == ["processor-lacks-kernel"]


@pytest.mark.parametrize(
    ("method", "kernel"),
    [
        pytest.param("fp8", FP8),
        pytest.param("none", "", marks=everything),
        pytest.param("smoothquant", INT8, marks=everything),
    ],
)
def test_what_is_planned_without_avx512_is_served_there(
    packager: Packager, engine: str, serving_base: str, method: str, kernel: str
) -> None:
    packager(
        *("build", "--model", str(TINY), "--instance", "local", "--base", serving_base),
        *("--quantize", method, "--output", "docker:packager-test:lesser", "--quiet"),
        *(FEW if method == "smoothquant" else ()),
        env=WITHOUT_AVX512,
        status=0,
    )

    with container("packager-test:lesser", environment=WITHOUT_AVX512) as name:
        assert answered_tokens(name) > 0
        assert kernel in log_of(name)


@everything
def test_experts_that_stay_whole_are_served_beside_quantized_attention(
    packager: Packager, engine: str, serving_base: str, quantizing: Path, tmp_path: Path
) -> None:
    need_kernel("w4a16")
    program = Path(__file__).with_name("tiny_architectures.py")
    subprocess.run([quantizing, program, tmp_path, "--wide", "mixtral"], check=True)

    packager(
        *("build", "--model", str(tmp_path / "mixtral"), "--instance", "local"),
        *("--base", serving_base, "--output", "docker:packager-test:whole-experts"),
        *("--quantize", "awq,group=32", "--quantize-ignore", r"re:.*\.experts\..*", *FEW),
        status=0,
    )

    with container("packager-test:whole-experts") as name:
        assert answered_tokens(name) > 0
        assert PACKED in log_of(name)


@everything
@cases("unloadable")
def test_what_the_engine_cannot_load_fails_as_the_rule_says(
    packager: Packager, engine: str, serving_base: str, method: str, error: str
) -> None:
    """Weights that were planned for a GPU, started on a processor all the same."""
    packager(
        *("build", "--model", str(TINY), "--instance", "ml.g6.xlarge", "--family", "vllm"),
        *("--base", serving_base, "--quantize", method),
        *("--output", "docker:packager-test:refused", *FEW),
        status=0,
    )
    server = ("vllm", "serve", "/opt/packager/model", "--enforce-eager")
    model = ("--max-model-len", "512")

    with container("packager-test:refused", *server, *model) as name:
        assert wait_for_end(name) != 0
        assert error in log_of(name)


def refusals(
    packager: Packager, *words: str, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Plan for this machine; return the codes of the errors."""
    asked = ("plan", "--instance", "local", "--format", "json", *words)
    done = packager(*asked, env=environment or {}, status=3)
    found = json.loads(done.err)["findings"]
    return [finding["code"] for finding in found if finding["severity"] == "error"]


@contextmanager
def container(
    image: str, *command: str, environment: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Run an image without a network; it is asked from inside."""
    env = ("VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind")
    words = [
        *cap_words(environment),
        *small_model_words(),
        *(word for pair in env for word in ("--env", pair)),
    ]
    if command:
        words += ["--entrypoint", command[0]]
    name = docker("run", "--detach", "--network=none", "--shm-size=1g", *words, image, *command[1:])
    try:
        yield name.strip()
    finally:
        docker("rm", "--force", name.strip())


def answered_tokens(name: str) -> int:
    """Ask once it is up; a container that ended fails with its log."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        asked = subprocess.run(
            ["docker", "exec", name, "python3", "-IS", "-c", ASK], capture_output=True, text=True
        )
        if asked.returncode == 0:
            return int(json.loads(asked.stdout)["usage"]["completion_tokens"])
        assert is_running(name), log_of(name)[-4000:]
        time.sleep(0.5)
    raise AssertionError(log_of(name)[-4000:])


def wait_for_error(name: str, error: str) -> None:
    """Ask until the engine complains of an error, without ever having answered."""
    deadline = time.monotonic() + 600
    while error not in (log := log_of(name)):
        command = ["docker", "exec", name, "python3", "-IS", "-c", ASK]
        assert subprocess.run(command, capture_output=True).returncode != 0, log[-4000:]
        assert time.monotonic() < deadline, log[-4000:]
        time.sleep(0.5)


def wait_for_end(name: str) -> int:
    return int(docker("wait", name))


def is_running(name: str) -> bool:
    return docker("inspect", "--format", "{{.State.Running}}", name).strip() == "true"


def log_of(name: str) -> str:
    done = subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout
