"""Settings for all tests. EPITOMIC_EXAMPLES sets how many random cases each property is tried on."""

import os

import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "epitomic",
    max_examples=int(os.environ.get("EPITOMIC_EXAMPLES", "200")),
    deadline=None,
    derandomize=True,  # the same examples on every machine; the long run tries more of them
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("epitomic")
torch.set_num_threads(2)
