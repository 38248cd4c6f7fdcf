"""How fast a plan will be: a roofline with four coefficients.

One step of the engine computes one token for each of B sequences:

    step    = max(bytes / (tp x bandwidth x memory_share),
                  flops / (tp x peak x compute_share))
              + 2 x layers x hop_s, when tp > 1       start of two all-reduces a layer
              + exchanged bytes / link                their volume, when tp > 1
              + layers x layer_s                      launching kernels, the scheduler
    prefill = the same for all tokens of a prompt at once
    TPOT    = step + (B - 1) x prefill / output tokens

    bytes      weights that the step touches + B x tokens in its cache x KV bytes
               per token; of a mixture of experts, the experts that B tokens reach
    flops      2 x active parameters x tokens
    bandwidth  bytes per second of one device, peak in flops per second of one
               device, link in bytes per second of one device in one direction
    hop_s, layer_s in seconds; the shares have no unit

The last term of TPOT is what prompts of other requests take from a sequence
while it answers.  A draft of k tokens makes the step compute k + 1 tokens per
sequence and adds its own time; the answer then grows by the acceptance length
per step.

Against 1,060 measured points of dense models on H100, H200, B200 and GB200
(`silicon_sample.csv` of aiconfigurator 0.12) the default coefficients miss the
TPOT by 10 % in the median and 16 % in the mean, on points they were not fitted
to.  Nothing there was measured on PCIe cards, A100, mixtures of experts or
Neuron.  Time to first token under load is not predicted by anything that was
tried: what is given is the prefill's time without queueing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from packager.core.catalog import Accelerator
from packager.core.model import ModelProfile
from packager.core.plan import Plan
from packager.core.techniques import Draft
from packager.core.workload import WORKLOADS as WORKLOADS
from packager.core.workload import Workload as Workload
from packager.planning.scale import UNSCALED, Fit, Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """What a device reaches of its data sheet, and what every step costs besides."""

    memory_share: float = 0.9
    compute_share: float = 0.6
    hop_s: float = 12e-6  # start of one all-reduce
    layer_s: float = 45e-6  # host's work for one layer


DEFAULTS = Coefficients()

# Assumed where a data sheet says nothing: PCIe 4.0 x16 in one direction.
LINK_BYTES_S = 32e9

# Relative errors that are promised, before calibration.
NEAR_BAND = 0.20
WIDE_BAND = 0.40

# The devices of the measured points.
MEASURED_DEVICES = frozenset({"H100", "H200", "B200"})

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

# Below this, a step takes less than the engine needs between two: the smallest measured was 8B.
SMALL_BYTES = 1_000_000_000

# of a draft: Llama-3.2-1B has 16, the P-EAGLE heads of AWS 4, published DFlash heads 5
LAYERS = {"draft_model": 16, "eagle": 1, "eagle3": 1, "mtp": 1, "peagle": 4, "dflash": 5}
AT_ONCE = ("medusa", "peagle", "dflash")  # propose all tokens in one pass

# scheme of the weights → which of the device's peaks its arithmetic runs at, best first
PEAKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "W8A8-FP8": ("fp8", "bf16"),
        "fp8_w8a8": ("fp8", "bf16"),
        "W8A8-INT8": ("int8", "bf16"),
        "int8_w8a8": ("int8", "bf16"),
        "NVFP4": ("fp4", "fp8", "bf16"),
        "nvfp4_w4a4": ("fp4", "fp8", "bf16"),
        "MXFP4": ("fp4", "fp8", "bf16"),
        "MXFP8": ("fp8", "bf16"),
        "W4AFP8": ("fp8", "bf16"),
    }
)
WEIGHTS_ONLY = frozenset(
    {"W4A16", "w4a16", "W8A16-FP8", "fp8_w8a16", "W8A16-INT8", "MXFP4A16", "MXFP8A16"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What one copy of a model asks of its devices. Sizes in bytes, over all devices."""

    weight_bytes: int
    parameters: int
    layers: int
    hidden_size: int
    kv_bytes_per_token: int
    scheme: str = ""  # of the weights; "" when they are not quantized
    expert_share: float = 0.0  # of the weights that belongs to experts
    experts: int = 0  # of one layer
    experts_per_token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDraft:
    """What a draft adds to each step."""

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
    dp_degree: int = 1  # copies of attention inside one server that share the experts
    expert_parallel: bool = False  # experts are spread whole over tp_degree x dp_degree devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The instance at one concurrency, all its copies together."""

    concurrency: int
    prefill_s: float  # time to first token without queueing
    tpot_s: float  # time per output token of one request
    step_s: float  # between chunks: more than one token each, with a draft
    latency_s: float  # of a whole request
    output_tokens_s: float
    input_tokens_s: float
    ttft_s: float = 0.0  # time to first token with its queue; 0.0: not predicted

    @property
    def output_tokens_s_user(self) -> float:
        """What one reader sees."""
        return 1 / self.tpot_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """How far off a figure may be, and what that rests on."""

    share: float  # relative: 0.2 is ±20 %
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """The band of each predicted figure; None where the figure must not be shown."""

    tpot: Band
    throughput: Band
    ttft: Band | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Points by concurrency, how far off they may be, and what they assume."""

    workload: Workload
    points: tuple[Point, ...]
    band: float  # of the time per output token, relative: 0.2 is ±20 %
    assumptions: tuple[str, ...] = ()
    bands: Bands | None = None  # by figure
    fit: Fit | None = None  # to what a user measured


def predict(
    setup: Setup,
    workload: Workload,
    concurrencies: Iterable[int],
    scale: Scale = UNSCALED,
) -> Prediction | None:
    """Predict every concurrency; return None where the device's figures are not published."""
    if not can_predict(setup):
        return None
    assumptions = tuple(f"never measured on {words}" for words in unmeasured(setup))
    if setup.draft:
        source = setup.draft.source or "as given"
        assumptions += (f"{setup.draft.acceptance_length:g} tokens a step: {source}",)
    points = tuple(
        predict_point(setup, workload, concurrency, scale=scale) for concurrency in concurrencies
    )
    return Prediction(
        workload=workload, points=points, band=error_band(setup), assumptions=assumptions
    )


def predict_point(
    setup: Setup,
    workload: Workload,
    concurrency: int,
    coefficients: Coefficients = DEFAULTS,
    *,
    scale: Scale = UNSCALED,
) -> Point:
    """Predict one concurrency. Requests are spread evenly over the copies."""
    batch = max(1.0, concurrency / setup.replicas)
    cached_tokens = workload.input_tokens + workload.output_tokens / 2
    step_s = decode_step_s(setup, batch, cached_tokens, coefficients, scale)
    prefill_s = scale.prefill * prefill_time_s(setup, workload.input_tokens, coefficients)
    yielded = setup.draft.acceptance_length if setup.draft else 1.0
    tpot_s = step_s / yielded + (batch - 1) * prefill_s / workload.output_tokens
    latency_s = prefill_s + max(0, workload.output_tokens - 1) * tpot_s
    requests_s = concurrency / latency_s
    return Point(
        concurrency=concurrency,
        prefill_s=prefill_s,
        tpot_s=tpot_s,
        step_s=tpot_s * yielded,
        latency_s=latency_s,
        output_tokens_s=requests_s * workload.output_tokens,
        input_tokens_s=requests_s * workload.input_tokens,
    )


def decode_step_s(
    setup: Setup,
    batch: float,
    cached_tokens: float,
    coefficients: Coefficients = DEFAULTS,
    scale: Scale = UNSCALED,
) -> float:
    """Time of one step of `batch` sequences, with the draft's share."""
    draft = setup.draft
    tokens = batch * (1 + draft.speculative_tokens if draft else 1)
    kv_bytes = batch * cached_tokens * setup.model.kv_bytes_per_token
    step_s = _pass_s(setup, tokens, kv_bytes, coefficients, scale)
    drafting_s = _draft_s(setup, draft, batch, coefficients) if draft else 0.0
    return step_s + scale.memory * drafting_s


def prefill_time_s(setup: Setup, input_tokens: int, coefficients: Coefficients = DEFAULTS) -> float:
    """Time to first token of a prompt that does not wait."""
    kv_bytes = input_tokens * setup.model.kv_bytes_per_token
    return _pass_s(setup, input_tokens, kv_bytes, coefficients)


def can_predict(setup: Setup) -> bool:
    """Say whether the device's bandwidth and peak are known."""
    return setup.accelerator.bandwidth_bytes_s > 0 and _peak_flops(setup) > 0


def error_band(setup: Setup) -> float:
    """Give the relative error that is promised without a calibration."""
    return WIDE_BAND if unmeasured(setup) else NEAR_BAND


def unmeasured(setup: Setup) -> tuple[str, ...]:
    """Name what the default coefficients were never compared with."""
    accelerator, model = setup.accelerator, setup.model
    found = []
    if accelerator.kind == "neuron":
        found.append("Neuron devices")
    elif accelerator.link == "pcie" and setup.tp_degree > 1:
        found.append("devices that talk over PCIe")
    elif accelerator.link != "nvlink" and accelerator.name not in MEASURED_DEVICES:
        found.append(f"the {accelerator.name}")
    if model.weight_bytes < SMALL_BYTES:
        found.append("models this small, which wait for the engine")
    if model.experts:
        found.append("mixtures of experts")
    if model.scheme in WEIGHTS_ONLY:
        found.append("weights that are unpacked before each use")
    return tuple(found)


def setup_of(
    plan: Plan, accelerator: Accelerator, *, acceptance_length: float | None = None
) -> Setup:
    """Take from a plan what the formula needs."""
    profile = plan.profile
    shared = profile.expert_bytes / max(1, profile.weight_bytes) if plan.dp_attention else 0.0
    one_of = (1 - shared) / plan.tp_degree + shared / plan.split.expert_degree
    weight_bytes = round(plan.budget.weights_bytes * plan.pp_degree / one_of)
    scheme = plan.quantization.scheme if plan.quantization else profile.weight_format
    return Setup(
        model=ServedModel(
            weight_bytes=weight_bytes,
            parameters=profile.parameters or weight_bytes // 2,
            layers=profile.layers,
            hidden_size=profile.hidden_size,
            kv_bytes_per_token=plan.budget.kv_bytes_per_token * plan.tp_degree * plan.pp_degree,
            scheme=scheme,
            expert_share=_expert_share(profile),
            experts=profile.experts,
            experts_per_token=profile.experts_per_token,
        ),
        accelerator=accelerator,
        tp_degree=plan.tp_degree,
        replicas=running_copies(plan) // (plan.dp_degree if plan.dp_attention else 1),
        dp_degree=plan.dp_degree if plan.dp_attention else 1,
        expert_parallel=plan.expert_parallel,
        draft=served_draft(plan.draft, acceptance_length) if plan.draft else None,
        engine=plan.container.engine,
        engine_version=plan.container.engine_version,
    )


def served_draft(draft: Draft, acceptance_length: float | None = None) -> ServedDraft:
    """Say what a draft costs and yields; `acceptance_length` where it was measured."""
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


def _pass_s(
    setup: Setup,
    tokens: float,
    kv_bytes: float,
    coefficients: Coefficients,
    scale: Scale = UNSCALED,
) -> float:
    """One pass of the model over `tokens` tokens."""
    model, accelerator, tp = setup.model, setup.accelerator, setup.tp_degree
    reached = _reached_share(model, tokens)
    weights_bytes = model.weight_bytes * (1 - model.expert_share * (1 - reached))
    bandwidth = tp * accelerator.bandwidth_bytes_s * coefficients.memory_share
    flops = 2 * model.parameters * _active_share(model) * tokens
    compute = tp * _peak_flops(setup) * coefficients.compute_share
    pass_s = scale.memory * max((weights_bytes + kv_bytes) / bandwidth, flops / compute)
    exchange_s = _exchange_s(model.layers, model.hidden_size, setup, tokens, coefficients)
    return pass_s + scale.overhead * (model.layers * coefficients.layer_s + exchange_s)


def _exchange_s(
    layers: int, hidden_size: int, setup: Setup, tokens: float, coefficients: Coefficients
) -> float:
    """Two all-reduces a layer. In a ring, each device sends its part nearly twice."""
    tp = setup.tp_degree
    if tp == 1:
        return 0.0
    link_bytes_s = setup.accelerator.link_bytes_s or LINK_BYTES_S
    sent_bytes = 2 * (tp - 1) / tp * tokens * hidden_size * 2
    return 2 * layers * (coefficients.hop_s + sent_bytes / link_bytes_s)


def _draft_s(setup: Setup, draft: ServedDraft, batch: float, coefficients: Coefficients) -> float:
    bandwidth = setup.accelerator.bandwidth_bytes_s * coefficients.memory_share
    idle = setup.model.expert_share * (1 - _reached_share(setup.model, batch))
    read_bytes = draft.weight_bytes * (1 - idle if draft.has_experts else 1)
    once_s = read_bytes / (setup.tp_degree * bandwidth)
    once_s += draft.layers * coefficients.layer_s
    if setup.tp_degree > 1:
        once_s += 2 * draft.layers * coefficients.hop_s
    return once_s * (draft.speculative_tokens if draft.in_turn else 1)


def _active_share(model: ServedModel) -> float:
    """Of the parameters, what one token is computed with."""
    if not model.experts:
        return 1.0
    return 1 - model.expert_share * (1 - model.experts_per_token / model.experts)


def _reached_share(model: ServedModel, tokens: float) -> float:
    """Of the experts, how many some token reaches, when each picks its own at random."""
    if not model.experts:
        return 1.0
    return 1 - float((1 - model.experts_per_token / model.experts) ** tokens)


def _peak_flops(setup: Setup) -> float:
    tflops = setup.accelerator.tflops
    words = PEAKS.get(setup.model.scheme, ("bf16",))
    published = [tflops[word] for word in words if tflops.get(word)]
    return 1e12 * published[0] if published else 0.0


def _expert_share(profile: ModelProfile) -> float:
    """Solve `active = parameters x (1 - share x (1 - per token / experts))` for the share."""
    if not profile.experts or not profile.active_parameters or not profile.parameters:
        return 0.0
    idle = 1 - profile.active_parameters / profile.parameters
    return min(1.0, idle / (1 - profile.experts_per_token / profile.experts))
