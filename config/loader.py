"""The loader of ``sluice.yaml``: returns Settings, or every problem with its line."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from config.document import Document, read_document
from config.forms import described_by
from config.instances import at_instance
from config.nodes import Mapping, Node, Scalar, Sequence
from config.problems import ConfigError, InvalidValue, InvalidValues, Steps, field_path, suggestion
from config.settings import Settings

STATIC: Final[Steps] = ("quotas", "static")
"""The steps to the quota file that substitutes for an unavailable store."""


def load_settings(path: Path) -> Settings:
    """Return the settings in a file; raise ConfigError with every problem found."""
    return load_with_document(path)[0]


def load_with_document(path: Path) -> tuple[Settings, Document]:
    """Return the settings and the document, which has the position of each setting."""
    document = read_document(path, "write the sections cluster, listeners and quotas")
    if document.root.keys() == {"quotas"} and isinstance(document.root["quotas"], Sequence):
        own = "name it in quotas.store.path of a configuration"
        raise ConfigError([document.problem((), InvalidValue("is a quota file, not a configuration", own))])
    try:
        settings = Settings.model_validate(document.root, context=path.parent, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = [one for details in error.errors(include_url=False) for one in _explain(details)]
        raise ConfigError(
            [*document.problems, *(document.problem(steps, invalid) for steps, invalid in wrong)]
        ) from None
    if document.problems:
        raise ConfigError(document.problems)
    try:
        return at_instance(settings, socket.gethostname()), document
    except InvalidValues as error:
        raise ConfigError([document.problem(*each) for each in error.found]) from None


def named_quota_files(path: Path) -> dict[Steps, Path]:
    """Return the quota files named in a configuration, by the steps to them, even if the rest is invalid.

    The last may be that of ``STATIC``.
    """
    try:
        root = read_document(path).root
    except ConfigError:
        return {}
    quotas = root.get("quotas")
    found: dict[Steps, Node] = {("quotas", "store"): _below(quotas, "store")}
    layers = _below(quotas, "stores")
    if isinstance(layers, Sequence):
        found |= {("quotas", "stores", index): layer for index, layer in enumerate(layers)}
    named = {(*steps, "path"): _below(node, "path") for steps, node in found.items()}
    named[STATIC] = _below(quotas, "static")
    return {steps: path.parent / name for steps, name in named.items() if isinstance(name, Scalar)}


def _below(node: Node | None, key: str) -> Node | None:
    return node.get(key) if isinstance(node, Mapping) else None


def _explain(details: ErrorDetails) -> Iterator[tuple[Steps, InvalidValue]]:
    """Convert an error of pydantic to steps and a message of ours."""
    steps, models = _place(details["loc"])
    context = details.get("ctx", {})
    match context.get("error"):
        case InvalidValues() as invalid_values:
            for below, invalid in invalid_values.found:
                yield (*steps, *below), invalid
        case InvalidValue() as invalid:
            yield steps, invalid
        case _:
            yield steps, _in_our_words(details["type"], details["input"], steps, models, context)


def _in_our_words(
    kind: str, found: object, steps: Steps, models: list[type[BaseModel]], context: dict[str, Any]
) -> InvalidValue:
    match kind:
        case "extra_forbidden":
            return InvalidValue("unknown setting", suggestion(str(steps[-1]), _keys(models)), of_key=True)
        case "missing":
            return InvalidValue("is missing", f"add `{steps[-1]}`")
        case "literal_error":
            choices = re.findall(r"'([^']*)'", context["expected"])
            if not isinstance(found, str):
                return InvalidValue("must be a single word", f"one of {', '.join(choices)}")
            return InvalidValue(f"{found!r} is not known", suggestion(found, choices))
        case "model_type" | "model_attributes_type" | "union_tag_not_found" if isinstance(found, Sequence):
            own_file = "write quotas into a file of their own, and its name as quotas.store.path"
            takes = f"it takes {', '.join(_keys(models))}"
            return InvalidValue("must be a section, not a list", own_file if steps == ("quotas",) else takes)
        case "model_type" | "model_attributes_type" | "union_tag_not_found":
            return InvalidValue("has no settings", f"it takes {', '.join(_keys(models))}")
        case "tuple_type" if isinstance(found, Scalar) and "," in found:
            listed = ", ".join(f'"{part.strip()}"' for part in found.split(",") if part.strip())
            return InvalidValue("must be a list, not a single text", f"write [{listed}]")
        case "tuple_type":
            return InvalidValue("must be a list", "begin each item with `- `, or put [ ] around them")
    raise AssertionError(f"no words for {kind} at {field_path(steps)}")


def _place(location: Steps) -> tuple[Steps, list[type[BaseModel]]]:
    """Return the place of an error in the file, and the models that may describe the section there, or the section that
    a setting is in. For a section with several types, pydantic adds the type as a step.
    """
    steps: list[str | int] = []
    models: list[type[BaseModel]] = [Settings]
    for step in location:
        if len(models) > 1 and (chosen := [model for model in models if model.model_fields["type"].default == step]):
            models = chosen
            continue
        steps.append(step)
        if isinstance(step, str):
            fields = {field.alias or name: field for name, field in models[0].model_fields.items()}
            models = (step in fields and described_by(fields[step])) or models
    return tuple(steps), models


def _keys(models: list[type[BaseModel]]) -> list[str]:
    """Return the keys that a section takes."""
    return [field.alias or name for name, field in models[0].model_fields.items()]
