"""What a configuration names, looked at before it is needed: certificates, keys, password files, rules.

The settings themselves were checked by ``config``, which reads no file but its own. ``sluice check`` prints what is
found here, and ``sluice run`` looks at its start: what would only show at the first connection shows at once.
"""
