"""Commands that answer with their exit status: 1 says something, and an error is always 2."""

import sys
import traceback
from io import StringIO
from typing import Any

import click

from analysis.errors import AnalysisError, of_worker
from analysis.spark import interrupt


class Answering(click.Command):
    """Whatever ends it but its own ``sys.exit(1)``, the status is another one.

    Otherwise click and Python end with 1, and so does a run that failed on the way: a script would take that for the
    answer.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AnalysisError as error:
            raise AnalysisError(str(error)) from error  # whatever kind it was of
        except BrokenPipeError:
            # Who read it has gone. What is still to be written may not fail again when Python ends.
            sys.stdout = StringIO()
            sys.exit(AnalysisError.exit_status)
        except (click.UsageError, click.exceptions.Exit):
            raise
        except Exception as error:
            if interrupt.is_cause(error):
                raise
            if (said := of_worker(error)) is not None:
                raise AnalysisError(said) from error
            traceback.print_exc()
            sys.exit(AnalysisError.exit_status)
