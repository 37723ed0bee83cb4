"""Weights quantised when a model is loaded: float32 → blocks, what is quantised to what, and where it is kept."""
