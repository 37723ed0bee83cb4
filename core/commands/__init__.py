"""The commands of the command line, one a file: parse, call core, print. `cli.py` puts them together."""
