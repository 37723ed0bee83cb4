"""The files that every new plugin's package has. Words after a $ are filled in: see `writer`."""

from __future__ import annotations

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$package"
version = "0.1.0"
description = "$summary"
readme = "README.md"
license = "Apache-2.0"
requires-python = ">=3.10"
keywords = ["ringlet", "$kind"]
dependencies = ["ringlet"]

[project.optional-dependencies]
test = ["pytest>=8"]

[project.entry-points.ringlet]
$name = "$module"

[tool.setuptools]
py-modules = ["$module"]

[tool.pytest.ini_options]
addopts = "-p ringlet.testing"
testpaths = ["tests"]

[tool.ruff]
line-length = 100
"""

GITIGNORE = """\
__pycache__/
.pytest_cache/
*.egg-info/
build/
dist/
.venv/
"""

README = """\
# $package

$summary

## Use

```sh
pip install $package
$example
```

`ringlet plugins list` shows it with its help.

## Develop

```sh
pip install -e ".[test]"
python -m pytest
ringlet plugins check $name
```

The tests and `plugins check` run Ringlet's conformance suite, the one that its own plugins pass.

## Licence

Apache-2.0, as `pyproject.toml` says; put another there if you want one.
"""
