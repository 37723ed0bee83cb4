"""What the command line prints and how: groups of commands, tables, progress."""
