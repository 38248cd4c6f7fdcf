"""Selection of the files of a model that are packaged, by their names alone.

An allow-list: what is not known to be needed for serving stays out, with a
reason the user can read.  Names are enough, so that a hub source can decide
before it downloads; contents are checked afterwards, by `contents`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from packager.core.model import FileRole
from packager.core.tokenizer_files import TEKKEN, TOKENIZERS
from packager.models import mistral_format
from packager.models.other_kinds import MERGE, kind_of_directory
from packager.models.refusals import Incomplete, OtherFormat, only_pickle, other_kind

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MODULES = "modules.json"  # of sentence-transformers
MODULE = re.compile(r"\d{1,2}_[A-Za-z]\w{0,40}", re.ASCII)  # `1_Pooling`: directories it names

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
KEPT = re.compile(rf".*\.(json|jinja|txt|model|tiktoken|vocab)|{mistral_format.TOKENIZER.pattern}")
TOKENIZER_FILE = re.compile(
    r"tokenizer.*|vocab.*|merges\.txt|special_tokens_map\.json|added_tokens\.json|tekken\.json"
    r"|chat_template.*|.*\.(model|tiktoken|vocab|jinja)|.*\.model\.v\d\w*"
)
CONFIG_FILE = re.compile(r".*config.*\.json|params\.json|.*\.safetensors\.index\.json")
MAX_DOCUMENT_BYTES = 1 << 20  # licences and model cards; longer ones are something else
MAX_SMALL_BYTES = 1 << 28  # the largest released tokenizers have some 40 MB


ADAPTER = "adapter_config.json"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"
_SHARD = re.compile(r"(?P<set>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
_NUMBERED = re.compile(r"(?P<set>.+)\.(?P<number>\d{2,5})\.safetensors")  # `weights.00`


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModelFile:
    """Size and digest of a file, known before it is opened."""

    size: int
    sha256: str = ""  # Git LFS object, in hexadecimal
    git_sha1: str = ""  # Git blob, in hexadecimal; empty for LFS files, where it is the pointer's


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSelection:
    """Division of a model's files. The index decides which `candidates` are served."""

    small: tuple[str, ...]  # configuration, tokenizer, documents; adapters, modules below the root
    candidates: tuple[str, ...]  # safetensors files at the model's root
    left_out: Mapping[str, str]  # path → why

    @property
    def is_native(self) -> bool:
        """Whether the model is in Mistral's own format, and in no other."""
        return mistral_format.is_native(self.small, self.candidates)

    @property
    def index(self) -> str:
        """The name of the index that says which weights are the model's."""
        return mistral_format.INDEX if self.is_native else INDEX


def choose_files(listing: Mapping[str, ListedModelFile]) -> FileSelection:
    """Divide the files, in the order of their paths."""
    small: list[str] = []
    candidates: list[str] = []
    left_out: dict[str, str] = {}
    modules = _module_folders(listing)
    inner = {path.rpartition("/")[0] for path in listing if "/" in path and _is_weights(path)}
    inner -= modules
    for path in sorted(listing):
        directory, _, name = path.rpartition("/")
        is_adapter = f"{directory}/{ADAPTER}".lstrip("/") in listing
        in_module = directory in modules and name == SINGLE
        reason = why_left_out(path, listing[path].size, is_read=is_adapter or in_module)
        if not reason and is_adapter and (directory or name == ADAPTER):
            reason = _adapter_fault(directory, listing)
        elif not reason and directory in inner:
            reason = "part of a model in a sub-directory, whose weights engines do not read"
        if reason:
            left_out[path] = reason
        elif not directory and name.lower().endswith(".safetensors"):
            candidates.append(path)
        else:
            small.append(path)
    found = FileSelection(small=tuple(small), candidates=tuple(candidates), left_out=left_out)
    for path, reason in _superseded(found):
        small.remove(path)
        left_out[path] = reason
    return replace(found, small=tuple(small))


def _superseded(found: FileSelection) -> Iterator[tuple[str, str]]:
    """Yield files that another file replaces: an index of other weights, a second tokenizer."""
    for path in {INDEX, mistral_format.INDEX} - {found.index}:
        if path in found.small:
            yield path, "index of weights that are not packaged"
    used, *others = mistral_format.native_tokenizers(found.small) or [""]
    for path in others:
        yield path, f"tokenizer beside {used!r}, which engines read"


def _module_folders(listing: Collection[str]) -> frozenset[str]:
    """Return the directories of modules beside a model at the root; none without `modules.json`."""
    if MODULES not in listing or CONFIG not in listing:
        return frozenset()
    heads = (path.partition("/")[0] for path in listing if path.count("/") == 1)
    return frozenset(head for head in heads if MODULE.fullmatch(head))


def _is_weights(path: str) -> bool:
    name = path.lower().rpartition("/")[2]
    named = name.endswith(".safetensors") or PICKLE.fullmatch(name) or OTHER_FORMAT.fullmatch(name)
    return bool(named) and not TRAINING_FILE.fullmatch(name)


def _adapter_fault(directory: str, listing: Mapping[str, ListedModelFile]) -> str:
    """Return why an adapter is not packaged: all of its files are, or none."""
    if f"{directory}/{_ADAPTER_WEIGHTS}".lstrip("/") in listing:
        return ""
    return f"adapter without {_ADAPTER_WEIGHTS!r}"


def why_left_out(path: str, size: int = 0, *, is_read: bool = False) -> str:
    """Return why a file is not packaged; empty when it is.

    Weights in a sub-directory stay where they are an adapter's or a module's: then they are read.
    """
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
        beside = directories and not is_read
        return "weights in a sub-directory: engines do not read them" if beside else ""
    if name.endswith(".index.json") and path not in (INDEX, mistral_format.INDEX):
        return "index of weights that are not packaged"
    if LEGAL.fullmatch(name) or path.lower() == "readme.md":
        return "" if size <= MAX_DOCUMENT_BYTES else "too long for a document"
    if not KEPT.fullmatch(name):
        return "not needed for serving"
    return "" if size <= MAX_SMALL_BYTES else "too large for configuration or a tokenizer"


def is_hidden(path: str) -> bool:
    """`.git`, `.cache/huggingface/…`, `.DS_Store`, and what Python keeps of code that ran."""
    return any(part.startswith(".") or part == "__pycache__" for part in path.split("/"))


def role_of(path: str) -> FileRole:
    """Return the role of a packaged file."""
    name = path.lower().rpartition("/")[2]
    if name.endswith(".safetensors"):
        return "other" if "/" in path else "weights"  # an adapter's are none of the model's
    if TOKENIZER_FILE.fullmatch(name):
        return "tokenizer"
    return "config" if CONFIG_FILE.fullmatch(name) else "other"


def refuse_incomplete(choice: FileSelection, *, is_draft: bool = False) -> None:
    """Refuse files whose names alone show that the model cannot be served, before a download.

    A draft shares the tokenizer of the model it drafts for.
    """
    names = frozenset(choice.small)
    kind = kind_of_directory(
        choice.candidates,
        choice.small,
        choice.left_out,
        is_native=choice.is_native,
        is_draft=is_draft,
    )
    if kind is not None:
        raise other_kind(*kind)
    if CONFIG not in names and not choice.is_native:
        raise Incomplete("the model has no 'config.json'", hint=_without_config(choice))
    if not choice.candidates:
        raise _without_weights(choice)
    if ADAPTER in names and len(choice.candidates) > 1:
        raise Incomplete(
            "an adapter lies among the model's own files: 'adapter_config.json'",
            hint="move it into a directory of its own, which is packaged whole, or merge it: "
            f"{MERGE}",
        )
    if is_draft:
        return
    if choice.is_native and not mistral_format.native_tokenizers(names):
        raise Incomplete(
            "the model is in Mistral's own format and has no tokenizer of it: neither "
            f"{TEKKEN!r} nor one such as 'tokenizer.model.v3'",
            hint="get the tokenizer of the same repository",
        )
    if not choice.is_native and not any(files <= names for files in TOKENIZERS):
        raise _without_tokenizer(names)


def find_unlisted(candidates: tuple[str, ...]) -> tuple[str, ...]:
    """Find the weights files of a model without an index: one, or one whole set of shards.

    Raises `Incomplete` where a shard is missing, or it is not sure which files are meant.
    """
    if SINGLE in candidates:
        return (SINGLE,)
    sets: dict[tuple[str, str], set[int]] = {}
    native = mistral_format.is_consolidated
    found = [name for name in candidates if not native(name)] or [*candidates]
    for name in found:
        shard, numbered = _SHARD.fullmatch(name), _NUMBERED.fullmatch(name)
        if shard:
            sets.setdefault((shard["set"], shard["count"]), set()).add(int(shard["number"]))
        elif numbered:  # from 0 on; their count is unknown
            sets.setdefault((numbered["set"], ""), set()).add(int(numbered["number"]) + 1)
        else:
            sets.setdefault((name, ""), set()).add(1)
    if len(sets) > 1:
        named = ", ".join(repr(name) for name, _ in sorted(sets))
        raise Incomplete(
            f"the model has several sets of weights and no {INDEX!r}: {named}",
            hint="keep the files of one set in the directory, or get the index that says which",
        )
    (_, count), numbers = next(iter(sets.items()))
    last = int(count) if count else max(numbers)
    missing = next((one for one in range(1, last + 1) if one not in numbers), None)
    if missing is not None:
        raise Incomplete(
            f"the model lacks shard {missing} of {last}",
            hint="finish the download or copy",
        )
    return tuple(found)


def _without_tokenizer(names: frozenset[str]) -> Incomplete:
    own = sorted(name for name in names if name.endswith(".tiktoken") or name == "tiktoken.model")
    if own:
        return Incomplete(
            f"the model's only tokenizer, {own[0]!r}, is read by code of the model's own",
            hint="such code is never packaged; convert it once where that is no risk: "
            "`AutoTokenizer.from_pretrained(DIR, trust_remote_code=True)`, then save "
            "'tokenizer.json' beside the weights",
        )
    return Incomplete(
        "the model has no tokenizer: neither 'tokenizer.json', 'tokenizer.model' nor "
        f"{TEKKEN!r}, nor 'vocab.json' with 'merges.txt' and 'tokenizer_config.json'",
        hint="save the tokenizer beside the weights: `tokenizer.save_pretrained(DIR)`",
    )


def _without_config(choice: FileSelection) -> str:
    nested = next((path for path in choice.small if path.endswith("/config.json")), "")
    if nested:
        return f"there is one in {nested.rpartition('/')[0]!r}: is that directory the model?"
    return "give the directory or repository that `save_pretrained` wrote"


def _without_weights(choice: FileSelection) -> Exception:
    training = [path for path, reason in choice.left_out.items() if reason == "training state"]
    weights = [path for path in choice.left_out if path not in training]
    pickles = [path for path in weights if PICKLE.fullmatch(path.lower())]
    others = [path for path in weights if OTHER_FORMAT.fullmatch(path.lower())]
    if pickles:
        return only_pickle(pickles)
    if others:
        return OtherFormat(others)
    return Incomplete(
        "the model has no weights: no 'model.safetensors' and no shards",
        hint="finish the download or the copy; weights are files that end in .safetensors",
    )
