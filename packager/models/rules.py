"""Selection of the files of a model that are packaged, by their names alone.

An allow-list: what is not known to be needed for serving stays out, with a
reason the user can read.  Names are enough, so that a hub source can decide
before it downloads; contents are checked afterwards, by `contents`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from packager.core.model import FileRole
from packager.core.values import dataclass
from packager.models.refusals import Incomplete, OnlyPickle, OtherFormat

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

PICKLE = re.compile(r".*\.(bin|pt|pth|ckpt|pkl|pickle|joblib|dill|npy|npz|mar)")
OTHER_FORMAT = re.compile(
    r".*\.(gguf|ggml|llamafile|onnx|onnx_data|h5|keras|msgpack|ot|pb|tflite|mlmodel|engine|plan"
    r"|neff|nemo)"
)
OTHER_FORMAT_DIRECTORY = re.compile(
    r"original|onnx|openvino|coreml|gguf|metal|mlx|tf_model|flax_model"
)
CODE = re.compile(r".*\.(py|pyc|pyi|ipynb|sh|bat|ps1|so|dll|dylib|exe|whl|egg|jar|js|wasm)")
# LMI installs requirements.txt and obeys serving.properties that it finds beside the weights.
SETUP_FILE = re.compile(
    r"(.*requirements.*\.txt|constraints.*\.txt|serving\.properties|setup\.cfg|pyproject\.toml"
    r"|environment\.ya?ml|dockerfile.*|makefile)"
)
TEMPORARY = re.compile(r".*(~|\.(lock|tmp|temp|part|partial|incomplete|crdownload|swp|bak|orig))")
TRAINING_FILE = re.compile(
    r"(optimizer|scheduler|rng_state|training_args|trainer_state|zero_pp_rank|scaler)\b.*"
    r"|rng_state_\d+.*|zero_pp_rank_.*|events\.out\.tfevents.*"
    r"|(all|train|eval|predict|test)_results\.json|trainer_log.*|training(_.*)?\.(json|jsonl|txt|png)"
    r"|train_command\.txt|val_metrics\.json"  # the speculators library's: paths of the trainer
)
TRAINING_DIRECTORY = re.compile(r"(checkpoint-\d+|global_step\d+|runs|wandb|logs)")
LEGAL = re.compile(r"(license|licence|notice|use_policy|copying)([._-].*)?")
KEPT = re.compile(r".*\.(json|jinja|txt|model|tiktoken|vocab)")
TOKENIZER_FILE = re.compile(
    r"tokenizer.*|vocab.*|merges\.txt|special_tokens_map\.json|added_tokens\.json|tekken\.json"
    r"|chat_template.*|.*\.(model|tiktoken|vocab|jinja)"
)
CONFIG_FILE = re.compile(r".*config.*\.json|params\.json|model\.safetensors\.index\.json")
MAX_DOCUMENT_BYTES = 1 << 20  # licences and model cards; longer ones are something else
MAX_SMALL_BYTES = 1 << 28  # the largest released tokenizers have some 40 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """Size and digest of a file, known before it is opened."""

    size: int
    sha256: str = ""  # Git LFS object, in hexadecimal
    git_sha1: str = ""  # Git blob, in hexadecimal; empty for LFS files, where it is the pointer's


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSelection:
    """Division of a model's files. The index decides which `candidates` are served."""

    small: tuple[str, ...]  # configuration, tokenizer, documents
    candidates: tuple[str, ...]  # safetensors files at the model's root
    left_out: Mapping[str, str]  # path → why


def choose_files(listing: Mapping[str, ListedFile]) -> FileSelection:
    """Divide the files, in the order of their paths."""
    small: list[str] = []
    candidates: list[str] = []
    left_out: dict[str, str] = {}
    for path in sorted(listing):
        reason = why_left_out(path, listing[path].size)
        if reason:
            left_out[path] = reason
        elif path.lower().endswith(".safetensors"):
            candidates.append(path)
        else:
            small.append(path)
    return FileSelection(small=tuple(small), candidates=tuple(candidates), left_out=left_out)


def why_left_out(path: str, size: int = 0) -> str:
    """Return why a file is not packaged; empty when it is."""
    *directories, name = path.lower().split("/")
    if is_hidden(path):
        return "hidden"
    if TEMPORARY.fullmatch(name):
        return "temporary or lock file"
    if TRAINING_FILE.fullmatch(name) or any(map(TRAINING_DIRECTORY.fullmatch, directories)):
        return "training state"
    if CODE.fullmatch(name):
        return "code is not packaged"
    if SETUP_FILE.fullmatch(name):
        return "would install or configure something in the container"
    if PICKLE.fullmatch(name):
        return "pickle: can run code when it is loaded"
    if OTHER_FORMAT.fullmatch(name) or any(map(OTHER_FORMAT_DIRECTORY.fullmatch, directories)):
        return "copy of the model in another format"
    if name.endswith(".safetensors"):
        return "weights in a sub-directory: engines do not read them" if directories else ""
    if name.endswith(".index.json") and path != INDEX:
        return "index of weights that are not packaged"
    if LEGAL.fullmatch(name) or path.lower() == "readme.md":
        return "" if size <= MAX_DOCUMENT_BYTES else "too long for a document"
    if not KEPT.fullmatch(name):
        return "not needed for serving"
    return "" if size <= MAX_SMALL_BYTES else "too large for configuration or a tokenizer"


def is_hidden(path: str) -> bool:
    """`.git`, `.cache/huggingface/…`, `.DS_Store`."""
    return any(part.startswith(".") for part in path.split("/"))


def role_of(path: str) -> FileRole:
    """Return the role of a packaged file."""
    name = path.lower().rpartition("/")[2]
    if name.endswith(".safetensors"):
        return "weights"
    if TOKENIZER_FILE.fullmatch(name):
        return "tokenizer"
    return "config" if CONFIG_FILE.fullmatch(name) else "other"


def refuse_incomplete(choice: FileSelection, *, is_draft: bool = False) -> None:
    """Refuse what names alone show to be no servable model: nothing need be downloaded.

    A draft shares the tokenizer of the model it drafts for.
    """
    names = frozenset(choice.small)
    if CONFIG not in names:
        raise Incomplete("the model has no 'config.json'", hint=_without_config(choice))
    if not choice.candidates:
        raise _without_weights(choice)
    if is_draft:
        return
    has_tokenizer = (
        "tokenizer.json" in names
        or "tokenizer.model" in names
        or {"vocab.json", "merges.txt", "tokenizer_config.json"} <= names
    )
    if not has_tokenizer:
        raise Incomplete(
            "the model has no tokenizer: neither 'tokenizer.json' nor 'tokenizer.model', nor "
            "'vocab.json' with 'merges.txt' and 'tokenizer_config.json'",
            hint="save the tokenizer beside the weights: `tokenizer.save_pretrained(DIR)`",
        )


def find_single(candidates: tuple[str, ...]) -> str:
    """Find the one weights file of a model without an index."""
    if SINGLE in candidates:
        return SINGLE
    first = candidates[0]
    if any("adapter" in name for name in candidates):
        raise Incomplete(
            f"{first!r} is an adapter, not a model",
            hint="merge it into its base model and save that: `model.merge_and_unload()`",
        )
    raise Incomplete(
        f"the model has neither 'model.safetensors' nor {INDEX!r}, only {first!r}",
        hint="save the model again with `save_pretrained`, which writes them",
    )


def _without_config(choice: FileSelection) -> str:
    if "model_index.json" in choice.small:
        return "this is a pipeline of diffusers: language models are covered, and no others"
    nested = next((path for path in choice.small if path.endswith("/config.json")), "")
    if nested:
        return f"there is one in {nested.rpartition('/')[0]!r}: is that directory the model?"
    if "adapter_config.json" in choice.small:
        return "this is an adapter: merge it into its base model and save that"
    return "give the directory or repository that `save_pretrained` wrote"


def _without_weights(choice: FileSelection) -> Exception:
    training = [path for path, reason in choice.left_out.items() if reason == "training state"]
    weights = [path for path in choice.left_out if path not in training]
    pickles = [path for path in weights if PICKLE.fullmatch(path.lower())]
    others = [path for path in weights if OTHER_FORMAT.fullmatch(path.lower())]
    if pickles:
        return OnlyPickle(pickles)
    if others:
        return OtherFormat(others)
    return Incomplete(
        "the model has no weights: no 'model.safetensors' and no shards",
        hint="finish the download or the copy; weights are files that end in .safetensors",
    )
