"""Attention, shown: a trace of everything that a forward step computes, and what can be told from it."""
