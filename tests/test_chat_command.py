"""`ringlet chat`, through a pipe and on a terminal, and `generate --chat` and `--prompt-cache`."""

# ruff: noqa: E501 - templates and messages in one line

from __future__ import annotations

import codecs
import json
import os
import re
import select
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringlet.cli import main
from ringlet.core.pipeline import Pipeline
from ringlet.core.terminal.chat_session import COMMANDS
from ringlet.plugins.backends.numpy import NumpyBackend

POET = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
NEVER_ENDS = "min_new_tokens=900,temperature=1"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The backend "auto" is numpy, which needs no compiling; the cache folder is empty."""
    monkeypatch.setattr(NumpyBackend, "rank", 1000)
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))


def chat(text: str | bytes, *options: str, template: str | None = POET) -> Result:
    given = ["--template", template] if template else []
    seed = [] if "--seed" in options else ["--seed", "1"]
    return CliRunner().invoke(main, ["chat", *given, *seed, "--max-tokens", "12", *options], input=text)


def generate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments])


# --- through a pipe --------------------------------------------------------------------------------------------------


def test_each_line_of_a_pipe_is_a_message() -> None:
    result = chat("春\n秋\n")
    assert result.exit_code == 0, result.output
    pipe = Pipeline.from_pretrained()
    first = pipe.chat([{"role": "user", "content": "春"}], template=POET, seed=1, max_tokens=12)
    messages = [
        {"role": "user", "content": "春"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "秋"},
    ]
    second = pipe.chat(messages, template=POET, seed=2, max_tokens=12)
    assert result.stdout == "".join(text if text.endswith("\n") else f"{text}\n" for text in (first.text, second.text))
    assert ">" not in result.stdout
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    "text",
    ["春\r\n", "\ufeff春\n", "春", "\n  \n春\n", "春\n/exit\n秋\n", '"""\n春\n"""\n', '"""春"""\n', '"""春\n"""'],
)
def test_what_a_line_may_look_like(text: str) -> None:
    assert chat(text).stdout == chat("春\n").stdout
    assert chat(text).stdout.strip()


def test_a_message_of_several_lines_and_one_with_a_slash() -> None:
    one, other = (chat(text, "--sampler", "greedy").stdout for text in ('"""\n床前\n\n明月光\n"""\n', "床前 明月光\n"))
    messages = [{"role": "user", "content": "床前\n\n明月光"}]
    expected = Pipeline.from_pretrained().chat(messages, template=POET, sampler="greedy", max_tokens=12).text
    assert one.rstrip("\n") == expected.rstrip("\n")
    assert one != other
    assert chat("//春\n", "--sampler", "greedy").stdout.strip()
    assert chat('"""\n/exit\n"""\n').stdout  # no command, but a message, to which a poet may say nothing


def test_commands_through_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "session"
    text = f"/system\n/system Be a poet.\n/system\n春\n/save {path}\n/undo\n/sampler greedy\n/sampler\n/stats\n/help\n秋\n/retry\n"
    result = chat(text)
    assert result.exit_code == 0, result.output
    assert "(no system message)\nBe a poet.\n" in result.stderr
    assert f"Warning: saved: {path}\n" in result.stderr
    assert "greedy\n" in result.stderr
    assert "context: " in result.stderr
    assert len(result.stdout.splitlines()) >= 3
    for name in COMMANDS:
        assert f"/{name} " in result.stderr
    loaded = chat(f"/load {path}\n/system\n/stats\n夏\n")
    assert loaded.exit_code == 0
    assert "Warning: 2 messages\nBe a poet.\n" in loaded.stderr
    removed = chat("/system a\n/system -\n/system\n")
    assert removed.stderr.endswith("(no system message)\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/nothing\n春\n", "/nothing is no command: /help lists them; // begins a message with a slash"),
        ("/undo\n", "there is no message yet to take back"),
        ("/retry\n", "there is no message yet to answer again"),
        ("/save\n", "/save FILE: name a file"),
        ("/load\n", "/load FILE: name a file"),
        ("/save x\n", "there is nothing to save yet: generate a text first"),
        ("/load no/such/file\n", "no/such/file: no such file"),
        ("/sampler nonsense=3\n", "nonsense"),
        (b"\xff\xfe\n", "standard input is not UTF-8 text: byte 0xff at 0; convert it first"),
        (b"\xe6\x98\xa5\n\xff\n", "standard input is not UTF-8 text; convert it first"),
        ("春" * 2000 + "\n", "the message alone makes"),
    ],
)
def test_a_mistake_ends_a_pipe_in_one_line(text: str | bytes, said: str) -> None:
    result = chat(text)
    assert result.exit_code == 2, result.output
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert said in last


@pytest.mark.parametrize(
    ("options", "template", "said"),
    [
        (
            [],
            None,
            "the model has no chat template: choose a model for conversations (--model), or give --template (template= in Python): chatml, gemma, llama3, mistral, plain, or one of your own",
        ),
        ([], "no/such/file", "no/such/file: no such file or directory"),
        ([], "chatlm", "--template chatlm: neither a file nor a template's name: there are chatml, gemma, "),
        ([], "{{ x", "--template: no chat template that can be used: line 1: "),
        ([], "{{ raise_exception('never') }}", "--template: the chat template refuses these messages: never"),
        (
            [],
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "--template: the chat template was stopped",
        ),
        (["--sampler", "nonsense"], POET, "nonsense"),
        (["--seed", "-1"], POET, "seed"),
        (["--max-tokens", "-1"], POET, "max_tokens"),
        (["--stop", ""], POET, "stop"),
    ],
)
def test_what_is_wrong_with_the_options(options: list[str], template: str | None, said: str) -> None:
    result = chat("春\n", *options, template=template)
    assert result.exit_code == 2, result.output
    assert said in result.stderr.splitlines()[-1]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no file without end here")
def test_a_template_without_end_is_not_read() -> None:
    result = chat("春\n", template="/dev/zero")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "/dev/zero: larger than 1048576 bytes" in result.stderr.splitlines()[-1]


def test_a_template_in_a_file_is_named_by_it(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages.x.y }}")
    result = chat("春\n", template=str(tmp_path / "t.jinja"))
    assert f"Error: {tmp_path / 't.jinja'}: the chat template fails in line 1: " in result.stderr
    (tmp_path / "t.jinja").write_text(POET, encoding="utf-8")
    assert chat("春\n", template=str(tmp_path / "t.jinja")).stdout == chat("春\n").stdout


def test_a_template_of_ours_by_its_name() -> None:
    assert chat("春\n", template="plain").stdout == chat("春\n", template="<bos>" + POET).stdout
    assert "no token" not in chat("春\n", template="plain").stderr
    warned = chat("春\n", template="chatml")
    assert warned.exit_code == 0
    missing = "the model has no token <|im_start|>, <|im_end|>"
    assert warned.stderr.startswith(f"Warning: {missing}: the template chatml is not the one it was trained with\n")
    assert (
        "Error: mistral: the chat template refuses" not in chat("春\n秋\n", "--system", "x", template="mistral").stderr
    )


def test_a_full_context_is_told() -> None:
    text = "床前明月光，疑是地上霜。\n" * 6
    result = chat(text, "--context", "64", "--sampler", "greedy")
    assert result.exit_code == 0, result.output
    assert (
        "messages no longer fit the context of 64 tokens and are left out: begin with a larger --context"
        in result.stderr
    )
    sliding = chat(text, "--context", "64", "--overflow", "slide", "--sinks", "2", "--sampler", "greedy")
    assert sliding.stderr.count("the context of 64 tokens is full: the oldest ones are forgotten, but the first 2") == 1
    cut = chat("春\n", "--sampler", NEVER_ENDS)
    assert "the answer is cut off: --max-tokens" in cut.stderr
    cut = chat("春\n", "--sampler", NEVER_ENDS, "--context", "32", "--max-tokens", "500")
    assert "the answer is cut off: the context of 32 tokens is full" in cut.stderr


# --- on a terminal ---------------------------------------------------------------------------------------------------

pty = pytest.importorskip("pty", reason="terminals are POSIX's")


class Terminal:
    """`ringlet chat` in a terminal of its own."""

    def __init__(self, repository: Path, folder: Path, *options: str) -> None:
        import fcntl
        import termios

        ours, theirs = pty.openpty()
        environment = os.environ | {"RINGLET_CACHE": str(folder / "cache"), "TERM": "xterm", "PYTHONUTF8": "1"}
        command = [sys.executable, str(repository / "cli.py"), "chat", "--backend", "numpy", "--seed", "1", *options]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=folder,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._handle = ours
        self.shown = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may come in pieces

    def until(self, pattern: str) -> str:
        """What is shown up to the pattern, from where the last call ended."""
        end = time.monotonic() + 60
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < end, f"no {pattern!r} in {self.shown!r}"
            if select.select([self._handle], [], [], 1)[0]:
                try:
                    data = os.read(self._handle, 4096)
                except OSError:  # the process has ended
                    data = b""
                assert data, f"no {pattern!r} in {self.shown!r}"
                self.shown += self._decoder.decode(data)
        before, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return before

    def interrupt(self) -> None:
        time.sleep(0.5)  # a Ctrl-C between the prompt and the wait for a line is seen with the next key only
        self.type("\x03")

    def type(self, text: str) -> None:
        os.write(self._handle, text.encode())

    def ends(self) -> int:
        code = self.process.wait(60)
        os.close(self._handle)
        return code


@pytest.fixture
def terminal(repository: Path, tmp_path: Path) -> Iterator[object]:
    (tmp_path / "poet.jinja").write_text(POET)
    started: list[Terminal] = []

    def start(*options: str) -> Terminal:
        started.append(Terminal(repository, tmp_path, "--template", "poet.jinja", *options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def test_a_terminal_has_a_prompt_commands_and_a_history(terminal: object, tmp_path: Path) -> None:
    first = terminal("--max-tokens", "12")
    first.until("> ")
    first.type("春眠\n")
    answered = first.until("\n> ").splitlines()[1]
    first.type("/nothing\n")
    first.until("Error: /nothing is no command.*\n> ")
    first.type('"""\n床前\n')
    first.until(r"\.\.\. $")
    first.type('明月光\n"""\n')
    first.until("\n> ")
    first.type("/stats\n")
    first.until("context: .*\n> ")
    first.type("\x04")
    assert first.ends() == 0
    history = tmp_path / "cache" / "chat_history"
    if history.exists():  # Python has readline
        assert stat.S_IMODE(history.stat().st_mode) == 0o600
        assert "春眠" in history.read_text(encoding="utf-8").splitlines()
        second = terminal("--max-tokens", "12")
        second.until("> ")
        second.type("\x1b[A" * 7 + "\n")
        assert answered in second.until("\n> ").splitlines()
        second.type("/exit\n")
        assert second.ends() == 0


def test_ctrl_c_stops_the_answer_and_the_next_one_leaves(terminal: object) -> None:
    shown = terminal("--sampler", NEVER_ENDS)
    shown.until("> ")
    shown.interrupt()
    shown.until(r"\(Ctrl-C again leaves, and so does Ctrl-D\)\s+> ")
    shown.type("春眠不觉晓\n")
    shown.until("晓(.*\n)+.*[\u4e00-\u9fff]{4}")  # how a line is echoed is the line editor's affair
    shown.interrupt()
    shown.until(r"\(stopped\)\s+> ")
    shown.type("/stats\n")
    shown.until(
        r"prompt: \d+ tokens.*\n.* s to the first token, .* s from there \([\d.]+ tokens/s\)\s+context: .*\s+> "
    )
    shown.type("秋\n")
    shown.until("秋(.*\n)+.*[\u4e00-\u9fff]{4}")
    shown.interrupt()
    shown.until(r"\(stopped\)\s+> ")
    shown.interrupt()
    assert shown.ends() == 0


# --- generate --------------------------------------------------------------------------------------------------------


def test_generate_chat_applies_the_template_once() -> None:
    options = ["--chat", "--template", "[{{ messages[0].role }}]{{ messages[-1].content }}", "--seed", "3", "--json"]
    result = generate("春", *options, "--max-tokens", "9")
    assert result.exit_code == 0, result.output
    expected = Pipeline.from_pretrained().generate("[user]春", 9, seed=3)
    ids = Pipeline.from_pretrained().tokenizer.encode("[user]春", add_special=False)
    found = json.loads(result.stdout)
    assert found["usage"]["prompt_tokens"] == len(ids)
    assert expected.usage.prompt_tokens == len(ids) + 1  # the template wrote no <bos>
    with_system = json.loads(generate("春", *options, "--system", "x").stdout)
    assert with_system["usage"]["prompt_tokens"] != found["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--system", "x"], "--system is for a conversation: give --chat with it"),
        (["--template", "x"], "--template is for a conversation: give --chat with it"),
        (["--chat", "--parse-special"], "--parse-special: with --chat the template writes the special tokens"),
        (["--chat"], "the model has no chat template: choose a model for conversations (--model), or give --template"),
        (["--prompt-cache", "no/such/folder/x"], "no/such/folder/x: there is no directory"),
        (["--prompt-cache", "x", "--strategy", "contrastive_search"], "contrastive_search computes a prompt anew"),
    ],
)
def test_options_of_generate_that_cannot_be(options: list[str], said: str) -> None:
    result = generate("春", *options)
    assert result.exit_code == 2, result.output
    assert said in result.stderr


def test_a_prompt_cache_is_made_used_and_grows(tmp_path: Path) -> None:
    cache = tmp_path / "cache file"
    text = "床前明月光，疑是地上霜。\n举头望明月，"
    options = ["--seed", "3", "--max-tokens", "9", "--prompt-cache", str(cache), "--json"]
    results = [json.loads(generate(text, *options).stdout) for _ in range(2)]
    assert results[0]["token_ids"] == results[1]["token_ids"]
    made = cache.stat().st_mtime_ns
    generate(text, *options)
    assert cache.stat().st_mtime_ns == made  # nothing new to keep
    longer = generate(f"{text}低头", *options)
    assert longer.exit_code == 0
    assert cache.stat().st_mtime_ns != made
    plain = json.loads(generate(f"{text}低头", *options[:4], "--json").stdout)
    assert json.loads(longer.stdout)["text"] == plain["text"]


def test_the_speed_of_a_prompt_is_that_of_the_tokens_that_were_computed(tmp_path: Path) -> None:
    text, cache = "床前明月光，疑是地上霜。\n举头望明月，", str(tmp_path / "cache")
    tokenizer = Pipeline.from_pretrained().tokenizer

    def told(prompt: str) -> str:
        options = ["--seed", "3", "--max-tokens", "4", "--prompt-cache", cache, "--verbose"]
        return re.search(r"prompt: (.*); generate: 4 tokens in", generate(prompt, *options).stderr)[1]

    n_tokens, n_longer = (len(tokenizer.encode(prompt)) for prompt in (text, text + "低头"))
    assert re.fullmatch(rf"{n_tokens} tokens in [\d.]+ s \([\d.]+ tokens/s\)", told(text))
    assert told(text) == f"{n_tokens} tokens, all known"
    computed = (
        rf"{n_longer} tokens, {n_tokens} of them known; the others: {n_longer - n_tokens} tokens in ([\d.]+) s .*"
    )
    assert re.fullmatch(computed, told(text + "低头"))


def test_a_prompt_cache_of_something_else_is_told_and_kept(tmp_path: Path) -> None:
    cache = tmp_path / "c"
    cache.write_text("my diary")
    result = generate("春", "--prompt-cache", str(cache))
    assert result.exit_code == 2
    assert f"Error: {cache}: no session of Ringlet's" in result.stderr
    assert cache.read_text() == "my diary"
    assert generate("春", "--prompt-cache", str(tmp_path)).exit_code == 2


def test_a_warm_start_imports_no_jinja(repository: Path) -> None:
    code = "import sys; from ringlet.cli import main\ntry: main(['generate', '春', '--max-tokens', '1', '--backend', 'numpy'])\nexcept SystemExit: print('jinja2' in sys.modules, 'readline' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=repository.parent)
    assert done.stdout.endswith("False False\n"), done.stderr
