"""packager: from (model, target instance) to a deployable serving image.

Import nothing heavy here: every command pays for what this file imports.
"""

__version__ = "0.1.0"
