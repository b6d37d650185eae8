"""The kernel: the paper's equations (`reference`), torch's convolutions (`direct`) and the fast way (`winograd`)."""
