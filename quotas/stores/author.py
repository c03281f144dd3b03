"""The last author of a quota file, stored by the writer in an extended attribute of the file.

It applies only to the content it was written with. An editor that changes the file in place leaves an attribute that
does not match, and one that renames leaves none, so a change is never attributed to the wrong author.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_ATTRIBUTE: Final = "user.sluice.author"
_LONGEST: Final = 200


def sign(descriptor: int, who: str, version: str) -> None:
    """Store ``who`` and the version in the open file; does nothing if the file system has no attributes."""
    with suppress(OSError, AttributeError):
        os.setxattr(descriptor, _ATTRIBUTE, json.dumps([who[:_LONGEST], version]).encode())


def author(path: Path, version: str) -> str:
    """Return the author if the file still has this version; "" if unknown."""
    try:
        who, signed = json.loads(os.getxattr(path, _ATTRIBUTE))
    except (OSError, AttributeError, ValueError, TypeError, RecursionError):
        return ""
    return who[:_LONGEST] if isinstance(who, str) and signed == version else ""
