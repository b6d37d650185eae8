"""The kernel on GPUs, in Triton: ``algorithm="triton"`` and ``algorithm="triton_winograd"``.

- `served`: whether these algorithms can serve a call, without importing Triton;
- `operator`: the kernel as operators that ``torch.compile`` looks into;
- `fused`: all positions by an implicit matrix product, with the maximum in registers;
- `winograd`: transforms around ``torch.bmm``;
- `counts`: bytes and operations of each launch.

Triton is optional. It is imported when the first call comes.
"""
