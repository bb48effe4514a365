"""``patchkit check-draft``: does a draft checkpoint fit this SGLang and this target?

``header``, ``checkpoint``, ``formats`` and ``maps`` read what is on disk; ``tree``
reads the tree's source; ``ask`` has the tree's own classes asked, in the probe;
``rules`` make findings of all that, and are pure; ``run`` is the command; ``names`` and
``renamed`` find and write other names for tensors. Nothing here imports torch.
"""
