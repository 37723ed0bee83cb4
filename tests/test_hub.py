"""Names of models, and downloads from a small Hub of our own on 127.0.0.1."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from whole_models import split_into_shards, write_whole_directory, write_whole_gguf

from ringlet.core.errors import RingletError
from ringlet.core.formats import hub, source
from ringlet.core.formats.gguf import shard_names
from ringlet.core.formats.source import resolve_source

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DOWNLOAD = """
import json, sys
from ringlet.core.errors import RingletError
from ringlet.core.formats.hub import download
for repository, file in json.loads(sys.argv[1]):
    try:
        answer = {"path": str(download(repository, file))}
    except RingletError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
"""


def own_environment(address: str, home: Path, **settings: str) -> dict[str, str]:
    """This process's environment without its settings for the Hub, such as HF_HUB_OFFLINE, and with a test's own."""
    kept = {key: value for key, value in os.environ.items() if not re.match(r"(?i)HF_|HUGGING|.*_proxy$", key)}
    own = {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    return {**kept, **own, **settings}


class Hub:
    """A server that speaks as much of the Hub's protocol as a download needs."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.restricted: set[str] = set()
        self.cut_short: set[str] = set()  # files whose next download breaks off in the middle
        self.status: int | None = None  # what every request gets, where set
        self.ranges: list[str] = []  # the ranges asked for
        self.downloaded: list[str] = []
        handler = type("Handler", (HubHandler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


class HubHandler(BaseHTTPRequestHandler):
    hub: Hub
    timeout = 20

    def log_message(self, *arguments) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = unquote(self.path.split("?")[0])
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/[^/]+", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        repository = (api or file)[1] if api or file else ""
        if self.hub.status is not None:
            self.reply(self.hub.status)
        elif repository not in self.hub.repositories:
            self.reply(404, {"X-Error-Code": "RepoNotFound"})
        elif api:
            self.describe(repository, api[2])
        elif repository in self.hub.restricted:
            self.reply(403, {"X-Error-Code": "GatedRepo"})
        elif file[2] not in self.hub.repositories[repository]:
            self.reply(404, {"X-Error-Code": "EntryNotFound"})
        else:
            self.send_file(file[2], self.hub.repositories[repository][file[2]])

    def describe(self, repository: str, what: str) -> None:
        files = self.hub.repositories[repository]
        if what == "revision":
            content: object = {"id": repository, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
        else:
            content = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in files.items()
            ]
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def send_file(self, name: str, data: bytes) -> None:
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        start, status = 0, 200
        if self.command == "GET":
            self.hub.downloaded.append(name)
            if wanted:
                self.hub.ranges.append(wanted)
                start, status = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]), 206
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        if self.command == "GET" and name in self.hub.cut_short:
            self.hub.cut_short.remove(name)
            headers["Content-Length"] = str(len(body))
            body = body[: len(body) // 2]
        self.reply(status, headers, body)
        self.close_connection = True

    def reply(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def server():
    pytest.importorskip("huggingface_hub")
    server = Hub()
    yield server
    server.stop()


@pytest.fixture
def downloads(tmp_path):
    """Runs downloads in a process of their own: the library reads its settings when it is imported."""

    def run(address: str, *wanted: tuple[str, str | None], **settings: str) -> list[dict[str, str]]:
        finished = subprocess.run(
            [sys.executable, "-c", DOWNLOAD, json.dumps(wanted)],
            env=own_environment(address, tmp_path / "cache", **settings),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        answers = [json.loads(line) for line in finished.stdout.splitlines()]
        assert all("\n" not in answer.get("error", "") for answer in answers)
        assert finished.stderr == ""  # it is no terminal
        return answers

    return run


MODEL = {
    "config.json": b"{}",
    "generation_config.json": b"{ }",
    "tokenizer.json": b"{  }",
    "tokenizer_config.json": b"{   }",
    "chat_template.jinja": b"hello",
    "additional_chat_templates/tools.jinja": b"hello tools",
    "model.safetensors.index.json": b"{    }",
    "model-00001-of-00002.safetensors": os.urandom(100),
    "model-00002-of-00002.safetensors": os.urandom(100),
}
OTHERS = {"README.md": b"#", "pytorch_model.bin": b"x", "onnx/model.safetensors": b"x", "model.fp16.gguf": b"x"}


def test_a_model_and_only_what_it_needs_then_offline(server, downloads):
    server.repositories["org/model"] = MODEL | OTHERS
    (answer,) = downloads(server.address, ("org/model", None))
    directory = Path(answer["path"])
    assert {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    } == MODEL
    server.stop()
    again, other = downloads(server.address, ("org/model", None), ("org/other", None), HF_HUB_OFFLINE="1")
    assert again == answer
    assert other["error"].startswith("org/other: HF_HUB_OFFLINE is set, and the cache ")


def test_text_from_a_downloaded_model(server, tmp_path):
    """In shards, and as a GGUF file: the same text as from the files themselves, and again without the Hub."""
    folder = split_into_shards(write_whole_directory(tmp_path / "model"))
    gguf_file = write_whole_gguf(tmp_path / "tiny.gguf")
    files = [*folder.iterdir(), gguf_file]
    server.repositories["org/tiny"] = {path.name: path.read_bytes() for path in files}
    environment = own_environment(server.address, tmp_path / "cache")

    def generated(model: str, **settings: str) -> list[int]:
        command = [sys.executable, "-m", "ringlet.cli", "generate", "the ring", "--model", model, "--backend", "numpy"]
        command += ["--sampler", "greedy", "--max-tokens", "12", "--ignore-eos", "--json"]
        ran = subprocess.run(command, env=environment | settings, capture_output=True, timeout=120)
        assert (ran.returncode, ran.stderr) == (0, b"")
        return json.loads(ran.stdout)["token_ids"]

    expected = {"org/tiny": generated(str(folder)), "org/tiny:tiny.gguf": generated(str(gguf_file))}
    assert all(len(ids) == 12 for ids in expected.values())
    for settings in ({}, {"HF_HUB_OFFLINE": "1"}):
        assert {model: generated(model, **settings) for model in expected} == expected
        if not settings:
            assert {"tokenizer.json", "tiny.gguf", "model-00003-of-00003.safetensors"} <= set(server.downloaded)
            server.stop()


def test_second_time_nothing_is_downloaded(server, downloads):
    server.repositories["org/model"] = MODEL
    first = downloads(server.address, ("org/model", None))
    server.downloaded.clear()
    assert downloads(server.address, ("org/model", None)) == first
    assert server.downloaded == []


def test_gguf_files(server, downloads):
    split = {f"big/m-Q4_K-0000{n}-of-00003.gguf": os.urandom(50) for n in (1, 2, 3)}
    server.repositories["org/files"] = {"config.json": b"{}", "a.gguf": b"GGUF1", "b[1].gguf": b"GGUF2", **split}
    one, odd, middle = downloads(
        server.address, ("org/files", "a.gguf"), ("org/files", "b[1].gguf"), ("org/files", list(split)[1])
    )
    assert Path(one["path"]).read_bytes() == b"GGUF1"
    assert Path(odd["path"]).read_bytes() == b"GGUF2"
    assert middle["path"].endswith(os.path.join("big", "m-Q4_K-00001-of-00003.gguf"))
    assert {f"big/{path.name}": path.read_bytes() for path in Path(middle["path"]).parent.iterdir()} == split
    assert "config.json" not in server.downloaded


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_progress_on_a_terminal(server, tmp_path):
    import fcntl
    import pty
    import termios

    server.repositories["org/model"] = {"a.gguf": bytes(1 << 20)}
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    environment = own_environment(server.address, tmp_path)
    command = [sys.executable, "-c", DOWNLOAD, json.dumps([("org/model", "a.gguf")])]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # how the other side's end is told
            while piece := os.read(ours, 4096):
                shown += piece
        os.close(ours)
        assert process.wait(60) == 0
    assert b"100%" in shown


def test_an_interrupted_download_resumes(server, downloads):
    data = os.urandom(1 << 20) * 24  # the library writes 10 MiB at once
    server.repositories["org/model"] = {"a.gguf": data}
    server.cut_short.add("a.gguf")
    (answer,) = downloads(server.address, ("org/model", "a.gguf"))
    assert Path(answer["path"]).read_bytes() == data
    (resumed,) = server.ranges
    assert 0 < int(resumed.removeprefix("bytes=").removesuffix("-")) <= len(data) // 2


def test_what_the_hub_does_not_have(server, downloads):
    server.repositories["org/files"] = {"config.json": b"{}", **{f"q{n:02}.gguf": b"x" for n in range(14)}}
    server.repositories["org/old"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    server.repositories["org/closed"] = MODEL
    server.restricted.add("org/closed")
    no_weights, no_file, neither, closed, unknown, no_name, leaves, no_gguf = downloads(
        server.address,
        *[("org/files", None), ("org/files", "z.gguf"), ("org/old", None), ("org/closed", None)],
        *[("org/unknown", None), ("org/-..-", None), ("org/files", "../../x.gguf"), ("org/files", "config.json")],
    )
    listed = "name one of its GGUF files, as in org/files:q00.gguf (there are q00.gguf, q01.gguf, "
    assert no_weights["error"].startswith(f"org/files: the model has no safetensors files; {listed}")
    assert no_weights["error"].endswith("q11.gguf and 2 more)")
    assert no_file["error"].startswith(f"org/files:z.gguf: the model has no such file; {listed}")
    assert neither["error"] == "org/old: the model has no safetensors files; it has no GGUF files either"
    assert closed["error"].startswith(
        f"org/closed: access is restricted: accept the terms at {server.address}/org/closed"
    )
    assert unknown["error"].startswith(f"org/unknown: {server.address} has no such model")
    assert no_name["error"] == "org/-..-: a model on the Hub is named org/name or org/name:file.gguf"
    for answer in (leaves, no_gguf):
        assert answer["error"].endswith("after the colon a GGUF file of the repository is named")


def test_a_hub_that_fails_or_is_none(server, downloads):
    server.status = 503
    (answer,) = downloads(server.address, ("org/model", None))
    assert answer["error"].startswith(f"org/model: {server.address} answered with status 503, and the cache ")
    server.status = 200  # an empty page
    (answer,) = downloads(server.address, ("org/model", None))
    assert answer["error"].startswith(f"org/model: the download from {server.address} failed: ")
    server.stop()
    (answer,) = downloads(server.address, ("org/model", "a.gguf"))
    assert answer["error"].startswith(f"org/model:a.gguf: {server.address} cannot be reached, and the cache ")


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "No space left on device; make room, or set HF_HOME"), (errno.EACCES, "Permission denied")],
)
def test_a_cache_that_cannot_be_written(monkeypatch, number, words):
    library = pytest.importorskip("huggingface_hub")

    def fails(*arguments, **options):
        raise OSError(number, os.strerror(number), "file")

    monkeypatch.setattr(library, "snapshot_download", fails)
    with pytest.raises(RingletError, match=rf"^org/model: cannot write to the cache .*: {words}"):
        hub.download("org/model")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    words = r"^org/model: models from the Hub need hugging.*: pip install huggingface_hub, or"
    with pytest.raises(RingletError, match=words):
        hub.download("org/model")


def test_names_of_shards():
    assert shard_names("a-00002-of-00003.gguf") == [f"a-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    for name in ("a.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf", "a-00001-of-00000.gguf", "a-1-of-2.gguf"):
        assert shard_names(name) == [name]


@pytest.fixture
def asked(monkeypatch, tmp_path) -> list[tuple[str, str | None]]:
    """What would be asked of the Hub; the answers are files and directories that exist."""
    asked: list[tuple[str, str | None]] = []
    (tmp_path / "got").mkdir()
    (tmp_path / "got" / "config.json").touch()
    (tmp_path / "got" / "a.gguf").touch()
    (tmp_path / "got" / "model.safetensors").touch()

    def download(repository: str, file: str | None = None) -> Path:
        asked.append((repository, file))
        return tmp_path / "got" / (file or "")

    monkeypatch.setattr(source.hub, "download", download)
    monkeypatch.chdir(tmp_path)
    return asked


def test_embedded_model(asked):
    found = resolve_source(None)
    assert (found.kind, found.name) == ("directory", "poet (embedded)")
    assert (found.path / "model.safetensors").is_file()
    assert asked == []


def test_names_for_the_hub(asked, tmp_path):
    found = resolve_source("org/name")
    assert (found.kind, found.path, found.name) == ("directory", tmp_path / "got", "org/name")
    found = resolve_source("org/name:a.gguf")
    assert (found.kind, found.path, found.name) == ("gguf", tmp_path / "got" / "a.gguf", "org/name:a.gguf")
    assert asked == [("org/name", None), ("org/name", "a.gguf")]


def test_an_existing_path_wins(asked, tmp_path):
    for directory in (tmp_path / "org" / "name", tmp_path / "org" / "name:a.gguf"):
        directory.mkdir(parents=True)
        (directory / "config.json").touch()
        found = resolve_source(str(directory.relative_to(tmp_path)))
        assert (found.kind, found.path) == ("directory", directory.relative_to(tmp_path))
    (tmp_path / "blob").write_bytes(b"GGUF")
    assert resolve_source("blob").kind == resolve_source(Path("blob")).kind == "gguf"
    assert asked == []


@pytest.mark.parametrize(
    "name",
    [
        "org/name.gguf",
        "missing.gguf",
        "./org/name",
        "../x",
        "/no/such",
        "~/no such/model",
        r"C:\models\x",
        "C:x",
        r"\\a\b",
    ],
)
def test_missing_paths_do_not_go_to_the_hub(asked, name):
    with pytest.raises(RingletError, match=f"^{re.escape(name)}: no such file or directory$"):
        resolve_source(name)
    with pytest.raises(RingletError, match="no such file or directory"):
        resolve_source(Path("org/name"))
    assert asked == []


@pytest.mark.parametrize("name", ["", "gpt2", "a/b/c", "https://x/y", "a b/c", "org/", "我/爱", "x" * 10_000, "a\0/b"])
def test_names_of_nothing(asked, name):
    with pytest.raises(RingletError, match="is neither a file, nor a directory, nor the name of a model on the Hub"):
        resolve_source(name)
    assert asked == []


def test_home_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "m.gguf").touch()
    assert resolve_source("~/m.gguf").path == tmp_path / "m.gguf"
    assert resolve_source(Path("~/m.gguf")).path == tmp_path / "m.gguf"


def test_directories_that_hold_no_model(tmp_path):
    with pytest.raises(RingletError, match=f"^{re.escape(str(tmp_path))}: the directory has no config.json"):
        resolve_source(tmp_path)
    for name in ("config.json", "b.gguf", "a.GGUF"):
        (tmp_path / name).touch()
    with pytest.raises(RingletError, match=r"a directory of GGUF files; name one of them, such as .*a\.GGUF$"):
        resolve_source(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert resolve_source(tmp_path).kind == "directory"
    with pytest.raises(RingletError, match=r"name the directory that holds this file and its config\.json"):
        resolve_source(tmp_path / "model.safetensors")
