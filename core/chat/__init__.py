"""A conversation with a model, turn by turn."""
