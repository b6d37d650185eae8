"""Honest timings of the layer against the pair it replaces: interleaved in one run, the pair in its best layout."""
