"""Architectures that each engine version supports, and for which task: `data/engines.json`.

Read from the engines' own tables by scripts/engine-architectures.  An architecture that no
engine lists is judged by transformers' lists and, last, by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from packager.catalog.model_types import generating_classes, is_type
from packager.core.versions import VersionKey, version_key

TABLE = Path(__file__).parent / "data" / "engines.json"

Kind = Literal[
    "text",
    "multimodal",
    "encoder-decoder",
    "speech",
    "classifier",
    "embedding",
    "draft",
    "tagger",
    "reader",
    "many-vector",
    "sparse",
    "image",
    "sound",
    "voice",
    "time-series",
    "protein",
    "agent",
    "",
]
GENERATIVE = ("text", "multimodal")
POOLED = ("embedding", "classifier")  # that give vectors or scores

# Classes whose name says more than the lists of engines, which have two kinds of pooling models.
FIRST: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"For(Image|Video)Classification", re.ASCII), "image"),
    (re.compile(r"^(Csm|Dia)(For|Model)", re.ASCII), "voice"),
    (re.compile(r"^VisionEncoderDecoder", re.ASCII), "encoder-decoder"),
    (re.compile(r"ForAudio\w*Classification$|ForXVector$", re.ASCII), "sound"),
    (re.compile(r"^(Wav2Vec2|Hubert|WavLM|UniSpeech|SEW)\w*ForSequence", re.ASCII), "sound"),
    (re.compile(r"ForTokenClassification$", re.ASCII), "tagger"),
    (re.compile(r"For(QuestionAnswering|MultipleChoice|NextSentence\w+)$", re.ASCII), "reader"),
    (
        re.compile(r"ColBERT|^Col(Pali|Qwen|ModernVBert|UltraVBert|Idefics)|^OpsCol", re.ASCII),
        "many-vector",
    ),
    (re.compile(r"Splade|ForSparse|SparseEncoder", re.ASCII), "sparse"),
    (re.compile(r"^(Esm|ProtBert|ProtT5|Prost|ProGen|AMPLIFY)\w*(For|Model)", re.ASCII), "protein"),
)
# Classes that no engine and no list of transformers names, by how transformers calls them.
NAMES: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"ForSequenceClassification$", re.ASCII), "classifier"),
    (re.compile(r"For(Reward|ProcessReward)Model$|RewardModel$", re.ASCII), "classifier"),
    (
        re.compile(
            r"^(TimesFm|PatchTS|Informer|Autoformer|TimeSeries|Chronos|Moirai|Timer|Toto"
            r"|TinyTimeMixer|Sundial)|For(TimeSeries)?Prediction$",
            re.ASCII,
        ),
        "time-series",
    ),
    (
        re.compile(
            r"ForTextTo(Speech|Waveform)$|^(Vits|Bark|SpeechT5|ParlerTTS|Kokoro|StyleTTS|Xtts"
            r"|FastSpeech2|Musicgen|AudioLDM|Seamless|CosyVoice|F5TTS|Zonos|Dia)\w*",
            re.ASCII,
        ),
        "voice",
    ),
    (
        re.compile(
            r"For(\w*ObjectDetection|\w*Segmentation|\w*DepthEstimation|\w*KeypointDetection"
            r"|Masked\w*Modeling|ImageToImage|\w*ImageSuperResolution|KeypointMatching"
            r"|PoseEstimation|VideoPreTraining)$"
            r"|^(ViT\w*|Dinov\d\w*|Swin\w*|ConvNext\w*|ResNet|Detr|Segformer|DPT|Sam\d?|MobileNet\w*"
            r"|EfficientNet|Beit|VideoMAE)Model$",
            re.ASCII,
        ),
        "image",
    ),
    (
        re.compile(
            r"^(Encodec|Mimi|Dac|Hubert|Wav2Vec2\w*|WavLM|AST|Clap|UniSpeech\w*|Xcodec)Model$",
            re.ASCII,
        ),
        "sound",
    ),
    (re.compile(r"^(\w*EncoderDecoder)Model$", re.ASCII), "encoder-decoder"),
    (
        re.compile(
            r"^(DecisionTransformer|Trajectory|Gato|\w*VLA)\w*|ForActionPrediction$", re.ASCII
        ),
        "agent",
    ),
    (re.compile(r"ForMaskedLM$", re.ASCII), "embedding"),
    (re.compile(r"^(\w*Bert|\w*Roberta|T5Encoder|CLIP|Siglip)Model$", re.ASCII), "embedding"),
    (re.compile(r"ForCTC$", re.ASCII), "speech"),
)


@dataclass(frozen=True, slots=True)
class Listing:
    """Spans of an engine's versions that have a class; "" is open on that side."""

    kind: Kind
    spans: tuple[tuple[str, str], ...]  # the first version with it, the first without it again

    def has(self, version: str) -> bool:
        """Whether a version has it; one that cannot be read is taken as the newest."""
        key = version_key(version)
        if key is None:
            return not self.spans[-1][1]
        return any(_within(key, since, before) for since, before in self.spans)

    def comes_with(self, version: str) -> str:
        """Return the first version after this one that has it, or ""."""
        key = version_key(version)
        later = (
            since for since, _ in self.spans if key and (at := version_key(since)) and at > key
        )
        return next(later, "")

    def went_with(self, version: str) -> str:
        """Return the first version that lacks it again, when this one comes no earlier."""
        key = version_key(version)
        gone = (one for _, one in self.spans if key and (at := version_key(one)) and at <= key)
        return next(gone, "")


@cache
def listing_engines() -> tuple[str, ...]:
    """Return the engines whose lists name classes; the first that has one says what it is."""
    rows = ((name, row) for name, row in _table().items() if isinstance(row, dict))
    return tuple(name for name, row in rows if row.get("architectures"))


def kind_of(architecture: str) -> Kind:
    """Return what a class of models does; "" where unknown."""
    if first := _by_name(architecture, FIRST):
        return first
    listed = generating_classes().get(architecture)
    if listed is not None and listed != "text":  # old lists call encoder-decoders text models
        return listed
    for engine in listing_engines():
        listing = _listings(engine).get(architecture)
        if listing is not None:
            return listing.kind
    if listed is not None:
        return listed
    return _by_name(architecture, NAMES)


def _by_name(architecture: str, names: tuple[tuple[re.Pattern[str], Kind], ...]) -> Kind:
    return next((kind for name, kind in names if name.search(architecture)), "")


def nearest_read(engine: str, version: str) -> str:
    """Return the version whose list applies to this one: itself, or the next one with a list.

    The release between two lists that added a class is unknown: the class is not refused there.
    """
    key = version_key(version)
    if key is None:
        return version
    versions: list[str] = _table()[engine]["versions"]
    later = (one for one in versions if (at := version_key(one)) is not None and at >= key)
    return next(later, version)


def listed_architectures(*engines: str) -> tuple[str, ...]:
    """Return every class that some version of an engine has, sorted; of all engines by default."""
    named = engines or listing_engines()
    return tuple(sorted({name for engine in named for name in _listings(engine)}))


def versions_words(engine: str, architecture: str) -> str:
    """Write the versions that have a class as people read them: `0.17.0-`, `-0.23.0`, `all`."""
    listing = find_listing(engine, architecture)
    if listing is None:
        return ""
    spans = (
        f"{since}-{last_version(engine, before=gone) if gone else ''}"
        for since, gone in listing.spans
    )
    words = ", ".join(spans)
    return "all" if words == "-" else words


def read_on() -> str:
    """Return when the lists were read."""
    date: str = _table()["date"]
    return date


def has_list(engine: str) -> bool:
    """Whether the classes of an engine are known."""
    return engine in listing_engines()


def find_listing(engine: str, architecture: str) -> Listing | None:
    """Return since which version an engine has a class; None where no version does."""
    return _listings(engine).get(architecture) if engine in listing_engines() else None


def is_listed(architecture: str) -> bool:
    """Whether any version of any engine has the class itself."""
    return any(architecture in _listings(engine) for engine in listing_engines())


def served_types(engine: str) -> frozenset[str]:
    """Return the model types that an engine names which chooses by them."""
    return frozenset(_types(engine))


def last_version(engine: str, *, before: str = "") -> str:
    """Return the newest version whose list is known, of all or of those before one of them."""
    versions: list[str] = _table()[engine]["versions"]
    return versions[versions.index(before) - 1] if before else versions[-1]


def reads_type(model_type: str, engine: str = "") -> bool:
    """Whether a configuration of this type is read without the model's own code.

    By transformers, or by the class that an engine brings; of all engines without `engine`.
    """
    engines = (engine,) if engine else listing_engines()
    return is_type(model_type) or any(model_type in _types(one) for one in engines)


def reads_type_in(model_type: str, engine: str, version: str) -> bool:
    """Whether one version of an engine reads it."""
    if is_type(model_type) or engine not in listing_engines():
        return True
    spans = _types(engine).get(model_type, ())
    return bool(spans) and Listing("", spans).has(nearest_read(engine, version))


def type_comes_with(model_type: str, engine: str, version: str) -> str:
    """Return the first version after this one that reads a type, or ""."""
    return Listing("", _types(engine).get(model_type, ())).comes_with(version)


def _within(key: VersionKey, since: str, before: str) -> bool:
    first, end = version_key(since), version_key(before)
    return (first is None or key >= first) and (end is None or key < end)


@cache
def _listings(engine: str) -> Mapping[str, Listing]:
    rows: Mapping[str, Any] = _table()[engine]["architectures"]
    return {name: Listing(row[0], tuple(map(tuple, row[1:]))) for name, row in rows.items()}


@cache
def _types(engine: str) -> Mapping[str, tuple[tuple[str, str], ...]]:
    rows: Mapping[str, Any] = _table()[engine]["model_types"]
    return {name: tuple(map(tuple, spans)) for name, spans in rows.items()}


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(TABLE.read_bytes())
    return table
