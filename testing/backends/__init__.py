"""The conformance suite of backends."""
