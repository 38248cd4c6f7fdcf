"""Checks and defaults of head training, from headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from packager.core.findings import Finding
from packager.core.model import HeadValues, ModelFiles, ModelProfile
from packager.core.techniques import Draft
from packager.core.training import LAYERS, LEARNING_RATE, TOKENS, HeadTraining
from packager.models.architectures.profile import text_config
from packager.optimize.drafts.eagle import AUX_STATES, check_eagle, eagle_draft, read_eagle
from packager.optimize.drafts.medusa import check_medusa, medusa_draft, read_medusa
from packager.optimize.drafts.request import MOST_TOKENS
from packager.optimize.drafts.stitch import check_mtp_head, mtp_tensors

MOST_MEDUSA_HEADS = 10
# speculators 0.9.0, models/mtp/model_definitions.py; the types of the text part.
MTP_TYPES = ("qwen3", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
UNPACKED = ("mxfp4",)  # of GPT-OSS: the trainers' environment loads it as bfloat16


def completed(asked: HeadTraining, profile: ModelProfile, head: ModelFiles | None) -> HeadTraining:
    """Fill in missing options: from the head to continue, else the defaults."""
    method = asked.method
    if head is not None and method != "mtp":
        asked = _as_given(asked, head)
    if method in ("eagle3", "peagle") and not asked.aux_layers:
        asked = replace(asked, aux_layers=usual_aux_layers(profile.layers))
    return replace(
        asked,
        speculative_tokens=asked.speculative_tokens or TOKENS[method],
        layers=asked.layers or LAYERS[method],
        learning_rate=asked.learning_rate or LEARNING_RATE[method],
        max_tokens=min(asked.max_tokens, profile.max_positions or asked.max_tokens),
        draft_vocab_size=0
        if asked.draft_vocab_size == profile.vocab_size
        else asked.draft_vocab_size,
    )


def usual_aux_layers(layers: int) -> tuple[int, ...]:
    """Return an early, a middle and a late layer: vLLM's and speculators' default where possible.

    Both take (2, n/2, n-3); of few layers these are not three, and then they are spread evenly.
    """
    theirs = (2, layers // 2, layers - 3)
    if theirs[0] < theirs[1] < theirs[2]:
        return theirs
    return tuple(max(1, (place * layers) // (AUX_STATES + 1)) for place in range(1, AUX_STATES + 1))


def check_training(
    asked: HeadTraining,
    model: ModelFiles,
    profile: ModelProfile,
    head: ModelFiles | None,
    values: HeadValues | None = None,
) -> Iterator[Finding]:
    """Yield findings where the head cannot be trained. `asked` has its defaults filled in."""
    if profile.quantization and profile.quantization not in UNPACKED:
        message = f"the model is quantized ({profile.quantization}); heads need unquantized weights"
        hint = "train on the model it was made of: the head serves both"
        yield Finding("error", "training-quantized", message, hint)
    most = MOST_MEDUSA_HEADS if asked.method == "medusa" else MOST_TOKENS
    if asked.speculative_tokens > most:
        yield _option(
            f"speculative_tokens {asked.speculative_tokens} is more than a head learns",
            f"ask for at most {most}; 3 to 5 is usual",
        )
    if asked.method == "mtp":
        yield from _check_mtp(asked, model, head)
        return
    if asked.method in ("eagle3", "peagle"):
        yield from _check_eagle3(asked, profile)
        if asked.method == "peagle":
            yield from _check_peagle(asked, head)
    elif asked.aux_layers or asked.draft_vocab_size:
        yield _option(
            "Medusa heads read the last layer and propose from the whole vocabulary",
            "leave --aux-layers and --draft-vocab-size out, or train with --method eagle3",
        )
    elif asked.trainer != "speculators":
        yield _option(f"{asked.trainer} trains no Medusa heads", "leave --trainer out")
    if head is not None:
        yield from check_head(asked, head, model, profile, values, trains=True)


def _check_peagle(asked: HeadTraining, head: ModelFiles | None) -> Iterator[Finding]:
    if head is not None:
        yield _option("P-EAGLE heads are not trained on", "leave --from out")
    if asked.trainer != "speculators":
        yield _option(f"{asked.trainer} trains no P-EAGLE heads here", "leave --trainer out")


def _check_mtp(
    asked: HeadTraining, model: ModelFiles, head: ModelFiles | None
) -> Iterator[Finding]:
    """Check that the model has an MTP head, of a kind that is trained."""
    kind = str(text_config(model.config).get("model_type", ""))
    if kind not in MTP_TYPES:
        message = f"no MTP head of {kind[:40]!r} is trained: it is none of {', '.join(MTP_TYPES)}"
        yield Finding("error", "draft-mtp-none", message, "train with --method eagle3")
    elif not mtp_tensors(model):
        message = "the checkpoint has no MTP head to train: no tensor is called `mtp.…`"
        hint = "name the checkpoint as it was published, or train with --method eagle3"
        yield Finding("error", "draft-mtp-none", message, hint)
    if head is not None or asked.aux_layers or asked.draft_vocab_size or asked.layers != 1:
        yield _option(
            "an MTP head is the model's own, in its shape",
            "leave --from, --layers, --aux-layers and --draft-vocab-size out",
        )
    if asked.trainer != "speculators":
        yield _option(f"{asked.trainer} trains no MTP heads", "leave --trainer out")


def _check_eagle3(asked: HeadTraining, profile: ModelProfile) -> Iterator[Finding]:
    layers = asked.aux_layers
    if len(layers) != AUX_STATES or len(set(layers)) != len(layers):
        yield _option(
            f"an EAGLE-3 head reads {AUX_STATES} different layers, not {_listed(layers)}",
            "write --aux-layers 2,16,29 and the like, or train with --method medusa",
        )
    elif not all(0 <= layer < profile.layers for layer in layers):
        yield _option(
            f"the model has {profile.layers} layers; layers {_listed(layers)} are requested",
            f"name layers from 0 to {profile.layers - 1}",
        )
    if asked.draft_vocab_size > profile.vocab_size:
        yield _option(
            f"draft_vocab_size {asked.draft_vocab_size} is more than the model's "
            f"{profile.vocab_size} tokens",
            "ask for fewer: 32000 is usual",
        )


def check_head(
    asked: HeadTraining,
    head: ModelFiles,
    model: ModelFiles,
    profile: ModelProfile,
    values: HeadValues | None = None,
    *,
    trains: bool = False,
) -> Iterator[Finding]:
    """Check a head against the model, as a build with it would; `trains` when it is trained on."""
    if asked.method == "mtp":
        yield from check_mtp_head(head, model)
        return
    if asked.method == "medusa":
        heads = read_medusa(head)
        yield from check_medusa(heads, head, model, profile, asked.speculative_tokens, values)
        return
    eagle = read_eagle(head)
    yield from check_eagle(asked.method, eagle, head, model, profile, values, trains=trains)


def _as_given(asked: HeadTraining, head: ModelFiles) -> HeadTraining:
    """Return the request with the shape of the head that is trained on."""
    draft = Draft(kind=asked.method, reference="", speculative_tokens=0)
    if asked.method == "medusa":
        heads = medusa_draft(draft, read_medusa(head))
        return replace(
            asked,
            speculative_tokens=asked.speculative_tokens or heads.heads,
            layers=asked.layers or heads.head_layers,
        )
    eagle = read_eagle(head)
    known = eagle_draft(draft, eagle)
    own_vocabulary = eagle.draft_vocab_size not in (0, eagle.vocab_size)
    return replace(
        asked,
        layers=asked.layers or eagle.layers,
        aux_layers=asked.aux_layers or known.aux_layers,
        draft_vocab_size=asked.draft_vocab_size
        or (eagle.draft_vocab_size if own_vocabulary else 0),
    )


def check_continuing(asked: HeadTraining, head: ModelFiles) -> Iterator[Finding]:
    """Yield findings where the request contradicts the head that is trained on."""
    given = _as_given(replace(asked, speculative_tokens=0, layers=0, aux_layers=(),
                              draft_vocab_size=0), head)  # fmt: skip
    pairs = [("layers", asked.layers, given.layers)]
    if asked.method == "medusa":
        pairs.append(("heads", asked.speculative_tokens, given.speculative_tokens))
    else:
        pairs.append(("tokens to propose", asked.draft_vocab_size, given.draft_vocab_size))
        if asked.aux_layers and given.aux_layers and asked.aux_layers != given.aux_layers:
            yield _option(
                f"the head reads layers {_listed(given.aux_layers)}, "
                f"{_listed(asked.aux_layers)} are requested",
                "leave --aux-layers out",
            )
    for name, wanted, found in pairs:
        if wanted and wanted != found:
            yield _option(
                f"the head that is trained on has {found or 'all'} {name}, {wanted} are requested",
                "leave the option out: a head keeps its shape",
            )


def _option(message: str, hint: str) -> Finding:
    return Finding("error", "training-option", message, hint)


def _listed(layers: tuple[int, ...]) -> str:
    return ", ".join(map(str, layers)) or "none"
