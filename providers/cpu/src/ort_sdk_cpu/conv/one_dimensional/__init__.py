"""Convolutions along one axis: of sound, of text, and of images whose windows cover the other axis."""
