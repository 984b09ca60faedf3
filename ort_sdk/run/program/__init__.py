"""Programs: a tracing compiler of plans, one program for each input signature.

A signature seen twice is traced (``tracing``: one run is recorded, bodies are inlined and unrolled, what follows from the
signature is evaluated away) to a ``specialisation`` of the plan. Shapes that only a run knows get ``guards``, and a guard that
fails takes a side exit into a continuation (``subplans``). ``lowering`` makes a ``program`` of it: providers fuse steps, values
get buffers, kernels are bound to them, and what is left is written as one Python function. ``cache`` keeps programs by signature;
``dynamic_shapes`` finds signatures that differ in some shapes only, and ``shape_generic`` runs those that have no program.
"""
