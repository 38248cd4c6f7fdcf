"""Inputs of the speed model: a model as it is served, its devices and its draft."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from packager.catalog.accelerators import AcceleratorRow
from packager.core.catalog import Accelerator
from packager.core.model import ModelProfile
from packager.core.plan import Plan
from packager.core.techniques import Draft

# How many tokens one step yields with a draft, until it is measured on the user's data.
ACCEPTANCE: Mapping[str, tuple[float, str]] = MappingProxyType(
    {
        "eagle3": (2.44, "Qwen3-32B with a head that was not trained on the user's data, AWS 2025"),
        "eagle": (2.0, "a guess: below EAGLE-3"),
        "medusa": (2.2, "the Medusa paper's speed-up of Medusa-1 on 7B, taken for its length"),
        "draft_model": (2.4, "a guess: AWS doubled Llama-3-70B's throughput, and the draft costs"),
        "peagle": (2.68, "GPT-OSS-120B with AWS's head on MT-Bench, 5 tokens at a time, 2026"),
        "dflash": (2.68, "a guess: as P-EAGLE, which also proposes all tokens at once"),
        "mtp": (1.85, "DeepSeek-V3's report: its one MTP layer is right in 85 to 90 of 100 cases"),
        "ngram_gpu": (1.3, "a guess: as n-grams"),
        "suffix": (1.3, "a guess: as n-grams; agents that repeat themselves gain more"),
        "ngram": (1.3, "a guess: text that repeats its prompt gains more"),
    }
)

# of a draft: Llama-3.2-1B has 16, the P-EAGLE heads of AWS 4, published DFlash heads 5
LAYERS = {"draft_model": 16, "eagle": 1, "eagle3": 1, "mtp": 1, "peagle": 4, "dflash": 5}
AT_ONCE = ("medusa", "peagle", "dflash")  # propose all tokens in one pass

# scheme of the weights → which of the device's peaks its arithmetic runs at, best first.  Where a
# device has no arithmetic in 4 bits, engines unpack such weights to 16 bits before each use.
PEAKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "W8A8-FP8": ("fp8", "bf16"),
        "fp8_w8a8": ("fp8", "bf16"),
        "W8A8-INT8": ("int8", "bf16"),
        "int8_w8a8": ("int8", "bf16"),
        "NVFP4": ("fp4", "bf16"),
        "nvfp4_w4a4": ("fp4", "bf16"),
        "MXFP4": ("fp4", "bf16"),
        "MXFP8": ("fp8", "bf16"),
        "W4AFP8": ("fp8", "bf16"),
    }
)
WEIGHTS_ONLY = frozenset({
    "W4A16", "w4a16", "W8A16", "W8A16-FP8", "fp8_w8a16", "W8A16-INT8", "MXFP4A16", "MXFP8A16",
    "NVFP4A16",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """Work of one copy of a model per step. Sizes in bytes, over all devices."""

    weight_bytes: int  # that a step may read
    parameters: int
    layers: int
    hidden_size: int
    kv_bytes_per_token: int  # what all devices of a copy hold together, repeated heads included
    scheme: str = ""  # of the weights; "" when they are not quantized
    expert_share: float = 0.0  # of the weights' bytes that belongs to experts
    experts: int = 0  # of one layer
    experts_per_token: int = 0
    active_parameters: int = 0  # that a token is computed with; 0: as the share of experts says
    cached_layers: int = 0  # layers that keep K and V; 0: all
    attention_size: int = 0  # heads times their size; 0: the hidden size
    window_tokens: int = 0  # that `window_share` of the cache looks back at most; 0: no window
    window_share: float = 0.0
    state_bytes: int = 0  # of one sequence, of linear attention
    latent: bool = False  # attention keeps one latent (MLA), whole on every device
    known: bool = True  # False: no table has the architecture; its numbers are those of a Llama
    tower_patches: int = 0  # of a picture, for each of its tokens
    tower_parameters: int = 0  # that each of them is multiplied with
    tower_attention: int = 0  # hidden size times layers of the tower


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDraft:
    """Work that a draft adds to each step."""

    speculative_tokens: int
    acceptance_length: float  # tokens that a step yields, 1 when nothing is ever accepted
    weight_bytes: int = 0  # over all devices
    layers: int = 0  # 0: it costs no step of its own (n-gram, Medusa)
    in_turn: bool = True  # proposes one token after the other; others do all at once
    has_experts: bool = False  # is a layer of the model, and as mixed as those are
    source: str = ""  # of the acceptance length


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A model on devices, as the formula needs it."""

    model: ServedModel
    accelerator: Accelerator
    tp_degree: int
    replicas: int = 1
    draft: ServedDraft | None = None
    engine: str = ""  # `vllm`, `sglang`, `tensorrt-llm`, `tgi`; "" when not known
    engine_version: str = ""
    pp_degree: int = 1
    dp_degree: int = 1  # copies of attention inside one server that share the experts
    expert_parallel: bool = False  # experts are spread whole over tp_degree x dp_degree devices
    is_adapted: bool = False  # LoRA adapters are served beside the base


def setup_of(
    plan: Plan, accelerator: Accelerator, *, acceptance_length: float | None = None
) -> Setup:
    """Return what the formula needs of a plan."""
    profile = plan.profile
    shared = plan.dp_degree if plan.dp_attention else 1
    unread = _unread_bytes(profile)
    scheme = plan.quantization.scheme if plan.quantization else profile.weight_format
    slots = plan.adapters.device_bytes if plan.adapters else 0  # of which a step reads a few
    held = (plan.budget.weights_bytes - slots) * plan.tp_degree * plan.pp_degree
    parameters = profile.parameters or held // 2
    expert_share = expert_share_of(profile)
    # Ranks that share the experts hold a part of them each.
    weight_bytes = int(held / (1 - expert_share * (1 - 1 / shared))) - unread
    cached = profile.cached_layers or profile.layers
    return Setup(
        model=ServedModel(
            weight_bytes=weight_bytes,
            parameters=parameters - unread // 2,
            layers=profile.layers,
            hidden_size=profile.hidden_size,
            kv_bytes_per_token=plan.budget.kv_bytes_per_token * plan.tp_degree * plan.pp_degree,
            scheme=scheme,
            tower_patches=profile.tower_patches,
            tower_parameters=profile.tower_bytes // 2,
            tower_attention=profile.tower_attention,
            expert_share=min(1.0, expert_share * (weight_bytes + unread) / weight_bytes),
            experts=profile.experts,
            experts_per_token=profile.experts_per_token,
            active_parameters=(profile.active_parameters - unread // 2 if profile.experts else 0),
            cached_layers=cached,
            attention_size=profile.attention_size or profile.heads * profile.head_dim,
            window_tokens=profile.window_tokens,
            window_share=min(1.0, profile.window_layers / cached) if cached else 0.0,
            state_bytes=profile.state_bytes,
            latent=profile.attention == "mla",
            known=profile.known,
        ),
        accelerator=accelerator,
        tp_degree=plan.tp_degree,
        pp_degree=plan.pp_degree,
        replicas=running_copies(plan) // shared or 1,
        draft=served_draft(plan.draft, acceptance_length) if plan.draft else None,
        engine=plan.container.engine,
        engine_version=plan.container.engine_version,
        dp_degree=shared,
        expert_parallel=plan.expert_parallel,
        is_adapted=plan.adapters is not None,
    )


def served_draft(draft: Draft, acceptance_length: float | None = None) -> ServedDraft:
    """Return what a draft costs and yields; `acceptance_length` where it was measured."""
    assumed, source = ACCEPTANCE[draft.kind]
    return ServedDraft(
        speculative_tokens=draft.speculative_tokens,
        acceptance_length=acceptance_length or min(assumed, draft.speculative_tokens + 1.0),
        weight_bytes=draft.weight_bytes,
        layers=LAYERS.get(draft.kind, 0),
        in_turn=draft.kind not in AT_ONCE,
        has_experts=draft.kind == "mtp" and not draft.has_files,
        source="measured" if acceptance_length else source,
    )


def running_copies(plan: Plan) -> int:
    """Count the copies that a server starts, each with requests of its own."""
    return plan.replicas


def concurrencies_of(plan: Plan) -> tuple[int, ...]:
    """Return powers of two up to what is computed at once on all copies.

    That is what the server admits, what of the workload fits its cache, and what comes.
    """
    held = max(1, min(plan.shape.max_batch, plan.typical_requests)) * running_copies(plan)
    most = min(held, plan.workload.concurrency or held)
    return (*(2**n for n in range(most.bit_length()) if 2**n < most), most)


def peak_flops(device: Accelerator | AcceleratorRow, scheme: str) -> float:
    """Return the operations a second that weights of a scheme are computed with; 0.0: not known."""
    for word in PEAKS.get(scheme, ("bf16",)):
        if device.tflops.get(word):
            return 1e12 * device.tflops[word]
    return 0.0


def precision_of(setup: Setup) -> str:
    """Return what arithmetic the weights are used in: `bf16`, `fp8`, `int8`, `fp4`, `unpacked`."""
    scheme, tflops = setup.model.scheme, setup.accelerator.tflops
    if scheme in WEIGHTS_ONLY:
        return "unpacked"
    for word in PEAKS.get(scheme, ("bf16",)):
        if tflops.get(word):
            return "unpacked" if word == "bf16" and scheme in PEAKS else word
    return "bf16"


def active_parameters(model: ServedModel) -> float:
    """Return how many parameters one token is computed with."""
    if not model.experts or model.active_parameters:
        return model.active_parameters or model.parameters
    idle = 1 - model.experts_per_token / model.experts
    return model.parameters * (1 - model.expert_share * idle)


def reached_share(model: ServedModel, tokens: float) -> float:
    """Return which share of the experts some token reaches, when each picks its own at random."""
    if not model.experts:
        return 1.0
    return 1 - float((1 - model.experts_per_token / model.experts) ** tokens)


def expert_share_of(profile: ModelProfile) -> float:
    """Return which share of the weights' bytes belongs to routed experts.

    Where their bytes are not known, solve `active = parameters x (1 - share x (1 - per token /
    experts))` for it.
    """
    if not profile.experts:
        return 0.0
    if profile.expert_bytes:
        return min(1.0, profile.expert_bytes / profile.weight_bytes)
    if not profile.active_parameters or not profile.parameters:
        return 0.0
    idle = 1 - profile.active_parameters / profile.parameters
    return max(0.0, min(1.0, idle / (1 - profile.experts_per_token / profile.experts)))


def _unread_bytes(profile: ModelProfile) -> int:
    """Return the bytes outside the layers that a step does not read: all but one matrix of words.

    A step reads the head; of the embedding it reads a row a token, of a vision tower nothing.
    """
    return max(0, profile.outside_bytes - 2 * profile.vocab_size * profile.hidden_size)
