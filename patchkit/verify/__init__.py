"""Run a patched tree's real modules on a tiny model. This side never imports torch."""
