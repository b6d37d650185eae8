"""Timings of the layer against the pair that it replaces: interleaved in one run, the pair in its faster layout."""
