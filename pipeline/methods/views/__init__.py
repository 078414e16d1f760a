"""Augmented images: RandAugment's operations on whole batches, and AugMix, which wants equal answers to two views."""
