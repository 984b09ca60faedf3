"""Programs: a tracing compiler of plans, one program for each input signature.

A signature seen twice is traced (``trace``: one run is recorded, bodies are inlined and unrolled by ``inlining``). What
``abstract_values`` prove known is evaluated away (``partial_evaluation``); shapes that only a run knows get ``guards``, and a
guard that fails takes a side exit into a continuation (``subplans``). Providers fuse steps (``fusion``), ``liveness`` and
``buffers`` decide where values are, kernels are bound to them (``binding``), and ``codegen`` writes what is left as one Python
function (``program``). ``cache`` keeps programs by signature; ``dynamic_shapes`` finds signatures that differ in some shapes
only, and ``shape_generic`` runs those that have no program.
"""
