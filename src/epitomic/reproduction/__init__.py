"""The tables that we publish: which runs they are made of, running them, and the figures that come out."""
