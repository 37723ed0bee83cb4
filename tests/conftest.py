"""Fixtures that several test files share: the embedded model, and two real ones where they are on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def real_model(file_name: str) -> Path:
    """A model that tests/fetch_models.sh fetched; the test skips where it is absent."""
    folder = Path(os.environ.get("RINGLET_TEST_MODELS") or Path.home() / ".cache" / "ringlet-test-models")
    path = folder / file_name
    if not path.is_file():
        pytest.skip(f"no {file_name} in {folder}; fetch it with: bash tests/fetch_models.sh")
    return path


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root folder."""
    return REPOSITORY


@pytest.fixture(scope="session")
def embedded_path() -> Path:
    """The directory of the model that ships with Ringlet."""
    return REPOSITORY / "data" / "poet"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1 with a Q8_0 embedding: Llama architecture, BPE, ChatML."""
    return real_model("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    """gemma-3-270m, Q4_K_M: local and global layers, QK-norm, SentencePiece vocabulary of 262,144."""
    return real_model("gemma-3-270m-q4_k_m.gguf")
