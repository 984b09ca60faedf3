"""What computes a convolution that no other algorithm is worth its preparation: on weights where they are."""
