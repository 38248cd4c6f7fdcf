"""Fields of config.json that are in keys and shown to tools, per purpose."""

from __future__ import annotations

from collections.abc import Mapping

# Fields that no tool reads: who wrote it, and where.
UNREAD = frozenset({"_name_or_path", "_commit_hash", "transformers_version"})

# Fields that weights do not depend on: stop tokens and serving settings.
NO_WEIGHT = UNREAD | {"eos_token_id", "bos_token_id", "use_cache"}

# Fields that do not shape a graph; its element types have a place of their own in a key.
NO_SHAPE = UNREAD | {"torch_dtype", "dtype"}

# Names, tokens, versions and defaults of a config that do not shape a graph.
NO_GRAPH = frozenset(
    {
        "_name_or_path",
        "_commit_hash",
        "_attn_implementation_autoset",
        "_use_default_values",
        "architectures",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "pad_token_id",
        "return_dict",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_cache",
    }
)


def kept_fields(config: Mapping[str, object], left_out: frozenset[str]) -> dict[str, object]:
    """Return the remaining fields of a config, in a fixed order."""
    return {name: config[name] for name in sorted(config) if name not in left_out}
