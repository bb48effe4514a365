"""``patchkit watch``: is the server loading, capturing, ready, dead or hung?

Pure, with the clock handed in: ``lines`` bytes to lines, ``events`` a line to an event,
``tracebacks``, ``causes`` what is known of failures, ``phases`` where each rank is,
``progress``, ``stall`` is anything moving, ``stacks``, ``judge`` the verdict.
At the edge: ``follow`` a log, ``processes``, ``loading``, ``gpu``, ``probe`` by HTTP,
``dumping`` stacks, ``child``; ``run`` drives them. ``text`` and ``timeline`` show.
"""
