"""Small image sets, held in memory as tensors."""
