"""float between nodes that compute in it, where the model has float16 or bfloat16.

``keep_float`` is the stage: ``plan`` finds the values, ``apply`` rewrites the graph with what ``constants``, ``casts`` and
``insert_cast`` (ORT's ``InsertCastTransformer``) make.
"""
