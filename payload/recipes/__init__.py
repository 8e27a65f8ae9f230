"""Recipes: named settings with their command, hardware, time and accuracy. Standard library only."""

from __future__ import annotations

from typing import Final

from payload.recipes.benchmark import BENCHMARK
from payload.recipes.digits import DIGITS
from payload.recipes.fashion_mnist import FASHION_MNIST
from payload.recipes.imagenet_90 import IMAGENET_90
from payload.recipes.imagenet_fast import IMAGENET_FAST
from payload.recipes.japanese_vowels import JAPANESE_VOWELS
from payload.recipes.recipe import Recipe, Variant

__all__ = ["RECIPES", "Recipe", "Variant"]

RECIPES: Final = (DIGITS, JAPANESE_VOWELS, FASHION_MNIST, IMAGENET_90, IMAGENET_FAST, BENCHMARK)
"""All recipes, in display order."""
