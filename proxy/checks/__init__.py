"""Checks of everything that a configuration names: certificates, keys, password files, rules.

``config`` has checked the settings themselves, and reads no other file. ``sluice check`` prints these findings, and
``sluice run`` logs them at startup: problems that would appear only with the first connection appear at once.
"""
