"""Operators of the tensor family: type, shape and order of elements, and picking, placing and sampling them."""
