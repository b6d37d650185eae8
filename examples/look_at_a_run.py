"""Looks at a trained network step by step. Open it as a notebook, or run it with a run folder as its argument.

epitomic train digits --out runs/digits
python examples/look_at_a_run.py runs/digits
"""

# %% [markdown]
# `epitomic train ... --out FOLDER` writes a run folder. Here we open it.

# %%
import sys

from epitomic.analysis import explain, measure_shifts, position_use
from epitomic.visualisation import curves_figure, explain_figure, filters_figure, open_run, save_figure

given = [word for word in sys.argv[1:2] if not word.startswith("-")]  # a notebook passes an option here: -f
run = open_run(given[0] if given else "runs/digits")
print(run.model_name, "on", run.dataset)

# %% [markdown]
# These are the epitomes of the first layer. Each epitome holds D x D overlapping filters.

# %%
filters_figure([run])

# %% [markdown]
# The validation error after each epoch.

# %%
curves_figure([run])

# %% [markdown]
# How often does each of the D x D positions win, in percent? A position that never wins is dead.

# %%
for use in position_use(run.model, [run.to_input(run.test.images[:200])]):
    print(use.name, (100 * use.overall).round().tolist(), "dead:", int(use.dead.sum()))

# %% [markdown]
# For one test image: what each layer matched, and the image rebuilt from the first layer's matches.

# %%
found = explain(run, 0)
for rebuilt in found.rebuilt:
    print(f"rebuilt from {rebuilt.source}: relative error {float(rebuilt.error[0]):.3f}")
figure = explain_figure(run, found)
save_figure(figure, "look_at_a_run")

# %% [markdown]
# How much does the error grow if the images are shifted by one pixel?

# %%
for row in measure_shifts(run, maximum=1, images=100):
    print(f"shift {row.shift}, direction {row.direction}: error {row.error:.2f}")
