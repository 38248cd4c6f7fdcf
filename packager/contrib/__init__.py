"""Plug-ins that stand behind the doors of other packages: nothing but their rows imports them.

Each has never run on the devices that it is for, or serves what upstream has given up.
"""
