"""Photographs, read from disk when they are needed."""
