"""DequantizeLinear of weights of few bits, and what it feeds, as MatMulNBits and GatherBlockQuantized."""
