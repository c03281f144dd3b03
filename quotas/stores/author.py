"""Who wrote a quota file last, as far as the writer has said so: an extended attribute of the file.

It holds for the content that it was written with. Whoever edits the file in place leaves an attribute that does not
fit, and an editor that renames leaves none: no change is ever told of somebody who has not made it.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_ATTRIBUTE: Final = "user.sluice.author"
_LONGEST: Final = 200


def sign(descriptor: int, who: str, version: str) -> None:
    """Note that ``who`` has written the open file, of that version; nothing where the file system has no attributes."""
    with suppress(OSError, AttributeError):
        os.setxattr(descriptor, _ATTRIBUTE, json.dumps([who[:_LONGEST], version]).encode())


def author(path: Path, version: str) -> str:
    """Return who wrote the file, if it still is of that version; "" where nobody has said so."""
    try:
        who, signed = json.loads(os.getxattr(path, _ATTRIBUTE))
    except (OSError, AttributeError, ValueError, TypeError, RecursionError):
        return ""
    return who[:_LONGEST] if isinstance(who, str) and signed == version else ""
