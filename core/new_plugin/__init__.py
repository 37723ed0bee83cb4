"""A package for a new plugin: its files as templates, a kind of plugin each, and what writes them."""
