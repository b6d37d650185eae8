"""Looks at a trained network, cell by cell: open it as a notebook, or run it with a run folder as its argument.

epitomic train digits --out runs/digits
python examples/look_at_a_run.py runs/digits
"""

# %% [markdown]
# A run folder is what `epitomic train ... --out FOLDER` leaves behind.

# %%
import sys

from epitomic.visualisation import (
    curves_figure,
    explain,
    explain_figure,
    filters_figure,
    measure_shifts,
    open_run,
    position_use,
    save_figure,
)

given = [word for word in sys.argv[1:2] if not word.startswith("-")]  # a notebook has an option here, -f
run = open_run(given[0] if given else "runs/digits")
print(run.model_name, "on", run.dataset)

# %% [markdown]
# The epitomes of the first layer. Each one holds D x D overlapping filters.

# %%
filters_figure([run])

# %% [markdown]
# The validation error over the training.

# %%
curves_figure([run])

# %% [markdown]
# Which of the D x D positions win? `counts` has a row an epitome and a column a position.

# %%
for use in position_use(run.model, [run.to_input(run.test.images[:200])]):
    print(use.name, (100 * use.overall).round().tolist(), "dead:", int(use.dead.sum()))

# %% [markdown]
# One test image: what each layer matched, and the image put back together from the first layer's matches.

# %%
found = explain(run, 0)
for rebuilt in found.rebuilt:
    print("matches per patch:", rebuilt.matches, "relative error:", round(float(rebuilt.error[0]), 3))
figure = explain_figure(run, found)
save_figure(figure, "look_at_a_run")

# %% [markdown]
# How much does a shift of the image by one pixel hurt?

# %%
for row in measure_shifts(run, most=1, images=100):
    print(row.shift, row.direction, row.error)
