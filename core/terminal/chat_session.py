"""A conversation on a terminal or through a pipe: lines in, answers out, and commands that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import click

from ringlet.core.chat.conversation import Conversation
from ringlet.core.errors import RingletError, one_line
from ringlet.core.terminal.chat_lines import FENCE, ChatLines
from ringlet.core.terminal.console import warn
from ringlet.core.terminal.text_tables import size_text

LEAVE_HINT = "(Ctrl-C again leaves, and so does Ctrl-D)"


class ChatSession:
    """conversation: with the model. lines: what is said. check_sampler: raises RingletError for a chain that cannot be.

    On a terminal a mistake is told, and the conversation goes on; elsewhere it ends.
    """

    def __init__(self, conversation: Conversation, lines: ChatLines, check_sampler: Callable[[str], None]) -> None:
        self._conversation, self._lines, self._check_sampler = conversation, lines, check_sampler
        self._interrupts = 0  # Ctrl-C since the last line
        self._told_left_out = conversation.left_out
        self._told_sliding = False

    def run(self) -> None:
        """Until the lines end, /exit, or Ctrl-C twice."""
        while True:
            try:
                found = self._lines.next()
            except KeyboardInterrupt:
                if not self._lines.is_terminal:
                    raise
                click.echo(err=True)
                self._interrupts += 1
                if self._interrupts > 1:
                    return
                click.echo(LEAVE_HINT, err=True)
                continue
            if found is None:
                return
            self._interrupts = 0
            try:
                if not self._take(found.text, found.is_fenced):
                    return
            except RingletError as error:
                if not self._lines.is_terminal:
                    raise
                click.echo(f"Error: {one_line(str(error))}", err=True)

    def _take(self, line: str, is_fenced: bool) -> bool:
        """Answer a line, or do what it commands; whether to go on."""
        if line.startswith("/") and not line.startswith("//") and not is_fenced:
            name, _, rest = line[1:].partition(" ")
            if name == "exit":
                return False
            if name not in COMMANDS:
                raise RingletError(f"/{name} is no command: /help lists them; // begins a message with a slash")
            COMMANDS[name].run(self, rest.strip())
        elif line.strip():
            self._show(self._conversation.ask(line[1:] if line.startswith("//") and not is_fenced else line))
        return True

    def _show(self, answer: Iterator[str]) -> None:
        """Print an answer as it comes. Ctrl-C stops it; what has come of it stays in the conversation."""
        written, is_stopped = "", False
        with closing(answer) as pieces:  # type: ignore[type-var]
            try:
                for piece in pieces:
                    click.echo(piece, nl=False)
                    written = piece or written
            except KeyboardInterrupt:
                if not self._lines.is_terminal:
                    raise
                is_stopped, self._interrupts = True, 1
            except RingletError:
                if written and not written.endswith("\n"):
                    click.echo()
                raise
        if not written.endswith("\n"):
            click.echo()
        if is_stopped:
            self._note("stopped" if written else "stopped before the first word: the message is taken back")
        self._tell_of_the_context()

    def _tell_of_the_context(self) -> None:
        """What the model no longer sees, and why an answer has ended."""
        conversation, facts = self._conversation, self._conversation.facts
        layout = conversation.pipe.layout
        if conversation.left_out > self._told_left_out:
            self._note(
                f"the first {conversation.left_out} messages no longer fit the context of {layout.context} tokens and "
                "are left out: begin with a larger --context, or with --overflow slide"
            )
        self._told_left_out = conversation.left_out
        n_tokens = 0 if facts is None else facts.prompt_tokens + facts.answer_tokens
        if layout.overflow == "slide" and n_tokens > layout.context and not self._told_sliding:
            kept = f", but the first {layout.sinks}" if layout.sinks else ""
            self._note(f"the context of {layout.context} tokens is full: the oldest ones are forgotten{kept}")
            self._told_sliding = True
        if facts is not None and facts.last is not None and facts.last.finish_reason == "length":
            is_full = layout.overflow == "stop" and n_tokens >= layout.context
            why = f"the context of {layout.context} tokens is full" if is_full else "--max-tokens"
            self._note(f"the answer is cut off: {why}")

    def _note(self, text: str) -> None:
        if self._lines.is_terminal:
            click.echo(f"({text})", err=True)
        else:
            warn(text)

    # --- commands ----------------------------------------------------------------------------------------------------

    def help(self, rest: str) -> None:
        """list these commands"""
        for name, command in COMMANDS.items():
            click.echo(f"/{f'{name} {command.argument}'.strip():<16} {command.__doc__}", err=True)
        click.echo(f"{'/exit':<17} leave, as do Ctrl-D and Ctrl-C twice", err=True)
        click.echo(f"A message of several lines stands between two lines of {FENCE}.", err=True)

    def system(self, rest: str) -> None:
        """set the system message; without TEXT show it, - removes it"""
        if rest:
            self._conversation.system = None if rest == "-" else rest
        else:
            click.echo(self._conversation.system or "(no system message)", err=True)

    def undo(self, rest: str) -> None:
        """take back the last message and its answer"""
        if not self._conversation.undo():
            raise RingletError("there is no message yet to take back")
        self._told_left_out = self._conversation.left_out

    def retry(self, rest: str) -> None:
        """another answer to the last message"""
        self._show(self._conversation.retry())

    def save(self, rest: str) -> None:
        """save the conversation and its ring"""
        self._conversation.save(named_file("save", rest))
        self._note(f"saved: {rest}")

    def load(self, rest: str) -> None:
        """go on with a saved conversation"""
        self._conversation.load(named_file("load", rest))
        self._told_left_out = self._conversation.left_out
        self._note(f"{len(self._conversation.messages)} messages")

    def sampler(self, rest: str) -> None:
        """set the chain of samplers; without SPEC show it"""
        if rest:
            self._check_sampler(rest)
            self._conversation.options.sampler = rest
        else:
            click.echo(self._conversation.options.sampler, err=True)

    def stats(self, rest: str) -> None:
        """tokens, speed and memory"""
        for line in stats_lines(self._conversation):
            click.echo(line, err=True)


def named_file(command: str, rest: str) -> str:
    if not rest:
        raise RingletError(f"/{command} FILE: name a file")
    return rest


def stats_lines(conversation: Conversation) -> Iterator[str]:
    """How the last answer went, and how full the ring is."""
    pipe, facts = conversation.pipe, conversation.facts
    if facts is not None:
        yield (
            f"prompt: {facts.prompt_tokens} tokens, {facts.known_tokens} of them known; "
            f"answer: {facts.answer_tokens} tokens"
        )
        seconds = facts.timings["generate"]
        speed = f" ({facts.answer_tokens / seconds:.1f} tokens/s)" if seconds > 0 else ""
        yield f"{facts.timings['prompt']:.2f} s to the first token, {seconds:.2f} s from there{speed}"
    used = conversation.n_known if facts is None else facts.prompt_tokens + facts.answer_tokens
    yield f"context: {used} of {pipe.layout.context} tokens; ring: {size_text(pipe.ring_bytes)} of {pipe.kv_dtype}"


class Command:
    """A method of the session, with what stands after its name."""

    def __init__(self, run: Callable[[ChatSession, str], None], argument: str = "") -> None:
        self.run, self.argument, self.__doc__ = run, argument, run.__doc__


COMMANDS = {
    "help": Command(ChatSession.help),
    "system": Command(ChatSession.system, "[TEXT]"),
    "undo": Command(ChatSession.undo),
    "retry": Command(ChatSession.retry),
    "save": Command(ChatSession.save, "FILE"),
    "load": Command(ChatSession.load, "FILE"),
    "sampler": Command(ChatSession.sampler, "[SPEC]"),
    "stats": Command(ChatSession.stats),
}
