"""The command line. `ringlet.cli:main` is the click Group itself; each command is a file in `core/commands`."""

from __future__ import annotations

import sys

try:
    from ringlet.core.terminal.interrupts import keep_interrupts

    keep_interrupts()
    import click

    from ringlet.core.commands.bench import bench
    from ringlet.core.commands.chat import chat
    from ringlet.core.commands.completion import completion
    from ringlet.core.commands.explain import explain
    from ringlet.core.commands.generate import generate
    from ringlet.core.commands.inspect import inspect
    from ringlet.core.commands.perplexity import perplexity
    from ringlet.core.commands.plugins import plugins
    from ringlet.core.commands.tokenize import tokenize
    from ringlet.core.commands.warmup import warmup
    from ringlet.core.terminal.command_group import RootGroup

    @click.group("ringlet", cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(package_name="ringlet", prog_name="ringlet")
    def main() -> None:
        """Generate text with language models.

        \b
        Examples:
          ringlet generate "我爱你"
          ringlet generate "Once upon a time" --model org/name
          ringlet chat --model org/name
          ringlet inspect model.gguf
        """

    for command in (generate, chat, tokenize, inspect, explain, perplexity, bench, warmup, plugins, completion):
        main.add_command(command)

except ModuleNotFoundError as missing:
    if __name__ != "__main__":
        raise
    print(f"Error: {missing.name} is not installed: run  pip install -e .  in this folder first", file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)  # Ctrl-C while all this is made

if __name__ == "__main__":
    main()
