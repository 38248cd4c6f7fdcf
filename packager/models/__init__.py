"""References, sources, headers, architectures, checkpoints and texts of models.

Others import `adapters`, `architectures`, `checkpoints`, `head_values`, `hub`, `hub_progress`,
`hub_stream`, `local`, `mapped`, `model_card`, `paths`, `pinning`, `reference`, `rules`, `s3`,
`safetensors`, `samples`, `scales`, `trust_roots`, `walk`.
"""
