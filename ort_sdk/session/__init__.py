"""Sessions: the only folder that knows the order of the stages.

``build`` has the order. ``values`` is what a user holds, ``options`` what a user asks for. ``stages`` makes a session of a model
with its ``providers``, ``calls`` runs it, and ``export`` writes its optimized model.
"""
