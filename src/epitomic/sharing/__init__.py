"""Sharing of trained networks: a folder with a model card, and its upload to the Hugging Face hub."""

from epitomic.sharing.card import model_card
from epitomic.sharing.upload import push_to_hub, save_for_hub

__all__ = ["model_card", "push_to_hub", "save_for_hub"]
