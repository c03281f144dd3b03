"""Pages from templates with autoescape: each is one self-contained HTML file."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from analysis.page import words
from quotas import texts


def page(template: str, content: Mapping[str, Any], **filters: Callable[..., object]) -> str:
    """Return the page of a template, by its path in ``analysis``; ``filters`` are its own, besides those of all."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "size": texts.size,
        "count": texts.count,
        "percent": texts.share,
        "duration": texts.duration,
        "seconds": texts.duration_of_ms,
        "plain": texts.shown,
        "name": name,
        "doing": words.doing,
        **filters,
    }
    script = _read("page/page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    frame = {"style": _read("page/page.css"), "script": script, "digest": digest}
    return environment.get_template(template).render({**content, **frame})


def name(text: str) -> Markup:
    """Return a name: a long one is cut in the middle, with the whole name as its title."""
    whole, short = texts.shown(text), texts.shortened(text)
    title = Markup("") if short == whole else Markup(' title="{}"').format(whole)
    return Markup("<span class=name{}>{}</span>").format(title, short)


def _read(path: str) -> str:
    return files("analysis").joinpath(path).read_text(encoding="utf-8")
