"""Tracing: one run of a plan recorded for a signature, bodies inlined and unrolled, what is known evaluated away."""
