"""Chat templates that come with Ringlet, by the names of their formats."""

from __future__ import annotations

from importlib.resources import files

SHIPPED: dict[str, tuple[str, ...]] = {  # and the control tokens that a model of the format has
    "chatml": ("<|im_start|>", "<|im_end|>"),
    "gemma": ("<start_of_turn>", "<end_of_turn>"),
    "llama3": ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "mistral": (),
    "plain": (),
}


def shipped_template(name: str) -> str:
    """The Jinja source of a name in SHIPPED."""
    return (files("ringlet.tokenization.chat") / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
