"""Conversations: what the model sees of them, what is computed, and what undo, retry, save and load do."""

# ruff: noqa: E501 - templates in one line

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_pipeline import EOS, Bytes, Recorded, Told, byte_model, pipeline_of

from ringlet.core.chat.conversation import ChatOptions, Conversation
from ringlet.core.chat.respelling import respelled
from ringlet.core.errors import RingletError
from ringlet.core.generation.idle_ring import shared_length
from ringlet.core.pipeline import Pipeline
from ringlet.tokenization.tokenizer import Tokenizer

TEMPLATE = """{% for m in messages %}{{ '[' ~ m.role[0] ~ ']' ~ m.content ~ ';' }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"""


class Counting(Told):
    """Says "0123456789…" wherever it stands, and remembers how many tokens each step computed."""

    def __init__(self, length: int = 8) -> None:
        super().__init__(*byte_model(), [])
        self.length = length
        self.steps: list[int] = []
        self.seen = bytearray(4096)

    def forward(self, batch: object) -> np.ndarray:
        self.steps.append(len(batch.token_ids))
        for token_id, position in zip(batch.token_ids, batch.positions, strict=True):
            self.seen[position] = token_id if token_id < 256 else 0
        logits = np.zeros((int(batch.wants_logits.sum()), self.config.d_vocab), np.float32)
        for row, position in zip(logits, batch.positions[batch.wants_logits], strict=True):
            text = bytes(self.seen[: position + 1])
            said = len(text) - text.rfind(b"[a]") - 3
            row[ord("0") + said % 10 if said < self.length else EOS] = 100
        return logits


def counting(length: int = 8, **layout: object) -> tuple[Conversation, Counting]:
    backend = Counting(length)
    pipe = pipeline_of(backend, **layout)
    return Conversation(pipe, pipe.tokenizer.chat_format(TEMPLATE), ChatOptions("greedy")), backend


def answer(conversation: Conversation, text: str | None = None) -> str:
    return "".join(conversation.retry() if text is None else conversation.ask(text))


def seen(conversation: Conversation) -> str:
    """What the ring holds, as text."""
    with conversation.pipe.idle_ring.held() as kept:
        return bytes(i for i in kept[0].ring.token_ids if i < 256).decode()


def test_only_what_is_new_is_computed() -> None:
    conversation, backend = counting()
    assert answer(conversation, "Hello, who are you?") == "01234567"
    assert backend.steps == [16, 10, *[1] * 8]  # "[u]…;[a]" in chunks of 16, then the answer
    backend.steps.clear()
    assert answer(conversation, "Why?") == "01234567"
    assert seen(conversation) == "[u]Hello, who are you?;[a]01234567;[u]Why?;[a]01234567"
    assert backend.steps == [12, *[1] * 8]  # ";[u]Why?;[a]": not even the answer's last token
    assert conversation.facts is not None
    assert (conversation.facts.prompt_tokens, conversation.facts.known_tokens) == (46, 34)


def test_undo_and_retry_rewind() -> None:
    conversation, backend = counting()
    answer(conversation, "Hello, who are you?")
    answer(conversation, "Why?")
    backend.steps.clear()
    assert answer(conversation) == "01234567"
    assert backend.steps == [1] * 8  # the prompt is known to the last logits
    assert conversation.undo()
    assert [message["content"] for message in conversation.messages] == ["Hello, who are you?", "01234567"]
    backend.steps.clear()
    answer(conversation, "Where?")
    assert backend.steps == [8, *[1] * 8]  # "ere?;[a]"
    assert conversation.undo()
    assert conversation.undo()
    assert not conversation.undo()
    with pytest.raises(RingletError, match="no message yet to answer again"):
        answer(conversation)


def test_each_answer_has_another_seed() -> None:
    pipe = pipeline_of(Recorded(*byte_model()), eos_ids=())
    options = ChatOptions("temperature=1.5", seed=3, max_tokens=9)
    first = Conversation(pipe, pipe.tokenizer.chat_format(TEMPLATE), options)
    again = Conversation(pipe, pipe.tokenizer.chat_format(TEMPLATE), options)
    said = [answer(first, "Hello"), answer(first), answer(first)]
    assert len(set(said)) == 3
    assert [answer(again, "Hello"), answer(again), answer(again)] == said
    assert [message["content"] for message in again.messages] == ["Hello", said[2]]


def test_an_answer_that_is_stopped_stays_as_far_as_it_came() -> None:
    conversation, _ = counting()
    pieces = conversation.ask("Hello, who are you?")
    assert next(pieces) + next(pieces) + next(pieces) == "012"
    pieces.close()
    assert conversation.messages[-1] == {"role": "assistant", "content": "012"}
    assert conversation.facts is not None
    assert conversation.facts.last is None
    assert answer(conversation, "Go on") == "01234567"
    assert seen(conversation) == "[u]Hello, who are you?;[a]012;[u]Go on;[a]01234567"


def test_a_message_without_a_word_of_answer_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation, _ = counting()
    answer(conversation, "Hello")

    def interrupted(backend: Counting, batch: object) -> np.ndarray:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Counting, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            answer(conversation, "Why?")
        with pytest.raises(KeyboardInterrupt):
            answer(conversation)
    assert [message["content"] for message in conversation.messages] == ["Hello", "01234567"]
    with pytest.raises(RingletError, match="lone surrogate"):
        answer(conversation, "\ud800")
    assert len(conversation.messages) == 2
    conversation.ask("never begun").close()
    assert len(conversation.messages) == 2


def test_the_system_message_stands_first() -> None:
    conversation, _ = counting()
    conversation.system = "Be brief."
    answer(conversation, "Hello")
    assert seen(conversation) == "[s]Be brief.;[u]Hello;[a]01234567"
    conversation.system = None
    answer(conversation, "Hello")
    assert seen(conversation) == "[u]Hello;[a]01234567;[u]Hello;[a]01234567"


# --- a context that is full ------------------------------------------------------------------------------------------


def test_the_oldest_turns_are_left_out_when_the_context_is_full() -> None:
    conversation, _ = counting(context=100)
    conversation.system = "S"
    told = []
    for number in range(12):
        assert answer(conversation, f"message {number:02}") == "01234567"
        told.append(conversation.left_out)
        assert seen(conversation).startswith("[s]S;[u]message ")
        assert len(seen(conversation)) <= 100
    assert told[:3] == [0, 0, 0]
    assert told == sorted(told)
    assert len(set(told)) < 8  # not at every turn, so that most go on with the ring
    assert len(conversation.messages) == 24  # nothing is forgotten but by the model


def test_a_message_that_does_not_fit_is_refused_and_taken_back() -> None:
    conversation, _ = counting(context=100)
    answer(conversation, "Hello")
    with pytest.raises(RingletError, match="the message alone makes 127 tokens and the context is 100: shorten it"):
        answer(conversation, "x" * 120)
    assert len(conversation.messages) == 2
    assert conversation.left_out == 0
    assert answer(conversation, "Hello") == "01234567"


def test_an_answer_ends_where_the_context_does() -> None:
    conversation, _ = counting(length=500, context=60)
    said = answer(conversation, "x" * 40)
    assert len(said) == 60 - 47
    assert conversation.facts is not None
    assert conversation.facts.last is not None
    assert conversation.facts.last.finish_reason == "length"


def test_a_ring_that_slides_goes_on() -> None:
    conversation, backend = counting(context=64, overflow="slide", sinks=4)
    for number in range(8):
        backend.steps.clear()
        assert answer(conversation, f"message {number}") == "01234567"
        assert sum(backend.steps) < 32  # nothing is computed again
    assert conversation.left_out == 0
    assert len(seen(conversation)) > 150


# --- saving ----------------------------------------------------------------------------------------------------------


def test_a_saved_conversation_goes_on_with_its_ring(tmp_path: Path) -> None:
    first, _ = counting()
    first.system = "Be brief."
    answer(first, "Hello")
    first.save(tmp_path / "s")
    second, backend = counting()
    second.load(tmp_path / "s")
    assert (second.system, second.messages) == (first.system, first.messages)
    assert answer(second, "Why?") == answer(first, "Why?")
    assert backend.steps == [12, *[1] * 8]
    assert seen(second) == seen(first)


def test_what_was_left_out_stays_so(tmp_path: Path) -> None:
    first, _ = counting(context=100)
    for number in range(6):
        answer(first, f"message {number:02}")
    assert first.left_out
    first.save(tmp_path / "s")
    second, backend = counting(context=100)
    second.load(tmp_path / "s")
    assert second.left_out == first.left_out
    answer(first, "Why?")
    answer(second, "Why?")
    assert seen(second) == seen(first)
    assert backend.steps[0] == 12


def test_a_ring_alone_is_no_conversation(tmp_path: Path) -> None:
    first, _ = counting()
    with pytest.raises(RingletError, match="nothing to save yet"):
        first.save(tmp_path / "s")
    first.pipe.generate("a prompt that is none of a chat", 4)
    first.pipe.save_session(tmp_path / "s")
    answer(first, "Hello")
    before = list(first.messages)
    with pytest.raises(RingletError, match=r"s: it holds a ring, but no conversation$"):
        first.load(tmp_path / "s")
    assert first.messages == before


# --- the interface of Python -----------------------------------------------------------------------------------------


def with_template(pipe: Pipeline, template: str | None = TEMPLATE) -> Pipeline:
    pipe.tokenizer = Tokenizer(
        Bytes(), eos_ids=(EOS,), chat_templates={} if template is None else {"default": template}
    )
    return pipe


def test_pipe_chat_and_stream_chat() -> None:
    pipe = with_template(pipeline_of(Counting()))
    messages = [{"role": "user", "content": "Hello, who are you?"}]
    assert pipe.chat_ids(messages) == list(b"[u]Hello, who are you?;[a]")
    completion = pipe.chat(messages, sampler="greedy")
    assert (completion.text, completion.finish_reason) == ("01234567", "stop")
    assert completion.usage.prompt_tokens == 26
    assert "".join(chunk.text for chunk in pipe.stream_chat(messages, max_tokens=3)) == "012"
    messages += [{"role": "assistant", "content": completion.text}, {"role": "user", "content": "Why?"}]
    pipe.backend.steps.clear()
    assert pipe.chat(messages, sampler="greedy").text == "01234567"
    assert sum(pipe.backend.steps) < 30
    assert pipe.chat(messages, template="x{{ n }}", variables={"n": 7}, max_tokens=2).usage.prompt_tokens == 2
    with pytest.raises(RingletError, match="chat gives one answer"):
        pipe.chat(messages, n=2)
    with pytest.raises(RingletError, match="max_tokens"):
        pipe.chat(messages, max_tokens=-1)
    with pytest.raises(RingletError, match="no chat template"):
        with_template(pipeline_of(Counting()), None).chat(messages)


# --- texts that were drawn in other pieces ---------------------------------------------------------------------------

WORDS = ["a", "b", "c", "ab", "bc", "abc", "ca", " ", "  ", "你", "\u00e9"]
SPECIAL = len(WORDS)


class Words:
    """A tokenizer of a few tokens, of which some are others put together; the last is special."""

    special_ids = frozenset({SPECIAL})

    def token_bytes(self, token_id: int) -> bytes:
        return b"<end>" if token_id == SPECIAL else WORDS[token_id].encode()


IDS = st.lists(st.integers(0, SPECIAL), max_size=12)


def spelled(ids: Sequence[int]) -> bytes:
    return b"".join(b"\xff" if token_id == SPECIAL else WORDS[token_id].encode() for token_id in ids)


@settings(max_examples=400)
@given(IDS, IDS)
def test_a_respelled_text_is_the_same_text(ids: list[int], known: list[int]) -> None:
    found = respelled(ids, known, Words())
    assert spelled(found) == spelled(ids)
    shared = shared_length(found, known)
    for length in range(len(known), shared, -1):  # no longer beginning of what is known could have been taken
        rest = spelled(ids)[len(spelled(known[:length])) :]
        ends = {len(spelled(ids[:at])) for at in range(len(ids) + 1)}
        fits = spelled(ids).startswith(spelled(known[:length])) and len(spelled(known[:length])) in ends
        assert not fits, rest


def test_respelling_takes_over_what_was_drawn() -> None:
    ab, a, b, c, abc = WORDS.index("ab"), 0, 1, 2, WORDS.index("abc")
    assert respelled([abc, SPECIAL, ab], [a, b, c, SPECIAL], Words()) == [a, b, c, SPECIAL, ab]
    assert respelled([ab, c, SPECIAL], [a, b, SPECIAL], Words()) == [a, b, c, SPECIAL]
    assert respelled([abc], [a, b], Words()) == [abc]  # no token of the text ends there
    assert respelled([a, b], [a, c], Words()) == [a, b]
    assert respelled([], [a], Words()) == []
    whole_words = Tokenizer(Bytes())
    assert respelled([1, 2], [1, 3], whole_words) == [1, 2]


@pytest.mark.real_model
def test_smollm2_computes_only_what_is_new(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipeline.from_pretrained(smollm2_path, context=1024)
    conversation = Conversation(pipe, pipe.tokenizer.chat_format(), ChatOptions("temperature=1.0", 1, 48))
    for question in (
        "Write a poem about the sea.",
        "Translate it into French.",
        "Why is the sky blue?",
        "And the sea?",
    ):
        before = conversation.facts
        answer(conversation, question)
        facts = conversation.facts
        assert facts is not None
        if before is not None:  # all but the last token that was drawn, which need not have been computed
            assert facts.known_tokens >= before.prompt_tokens + before.answer_tokens - 1
    canonical = pipe.chat_ids(conversation.messages[:-1])
    assert pipe.tokenizer.decode(canonical, skip_special=False).endswith(
        "And the sea?<|im_end|>\n<|im_start|>assistant\n"
    )
