"""The table of every setting in docs/configuration.md, from the models: ``python -m config.reference`` rewrites it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from config.forms import Written, described_by
from config.settings import Settings
from config.units import BYTE_UNITS, DURATION_UNITS_MS

BEGIN: Final = "<!-- begin of what python -m config.reference writes -->\n"
END: Final = "<!-- end of what python -m config.reference writes -->\n"


def updated(page: str) -> str:
    """Return the page with the tables between the two marks regenerated."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{''.join(_sections(Settings, '', {}))}{END}{after}"


def _sections(model: type[BaseModel], path: str, told: dict[type[BaseModel], str]) -> Iterator[str]:
    """Yield a heading and a table for each section, outer ones first; ``told`` maps models to their first path."""
    if model in told:
        yield f"### `{path}`\n\nThe same settings as in `{told[model]}`.\n\n"
        return
    told[model] = path
    if path:
        yield f"### `{path}`\n\n{model.__doc__}\n\n"
    rows = [_row(name, field) for name, field in model.model_fields.items() if not described_by(field)]
    if rows:
        yield f"| key | written as | default | meaning |\n|---|---|---|---|\n{''.join(rows)}\n"
    for name, field in model.model_fields.items():
        several = "[]" if get_origin(field.annotation) is tuple else ""
        for section in (models := described_by(field)):
            of = f" ({section.model_fields['type'].default})" if len(models) > 1 else ""
            yield from _sections(section, f"{path}.{field.alias or name}{several}{of}".removeprefix("."), told)


def _row(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"`{_default(name, field)}`"
    return f"| `{field.alias or name}` | {_form(field)} | {default} | {field.description} |\n"


def _form(field: FieldInfo) -> str:
    annotation = field.annotation
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return _choices(annotation)
    if get_origin(annotation) is tuple and get_origin(arguments[0]) is Literal:
        return f"list of {_choices(arguments[0])}"
    marks = (*field.metadata, *(mark for argument in arguments for mark in getattr(argument, "__metadata__", ())))
    kind = next(mark.kind for mark in marks if isinstance(mark, Written)).removeprefix("a ").removeprefix("an ")
    if get_origin(annotation) is tuple:
        return f"list, each {kind}"
    return f"{kind}, or `null`" if type(None) in arguments and field.default is not None else kind


def _choices(annotation: object) -> str:
    return ", ".join(f"`{choice}`" for choice in get_args(annotation))


def _default(name: str, field: FieldInfo) -> str:
    """Return a default in written form; the end of the name gives its unit."""
    value = field.default
    if value is None:
        return "null"
    if value == -1:
        return "-1"
    if name.endswith("_bytes"):
        return _with_unit(value, {unit: size for unit, size in BYTE_UNITS.items() if "i" in unit})
    if name.endswith(("_ms", "_s")):
        return _with_unit(value if name.endswith("_ms") else int(value * 1000), DURATION_UNITS_MS)
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_unit(value: int, units: dict[str, int]) -> str:
    unit, size = max((pair for pair in units.items() if value % pair[1] == 0), key=lambda pair: pair[1])
    return f"{value // size}{unit}"


if __name__ == "__main__":
    page = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/configuration.md")
    page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
