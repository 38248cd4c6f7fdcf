"""The table of vLLM's extensions against the vLLM of the serving base, which loads one of them.

On a processor with AVX-512 both the one for it and, told that there is none, the one for AVX2.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping

import pytest

from packager.catalog.containers import find_container
from packager.engines.vllm.processors import PROCESSORS, processor_kernels
from tests.live.processors import NATIVE, WITHOUT_AVX512
from tests.support.hidden_flags import VARIABLE, answers, this_machine
from tests.support.vllm_packages import python_3_11, unpacked_base

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]

REGISTERED = """
import json, os, torch.cpu
exec(os.environ["PACKAGER_TEST_TORCH_CPU"], vars(torch.cpu))
before = {one.name for one in torch._C._jit_get_all_schemas()}
from vllm.platforms import current_platform
current_platform.import_kernels()
found = {one.name for one in torch._C._jit_get_all_schemas()} - before
print(json.dumps(sorted(name[4:] for name in found if name.startswith("_C::"))))
"""


@pytest.mark.parametrize("hidden", [NATIVE, WITHOUT_AVX512], ids=["native", "without-avx512"])
def test_the_table_has_the_operators_that_the_engine_registers(
    serving_base: str, hidden: Mapping[str, str]
) -> None:
    del serving_base
    environment = {**os.environ, **hidden}
    version = find_container("vllm", "cpu").engine_version
    extension = processor_kernels(version).extension(this_machine(environment))
    assert extension is not None
    table = json.loads((PROCESSORS / f"vllm-{version}.json").read_text())["extensions"]
    (row,) = (
        one for one in table if (one["machine"], one["name"]) == (extension.machine, extension.name)
    )

    done = subprocess.run(
        [python_3_11(), "-S", "-c", REGISTERED],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(unpacked_base()),
            "PACKAGER_TEST_TORCH_CPU": answers(environment.get(VARIABLE, "")),
        },
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == sorted(
        row["operators"] + row["placeholders"]
    )
