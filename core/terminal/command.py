"""A command whose help tells its options in groups."""

from __future__ import annotations

import re
from typing import Any

import click

OWN = "Options"  # what only this command has
MODEL, TEXT, SAMPLING, RING, OUTPUT = (f"{what} options" for what in ("Model", "Text", "Sampling", "Ring", "Output"))
OTHER = "Other options"
FEW = 9  # options that need no groups
WIDEST_NAME = 28  # columns; of a longer one click writes the help below
SHORT_OPTIONS = re.compile(r"-[a-z]+")


class Option(click.Option):
    """group: the heading below which the help tells it."""

    def __init__(self, *arguments: Any, group: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.group = group


class Command(click.Command):
    """An unknown option of it is told as it was written: click takes -ngl for -n."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Groups in the order in which their first options stand; all in the same two columns."""
        groups: dict[str, list[tuple[str, str]]] = {}
        parameters = [parameter for parameter in self.get_params(ctx) if not isinstance(parameter, click.Argument)]
        for parameter in parameters:
            group = OWN if len(parameters) <= FEW else getattr(parameter, "group", OTHER)
            if (record := parameter.get_help_record(ctx)) is not None:
                groups.setdefault(group, []).append(record)
        names = [name for records in groups.values() for name, _ in records]
        width = max(len(name) for name in names if len(name) <= WIDEST_NAME)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in records])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            word = next((word for word in words if word.startswith(name)), name)
            if word == name or not SHORT_OPTIONS.fullmatch(word):
                raise
            raise click.NoSuchOption(word, ctx=ctx) from None
