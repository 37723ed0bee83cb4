"""Errors that are the user's to mend: one line that names the file, option or value and the way out."""


class RingletError(ValueError):
    """Bad input: a file, an option or a value. The command line prints it as one line and exits with code 2."""


class FormatError(RingletError):
    """A model file that is damaged, foreign, or asks for something this version cannot do."""


class PluginError(RingletError):
    """A plugin that failed; the message names the plugin, the hook and the fault."""
