"""What is measured of a model: speed, work, perplexity, size."""
