"""Recipes, the loop, optimiser groups, schedules, checkpoints, run folders."""
