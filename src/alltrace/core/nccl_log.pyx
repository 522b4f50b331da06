"""The scanner of plain COLL lines of NCCL's logs: one pass over a block of whole lines.

It accepts only lines that match byte for byte: a lead (what a launcher wrote before the line) and a process token
(`host:pid:tid [device]`) that the reader's careful path has seen and registered, and fields in NCCL's own order. For
every other relevant line it returns the bounds, for the careful path to read; unrelated lines are only counted. So this
path never guesses.

The bytes are untrusted. Public functions check once that the bounds that they are given are within the buffer, and take
a pointer; from there on every read of `buf[at]` follows a comparison of `at` with `end`. Functions that read one field
return the position after it, or -1 if it is missing, and return -1 for an `at` of -1, so that a line is read by a chain
of calls.
"""

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, strlen

from alltrace.core.fnv cimport fnv, fnv_add, fnv_start

FIELDS = (
    "line",
    "token",
    "communicator",
    "operation",
    "op_count",
    "sendbuff",
    "recvbuff",
    "count",
    "datatype",
    "redop",
    "root",
    "nranks",
    "stream",
    "global_rank",
    "time_ns",
    "flags",
)

cdef enum:
    # the indices of FIELDS
    LINE
    TOKEN
    COMMUNICATOR
    OPERATION
    OP_COUNT
    SENDBUFF
    RECVBUFF
    COUNT
    DATATYPE
    REDOP
    ROOT
    NRANKS
    STREAM
    GLOBAL_RANK
    TIME_NS
    FLAGS
    FIELD_COUNT

    MOST_DECIMALS = 18  # any number with this many digits fits into 64 bits
    MOST_HEXADECIMALS = 16

ABSENT = INT64_MIN


cdef const uint8_t *checked(const uint8_t[::1] buf, Py_ssize_t begin, Py_ssize_t start, Py_ssize_t stop) except? NULL:
    """A pointer to the bytes; NULL if `stop` is 0."""
    if not 0 <= begin <= start <= stop <= buf.shape[0]:
        raise IndexError(f"{begin}, {start}, {stop} are no ascending places in a buffer of {buf.shape[0]} bytes")
    return &buf[0] if stop > 0 else NULL


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return c"0" <= byte <= c"9"


cdef inline Py_ssize_t after(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, const char *word) noexcept nogil:
    cdef Py_ssize_t size = strlen(word)
    return at + size if at >= 0 and end - at >= size and memcmp(buf + at, word, size) == 0 else -1


cdef inline Py_ssize_t decimal(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, int64_t *value) noexcept nogil:
    cdef Py_ssize_t start = at
    value[0] = 0
    if at < 0:
        return -1
    while at < end and is_digit(buf[at]):
        if at - start == MOST_DECIMALS:
            return -1
        value[0] = value[0] * 10 + (buf[at] - c"0")
        at += 1
    return at if at > start else -1


cdef inline Py_ssize_t hexadecimal(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, int64_t *value) noexcept nogil:
    cdef Py_ssize_t start = at
    cdef uint64_t bits = 0
    if at < 0:
        return -1
    while at < end:
        if is_digit(buf[at]):
            bits = bits << 4 | (buf[at] - c"0")
        elif c"a" <= buf[at] <= c"f":
            bits = bits << 4 | (buf[at] - c"a" + 10)
        else:
            break
        at += 1
    value[0] = <int64_t>bits
    return at if 0 < at - start <= MOST_HEXADECIMALS else -1


cdef inline Py_ssize_t pointer(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, int64_t *value) noexcept nogil:
    cdef Py_ssize_t digits = after(buf, at, end, b"0x")
    if digits >= 0:
        return hexadecimal(buf, digits, end, value)
    value[0] = 0
    return after(buf, at, end, b"(nil)")


cdef Py_ssize_t call(
    const uint8_t *buf, Py_ssize_t at, Py_ssize_t end, const uint64_t[::1] operations, int64_t *row
) except -2 nogil:
    """Write the fields of a COLL record into `row`, which has space for all; returns the end of its line, -1 if a field
    is missing.

    COMMUNICATOR is the pointer.
    """
    cdef Py_ssize_t start = at, n
    cdef uint64_t operation
    cdef int64_t ignored
    while at < end and (c"A" <= buf[at] <= c"Z" or c"a" <= buf[at] <= c"z"):
        at += 1
    operation = fnv(buf, start, at)
    at = hexadecimal(buf, after(buf, at, end, b": opCount "), end, &row[OP_COUNT])
    at = pointer(buf, after(buf, at, end, b" sendbuff "), end, &row[SENDBUFF])
    at = pointer(buf, after(buf, at, end, b" recvbuff "), end, &row[RECVBUFF])
    if after(buf, at, end, b" acc ") >= 0:
        at = pointer(buf, after(buf, at, end, b" acc "), end, &ignored)
    at = decimal(buf, after(buf, at, end, b" count "), end, &row[COUNT])
    at = decimal(buf, after(buf, at, end, b" datatype "), end, &row[DATATYPE])
    at = decimal(buf, after(buf, at, end, b" op "), end, &row[REDOP])
    at = decimal(buf, after(buf, at, end, b" root "), end, &row[ROOT])
    at = pointer(buf, after(buf, at, end, b" comm "), end, &row[COMMUNICATOR])
    row[NRANKS] = INT64_MIN
    if after(buf, at, end, b" [nranks=") >= 0:
        at = decimal(buf, after(buf, at, end, b" [nranks="), end, &row[NRANKS])
        at = after(buf, at, end, b"]")
    at = pointer(buf, after(buf, at, end, b" stream "), end, &row[STREAM])
    row[GLOBAL_RANK] = INT64_MIN
    if after(buf, at, end, b" task ") >= 0:
        at = decimal(buf, after(buf, at, end, b" task "), end, &ignored)
        at = decimal(buf, after(buf, at, end, b" globalrank "), end, &row[GLOBAL_RANK])
    if after(buf, at, end, b"\r") >= 0:
        at += 1
    if after(buf, at, end, b"\n") < 0:
        return -1
    for n in range(operations.shape[0]):
        if operations[n] == operation:
            row[OPERATION] = n
            return at
    return -1


cdef uint64_t hash_of_lead(const uint8_t *buf, Py_ssize_t begin, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """The hash of the lead `[begin, start)`, with each run of digits taken as one digit, and of the token after it;
    never 0."""
    cdef uint64_t value = fnv_start()
    cdef bint digits = False
    cdef Py_ssize_t at
    for at in range(begin, start):
        if not is_digit(buf[at]):
            value = fnv_add(value, buf[at])
            digits = False
        elif not digits:
            value = fnv_add(value, c"0")
            digits = True
    value = fnv_add(value, 255)
    for at in range(start, stop):
        value = fnv_add(value, buf[at])
    return value if value != 0 else 1


cdef uint64_t hash_of_communicator(int64_t process, int64_t pointer) noexcept nogil:
    cdef uint64_t value = fnv_add(fnv_add(fnv_start(), process), pointer)
    value = fnv_add(value, <uint64_t>pointer >> 32)
    return value if value != 0 else 1


cdef Py_ssize_t start_of_token(const uint8_t *buf, Py_ssize_t begin, Py_ssize_t mark) noexcept nogil:
    cdef Py_ssize_t at = mark - 2
    if at > begin and buf[at] == c"]":
        while at > begin and buf[at] != c" ":
            at -= 1
        at -= 1
    while at >= begin and buf[at] != c" ":
        at -= 1
    return max(at + 1, begin)


cdef inline int64_t two_digits(const uint8_t *buf) noexcept nogil:
    return (buf[0] - c"0") * 10 + buf[1] - c"0"


cdef int64_t fraction_ns(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """The digits at `at`, read as a fraction of a second, in nanoseconds."""
    cdef int64_t ns = 0, unit_ns = 100000000
    while at < end and is_digit(buf[at]):
        ns += (buf[at] - c"0") * unit_ns
        unit_ns //= 10
        at += 1
    return ns


cdef int64_t time_ns(const uint8_t *buf, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    """The first `2026-05-05 06:16:47.123` or `1621500728.783688` in `[begin, end)`, in ns since 1970; INT64_MIN without
    one.

    A date is in UTC unless a time zone follows it. Sums wrap around, so a year after 2262 results in a wrong time.
    """
    cdef Py_ssize_t at = begin, last, n
    cdef int64_t year, month, era, year_of_era, day_of_year, days, ns, minutes
    while end - at >= 10:
        if not is_digit(buf[at]):
            at += 1
            continue
        last = at
        while last < end and is_digit(buf[last]):
            last += 1
        if (
            last - at == 10
            and (last == end or buf[last] == c"." or buf[last] == c"]" or buf[last] == c" ")
            and (at == begin or buf[at - 1] != c".")
        ):
            decimal(buf, at, end, &ns)
            ns *= 1000000000
            return ns + fraction_ns(buf, last + 1, end) if last < end and buf[last] == c"." else ns
        if (
            last - at != 4
            or end - at < 19
            or (buf[at + 4] != c"-" and buf[at + 4] != c"/")
            or buf[at + 13] != c":"
            or buf[at + 16] != c":"
        ):
            at = last
            continue
        for n in range(5, 19):
            if n % 3 != 1 and not is_digit(buf[at + n]):  # all but the separators at 7, 10, 13 and 16
                return INT64_MIN
        month = two_digits(buf + at + 5)
        # days since 1970 of a calendar date, with years that begin in March; 400 years are added so that no term is
        # negative
        year = two_digits(buf + at) * 100 + two_digits(buf + at + 2) + 400 - (month <= 2)
        era = year // 400
        year_of_era = year - era * 400
        day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + two_digits(buf + at + 8) - 1
        days = (era - 1) * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468
        ns = ((days * 24 + two_digits(buf + at + 11)) * 60 + two_digits(buf + at + 14)) * 60 + two_digits(buf + at + 17)
        ns *= 1000000000
        last = at + 19
        if last < end and (buf[last] == c"." or buf[last] == c","):
            last += 1
            ns += fraction_ns(buf, last, end)
            while last < end and is_digit(buf[last]):
                last += 1
        if end - last > 5 and (buf[last] == c"+" or buf[last] == c"-") and is_digit(buf[last + 1]):
            minutes = two_digits(buf + last + 1) * 60 + two_digits(buf + last + (4 if buf[last + 3] == c":" else 3))
            ns -= (minutes if buf[last] == c"+" else -minutes) * 60000000000LL
        return ns
    return INT64_MIN


cdef inline bint is_word(const uint8_t *buf, const char *word) noexcept nogil:
    """Whether the text at `buf` is the lower-case `word`, in any case."""
    cdef size_t n
    for n in range(strlen(word)):
        if (buf[n] | 32) != word[n]:
            return False
    return True


cdef bint watched(const uint8_t *buf, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Whether a line without `NCCL` may still be relevant: a step, or the rest of a record that another one
    interrupted."""
    while end - at > 5:  # the longest word below
        if buf[at] == c"i" or buf[at] == c"I":
            if is_word(buf + at + 1, b"tera"):  # iteration, Iteration
                return True
        elif buf[at] == c"s" or buf[at] == c"S":
            if is_word(buf + at + 1, b"tep"):  # step:, global_step
                return True
            if memcmp(buf + at + 1, b"trea", 4) == 0:  # stream
                return True
        elif buf[at] == c"c" and memcmp(buf + at + 1, b"omm ", 4) == 0:
            return True
        at += 1
    return False


cdef inline Py_ssize_t slot_of(const uint64_t[::1] keys, uint64_t key) except -1 nogil:
    """The slot of `key` in the table, or the empty slot at which to insert it; the caller keeps some slots empty."""
    cdef Py_ssize_t mask = keys.shape[0] - 1
    cdef Py_ssize_t at = <Py_ssize_t>(key ^ key >> 29) & mask
    while keys[at] != 0 and keys[at] != key:
        at = (at + 1) & mask
    return at


def word_hash(const uint8_t[::1] word):
    """The hash by which `scan` identifies an operation."""
    return fnv(checked(word, 0, 0, word.shape[0]), 0, word.shape[0])


def lead_hash(const uint8_t[::1] buf, Py_ssize_t begin, Py_ssize_t start, Py_ssize_t stop):
    """The key under which the lead `buf[begin:start]` with the token `buf[start:stop]` is registered."""
    return hash_of_lead(checked(buf, begin, start, stop), begin, start, stop)


def token_start(const uint8_t[::1] buf, Py_ssize_t begin, Py_ssize_t mark):
    """The begin of the process token `host:pid:tid [device] ` before `NCCL` at `mark`: after a space, or at the begin
    of the line."""
    return start_of_token(checked(buf, begin, begin, mark), begin, mark)


def time_of(const uint8_t[::1] lead):
    """The time in a lead, as `scan` reads it: ns since 1970, by the lead's time zone, else in UTC; `ABSENT` if there is
    none."""
    return time_ns(checked(lead, 0, 0, lead.shape[0]), 0, lead.shape[0])


def put(uint64_t[::1] keys, int64_t[::1] values, uint64_t key, int64_t value):
    """Put `value` under `key`, which is not 0, into a hash table with open addressing, of 2**k slots; 0 marks a free
    one."""
    cdef Py_ssize_t at = slot_of(keys, key)
    keys[at] = key
    values[at] = value


def put_communicator(uint64_t[::1] keys, int64_t[::1] values, int64_t process, int64_t pointer, int64_t value):
    """Put the number of a process's communicator into a hash table with open addressing."""
    put(keys, values, hash_of_communicator(process, pointer), value)


def scan(
    const uint8_t[::1] block,
    int64_t first_line,
    bint times,
    const uint64_t[::1] operations,
    const uint64_t[::1] lead_keys,
    const int64_t[::1] lead_tokens,
    const int64_t[::1] token_process,
    uint64_t[::1] comm_keys,
    int64_t[::1] comm_values,
    int64_t[:, ::1] comms,
    Py_ssize_t comm_count,
    int64_t[:, ::1] calls,
    int64_t[:, ::1] careful,
):
    """Scan a block of whole lines.

    Args:
        block: The bytes.
        first_line: The number of their first line.
        times: Whether to read the time in a line's lead.
        operations: The `word_hash` of each operation.
        lead_keys: The hash table of known leads and tokens, by `lead_hash`.
        lead_tokens: The token number of each of its slots.
        token_process: The process number of each token.
        comm_keys: The hash table of communicators, by process and pointer, with at least twice as many slots as
            `comms`.
        comm_values: The communicator number of each of its slots.
        comms: Process and pointer of each communicator.
        comm_count: How many there are.
        calls: Out: a row of `FIELDS` for each COLL line taken.
        careful: Out: begin, end and number of each line that the careful path must read.

    Returns:
        Rows of `calls`, rows of `careful`, communicators, all lines, unrelated lines, and the position at which it
        stopped: before the block's end if an output is full.
    """
    cdef Py_ssize_t size = block.shape[0], at = 0, begin, mark, end, start, last, slot, place, n
    cdef Py_ssize_t call_count = 0, careful_count = 0
    cdef int64_t lines = 0, foreign = 0, process
    cdef int64_t[FIELD_COUNT] row
    cdef uint64_t key
    cdef const uint8_t *buf = checked(block, 0, 0, size)
    cdef const void *newline
    with nogil:
        while at < size:
            if call_count >= calls.shape[0] or careful_count >= careful.shape[0] or comm_count >= comms.shape[0]:
                break
            begin = end = at
            mark = last = -1
            while end < size and buf[end] != c"\n":
                # the last byte of a line is not a letter
                if buf[end] == c"N" and mark < 0 and end + 4 < size and memcmp(buf + end, b"NCCL", 4) == 0:
                    mark = end
                    if end > begin and after(buf, end, size, b"NCCL INFO ") >= 0:
                        start = start_of_token(buf, begin, mark)
                        slot = slot_of(lead_keys, hash_of_lead(buf, begin, start, mark))
                        if lead_keys[slot] != 0:
                            last = call(buf, after(buf, end, size, b"NCCL INFO "), size, operations, row)
                    break
                end += 1
            if last >= 0:
                end = last
                row[LINE] = first_line + lines
                row[TOKEN] = lead_tokens[slot]
                process = token_process[row[TOKEN]]
                key = hash_of_communicator(process, row[COMMUNICATOR])
                place = slot_of(comm_keys, key)
                if comm_keys[place] == 0:
                    comm_keys[place] = key
                    comm_values[place] = comm_count
                    comms[comm_count, 0] = process
                    comms[comm_count, 1] = row[COMMUNICATOR]
                    comm_count += 1
                row[COMMUNICATOR] = comm_values[place]
                row[TIME_NS] = time_ns(buf, begin, start) if times else INT64_MIN
                row[FLAGS] = 0
                for n in range(FIELD_COUNT):
                    calls[call_count, n] = row[n]
                call_count += 1
            else:
                if end < size:
                    newline = memchr(buf + end, c"\n", size - end)
                    end = size if newline == NULL else <const uint8_t *>newline - buf
                if mark >= 0 or watched(buf, begin, end):
                    careful[careful_count, 0] = begin
                    careful[careful_count, 1] = end
                    careful[careful_count, 2] = first_line + lines
                    careful_count += 1
                else:
                    foreign += 1
            lines += 1
            at = end + 1
    return call_count, careful_count, comm_count, lines, foreign, at
