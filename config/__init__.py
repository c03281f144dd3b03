"""The configuration: settings as typed models, and a YAML loader whose errors all have a line.

It imports no other package of Sluice.
"""
