"""Capture of traffic: rows, redaction, files, and the queue between them and a server.

It needs Python 3.9 and its standard library alone, because images and proxies have no more; it
knows no server.  `recorder` is what servers use: they keep references and offer them; a thread of
its own makes rows of them and writes the files.  The format is that of SageMaker's Data Capture.
"""
