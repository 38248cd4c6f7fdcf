"""Engines and serving containers: traits, options by version, checks, rendering.

Others import `adapters`, `capability`, `compile_caches`, `config_keys`, `effects`, `lengths`,
`lmi`, `load_formats`, `neuron`, `neuron_targets`, `parsers`, `rendering`, `request_options`,
`rules`, `sagemaker`, `schema`, `sglang`, `shared`, `stopping`, `successors`, `tgi`, `trtllm`,
`vllm`, `without_draft`.
"""
