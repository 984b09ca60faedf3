"""Lowering: the steps of a specialised plan fused, given buffers and bound, and written out as one Python function."""
