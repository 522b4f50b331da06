"""The times of a training's steps: every moment of a rank belongs to one phase, so the times of phases add up to the
step.

The training itself calls this, after pauses in which its code left the caches, so a change of the phase is one call
without an object. The times of the last steps are rows in memory; with a page, each step is a record of 64 bytes too,
which `alltrace.trace.step_records` describes and reads.
"""

from array import array

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_RDONLY, open
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close, pread

cdef extern from *:
    """
    #define MOST_PHASES 16
    #define RECORDED 5
    #define RECORD 64
    #define PAGE 4096
    #define WRITTEN_AT 24
    #define NOW_AT 192
    #define LAST_AT 512
    #define NOTABLE 256
    """
    enum:
        MOST_PHASES
        RECORDED
        RECORD
        PAGE
        WRITTEN_AT
        NOW_AT
        LAST_AT
        NOTABLE  # waits for a processor that are longer than a step divided by this are told from their phases

PHASES = RECORDED
"""Phases that a record has times of; those of others are in its `other`."""
TIMED_PHASES = MOST_PHASES
"""Phases that a step can have."""
RECORD_BYTES = RECORD
PAGE_BYTES = PAGE
AT_WRITTEN = WRITTEN_AT
"""Where a page says how many records there are, and when it was last written."""
AT_NOW = NOW_AT
"""Where a page says the current step, since when the rank is in its phase, and the phase's number."""
AT_LAST = LAST_AT
"""Where the ring of a page's last records begins."""

cdef int64_t NEVER = (<int64_t>1) << 62
cdef uint32_t[16] CRC  # by half a byte, so that it is one line of a cache
cdef uint32_t _value
cdef int _n, _bit
for _n in range(16):
    _value = _n
    for _bit in range(4):
        _value = (_value >> 1) ^ (0xEDB88320u if _value & 1 else 0)
    CRC[_n] = _value


cdef uint32_t crc32(const uint8_t *data, int count) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFFu
    cdef int n
    for n in range(count):
        crc ^= data[n]
        crc = CRC[crc & 0xF] ^ (crc >> 4)
        crc = CRC[crc & 0xF] ^ (crc >> 4)
    return ~crc


cdef int64_t clock_ns(int which) noexcept nogil:
    cdef timespec now
    clock_gettime(which, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef uint32_t as_us(int64_t ns) noexcept nogil:
    cdef int64_t us = (ns + 500) // 1000, most = 0xFFFFFFFFu
    return 0 if us < 0 else <uint32_t>(most if us > most else us)


cdef class StepTimes:
    """The times of a rank's steps in each phase; phase 0 is none, and `every` steps are a window.

    By the host's clock, what the thread waits for a processor while it could run (Linux's `schedstat`) is a part of no
    phase: other programs cause it, and it would hide what the phases take. To read it costs more than all else here. So
    it is read once a step unless it was a notable part of the window before; then also where a phase took notably
    longer than the shortest time of that phase in that window. A wait that is not notable counts to a later phase.
    `clock`: tells the time and the wait, in ns; None for the system's.
    """

    cdef readonly int phase
    cdef readonly int64_t step  # the number of the step that it is in
    cdef readonly int64_t begin_ns  # when that began, ns since 1970
    cdef readonly int last  # the last phase of that
    cdef readonly int64_t ended_step  # the last of which the times are known
    cdef readonly uint64_t recorded
    cdef int every, ended
    cdef int64_t[MOST_PHASES + 1] ns
    cdef int64_t[MOST_PHASES + 1] least, usual  # the shortest times of each phase in this window and the one before
    cdef int64_t since, waited, wait_ns, total
    cdef int64_t to_wall  # from the clock of `since` to that of `begin_ns`
    cdef int64_t window_wait_ns, window_ns
    cdef bint disturbed  # whether waits were notable in the window before
    cdef int file
    cdef object clock, stamp, marks, rows, records
    cdef double[::1] row
    cdef uint8_t[::1] page
    cdef uint8_t *head  # its first byte
    cdef uint32_t throttle
    cdef uint16_t clock_mhz, xid

    def __cinit__(self):
        self.file = -1

    def __init__(self, every, clock=None):
        self.every = every
        self.clock = clock
        self.window_wait_ns = self.window_ns = 0
        memset(self.least, 0, sizeof(self.least))
        self._new_window()
        self.begin(0)

    def __dealloc__(self):
        if self.file >= 0:
            close(self.file)

    def write_to(self, page):
        """Write records into a page from now on, and keep them for `taken_records`."""
        self.page = page
        if self.page.shape[0] != PAGE:
            raise ValueError(f"a page has {PAGE} bytes, not {self.page.shape[0]}")
        self.head = &self.page[0]
        self.records = bytearray()

    def begin(self, step, stamp=None):
        """A step with a number begins now, in the calling thread; `stamp` returns a moment where another clock tells
        it."""
        if self.file >= 0:
            close(self.file)
        self.file = -1 if self.clock is not None else open(b"/proc/thread-self/schedstat", O_RDONLY)
        self.stamp = stamp
        self.step = step
        self.phase = 0
        self.total = 0
        self.since = self._now()
        self.waited = self._waited()
        self._begin()

    def turn(self, int phase):
        """The rank is in another phase from now on; 0 for none."""
        self._turn(phase)

    def end(self):
        """The step has ended and the next one begins; whether a window is full."""
        self._turn(0, True)
        cdef bint full = self._put(self.step, self.begin_ns, self.ns, self.wait_ns, self.last, 0)
        self.step += 1
        self._begin()
        self._show()
        return full

    def end_stamped(self):
        """The same where another clock tells moments: the phases that ended, each with its moment."""
        self._turn(0)
        marks = self.marks
        self.step += 1
        self._begin()
        self._show()
        return marks

    def put(self, int64_t step, int64_t begin_ns, times_ns, int64_t wait_ns=0, int last=0, int flags=0):
        """A step has ended that took these times, that in no phase first; whether a window is full."""
        cdef int64_t[MOST_PHASES + 1] ns
        cdef int n
        memset(ns, 0, sizeof(ns))
        for n, time in enumerate(times_ns):
            if n > MOST_PHASES:
                raise ValueError(f"{len(times_ns)} phases are too many; expected {MOST_PHASES + 1} or fewer")
            ns[n] = time
        return self._put(step, begin_ns, ns, wait_ns, last, flags)

    def set_gpu(self, int clock_mhz, unsigned int throttle, int xid):
        """What records say of the GPU from now on."""
        self.clock_mhz = <uint16_t>(clock_mhz if 0 <= clock_mhz < 0x10000 else 0xFFFF)
        self.throttle = throttle
        self.xid = <uint16_t>(xid & 0xFFFF)

    def taken_window(self):
        """The times of the last window in s: of each step the wait for a processor, the time in none and that in each
        phase."""
        rows = self.rows
        self._new_window()
        return rows

    def taken_records(self):
        """The records since the last call."""
        records, self.records = self.records, bytearray()
        return records

    cdef _new_window(self):
        cdef int n
        self.rows = array("d", bytes(8 * self.every * (MOST_PHASES + 2)))
        self.row = self.rows
        self.ended = 0
        self.disturbed = self.window_wait_ns >= self.window_ns // NOTABLE  # in the first window, too
        self.window_wait_ns = self.window_ns = 0
        for n in range(MOST_PHASES + 1):
            self.usual[n] = self.least[n] if self.least[n] < NEVER else 0
            self.least[n] = NEVER

    cdef void _begin(self) noexcept:
        memset(self.ns, 0, sizeof(self.ns))
        self.wait_ns = self.last = 0
        self.begin_ns = clock_ns(CLOCK_REALTIME)
        self.to_wall = self.begin_ns - self.since
        self.marks = [] if self.stamp is not None else None

    cdef int64_t _now(self) except -1:
        return clock_ns(CLOCK_MONOTONIC) if self.clock is None else self.clock()[0]

    cdef int64_t _waited(self) except -1:
        cdef char[64] text
        cdef Py_ssize_t n = 0, size
        cdef int64_t waited = 0
        if self.clock is not None:
            return self.clock()[1]
        if self.file >= 0:
            size = pread(self.file, text, sizeof(text), 0)
            while n < size and text[n] != c" ":
                n += 1
            n += 1
            while n < size and c"0" <= text[n] <= c"9":
                waited = waited * 10 + (text[n] - c"0")
                n += 1
        return waited

    cdef int _turn(self, int phase, bint ends=False) except -1:
        cdef int64_t now, waited, elapsed, wait
        if not 0 <= phase <= MOST_PHASES:
            raise ValueError(f"phase {phase} is none of 0 to {MOST_PHASES}")
        if self.stamp is not None:
            self.marks.append((self.phase, self.stamp()))
            self.since = self._now()
        else:
            now = self._now()
            elapsed = now - self.since
            wait = 0
            if ends or self.disturbed and elapsed > self.usual[self.phase] + self.total // NOTABLE:
                waited = self._waited()
                # the rest of a wait between the two clocks is of the next phase
                wait = min(waited - self.waited, elapsed)
                self.waited += wait
            self.least[self.phase] = min(self.least[self.phase], elapsed - wait)
            self.ns[self.phase] += elapsed - wait
            self.wait_ns += wait
            self.since = now
        if phase:
            self.last = phase
        self.phase = phase
        self._show()
        return 0

    cdef void _show(self) noexcept:
        """Write into the page what the rank does now."""
        cdef int64_t now = self.since + self.to_wall
        cdef uint32_t phase = self.phase
        if self.head != NULL:
            memcpy(self.head + NOW_AT, &self.step, 8)
            memcpy(self.head + NOW_AT + 8, &now, 8)
            memcpy(self.head + NOW_AT + 16, &phase, 4)

    cdef int _put(self, int64_t step, int64_t begin_ns, int64_t *ns, int64_t wait_ns, int last, int flags) except -1:
        cdef int n, at = self.ended * (MOST_PHASES + 2)
        cdef int64_t total = wait_ns
        if self.ended == self.every:
            raise ValueError("the window is full; expected taken_window() before the next step")
        self.row[at] = wait_ns / 1e9
        for n in range(MOST_PHASES + 1):
            self.row[at + n + 1] = ns[n] / 1e9
            total += ns[n]
        self.total = total
        self.window_wait_ns += wait_ns
        self.window_ns += total
        self.ended_step = step
        self.ended += 1
        if self.head != NULL:
            self._record(step, begin_ns, total, ns, wait_ns, last, flags)
        return self.ended == self.every

    cdef _record(self, int64_t step, int64_t begin_ns, int64_t total, int64_t *ns, int64_t wait_ns, int last,
        int flags):
        cdef uint8_t[RECORD] record
        cdef uint32_t us
        cdef int n
        cdef int64_t now = self.since + self.to_wall
        memset(record, 0, RECORD)
        memcpy(&record[0], &step, 8)
        memcpy(&record[8], &begin_ns, 8)
        us = as_us(total)
        memcpy(&record[16], &us, 4)
        for n in range(RECORDED):
            us = as_us(ns[n + 1])
            memcpy(&record[20 + 4 * n], &us, 4)
        us = as_us(wait_ns)
        memcpy(&record[40], &us, 4)
        record[44] = <uint8_t>last
        record[45] = <uint8_t>flags
        memcpy(&record[46], &self.clock_mhz, 2)
        memcpy(&record[48], &self.throttle, 4)
        memcpy(&record[52], &self.xid, 2)
        us = crc32(record, RECORD - 4)
        memcpy(&record[RECORD - 4], &us, 4)
        memcpy(self.head + LAST_AT + self.recorded % ((PAGE - LAST_AT) // RECORD) * RECORD, record, RECORD)
        self.records += record[:RECORD]
        self.recorded += 1
        memcpy(self.head + WRITTEN_AT, &self.recorded, 8)
        memcpy(self.head + WRITTEN_AT + 8, &now, 8)


cdef class Phase:
    """A part of a step, each time that it comes in it, for `with`; one within another interrupts it."""

    cdef StepTimes times
    cdef list before
    cdef readonly int number

    def __init__(self, StepTimes times not None, int number):
        self.times = times
        self.before = []
        self.number = number

    def __enter__(self):
        self.before.append(self.times.phase)
        self.times._turn(self.number)

    def __exit__(self, *_):
        self.times._turn(self.before.pop())

    def begin(self, *_):
        """The rank is in this phase from now on; a hook."""
        self.times._turn(self.number)
