"""What of the libraries is no public interface, and is called here.

As `containers/tools/llmcompressor/library.py`.
"""

from __future__ import annotations

from private_names import PrivateNames

PRIVATE = PrivateNames(
    {
        "speculators.convert.eagle.eagle3_converter": {
            "Eagle3Converter": "0.9.0 0f95caab1657 config of a given head",
            "Eagle3Converter._build_eagle3_speculator_config": "0.9.0 dafab2b4d27c called",
        },
        "speculators.models.peagle.core": {
            "generate_cod_sample_indices": "0.9.0 b1d83fb27679 replaced while it is measured"
        },
        "speculators.train.cli": {
            "create_transformer_layer_config": "0.9.0 f95941889819 the layer of a head"
        },
        "speculators.train.data": {
            "BaseDataset": "0.9.0 58136a2771b9 rows of hidden states, from files of our own",
            "BaseDataset._compute_approx_lengths": "0.9.0 7432017385da overridden",
            "BaseDataset._get_raw_data": "0.9.0 2ee3fa98a762 overridden",
            "CollateFn": "0.9.0 2fa39c897bd2 batches of rows",
        },
        "speculators.train.distributed_batch_sampler": {
            "MultipackDistributedBatchSamplerV2": "0.9.0 b9e0f87523bc rows of a batch"
        },
        "transformers.cache_utils": {
            "DynamicLayer": "5.17.0 56c0a116b128 keys and values of which some are selected",
            "DynamicSlidingWindowLayer": "5.17.0 ea27db942c13 likewise",
        },
        "transformers.configuration_utils": {
            "PreTrainedConfig._attn_implementation": "5.17.0 7e84402e207b set: trains on processors"
        },
        "torch.nn.modules.module": {
            "Module.__init__": "2.13.0+cpu d03e0e800358 tables of tensors that move"
        },
    }
)
