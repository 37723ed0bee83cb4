"""Makes tests/fixtures/chat: what transformers renders for the templates and conversations of tests/chat_battery.py.

    python tests/make_fixtures/chat.py

It needs transformers; run it again when the battery changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from chat_battery import CONVERSATIONS, SPECIAL_TOKENS, TEMPLATES  # noqa: E402


def rendered(template: str, conversation: str, generate: bool) -> str | None:
    """None where transformers raises an exception."""
    messages = _normalize_chat_messages(CONVERSATIONS[conversation])
    options = {"chat_template": TEMPLATES[template], "add_generation_prompt": generate, **SPECIAL_TOKENS}
    try:
        return render_jinja_template([messages], **options)[0][0]
    except Exception:
        return None


if __name__ == "__main__":
    cases = [
        {"template": template, "conversation": conversation, "generate": generate}
        for template in TEMPLATES
        for conversation in CONVERSATIONS
        for generate in (False, True)
    ]
    found = [{**case, "text": rendered(**case)} for case in cases]
    target = TESTS / "fixtures" / "chat" / "rendered.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"{len(found)} texts, {sum(case['text'] is None for case in found)} of them refused, in {target.name}")
