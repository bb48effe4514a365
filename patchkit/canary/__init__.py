"""A synthetic target and draft whose accept length is known in closed form.

``code`` says what the tokens mean, ``plan`` what a pair is made for, ``target`` and
``draft`` make the weights, ``folder`` writes them, ``expect`` is the closed form,
``margins`` proves the arithmetic, ``diagnose`` names the fault, ``ask`` talks to a
server. Standard library only. docs/canary.md has the mathematics.
"""
