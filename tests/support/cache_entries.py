"""Documents with every field filled in, and builds that leave a few files."""

from __future__ import annotations

from pathlib import Path

from packager.keys import documents, parts

A = "a" * 64
B = "b" * 64

GRAPH = parts.Graph(
    architecture={"hidden_act": '"silu"', "hidden_size": "64"}, code=B, plugins=(A,)
)
WEIGHTS = parts.Weights(
    files={"model.safetensors": A, "tokenizer.json": B},
    adapters=(B, A),
    draft={"model.safetensors": B},
)
PARALLELISM = parts.Parallelism(
    tp=8,
    pp=2,
    ep=4,
    attention_dp=2,
    cp=1,
    world=16,
    local_ranks=8,
    start_rank=0,
    ranks=(0, 1, 2),
    sharding="replicate",
)
PRECISION = parts.Precision(
    dtype="bf16",
    weights=parts.Quantization(
        algorithm="awq",
        bits=4,
        group_size=128,
        symmetric=False,
        zero_point=True,
        excluded_modules=("lm_head",),
    ),
    activations=parts.ActivationQuantization(dtype="fp8_e4m3", granularity="token", dynamic=True),
    kv_dtype="fp8_e4m3",
    auto_cast="matmult",
    auto_cast_dtype="bf16",
    logits_dtype="fp32",
)
SPECULATION = parts.Speculation(
    method="medusa", tokens=5, draft_config=A, heads=4, layers=1, tree=((0,), (0, 1))
)
TOOLCHAIN = parts.Toolchain(
    packages=(
        parts.Package(name="torch", version="2.11.0+cu130", digest=A),
        parts.Package(name="vllm", version="0.33.0", digest=None),
    ),
    environment={"numpy": "2.4.6", "python": "3.11"},
    image=B,
    worker=A,
)
INVOCATION = parts.Invocation(
    compiler_args=("-O2", "--auto-cast=none"),
    engine_args={"enforce_eager": "false"},
    env={"NEURON_CC_FLAGS": "--model-type=transformer"},
)
CALIBRATION = parts.Calibration(dataset=A, samples=512, sequence_tokens=2048, seed=42)

COMPILED = {
    "graph": GRAPH,
    "shape": parts.Shape(
        max_batch=8,
        context_batch=1,
        token_batch=8,
        max_input_tokens=3072,
        max_total_tokens=4096,
        max_batched_tokens=8192,
        context_buckets=(512, 1024),
        token_buckets=(2048, 4096),
        prefill_chunk_tokens=512,
        beam_width=1,
        block_tokens=16,
        paged=True,
        graph_sizes=(1, 2, 4),
        dynamic=(parts.DynamicDimension(name="batch", minimum=1, optimum=4, maximum=8),),
    ),
    "precision": PRECISION,
    "parallelism": PARALLELISM,
    "target": parts.Target(
        backend="cuda",
        arch="sm_90",
        device="NVIDIA H200",
        logical_core_size=2,
        cpu=parts.Cpu(isa=("avx512f", "amx"), threads=8),
        os="linux",
        machine="x86_64",
        libc="glibc-2.35",
    ),
    "toolchain": TOOLCHAIN,
    "invocation": INVOCATION,
    "speculation": SPECULATION,
    "sampling": parts.Sampling(on_device=True, max_top_k=256),
    "lora": parts.LoraEnvelope(max_loras=4, max_rank=16, target_modules=("q_proj", "v_proj")),
}
VLLM = documents.VllmCompileKey(
    **COMPILED,  # type: ignore[arg-type]
    model_path_in_image="/opt/packager/model",
    site_packages_in_image="/usr/lib/python3/dist-packages",
)
NEURON = documents.NeuronKey(**COMPILED, layout="neff-cache", weights=WEIGHTS)  # type: ignore[arg-type]
TENSORRT = documents.TensorRtLlmEngineKey(**COMPILED, weights=WEIGHTS)  # type: ignore[arg-type]
CHECKPOINT = documents.QuantizedCheckpointKey(
    graph=GRAPH,
    weights=WEIGHTS,
    precision=PRECISION,
    calibration=CALIBRATION,
    sharding=PARALLELISM,
    toolchain=TOOLCHAIN,
    invocation=INVOCATION,
    computed_on="cpu",
)
SHARDED = documents.ShardedCheckpointKey(
    graph=GRAPH,
    weights=WEIGHTS,
    precision=PRECISION,
    parallelism=PARALLELISM,
    target=COMPILED["target"],  # type: ignore[arg-type]
    toolchain=TOOLCHAIN,
    invocation=INVOCATION,
)
DRAFT = documents.DraftHeadKey(
    graph=GRAPH,
    weights=WEIGHTS,
    precision=PRECISION,
    speculation=SPECULATION,
    calibration=CALIBRATION,
    toolchain=TOOLCHAIN,
    invocation=INVOCATION,
)
QUALITY = documents.QualityReportKey(
    weights=WEIGHTS,
    candidate={"model.safetensors": B},
    data=CALIBRATION,
    toolchain=TOOLCHAIN,
    invocation=INVOCATION,
)
ANSWERS = documents.ModelAnswersKey(
    weights=WEIGHTS, data=CALIBRATION, toolchain=TOOLCHAIN, invocation=INVOCATION
)
STEP_INPUT = documents.StepInputKey(sha256=A)
DOCUMENTS = (VLLM, NEURON, TENSORRT, CHECKPOINT, SHARDED, DRAFT, QUALITY, ANSWERS, STEP_INPUT)


# What a later version wrote: {"schema":2}, with the digest that belongs to it.
NEWER = b'{"check":"d2bd5412509f6ba3c450e88a5b1c44b23918ed346dcc40c0e190a742b214fc1b","schema":2}'


def document(seed: int) -> documents.QuantizedCheckpointKey:
    """Give one of many documents that differ in a single field."""
    calibration = CALIBRATION.model_copy(update={"seed": seed})
    return CHECKPOINT.model_copy(update={"calibration": calibration})


class Build:
    """A build that counts its runs and leaves two tensors and a program."""

    def __init__(self, content: bytes = b"tensors") -> None:
        self.content = content
        self.runs = 0

    def __call__(self, directory: Path) -> None:
        self.runs += 1
        (directory / "rank0").mkdir()
        (directory / "rank0/model.bin").write_bytes(self.content * 100)
        (directory / "config.json").write_bytes(b"{}")
        program = directory / "kernel.so"
        program.write_bytes(b"\x7fELF" + self.content)
        program.chmod(0o755)


def files_below(directory: Path) -> dict[str, bytes]:
    """Give every file with its content."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def files_of(content: bytes) -> dict[str, bytes]:
    """Give what `Build(content)` leaves."""
    return {
        "config.json": b"{}",
        "kernel.so": b"\x7fELF" + content,
        "rank0/model.bin": content * 100,
    }
