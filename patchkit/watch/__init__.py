"""``patchkit watch``: is the server loading, capturing, ready, dead or hung?

Pure, with the clock handed in: ``lines`` bytes to lines, ``clock`` when they were
written, ``events`` a line to an event, ``tracebacks``, ``causes`` what is known of
failures, ``phases`` (of ``spans``) where each rank is, ``progress``, ``stall`` is
anything moving, ``stacks``, ``answers`` what was said by HTTP, ``judge`` the verdict:
``reached``, ``crash``, ``hang``, ``slow``, ``gone``, ``unhealthy``.
At the edge: ``follow`` a log, ``writers`` of it, ``processes``, ``loading``, ``gpu``
(``sampling`` asks these), ``probe`` by HTTP (``asking`` says what and when), ``zone``,
``dumping`` stacks, ``child``, ``signals``; ``run`` drives them. ``status``, ``text``
and ``timeline`` show.
"""
