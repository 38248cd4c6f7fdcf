"""LoRA adapters as PEFT writes them: what is read of their files, and what is refused.

`read` has the line from files to an `Adapter`; `configuration` the fields of PEFT, `pairs` the
tensors, `choosing` the files, `rewriting` other files of the same deltas.
"""
