"""A chat template: messages to the text that a model reads, as transformers' `apply_chat_template` renders it."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from types import TracebackType
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError

from ringlet.core.errors import LONGEST_FAULT, RingletError, fault_text, one_line
from ringlet.tokenization.chat.sandbox import ChatEnvironment, OutOfSteps, Refused
from ringlet.tokenization.chat.text import TEMPLATE, joined
from ringlet.tokenization.chat.values import checked_messages, plain_data, size_of

LONGEST_TEMPLATE = 1 << 17  # characters; the longest that models have are a fifth of it
STEPS = 300_000  # for any conversation: about a second
STEPS_A_MESSAGE = 1_000
STEPS_A_SIZE = 32  # so many times may all texts be read


class ChatTemplate:
    """Several threads may render one; they wait for each other.

    source: the Jinja text. name: how errors call it, with the file it comes from. special_tokens: the texts of the
    tokenizer's, by the names that templates have for them, such as "bos_token".
    Raises RingletError for a text that is no template.
    """

    def __init__(self, source: str, name: str, special_tokens: Mapping[str, str]) -> None:
        self.source, self.name, self._special_tokens = source, name, dict(special_tokens)
        self._environment, self._lock = ChatEnvironment(), Lock()
        if len(source) > LONGEST_TEMPLATE:
            raise RingletError(f"{name}: {len(source)} characters; a chat template has {LONGEST_TEMPLATE} at most")
        try:
            self._compiled: Template = self._environment.from_string(source)
        except TemplateSyntaxError as error:
            text = str(error.message).rstrip(".")
            raise RingletError(f"{name}: no chat template that can be used: line {error.lineno}: {text}") from None
        except Exception as error:  # nested too deep for Python, and the like
            raise RingletError(f"{name}: no chat template that can be used: {fault_text(error)}") from None

    def render(
        self, messages: Any, add_generation_prompt: bool = True, variables: Mapping[str, Any] | None = None
    ) -> str:
        """The text; a `Text` that knows which of its characters come from messages.

        messages: dicts with "role" and "content". add_generation_prompt: with what begins an answer. variables: what
        else the template is to know, such as enable_thinking; texts in it count as the template's.
        Raises RingletError where the messages are not of that kind, where the template refuses them, and where it
        fails or does not come to an end.
        """
        checked = checked_messages(messages)
        given: dict[str, Any] = {
            "messages": checked,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self._special_tokens,
            **{name: plain_data(value, TEMPLATE, name) for name, value in (variables or {}).items()},
        }
        steps = STEPS + STEPS_A_MESSAGE * len(checked) + STEPS_A_SIZE * size_of(checked)
        with self._lock:
            return self._run(given, steps)

    def _run(self, given: dict[str, Any], steps: int) -> str:
        environment = self._environment
        environment.steps, environment.context = steps, self._compiled.new_context(given)
        parts = []
        try:
            for part in self._compiled.root_render_func(environment.context):
                environment.pay(size_of(part))
                parts.append(part)
        except OutOfSteps:
            raise RingletError(
                f"{self.name}: the chat template was stopped after {steps:,} steps: it loops or grows without end"
            ) from None
        except Refused as refused:
            why = one_line(str(refused))[:LONGEST_FAULT]
            raise RingletError(f"{self.name}: the chat template refuses these messages: {why}") from None
        except Exception as error:
            line = self._line_of(error.__traceback__)
            raise RingletError(f"{self.name}: the chat template fails{line}: {fault_text(error)}") from None
        finally:
            environment.context = None
        return joined(parts)

    def _line_of(self, traceback: TracebackType | None) -> str:
        """Where in the template it was, as text."""
        found = ""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == "<template>":
                found = f" in line {self._compiled.get_corresponding_lineno(traceback.tb_lineno)}"
            traceback = traceback.tb_next
        return found
