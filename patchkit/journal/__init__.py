"""The journal: git, and the only package that talks to it.

``plumbing`` runs git, ``store`` is the repository of our own, ``checkout`` is what we
ask of the user's repository.
"""
