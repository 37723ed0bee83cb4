"""The page of `explain --html`: one file that stands alone, made of the files in page/ and a trace's data.

Tokens may hold anything. They get into the page as JSON in which nothing can end its element, and the page's script
sets them as text only; a Content-Security-Policy allows no other script, and no network at all.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any

from ringlet.core.explanation.attention_flow import attention_flow
from ringlet.core.explanation.page_data import page_data
from ringlet.core.explanation.trace import Trace
from ringlet.core.explanation.walk import Question, question

SCRIPTS = ("data", "elements", "colours", "steps", "maps", "head", "lens", "ring", "page")  # in this order
UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
LONGEST_TITLE = 40
PART = re.compile(r"\{\{(\w+)\}\}")


def html_page(trace: Trace, layer: int = 0, head: int = 0, token: int = -1) -> str:
    """The whole file. It begins with the question of this token in this head; its picture of the flow is of that alone.

    Negative numbers count from the end. Raises RingletError for a layer, head or token that there is not.
    """
    asked = question(trace, layer, head, token)
    script = "\n".join(["'use strict';", "(() => {", *(page_file(f"{name}.js") for name in SCRIPTS), "})();", ""])
    parts = {
        "policy": policy(script),
        "title": escape(title(trace.text)),
        "style": page_file("page.css"),
        "layer": str(asked.layer),
        "head": str(asked.head),
        "flow": flow_of(asked),
        "data": script_json(page_data(asked)),
        "script": script,
    }
    return PART.sub(lambda match: parts[match[1]], page_file("page.html"))  # once: what is put in is not looked into


def page_file(name: str) -> str:
    return (files("ringlet.core.explanation") / "page" / name).read_text(encoding="utf-8")


def policy(script: str) -> str:
    """This script and inline styles, and nothing from anywhere."""
    digest = b64encode(sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )


def title(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"


def script_json(value: Any) -> str:
    """JSON for inside of a <script>: without any character that HTML or JavaScript could take for its end."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(UNSAFE)


def flow_of(asked: Question) -> str:
    """The picture, whose rules and ids keep to itself, without what only a file of its own begins with."""
    flow = attention_flow(asked.trace, asked.layer, asked.head, asked.position)
    return flow[flow.index("<svg") :]
