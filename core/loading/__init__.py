"""Files on disk → a Model: which architecture, what its configuration says, where its weights are."""
