"""What the operator said: settings as typed models, and a YAML loader whose every complaint has a line.

It imports nothing of ours.
"""
