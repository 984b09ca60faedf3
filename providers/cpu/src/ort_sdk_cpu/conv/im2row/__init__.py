"""Convolutions as GEMMs whose rows are windows: of images cut into patches, and of inputs of any shape."""
