"""The only package that writes into a target.

``tree`` is one target opened for one command, ``standing`` says how a file stands,
``planner`` makes a plan of a wanted set of recipes, ``planning`` merges it with the
user's edits, ``writer`` carries it out, ``recovery`` finishes or undoes what a kill
interrupted.
"""
