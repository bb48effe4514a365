"""Reads what the taps said: logs and JSON lines -> a table and findings in words.

``stream`` cuts blocks of bytes into records (``words``, ``record``), ``files`` finds
and reads the logs, ``table`` and ``checks`` look at one record at a time in bounded
memory, ``reading`` joins these, ``text`` shows the result. The format is in
docs/taps.md; nothing here imports the taps, torch or a recipe. Only ``files``,
``draft``, ``saves`` and ``plot`` touch the disk.
"""
