"""A mixture of experts: how many there are, how many a token meets, and their size."""

from __future__ import annotations

from dataclasses import dataclass

from packager.models.architectures.reading import Config
from packager.models.architectures.spellings import Architecture, ExpertKeys

# Every spelling in a published config.json; the first that is there wins.
ANY = ExpertKeys(
    count=("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    per_token=(
        "num_experts_per_tok",
        "num_experts_per_token",
        "top_k_experts",
        "moe_topk",
        "moe_top_k",
        "moe_k",
        "num_selected_experts",
    ),
    size=(
        "moe_intermediate_size",
        "expert_ffn_hidden_size",
        "moe_ffn_hidden_size",
        "ffn_hidden_size",
        "intermediate_size",
    ),
)


@dataclass(frozen=True, slots=True)
class Experts:
    """Of one layer. All 0: a dense model."""

    count: int = 0
    per_token: int = 0
    size: int = 0


def read_experts(config: Config, row: Architecture, *, has_weights: bool) -> Experts:
    """Read a mixture of experts; defaults of the class count only if there are weights of experts.

    A family may have dense members whose config.json has no field of experts: Nemotron-H.
    """
    keys = row.experts or ANY
    if row.experts is None and not config.has(*keys.count) and not has_weights:
        return Experts()
    if row.experts is not None:
        count, per_token = config.number(*keys.count), config.number(*keys.per_token)
        found = Experts(count, per_token, config.number(*keys.size))
    else:
        count = config.count(*keys.count)
        if count < 2 or not config.switch("enable_moe_block", default=True):
            return Experts()
        found = Experts(count, config.count(*keys.per_token), config.count(*keys.size))
    if found.per_token > found.count > 0:
        stated = next((key for key in keys.per_token if config.has(key)), keys.per_token[0])
        config.refuse(stated, found.per_token, f"at most the {found.count} experts of a layer")
    return found
