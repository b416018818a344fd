"""Requests are disturbed, and a judge says whether what is left is right.

Requests: ``scenarios`` are single ones, with a plain model of what they change; ``clients`` make them at random, and
note what they know in a ``ledger``.

Injectors: ``strikes`` kills or fails a system call, ``disks`` fills and spoils disks and cuts the power, ``server``
kills workers and services at random, ``clock`` sets the clock. ``weakened`` takes a protection away, which the rig must
notice.

Judges: ``aftermath`` is for single requests, ``judging`` for ledgers, ``linear.checker`` for histories.

``python -m tests.rigs RIG`` makes the long run of a rig, and prints a ``report``.
"""
