"""The command line: what it prints where, and its exit codes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import ringlet
from ringlet.cli import main
from ringlet.core.defaults import DEFAULT_SAMPLER

NUMPY = ["--backend", "numpy"]
GREEDY = [*NUMPY, "--sampler", "greedy", "--max-tokens", "8"]
REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    for variable in ("RINGLET_PLUGINS", "RINGLET_DEBUG", "RINGLET_MODEL"):
        monkeypatch.delenv(variable, raising=False)


def run(*arguments: str, **options) -> Result:
    return CliRunner().invoke(main, list(arguments), **options)


def error_of(*arguments: str, **options) -> str:
    """The only line on standard error of a command that ends with exit code 2."""
    result = run(*arguments, **options)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("Error: ")
    return result.stderr


def python(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, cwd=REPOSITORY, timeout=60, **options)


# --- generate --------------------------------------------------------------------------------------------------------


def test_generate_prints_the_completion_alone():
    result = run("generate", "我爱你", *NUMPY, "--seed", "1")
    expected = ringlet.Pipeline.from_pretrained(backend="numpy").generate("我爱你", seed=1).text
    assert result.exit_code == 0
    assert result.stdout == (expected if expected.endswith("\n") else expected + "\n")
    assert result.stderr == ""


def test_generate_as_json():
    result = run("generate", "我爱你", *GREEDY, "--json")
    found = json.loads(result.stdout)
    completion = {"text", "token_ids", "finish_reason", "stopped_by", "usage", "timings"}
    assert set(found) == {"model", "seed", *completion}
    assert found["model"] == "poet (embedded)"
    assert found["text"] in result.stdout  # not escaped
    assert len(found["token_ids"]) == found["usage"]["completion_tokens"] <= 8
    assert result.stderr == ""


def test_each_of_several_completions_as_json_tells_the_stop_text_that_ended_it():
    found = json.loads(
        run("generate", "春", *NUMPY, "--seed", "2", "--n", "6", "--json", "--stop", "，", "--stop", "。").stdout
    )
    assert len(found) == 6
    assert {one["stopped_by"] for one in found} <= {"，", "。", None}
    assert "，" in {one["stopped_by"] for one in found}
    tokenizer = ringlet.Tokenizer.from_pretrained(None)
    for one in found:
        assert one["seed"] == 2
        if one["stopped_by"] is not None:
            assert tokenizer.decode(one["token_ids"]).startswith(one["text"] + one["stopped_by"])


def test_generate_says_what_it_does_on_standard_error_when_asked():
    result = run("generate", "我", *GREEDY, "--verbose")
    assert "poet (embedded): backend numpy, ring 2.0 MiB (1024 tokens, f32)" in result.stderr
    assert "tokens/s" in result.stderr
    assert "backend" not in result.stdout


def test_a_text_that_begins_with_a_dash():
    found = run("generate", *GREEDY, "--json", "--", "- 春")
    plain = ringlet.Pipeline.from_pretrained(backend="numpy").generate("- 春", 8, "greedy")
    assert json.loads(found.stdout)["token_ids"] == plain.token_ids


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_run_without_a_seed_tells_the_seed_it_drew(as_json):
    first = run("generate", "春", *NUMPY, "--max-tokens", "8", "--ignore-eos", "--verbose", *as_json)
    seed = re.search(r"^seed: (\d+); prompt", first.stderr, re.MULTILINE)[1]
    other = run("generate", "春", *NUMPY, "--max-tokens", "8", "--ignore-eos", "--verbose")
    again = run("generate", "春", *NUMPY, "--max-tokens", "8", "--ignore-eos", "--seed", seed)
    text = json.loads(first.stdout)["text"] if as_json else first.stdout
    assert again.stdout == (text if text.endswith("\n") else text + "\n")
    assert f"seed: {seed};" not in other.stderr
    if as_json:
        assert json.loads(first.stdout)["seed"] == int(seed)
    assert again.stderr == ""


def test_special_tokens_of_a_prompt_are_plain_text_unless_asked():
    def prompt_tokens(*options: str) -> int:
        found = run("generate", "春<eos>", *GREEDY, "--max-tokens", "0", "--json", *options)
        return json.loads(found.stdout)["usage"]["prompt_tokens"]

    assert prompt_tokens("--parse-special") == 3  # <bos>, 春, <eos>
    assert prompt_tokens() > 3


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (["--context", "1025"], "the context 1025 is beyond the model's own 1024, where it may write nonsense"),
        (["--context", "1024"], None),
        (["--sinks", "4"], "--sinks does nothing without --overflow slide"),
        (["--sinks", "4", "--overflow", "slide"], None),
        (
            ["--context", "2"],
            "the prompt fills the context of 2 tokens: choose a larger --context, or --overflow slide",
        ),
        (["--context", "2", "--overflow", "slide"], None),
        (["--context", "2", "--max-tokens", "0"], None),
    ],
)
def test_what_may_not_have_been_meant_gets_a_warning(options, warning):
    result = run("generate", "春", *GREEDY, *options)
    assert result.exit_code == 0
    assert result.stderr == (f"Warning: {warning}\n" if warning else "")


@pytest.mark.parametrize("argument", [[], ["-"]])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("standard_input", "prompt"),
    [
        ("床前明月光，", "床前明月光，"),
        ("床前明月光，\n", "床前明月光，"),
        ("床前明月光，\r\n", "床前明月光，"),
        ("床前明月光，\n\n", "床前明月光，\n"),
        ("床前\r\n明月光，\n \n", "床前\n明月光，\n "),
        ("-", "-"),
    ],
)
def test_standard_input_is_the_text_but_for_the_last_line_break(argument, mark, standard_input, prompt):
    found = run("tokenize", *argument, "--json", input=(mark + standard_input).encode())
    expected = ringlet.Tokenizer.from_pretrained(None).encode(prompt)
    assert [row["id"] for row in json.loads(found.stdout)] == expected


@pytest.mark.parametrize("argument", [[], ["-"]])
def test_generate_reads_standard_input(argument):
    found = run("generate", *argument, *GREEDY, "--json", input="床前明月光，\n")
    reference = run("generate", "床前明月光，", *GREEDY, "--json", input="nothing of this\n")
    assert json.loads(found.stdout)["token_ids"] == json.loads(reference.stdout)["token_ids"]
    assert reference.stderr == found.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("command", "missing"), [("generate", "PROMPT"), ("tokenize", "TEXT")])
def test_without_a_text_nobody_is_waited_for_at_a_terminal(command, missing):
    ours, terminal = os.openpty()
    ran = python("cli.py", command, stdin=terminal)
    os.close(ours)
    os.close(terminal)
    line = f"Error: Missing argument '{missing}' (see: python cli.py {command} --help)\n"
    assert (ran.returncode, ran.stderr.decode()) == (2, line)


def test_generate_options_arrive():
    arguments = ["generate", "春", *NUMPY, "--seed", "2", "--json", "--context", "12"]
    found = json.loads(run(*arguments, "--ignore-eos").stdout)
    assert found["usage"]["total_tokens"] == 12
    assert found["finish_reason"] == "length"
    slid = json.loads(
        run(*arguments, "--ignore-eos", "--overflow", "slide", "--sinks", "2", "--max-tokens", "30").stdout
    )
    assert slid["usage"]["completion_tokens"] == 30
    stopped = json.loads(run(*arguments, "--stop", found["text"][2], "--stop", "zzz", "--ignore-eos").stdout)
    assert stopped["text"] == found["text"][: found["text"].index(found["text"][2])]
    assert (stopped["finish_reason"], stopped["stopped_by"]) == ("stop", found["text"][2])
    assert (found["seed"], found["stopped_by"]) == (2, None)
    rest = ["--kv-dtype", "f16", "--threads", "1", "--no-mmap", "--ignore-config-key", "rope_theta"]
    assert run(*arguments, *rest).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([""], "the prompt is empty"),
        (["x", "--sampler", "tpo_k=4"], "unknown sampler 'tpo_k': did you mean top_k"),
        (["x", "--sampler", "temperature=-1"], "temperature is -1.0: a number, 0 or more is needed"),
        (["x", "--sampler", "top_p=1.5"], "p is 1.5: a number from 0 to 1 is needed"),
        (["x", "--max-tokens", "-1"], "max_tokens is -1"),
        (["x", "--seed", "-1"], "seed is -1"),
        (["x", "--context", "0"], "context is 0"),
        (["x" * 2000], "tokens and the context 1024"),
        (["x", "--stop", ""], "stop holds ''"),
        (["x", "--kv-dtype", "q5"], "kv_dtype is 'q5'"),
        (["x", "--quantize", "q5"], "quantize is .q5.: choose from q8_0, q4_0, q4_1, q4_k, q6_k"),
        (["x", "--model", "./gone.gguf"], "./gone.gguf: no such file"),
        (["x", "--plugin", "gone.py"], "plugin .*gone.py: import: FileNotFoundError"),
        (["x", "--plugin", "core"], "plugin .*core: import: IsADirectoryError: .*core is a directory"),
    ],
)
def test_what_generate_refuses(arguments, message):
    assert re.search(message, error_of("generate", *arguments, *NUMPY))


@pytest.mark.parametrize("command", [["generate", "x", "--model"], ["tokenize", "x", "--model"], ["inspect"]])
def test_a_file_that_is_no_model_is_told_what_one_is(command, tmp_path):
    (tmp_path / "README.md").write_text("# A page")
    line = error_of(*command, str(tmp_path / "README.md"))
    what = "not a model: that is a GGUF file, a directory with config.json, or a name on the Hub (org/name)"
    assert line == f"Error: {tmp_path / 'README.md'}: {what}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "x", "--model", "./gone"],
        ["generate", "x", "--json-schema", "./gone"],
        ["generate", "x", "--grammar", "./gone"],
        ["generate", "x", "--chat", "--template", "./gone"],
        ["inspect", "./gone"],
        ["perplexity", "./gone"],
    ],
)
def test_a_missing_file_is_told_in_the_same_words(arguments):
    pytest.importorskip("llguidance")
    assert re.fullmatch(r"Error: (.*: )?\./gone: no such file or directory\n", error_of(*arguments))


def test_an_unknown_backend():
    assert "unknown backend 'nmpy': did you mean numpy?" in error_of("generate", "x", "--backend", "nmpy")


def test_standard_input_that_is_no_text():
    assert "standard input is not UTF-8 text: byte 0xff at 1" in error_of("generate", "-", *NUMPY, input=b"a\xff")
    assert "the prompt is empty" in error_of("generate", "-", *NUMPY, input=b"")


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (["tokenize"], "Missing argument 'TEXT'", "ringlet tokenize"),
        (["generate"], "Missing argument 'PROMPT'", "ringlet generate"),
        (["completion"], r"Missing argument .*: *bash, zsh, fish", "ringlet completion"),
        (["generate", "a", "b"], r"Got unexpected extra argument \(b\)", "ringlet generate"),
        (["generate", "a", "--seed", "x"], "--seed: 'x' is not a valid integer", "ringlet generate"),
        (
            ["generate", "a", "--overflow", "wrap"],
            "--overflow: 'wrap' is not one of 'stop', 'slide'",
            "ringlet generate",
        ),
        (["completion", "bsh"], "SHELL: 'bsh' is not one of 'bash', 'zsh', 'fish'", "ringlet completion"),
        (["generate", "a", "--seed"], "Option '--seed' requires an argument", "ringlet generate"),
        (["generate", "a", "--json=1"], "Option '--json' does not take a value", "ringlet generate"),
        (["generate", "a", "--sed", "1"], "No such option:? '?--sed'?. .*--seed.*", "ringlet generate"),
        (["generate", "- 1"], "No such option.*: put -- before a text that begins with a dash", "ringlet generate"),
        (["tokenize", "-5 °C"], "No such option.*: put -- before a text that begins with a dash", "ringlet tokenize"),
        (["generate", "--a b"], "No such option.*: put -- before a text that begins with a dash", "ringlet generate"),
        (
            ["generate", "a", "--top-k", "5"],
            "No such option '--top-k': write --sampler \"top_k=…\"",
            "ringlet generate",
        ),
        (
            ["generate", "a", "--temp=0"],
            "No such option '--temp': write --sampler \"temperature=…\"",
            "ringlet generate",
        ),
        (["tokenize", "a", "--top-k", "5"], "No such option:? '?--top-k'?.*", "ringlet tokenize"),
        (["inspect", "a", "--model", "b"], "MODEL is given twice: as an argument and as --model", "ringlet inspect"),
        (["--nothing"], "No such option:? '?--nothing'?", "ringlet"),
        (["--plugin"], "Option '--plugin' requires an argument", "ringlet"),
        (["nothing"], "No such command 'nothing'", "ringlet"),
        (["plugins", "nothing"], "No such command 'nothing'", "ringlet plugins"),
        (["plugins", "list", "--nothing"], "No such option:? '?--nothing'?", "ringlet plugins list"),
    ],
)
def test_wrong_usage_gets_one_line(arguments, message, command):
    assert re.fullmatch(rf"Error: {message} \(see: {command} --help\)\n", error_of(*arguments))


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("-m x.gguf", "--model MODEL"),
        ("-n 5", "--max-tokens N"),
        ("-c 512", "--context N"),
        ("-t 4", "--threads N"),
        ("-ngl 99", "--backend cuda"),
        ("-ngl99", None),
        ("-p 春", "PROMPT itself, without an option"),
        ("--ctx-size 512", "--context N"),
        ("--ctx_size=512", "--context N"),
        ("--n-predict 5", "--max-tokens N"),
        ("--max-new-tokens 5", "--max-tokens N"),
        ("--max_new_tokens 5", "--max-tokens N"),
        ("--repeat-penalty 1.1", '--sampler "repetition_penalty=…"'),
        ("--temp 0", '--sampler "temperature=…"'),
        ("--top-p 0.9", '--sampler "top_p=…"'),
        ("--min-p 0.1", '--sampler "min_p=…"'),
        ("--num-beams 4", '--strategy "beam_search(beams=…)"'),
        ("--do-sample", "--sampler greedy for the likeliest token, else leave it out"),
        ("--stream", "nothing: a text comes as it is drawn, unless --json is given"),
    ],
)
def test_an_option_of_another_program_gets_ours(words, written):
    line = error_of("generate", "春", *words.split())
    name = re.split("[ =]", words)[0]
    if written is None:
        assert "No such option" in line
    else:
        assert line == f"Error: No such option {name!r}: write {written} (see: ringlet generate --help)\n"


def test_what_is_written_for_an_option_of_another_program_exists():
    """Options are some command's, samplers and strategies are registered, and no command has the other's name."""
    from ringlet.core.generation.strategies import parse_strategy
    from ringlet.core.plugin_manager import PluginManager
    from ringlet.core.terminal.habits import NEEDED, OTHER_NAMES

    options = {option for name in main.commands for p in main.commands[name].params for option in (*p.opts, p.name)}
    samplers = PluginManager().registry("sampler")
    assert set(NEEDED) <= set(OTHER_NAMES)
    for ours in OTHER_NAMES:
        assert NEEDED.get(ours, ours.split()[0]) in options
        for option in re.findall(r"--[a-z-]+", ours):
            assert option in options
        if ours.startswith("--sampler"):
            assert re.match(r'--sampler "?(\w+)', ours)[1] in samplers
        if ours.startswith("--strategy"):
            parse_strategy(re.search('"(.*)"', ours)[1].replace("…", "1"))
    theirs = {name for names in OTHER_NAMES.values() for name in names} - {"--prompt"}  # bench has one too
    assert not theirs & options


@pytest.mark.parametrize(
    ("command", "words", "written"),
    [
        ("bench", "-p 512", "--prompt N"),
        ("bench", "-n 64", "--generate N"),
        ("bench", "-r 5", "--repeat N"),
        ("chat", "-sys x", "--system TEXT"),
        ("perplexity", "x -c 512", "--context N"),
        ("inspect", "-m x.gguf", "--model MODEL"),
    ],
)
def test_the_same_habit_means_what_the_command_has(command, words, written):
    assert f": write {written} (see: ringlet {command} --help)" in error_of(command, *words.split())


@pytest.mark.skipif(not hasattr(click.exceptions, "NoSuchCommand"), reason="this click suggests no commands")
def test_an_unknown_command_gets_the_near_ones():
    assert "'genrate'. Did you mean 'generate'?" in error_of("genrate", "x")


def test_a_script_is_called_by_python():
    ran = python("cli.py", "generate", stdin=subprocess.DEVNULL)
    assert ran.returncode == 2
    assert ran.stderr.decode().splitlines() == ["Error: Missing argument 'PROMPT' (see: python cli.py generate --help)"]


def test_a_group_alone_shows_its_help():
    assert "generate" in run().output
    assert "list" in run("plugins").output


# --- The other commands ----------------------------------------------------------------------------------------------


def test_tokenize():
    found = json.loads(run("tokenize", "我爱你", "--json").stdout)
    assert [row["piece"] for row in found] == ["<bos>", "我", "爱", "你"]
    assert [row["id"] for row in found] == ringlet.Tokenizer.from_pretrained(None).encode("我爱你")
    assert len(json.loads(run("tokenize", "我爱你", "--json", "--no-special").stdout)) == 3
    assert (
        json.loads(run("tokenize", "<eos>", "--json", "--no-special", "--parse-special").stdout)[0]["piece"] == "<eos>"
    )
    assert len(json.loads(run("tokenize", "<eos>", "--json", "--no-special").stdout)) > 1


def test_tokenize_for_people():
    lines = run("tokenize", "我爱你").stdout.splitlines()
    ids = ringlet.Tokenizer.from_pretrained(None).encode("我爱你")
    assert len(lines) == 4
    for line, piece, token_id in zip(lines, ["<bos>", "我", "爱", "你"], ids, strict=True):
        assert piece in line
        assert line.endswith(str(token_id))


def test_inspect():
    found = json.loads(run("inspect", "--json", "--context", "100").stdout)
    assert (found["architecture"], found["d_model"], found["ring"]["context"]) == ("llama", 192, 100)
    text = run("inspect").stdout
    for name in ("W_q", "W_k", "W_v", "W_o", "W_t", "architecture", "ring"):
        assert name in text
    assert "./gone.gguf: no such file" in error_of("inspect", "./gone.gguf")
    assert "./gone.gguf: no such file" in error_of("inspect", "--model", "./gone.gguf")


def test_a_variable_names_the_usual_model(embedded_path):
    here, gone = {"RINGLET_MODEL": str(embedded_path)}, {"RINGLET_MODEL": "./gone.gguf"}
    for command in (["generate", "春", *GREEDY], ["tokenize", "春"], ["inspect"], ["chat"]):
        assert "./gone.gguf: no such file or directory" in error_of(*command, env=gone)
    assert json.loads(run("inspect", "--json", env=here).stdout)["name"] == str(embedded_path)
    for command in (["inspect", str(embedded_path)], ["inspect", "--model", str(embedded_path)]):
        assert run(*command, env=gone).exit_code == 0  # what is given wins
    assert json.loads(run("inspect", "--json", env={"RINGLET_MODEL": ""}).stdout)["name"] == "poet (embedded)"
    told = " ".join(run("generate", "--help").stdout.split())
    assert "from the Hub. [env var: RINGLET_MODEL; default: (the embedded model)]" in told


def test_perplexity(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_bytes(b"\xef\xbb\xbf" + ("床前明月光，疑是地上霜。举头望明月，低头思故乡。\n" * 4).encode())
    found = json.loads(run("perplexity", str(path), *NUMPY, "--context", "32", "--json").stdout)
    assert found["context"] == 32
    assert found["tokens_scored"] == 15 * found["windows"]
    text = run("perplexity", "-", *NUMPY, "--context", "32", input=path.read_bytes())
    assert f"perplexity {found['perplexity']:.4f} ± {found['error']:.4f}" in text.stdout
    told = run("perplexity", str(path), *NUMPY, "--context", "32", "--verbose").stderr
    assert "(32 tokens, f32)" in told  # the ring is no larger than a window
    windows = found["windows"]
    last = f"perplexity {found['perplexity']:.4f} so far ({windows} of {windows})"
    assert told.splitlines()[-1] == last
    assert "--context: 3 is not in the range" in error_of("perplexity", str(path), "--context", "3")
    assert "a window 512" in error_of("perplexity", str(path), *NUMPY)
    assert "gone.txt: no such file or directory" in error_of("perplexity", "gone.txt", *NUMPY)
    path.write_bytes(b"\xff\xfe")
    assert "poem.txt is not UTF-8" in error_of("perplexity", str(path), *NUMPY)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_RINGLET_COMPLETE" in result.stdout


def test_version_and_help():
    assert run("--version").stdout == f"ringlet, version {ringlet.__version__}\n"
    assert "generate" in run("--help").stdout
    for command in ("generate", "tokenize", "inspect", "perplexity", "completion"):
        assert "--plugin FILE" in run(command, "--help").stdout
    assert "--plugin FILE" in run("plugins", "list", "--help").stdout


def test_the_default_sampler_is_that_of_the_python_interface():
    from inspect import signature

    assert signature(ringlet.Pipeline.generate).parameters["sampler"].default is None  # the strategy's own
    assert f"[default: {DEFAULT_SAMPLER}]" in " ".join(run("generate", "--help").stdout.split())


# --- Plugins ---------------------------------------------------------------------------------------------------------

PLUGIN = '''
import click
from ringlet import hookimpl

class Always:
    """Always the token it is told."""
    name = "always"
    def __init__(self, token: int = 0):
        self.token = token
    def pick(self, logits, context):
        return self.token

@hookimpl
def register_samplers(register):
    register(Always)

@hookimpl
def register_commands(cli):
    @cli.command()
    @click.argument("name")
    @click.pass_obj
    def greet(state, name):
        """Greets."""
        click.echo(f"hello {name}, {state.plugins.find('sampler', 'always').name}")
'''


@pytest.fixture
def plugin(tmp_path):
    path = tmp_path / "plugin.py"
    path.write_text(PLUGIN)
    return str(path)


def test_a_plugin_sampler(plugin):
    wanted = ["generate", "我", *NUMPY, "--sampler", "always(token=700)", "--max-tokens", "2", "--json"]
    for arguments in ([*wanted, "--plugin", plugin], ["--plugin", plugin, *wanted], [*wanted, f"--plugin={plugin}"]):
        assert json.loads(run(*arguments).stdout)["token_ids"] == [700, 700]
    assert json.loads(run(*wanted, env={"RINGLET_PLUGINS": plugin}).stdout)["token_ids"] == [700, 700]
    assert "unknown sampler 'always'" in error_of(*wanted)
    rows = json.loads(run("plugins", "list", "--json", "--plugin", plugin).stdout)
    assert [row["origin"] for row in rows if row["name"] == "always"] == [plugin]


def test_a_plugin_command(plugin):
    for arguments in (["greet", "you", "--plugin", plugin], ["--plugin", plugin, "greet", "you"]):
        assert run(*arguments).stdout == "hello you, always\n"
    assert "greet" in run("--plugin", plugin, "--help").stdout
    assert "--plugin FILE" in run("--plugin", plugin, "greet", "--help").stdout
    assert run("greet", "you", env={"RINGLET_PLUGINS": plugin}).stdout == "hello you, always\n"
    assert "No such command" in run("greet", "you").stderr
    assert "greet" not in run("--help").stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name", "import: ModuleNotFoundError"),
        (PLUGIN.replace("def greet", "def generate"), "register_commands: the name 'generate' is already taken"),
        (PLUGIN.replace('"always"', '"greedy"'), "register_samplers: the name 'greedy' is already taken by Greedy"),
        (PLUGIN.replace("    @cli.command()", "    1 / 0\n    @cli.command()"), "register_commands: ZeroDivisionError"),
    ],
)
def test_a_faulty_plugin(text, message, tmp_path):
    path = tmp_path / "faulty.py"
    path.write_text(text)
    line = error_of("generate", "我", *GREEDY, "--plugin", str(path))
    assert f"plugin {path}: {message}" in line
    found = run("--help", env={"RINGLET_PLUGINS": str(path)})
    assert found.exit_code == 0
    if "register_samplers" not in message:  # `--help` asks for commands only
        assert f"Warning: plugin {path}: {message}" in found.stderr
    assert run("generate", "我", *GREEDY, env={"RINGLET_PLUGINS": str(path)}).exit_code == 0


def test_a_faulty_plugin_is_reported_once(plugin, tmp_path):
    """However often click asks for the commands."""
    faulty, two = tmp_path / "faulty.py", tmp_path / "two.py"
    faulty.write_text(PLUGIN.replace("    @cli.command()", "    1 / 0\n    @cli.command()").replace("always", "other"))
    two.write_text(BROKEN)
    found = run("--help", env={"RINGLET_PLUGINS": os.pathsep.join([str(faulty), str(two), plugin])})
    assert all(command in found.stdout for command in ("broken", "interrupted", "greet"))
    assert (
        found.stderr == f"Warning: plugin {faulty}: register_commands: ZeroDivisionError: division by zero (skipped)\n"
    )


# --- Errors and ends -------------------------------------------------------------------------------------------------

BROKEN = """
from ringlet import hookimpl

@hookimpl
def register_commands(cli):
    @cli.command()
    def broken():
        raise RuntimeError("two\\nlines")
    @cli.command()
    def interrupted():
        raise KeyboardInterrupt
"""


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    return str(path)


def test_an_unforeseen_error_is_one_line_and_1(monkeypatch):
    def fails(source):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("ringlet.tokenization.tokenizer.Tokenizer.from_pretrained", fails)
    result = run("tokenize", "春")
    assert result.exit_code == 1
    assert result.stderr == "Error: RuntimeError: two lines (set RINGLET_DEBUG=1 to see where)\n"
    assert "Traceback" in run("tokenize", "春", env={"RINGLET_DEBUG": "1"}).stderr


def test_an_error_of_a_plugins_command_names_it(broken):
    line = f"Error: command broken ({broken}): RuntimeError: two lines (set RINGLET_DEBUG=1 to see where)\n"
    assert error_of("broken", "--plugin", broken) == line
    assert error_of("broken", env={"RINGLET_PLUGINS": broken}) == line
    assert "Traceback" in run("broken", "--plugin", broken, env={"RINGLET_DEBUG": "1"}).stderr


def test_an_interrupt_is_quiet(broken):
    result = run("interrupted", "--plugin", broken)
    assert (result.exit_code, result.output) == (130, "")


def test_the_ways_to_start_it():
    beside = python("cli.py", "generate", "我爱你", *GREEDY)
    assert beside.returncode == 0
    assert beside.stdout != b""
    for module in ("ringlet", "ringlet.cli"):
        ran = python("-m", module, "generate", "我爱你", *GREEDY)
        assert (ran.returncode, ran.stdout) == (0, beside.stdout)


def test_cli_py_without_the_package_says_how_to_install():
    code = (
        "import sys, runpy\n"
        "class Nothing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'ringlet':\n"
        "            raise ModuleNotFoundError(name, name='ringlet')\n"
        "sys.meta_path.insert(0, Nothing())\n"
        "sys.argv = ['cli.py', '--help']\n"
        "runpy.run_path('cli.py', run_name='__main__')\n"
    )
    ran = python("-c", code)
    assert ran.returncode == 2
    assert ran.stderr.decode().startswith("Error: ringlet is not installed: run")
    assert ran.stderr.count(b"\n") == 1


def test_output_to_a_file_is_utf8_whatever_the_locale():
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    expected = run("generate", "我爱你", *GREEDY).stdout
    assert python("cli.py", "generate", "我爱你", *GREEDY, env=environment).stdout.decode() == expected
    ran = python("cli.py", "generate", "我爱你", *GREEDY, "--json", env=environment)
    assert json.loads(ran.stdout.decode())["text"] == expected.rstrip("\n")
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_a_terminal_that_cannot_show_a_character_shows_a_question_mark():
    expected = run("generate", "我爱你", *GREEDY).stdout

    def shown(*options: str) -> str:
        ours, terminal = os.openpty()
        environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
        command = [sys.executable, "cli.py", "generate", "我爱你", *GREEDY, *options]
        ran = subprocess.run(
            command, stdout=terminal, stderr=subprocess.PIPE, env=environment, cwd=REPOSITORY, timeout=60
        )
        os.close(terminal)
        assert (ran.returncode, ran.stderr) == (0, b"")
        text = os.read(ours, 1 << 16).decode("cp1252").replace("\r\n", "\n")
        os.close(ours)
        return text

    assert shown() == "".join("?" if ord(character) > 255 else character for character in expected)
    assert json.loads(shown("--json"))["text"] == expected.rstrip("\n")


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes and signals")
def test_a_closed_pipe_ends_quietly():
    command = [sys.executable, "cli.py", "generate", "我", *NUMPY, "--ignore-eos", "--max-tokens", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_a_closed_pipe_of_windows_ends_quietly(monkeypatch):
    """There the write fails with an invalid argument; of a file, it is a fault like any other."""
    from ringlet.core.terminal.command_group import is_closed_pipe

    gone, other = OSError(errno.EINVAL, "Invalid argument"), OSError(errno.EINVAL, "Invalid argument", "model.gguf")
    assert not is_closed_pipe(gone)
    monkeypatch.setattr(os, "name", "nt")
    assert is_closed_pipe(gone)
    assert not is_closed_pipe(other)
    assert not is_closed_pipe(OSError(errno.ENOSPC, "No space left on device"))


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes and signals")
def test_an_interrupted_generation_ends_quietly():
    arguments = ["cli.py", "generate", "我", *NUMPY, "--ignore-eos", "--overflow", "slide", "--max-tokens", "1000000"]
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=REPOSITORY
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_perplexity_shows_a_bar_on_a_terminal_and_removes_it(tmp_path):
    (tmp_path / "poem.txt").write_text("床前明月光，疑是地上霜。举头望明月，低头思故乡。\n" * 4, encoding="utf-8")
    ours, terminal = os.openpty()
    command = [sys.executable, "-m", "ringlet", "perplexity", str(tmp_path / "poem.txt"), *NUMPY, "--context", "32"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, cwd=REPOSITORY, timeout=60)
    os.close(terminal)
    shown = ""
    with contextlib.suppress(OSError):  # how a pseudo-terminal ends
        while part := os.read(ours, 1 << 16):
            shown += part.decode()
    os.close(ours)
    assert ran.returncode == 0
    assert ran.stdout.startswith(b"perplexity ")
    assert re.search(r"\d+%", shown)  # which ones are shown depends on when it looks
    assert shown.endswith("\x1b[2K")  # the bar's line is cleared


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, ringlet.RingletError])
def test_an_interrupt_or_an_error_on_a_terminal_ends_the_line(kind, monkeypatch):
    from ringlet.core.terminal.console import print_chunks

    def interrupted():
        yield ringlet.Chunk("春", [1])
        raise kind

    ours, terminal = os.openpty()
    with open(terminal, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(kind):
            print_chunks(interrupted())
        stream.flush()
        shown = b""
        while not shown.endswith("春\r\n".encode()) and select.select([ours], [], [], 5)[0]:
            shown += os.read(ours, 100)  # a terminal may give it in parts
    os.close(ours)
    assert shown.decode() == "春\r\n"


def test_help_starts_fast():
    """Nothing heavy is imported for it."""
    code = (
        "import sys\n"
        "from ringlet.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('numpy', 'numba', 'tokenizers', 'jinja2', 'rich')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    ran = python("-c", code)
    assert ran.stderr == b"[]\n"
