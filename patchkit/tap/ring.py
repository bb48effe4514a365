# patchkit: tap
"""The ring that a GPU writes and the host reads, without a fence or a lock.

A record is 16 little-endian 32-bit words. Each 16-byte quarter ends with the record's
sequence number and one word is a checksum, so the reader can tell a whole record from a
torn, an old or a missing one by looking at it; it needs no event and no CUDA call. The
device numbers all records of all streams with one counter: one ring, one cursor.

====  =======================================  ====  ==================================
word  meaning                                  word  meaning
====  =======================================  ====  ==================================
0     call | segment << 24                     8     share (f32)
1     step of the model                        9     elements that are not finite
2     rows counted                             10    least norm of a counted row (f32)
3     sequence number                          11    sequence number
4     rows of the tensor                       12    greatest norm of a row (f32)
5     L2 norm (f32)                            13    GPU time, 1024 ns, modulo 2**32
6     largest magnitude (f32)                  14    checksum
7     sequence number                          15    sequence number
====  =======================================  ====  ==================================

Sequence numbers start at 1 and wrap at 2**32. Word 8 is the sum over finite elements
divided by the number of all elements in counted rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

WORDS = 16
RECORD_BYTES = 4 * WORDS
#: A call's number has this many bits, its segment the rest but the sign.
CALL_BITS = 24
MOST_SEGMENTS = 64

_MASK = 0xFFFFFFFF
_INTS = struct.Struct("<16I")
_FIELDS = struct.Struct("<IIIIIffIfIfIfIII")
_SEQUENCE = (3, 7, 11, 15)
#: Odd and distinct, so that two words that changed places are noticed too.
WEIGHTS = (1, 3, 5, 7, 9, 11, 13, 0, 17, 19, 21, 0, 25, 27, 0, 0)


@dataclass(frozen=True)
class Record:
    call: int
    segment: int
    step: int
    rows: int
    total: int
    norm: float
    absmax: float
    share: float
    nonfinite: int
    least: float
    greatest: float
    ticks: int
    sequence: int


def checksum(words: tuple[int, ...]) -> int:
    """Of 16 words; what the kernels compute in wrapping 32-bit arithmetic."""
    a, b, c, d, e, f, g, _, h, i, j, _, k, m, _, _ = words
    low = a + b * 3 + c * 5 + d * 7 + e * 9 + f * 11 + g * 13
    return (low + h * 17 + i * 19 + j * 21 + k * 25 + m * 27) & _MASK


def encode(record: Record) -> bytes:
    """The 64 bytes that a device writes for ``record``."""
    number = record.sequence & _MASK
    data = _FIELDS.pack(
        record.call | record.segment << CALL_BITS,
        *(record.step, record.rows, number),
        *(record.total, record.norm, record.absmax, number),
        *(record.share, record.nonfinite, record.least, number),
        *(record.greatest, record.ticks, 0, number),
    )
    return data[:56] + struct.pack("<I", checksum(_INTS.unpack(data))) + data[60:]


class Ring:
    """The host's side of a ring: a cursor.

    ``buffer``: shared memory of ``capacity`` (a power of two) records, zeroed at
    first. ``lost`` counts records that were overwritten before they were read, ``torn``
    the times that a record was caught half written; that one is read again later.
    """

    def __init__(self, buffer: memoryview, capacity: int) -> None:
        assert capacity & (capacity - 1) == 0
        assert len(buffer) == capacity * RECORD_BYTES
        self.capacity = capacity
        self.lost = 0
        self.torn = 0
        self._buffer = buffer
        self._next = 0

    def read(self, limit: int) -> Iterator[Record]:
        """Records in order, as many as are there and at most ``limit``."""
        for _ in range(limit):
            record = self._take()
            if record is None:
                return
            yield record

    def skip_hole(self) -> bool:
        """Step over a record that is not there although a later one is.

        For the end of a process: a kernel that was killed between taking a number and
        writing its record leaves a hole. False if nothing comes after the cursor.
        """
        for ahead in range(1, self.capacity):
            number = self._next + ahead
            if self._whole(self._bytes(number), number) is not None:
                self.lost += ahead
                self._next = number
                return True
        return False

    def _bytes(self, number: int) -> bytes:
        at = number % self.capacity * RECORD_BYTES
        # One copy first: what is checked must be what is used.
        return bytes(self._buffer[at : at + RECORD_BYTES])

    def _take(self) -> Record | None:
        while True:
            data = self._bytes(self._next)
            record = self._whole(data, self._next)
            if record is not None:
                self._next += 1
                return record
            words = _INTS.unpack(data)
            want = (self._next + 1) & _MASK
            seen = [words[i] for i in _SEQUENCE]
            ahead = max(self._ahead(number, want) for number in seen)
            if ahead <= 0:
                if want in seen:
                    self.torn += 1
                return None
            # Lapped. Half a ring behind the writer there is time to read.
            jump = max(1, ahead - self.capacity // 2)
            self.lost += jump
            self._next += jump

    def _ahead(self, number: int, want: int) -> int:
        """How far ``number``, found where ``want`` belongs, is ahead, modulo 2**32."""
        # 0: never written. What does not belong in this place tells nothing.
        if number == 0 or (number - want) % self.capacity:
            return 0
        return ((number - want + (1 << 31)) & _MASK) - (1 << 31)

    @staticmethod
    def _whole(data: bytes, number: int) -> Record | None:
        """The record, if ``data`` is number ``number`` and complete."""
        words = _INTS.unpack(data)
        want = (number + 1) & _MASK
        if not (words[3] == words[7] == words[11] == words[15] == want):
            return None
        if checksum(words) != words[14]:
            return None
        fields = _FIELDS.unpack(data)
        return Record(
            call=fields[0] & ((1 << CALL_BITS) - 1),
            segment=fields[0] >> CALL_BITS,
            step=fields[1],
            rows=fields[2],
            total=fields[4],
            norm=fields[5],
            absmax=fields[6],
            share=fields[8],
            nonfinite=fields[9],
            least=fields[10],
            greatest=fields[12],
            ticks=fields[13],
            sequence=number + 1,
        )
