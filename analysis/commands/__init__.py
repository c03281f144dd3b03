"""The commands of ``sluice analyze``: a module each, named as its command, with a ``command``."""
