"""Models from the Hugging Face Hub, through its own library: its cache, its resumed downloads, its settings.

The library honours HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and HF_TOKEN, and shows progress where it writes to a terminal.
It is an extra and slow to import, so it is imported when a model is asked for.
"""

from __future__ import annotations

import errno
import glob
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringlet.core.errors import RingletError, how_to_install
from ringlet.core.formats.gguf import shard_names

MODEL_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "model.safetensors.index.json",
    "model*.safetensors",
]
MOST_NAMES = 12  # file names in a message


def download(repository: str, file: str | None = None) -> Path:
    """A model's directory in the Hub's cache, downloaded where it is not there yet; with `file`, that GGUF file.

    repository: "org/name". file: a GGUF file in it; of a split model all files are downloaded, and the first returned.
    Raises RingletError: the library is missing, the Hub cannot be reached or refuses, or has no such model or file.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        way = how_to_install("huggingface_hub", "hub")
        raise RingletError(f"{repository}: models from the Hub need huggingface_hub: {way}") from None
    if file is not None and (not file.endswith(".gguf") or ".." in file.split("/")):
        raise RingletError(f"{repository}:{file}: after the colon a GGUF file of the repository is named")
    wanted = MODEL_FILES if file is None else [glob.escape(name) for name in shard_names(file)]
    with _one_line_errors(repository, file), _less_output():
        directory = Path(snapshot_download(repository, allow_patterns=wanted))
    if file is None:
        if not any(directory.glob("model*.safetensors")):
            raise RingletError(f"{repository}: the model has no safetensors files; {_name_a_gguf_file(repository)}")
        return directory
    path = directory / shard_names(file)[0]
    if not path.exists():
        raise RingletError(f"{repository}:{file}: the model has no such file; {_name_a_gguf_file(repository)}")
    return path


def _name_a_gguf_file(repository: str) -> str:
    from huggingface_hub import HfApi

    with _one_line_errors(repository, None):
        files = sorted(file for file in HfApi().list_repo_files(repository) if file.endswith(".gguf"))
    files = [file for file in files if shard_names(file)[0] == file]  # of a split model the first
    if not files:
        return "it has no GGUF files either"
    names = ", ".join(files[:MOST_NAMES]) + (f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else "")
    return f"name one of its GGUF files, as in {repository}:{files[0]} (there are {names})"


@contextmanager
def _less_output() -> Iterator[None]:
    """No progress bars where no terminal shows them, and no warnings: what matters comes as an error."""
    from huggingface_hub import utils

    verbosity = utils.logging.get_verbosity()
    quiet = not sys.stderr.isatty() and not utils.are_progress_bars_disabled()
    utils.logging.set_verbosity_error()
    if quiet:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.logging.set_verbosity(verbosity)
        if quiet:
            utils.enable_progress_bars()


@contextmanager
def _one_line_errors(repository: str, file: str | None) -> Iterator[None]:
    """The library's errors, many lines long, as one line that says what to do."""
    from huggingface_hub import constants, errors

    try:
        yield
        return
    except errors.HFValidationError:
        message = "a model on the Hub is named org/name or org/name:file.gguf"
    except errors.GatedRepoError:
        page = f"{constants.ENDPOINT}/{repository}"
        message = f"access is restricted: accept the terms at {page}, then log in (`hf auth login`) or set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        message = f"{constants.ENDPOINT} has no such model; if it is private, log in (`hf auth login`) or set HF_TOKEN"
    except (errors.LocalEntryNotFoundError, ConnectionError) as error:
        message = f"{_why_not_reached(error)}, and the cache {constants.HF_HUB_CACHE} does not hold all of the model"
    except errors.HfHubHTTPError as error:
        message = f"{_why_not_reached(error)}; run it again, and the download resumes"
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            message = f"cannot write to the cache {constants.HF_HUB_CACHE}: {error.strerror or error}"
            if error.errno == errno.ENOSPC:
                message += "; make room, or set HF_HOME to a directory on another disk"
        else:  # a connection that broke, a reply that is no Hub's, and whatever else the library does not foresee
            fault = f"{type(error).__name__}: {error}"
            message = f"the download from {constants.ENDPOINT} failed: {fault}; run it again, and it resumes"
    name = repository if file is None else f"{repository}:{file}"
    raise RingletError(f"{name}: {' '.join(message.split())}") from None


def _why_not_reached(error: BaseException) -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    for cause in (error, error.__cause__):
        response = getattr(cause, "response", None)
        if response is not None:
            return f"{constants.ENDPOINT} answered with status {response.status_code}"
    return f"{constants.ENDPOINT} cannot be reached"
