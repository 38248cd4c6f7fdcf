"""The sizes of a model as config.json states them, in whatever words, or as its class assumes."""

from __future__ import annotations

from collections.abc import Mapping

from packager.core.findings import Finding
from packager.models.architectures.blocks import read_blocks
from packager.models.architectures.reading import PUBLISHED, Config
from packager.models.architectures.spellings import Architecture

NEEDED = ("hidden_size", "layers", "heads", "vocab_size", "max_positions")
OPTIONAL = ("kv_heads", "head_dim")
MOST_LAYERS = 4096  # more than any model has: untrusted numbers must not cost memory
UNLIMITED = 1 << 20  # positions of a model that keeps states alone

# Where a mixture of experts has no layer without experts: what a token meets in every layer.
SHARED_SIZES = ("shared_expert_intermediate_size", "shared_intermediate_size")
EXPERT_SIZES = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")


def read_numbers(config: Config, row: Architecture) -> dict[str, int]:
    """Read what every model has; 0 for what config.json states wrongly, which is a finding."""
    if row.state == "all":
        return _attention_free(config, row)
    numbers = {word: _number(config, row, word, needed=True) for word in NEEDED if word != "layers"}
    numbers["layers"] = _layers(config, row)
    numbers |= {word: _number(config, row, word, needed=False) for word in OPTIONAL}
    numbers["intermediate_size"] = _intermediate(config, row, numbers["hidden_size"])
    heads, hidden_size = numbers["heads"], numbers["hidden_size"]
    if row.heads == "falcon":
        numbers["kv_heads"] = _falcon_kv_heads(config, row, numbers["kv_heads"])
    elif row.heads == "multi_query" and config.switch("multi_query", default=True):
        numbers["kv_heads"] = 1
    shared = min((block.heads_a_group for block in read_blocks(config) if block.attends), default=1)
    numbers["kv_heads"] = numbers["kv_heads"] or max(1, heads // shared) * bool(heads)
    if not config.findings:
        states_size = numbers["head_dim"] > 0 or config.count("qk_rope_head_dim") > 0
        config.findings += _contradictions(numbers, has_head_dim=states_size)
    numbers["head_dim"] = numbers["head_dim"] or (hidden_size // heads if heads else 0)
    return numbers


def _number(config: Config, row: Architecture, word: str, *, needed: bool) -> int:
    keys = row.fields[word]
    return config.number(*keys, needed=needed) if keys else 0


def _layers(config: Config, row: Architecture) -> int:
    """Read how many layers there are: Nemotron 3 states the kind of each, and no number."""
    stated = _number(config, row, "layers", needed=False)
    if stated > MOST_LAYERS:
        config.refuse(row.fields["layers"][0], stated, f"at most {MOST_LAYERS}")
        return 0
    if not stated and not config.findings:
        listed = config.listed("layers_block_type", "layer_types", "block_configs")
        return len(listed) if listed else _number(config, row, "layers", needed=True)
    return stated


def _intermediate(config: Config, row: Architecture, hidden_size: int) -> int:
    keys = row.fields["intermediate_size"]
    is_list = config.listed(*keys) is not None  # one for each layer: Gemma 3n
    stated = (
        config.count(*keys) if is_list else _number(config, row, "intermediate_size", needed=False)
    )
    found = stated or hidden_size * row.intermediate_multiple
    found = found or config.count(*SHARED_SIZES) or config.count(*EXPERT_SIZES)
    found = found or max((block.intermediate_size for block in read_blocks(config)), default=0)
    if not found and not config.findings:
        config.missing(keys[0] if keys else "intermediate_size")
    return found


def _attention_free(config: Config, row: Architecture) -> dict[str, int]:
    """Read Mamba: its heads, or its channels, are what devices share."""
    needed = ("hidden_size", "vocab_size")
    numbers = {word: _number(config, row, word, needed=True) for word in needed}
    numbers["layers"] = _layers(config, row)
    expansion = config.count("expand", "expand_factor", "mamba_expand") or 2
    inner = config.count("intermediate_size", assumed=False) or numbers["hidden_size"] * expansion
    heads = config.count("num_heads", "mamba_num_heads") or inner
    return numbers | {
        "intermediate_size": inner,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": inner // heads if heads else 0,
        "max_positions": _number(config, row, "max_positions", needed=False) or UNLIMITED,
    }


def _falcon_kv_heads(config: Config, row: Architecture, stated: int) -> int:
    """Return 0 for as many as heads.

    Falcon-7B states 71 and has one: the number counts only for the new decoder.
    Before Falcon was in transformers there was no switch, and the number alone counted.
    """
    counts = config.switch("new_decoder_architecture", default=row.name == "RWForCausalLM")
    if counts and stated:
        return stated
    return 1 if config.switch("multi_query", default=not counts) else 0


def _contradictions(numbers: Mapping[str, int], *, has_head_dim: bool) -> list[Finding]:
    heads, hidden_size, kv_heads = (numbers[w] for w in ("heads", "hidden_size", "kv_heads"))
    findings = []
    if not has_head_dim and hidden_size % heads:
        message = f"config.json: hidden_size {hidden_size} is not a multiple of {heads} heads"
        findings.append(Finding("error", "config-value", message, PUBLISHED))
    if heads % kv_heads:
        message = f"config.json: {heads} attention heads cannot share {kv_heads} key-value heads"
        findings.append(Finding("error", "config-value", message, PUBLISHED))
    return findings
