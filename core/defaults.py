"""Values that the command line and the Python interface share."""

DEFAULT_SAMPLER = "top_k=40,top_p=0.95,temperature=0.8"
MAX_TOKENS = 128
SAMPLE = "sample"  # the usual decoding strategy
