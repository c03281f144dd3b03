"""The frame of a page: one self-contained HTML file."""

import base64
import hashlib
from html import escape
from importlib.resources import files


def document(title: str, body: str) -> str:
    """Return a page, with ``title`` as text and ``body`` as HTML."""
    style, script = (
        files("analysis.page").joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    # Second line of defence behind escaping: no requests, and no script but ours.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name=viewport content="width=device-width, initial-scale=1"><link rel=icon href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body>{body}<script>{script}</script></body></html>\n"
    )
