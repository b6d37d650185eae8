"""The algorithms for one layer, the reductions that lead to them (`reductions`) and the choice among them (`choice`).

- `reference`: the paper's equations, one filter at a time;
- `direct`: torch's own convolutions;
- `one_convolution`: the same with one convolution for all positions;
- `winograd`: fewer multiplications, in torch calls;
- `native`: the same in C++;
- `triton`: two kernels for GPUs.
"""
