"""Layers, tee, registries, layouts, engines, trees, EROFS, claims: how images are written.

Others import `assemble`, `attached`, `bases`, `blobs`, `claim_key`, `claims`, `compare`,
`compression`, `copy`, `daemon`, `digest_index`, `docker_engine`, `erofs`, `file_digests`, `layout`,
`joining`, `limits`, `lineage`, `oci`, `opened`, `pull_hints`, `pull_report`, `registry`, `report`,
`reshard`, `rootfs`, `sbom`, `seen_blobs`, `selection`, `sharing`, `signatures`, `slim_label`,
`stored`, `tar`, `target`, `tee`, `trees`, `views`, `writers`.
"""
