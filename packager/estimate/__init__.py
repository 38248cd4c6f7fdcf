"""What is computed before anything runs: memory, splits, speed, price, time of steps.

Others import `performance`, `sizing`.
"""
