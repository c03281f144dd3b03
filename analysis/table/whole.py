"""A folder of tables with a page, which is there as a whole or not at all.

It is made beside, under a name that nobody else has and no reader looks at, and put in place when all of it is there:
two runs at once, or one that is killed, leave no tables beside others' page. Who is last to be done stays.
"""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from analysis.errors import AnalysisError
from analysis.spark.folder import Folder

_BEING_MADE: Final = ".being-made-"
_LEFT_S: Final = 86_400
"""What was begun so long ago is of a run that was killed."""
_TRIES: Final = 100
_IS_THERE: Final = (errno.ENOTEMPTY, errno.EEXIST)


@contextmanager
def made_whole(
    spark: SparkSession,
    out: str,
    name: str,
    page: str,
    now_s: Callable[[], float] = time.time,  # noqa: TID251  of a program that looks at dates
) -> Iterator[str]:
    """Yield where to make the folder ``name`` of ``out``; it is put there at the end, in the place of an earlier one.

    ``page`` is the file that says that all of it is there. What others, which were killed, have left for a day goes.
    """
    folder = Folder(spark, out)
    for each in folder.names(f"{_BEING_MADE}*"):
        begun_s, _, _ = each.removeprefix(_BEING_MADE).partition("-")
        if begun_s.isdecimal() and int(begun_s) < now_s() - _LEFT_S:
            folder.remove(each)
    own = f"{_BEING_MADE}{int(now_s())}-{uuid4().hex[:12]}"
    try:
        yield f"{out.rstrip('/')}/{own}/{name}"
        if folder.is_on_disk:
            _rename(folder, own, name)
        else:
            _move(folder, own, name, page)
    finally:
        with suppress(AnalysisError, Py4JError, OSError):  # Java may have ended, and with it the run
            folder.remove(own)


def _rename(folder: Folder, own: str, name: str) -> None:
    """Put it in place by a rename; not by Hadoop's, which puts it into a folder that another run has just put there."""
    made, to = folder.on_disk(f"{own}/{name}"), folder.on_disk(name)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        for number in range(_TRIES):
            with suppress(FileNotFoundError):
                to.rename(folder.on_disk(f"{own}/old-{number}"))
            try:
                made.rename(to)
            except OSError as error:
                if error.errno not in _IS_THERE:
                    raise
            else:
                return
    except OSError as error:
        raise AnalysisError(f"{to}: {error.strerror}") from error
    raise AnalysisError(f"{to}: others put theirs there all the time")


def _move(folder: Folder, own: str, name: str, page: str) -> None:
    """Put it in place where renaming may be copying, object by object: the page goes first, and comes last."""
    folder.remove(f"{name}/{page}")
    folder.move(f"{own}/{name}/{page}", f"{own}/{page}")
    folder.move(f"{own}/{name}", name)
    folder.move(f"{own}/{page}", f"{name}/{page}")
