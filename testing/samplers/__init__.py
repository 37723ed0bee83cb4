"""The conformance suite of samplers."""
