"""Helpers that every part of the package uses: errors, files, options, console, machine facts, images."""
