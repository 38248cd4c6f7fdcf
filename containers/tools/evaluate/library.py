"""What of the libraries is no public interface, and is patched or called here.

As `containers/tools/llmcompressor/library.py`.
"""

from __future__ import annotations

from private_names import PrivateNames

PRIVATE = PrivateNames(
    {
        "llmcompressor.modeling.moe.linear_experts": {
            "LinearExperts2D": "0.14.0.1 12338a01aaf7 takes the place of fused experts"
        },
        "llmcompressor.modeling.moe.linearize": {
            "get_non_linearized_moes": "0.14.0.1 76d19d1e9385 which experts are fused"
        },
        "transformers.modeling_utils": {
            "apply_patches": "5.17.0 ea9f55d87c46 patched: experts apart",
            "get_model_conversion_mapping": "5.17.0 c14ecf178a3d patched: experts apart",
            "PreTrainedModel.from_pretrained": "5.17.0 b0e83d48984b calls both",
        },
        "transformers.core_model_loading": {
            "WeightConverter": "5.17.0 295f3523056f what loading fuses",
            "WeightRenaming": "5.17.0 5cbcf4ff251a what loading renames",
            "MergeModulelist": "5.17.0 c2fd9adb2f1f fuses experts",
        },
        "transformers.models.falcon.modeling_falcon": {
            "FalconLinear": "5.17.0 a755730bf071 patched: torch's",
            "FalconPreTrainedModel._init_weights": "5.17.0 7d1d990defc8 patched: fresh weights",
        },
    }
)
