"""The published tables: their plans, the trainings that they need, and the tables as Markdown."""
