"""Operators of the text family: strings are NumPy object arrays of str."""
