"""Runs the cases of vector files against this code: ``python -m tests.conformance FILE…``.

One module a file format; each is a ``Format`` (model.py). A file's format is told by its members, never by its name.
"""
