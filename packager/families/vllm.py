"""The vLLM family: vLLM's own OpenAI-compatible server, started by `launch.py`.

The command line is data, in `command.json` beside the launcher.  The launcher
takes the container's arguments after it (SageMaker's `serve` is swallowed) and
lets the container's environment win over the environment given here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packager.core.artifact import Artifacts
from packager.core.findings import Finding
from packager.core.plan import Plan
from packager.core.serving import MODEL_DIR, SERVING_DIR, RenderedFile, ServingConfig
from packager.core.units import GIB
from packager.families.shared import GPU_MEMORY_UTILIZATION, OFFLINE_ENV, check_input_limit
from packager.rendering.check import check_json
from packager.rendering.environment import render_template
from packager.share import share_dir

PORT = 8080  # what SageMaker asks on /ping and /invocations

SHIPPED = ("launch.py", "inputs_adapter.py")  # from containers/serving/vllm

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


class VllmFamily:
    """Describes images whose server is vLLM itself, on GPUs or on the processor."""

    name = "vllm"

    def check(self, plan: Plan) -> Iterator[Finding]:
        """Say what the server leaves unused or unenforced."""
        yield from check_input_limit(plan)
        idle = plan.instance.devices - plan.tp_degree
        if idle:
            yield Finding(
                "warning",
                "devices-idle",
                f"one copy of the model runs on {plan.tp_degree} of "
                f"{plan.instance.devices} devices; {idle} stay idle",
                "choose a smaller instance, a larger tp_degree, or family 'lmi', "
                "which starts a copy on each group of devices",
            )

    def render(self, plan: Plan, artifacts: Artifacts) -> ServingConfig:  # noqa: ARG002
        """Give the launcher, its command and the adapter for the other request schema."""
        shipped = share_dir("containers") / "serving" / "vllm"
        files = [
            RenderedFile(path=f"{SERVING_DIR}/{name}", data=(shipped / name).read_bytes())
            for name in SHIPPED
        ]
        return ServingConfig(
            files=(_command_file(plan), *files),
            env=OFFLINE_ENV,
            entrypoint=("python3", f"{SERVING_DIR}/launch.py"),
            port=PORT,
        )


def _command_file(plan: Plan) -> RenderedFile:
    meant: dict[str, Any] = {"argv": list(_argv(plan)), "env": _env(plan)}
    text = render_template("vllm/command.json.j2", **meant)
    path = f"{SERVING_DIR}/command.json"
    check_json(path, text, meant)
    return RenderedFile(path=path, data=text.encode("ascii"))


def _argv(plan: Plan) -> Iterator[str]:
    """Spell the plan in flags of vLLM; all are in EngineArgs or FrontendArgs of 0.32.0."""
    yield from ("python3", "-m", "vllm.entrypoints.openai.api_server")
    yield from ("--model", MODEL_DIR)
    yield from ("--served-model-name", plan.served_name)
    yield from ("--host", "0.0.0.0")
    yield from ("--port", str(PORT))
    yield from ("--dtype", DTYPES[plan.dtype])
    yield from ("--tensor-parallel-size", str(plan.tp_degree))
    yield from ("--max-model-len", str(plan.shape.max_total_tokens))
    yield from ("--max-num-seqs", str(plan.shape.max_batch))
    yield from ("--middleware", "inputs_adapter.InputsAdapter")
    if plan.instance.kind == "cpu":
        # Nothing is compiled ahead of time yet: compiling at each start doubles its time.
        yield "--enforce-eager"
    else:
        yield from ("--gpu-memory-utilization", str(GPU_MEMORY_UTILIZATION))


def _env(plan: Plan) -> dict[str, str]:
    if plan.instance.kind != "cpu":
        return {}
    return {
        "VLLM_CPU_KVCACHE_SPACE": str(plan.budget.kv_bytes // GIB),  # planned in whole GiB
        # Binding threads to cores fails where a container may use some of them only.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
