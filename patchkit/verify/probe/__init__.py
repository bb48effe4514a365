"""The child process of ``verify``: the only place that imports sglang and torch."""
