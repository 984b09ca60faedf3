"""Linking of ELF object files into images, and mapping of images."""
