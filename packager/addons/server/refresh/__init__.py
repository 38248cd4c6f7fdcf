"""Turns of a draft head: captured traffic trains the next one, and only a better one serves.

`turn` and `gate` are values alone; `journal` keeps what was done, so that a killed turn goes on.
"""
