"""`tokenize`: a text's token ids."""

from __future__ import annotations

import click

from ringlet.core.commands.options import command, json_option, parse_special_option, source_option
from ringlet.core.terminal.console import print_json, print_lines, read_text_argument


@command(short_help="Show the tokens of a text.", epilog='\b\nExample:\n  ringlet tokenize "我爱你"')
@click.argument("text", required=False)
@source_option
@click.option("--no-special", is_flag=True, help="Without the tokens that the model wants around a text.")
@parse_special_option
@json_option
def tokenize(text: str | None, model: str | None, no_special: bool, parse_special: bool, as_json: bool) -> None:
    """Show the token ids of TEXT, or of standard input for "-" and where there is none."""
    from ringlet.tokenization.tokenizer import Tokenizer

    given = read_text_argument(text)
    tokenizer = Tokenizer.from_pretrained(model)
    ids = tokenizer.encode(given, add_special=not no_special, parse_special=parse_special)
    if as_json:
        print_json([{"id": token_id, "piece": tokenizer.piece(token_id)} for token_id in ids])
        return
    from ringlet.tokenization.display import token_rows

    print_lines(token_rows(tokenizer, ids))
