"""Errors that are the user's to mend: one line that names the file, option or value and the way out."""

LONGEST_FAULT = 300  # characters: Numba's errors run to thousands
CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
LONGEST_QUOTE = 100  # characters: a file's texts run to megabytes


class RingletError(ValueError):
    """Bad input: a file, an option or a value. The command line prints it as one line and exits with code 2."""


class FormatError(RingletError):
    """A model file that is damaged, foreign, or asks for something this version cannot do."""


class PluginError(RingletError):
    """A plugin that failed; the message names the plugin, the hook and the fault."""


def one_line(text: str) -> str:
    """The text as a terminal may show it: what a file or a plugin says of itself may hold control characters."""
    return " ".join(text.split()).translate(CONTROLS)


def fault_text(error: BaseException) -> str:
    """An exception in one line. Unless it is ours, its kind stands before it, and a long text is cut."""
    text = one_line(str(error))
    if isinstance(error, RingletError):
        return text
    if len(text) > LONGEST_FAULT:
        text = text[: LONGEST_FAULT - 1].rstrip() + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cause_of(error: OSError) -> str:
    """The system's words for it, to stand after a colon: "no such file or directory"."""
    words = one_line(error.strerror or str(error))
    return words[:1].lower() + words[1:]


def how_to_install(package: str, extra: str) -> str:
    """What an extra of ours brings, in a command that works everywhere, and in the one for a clone."""
    return f"pip install {package}, or pip install -e '.[{extra}]' in a clone of Ringlet"


def quoted(text: object) -> str:
    """A text or another value from a file as errors show it: escaped, and cut where it is long."""
    shown = repr(text[: LONGEST_QUOTE + 1]) if isinstance(text, str) else " ".join(repr(text).split())
    return shown if len(shown) <= LONGEST_QUOTE + 2 else f"{shown[:LONGEST_QUOTE]}…"
