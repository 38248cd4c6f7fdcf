"""Signatures over images and statements about them, in the forms that cosign reads.

`keys` loads private keys, `statements` makes what is signed, `forms` makes the artifacts that
carry it: a sigstore bundle as a referrer, and cosign's earlier tags.
"""
