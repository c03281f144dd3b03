"""What goes wrong for a reason that its reader can do something about."""


class AnalysisError(Exception):
    """One line: what was found, where, and what to do. The command line prints it and exits with 2."""
