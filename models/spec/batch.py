"""Messages and trace records in numpy arrays: the layouts of `messages` as structured types.

Used by: sw_driver, verif.harness, golden.lockstep.
"""

import numpy as np

from .layout import Layout
from .messages import HANDLE, REQUEST, RESPONSE, TRACE


def dtype_of(layout: Layout) -> np.dtype:
    """Structured type of a layout: whole-number fields little-endian, wider fields as raw bytes."""
    return np.dtype(
        [
            (f.name, f"<u{f.size_bytes}" if f.size_bytes in (1, 2, 4, 8) else f"V{f.size_bytes}")
            for f in layout.fields.values()
        ]
    )


REQUEST_DTYPE = dtype_of(REQUEST)
RESPONSE_DTYPE = dtype_of(RESPONSE)
HANDLE_DTYPE = dtype_of(HANDLE)
TRACE_DTYPE = dtype_of(TRACE)

#: A batch of requests, sent per port in array order. `after`: index of an earlier request that must be answered before
#: this one is sent, or -1. `handle_from`: index of an earlier request whose response's handle is copied into this one's
#: header before it is sent, or -1; it also waits for that answer, and when that answer carries no handle (its status is
#: none of GRANTED, HIT, OK) this request is skipped; with ResponseFlag.LEASED the lease is copied as well.
#: `session_from` does the same for the session and its epoch, from an answer to a session operation, which must be OK.
#: `earliest_cycle`: counted from the start of the run. `patience`: while so many cycles have not passed since the
#: request was first sent, an answer NOT_READY is not the last: nothing else is sent on the port until it is woken or
#: the time is over, and then the request is sent again. 0: it is asked once.
BATCH_DTYPE = np.dtype(
    [
        ("port", "<u4"),
        ("after", "<i4"),
        ("handle_from", "<i4"),
        ("session_from", "<i4"),
        ("payload_bytes", "<u4"),
        ("payload_offset", "<u8"),
        ("patience", "<u4"),
        ("earliest_cycle", "<u8"),
        ("header", REQUEST_DTYPE),
    ]
)

#: One result per request. `done`: 0 not answered when the run ended, 1 answered, 2 skipped, 3 lost (its port went down
#: before it was answered; whether it was executed is not known). A request that was skipped or lost counts as answered
#: for those that wait for it, and gives no handle and no session. `tries`: how often it was sent. Cycles count from
#: reset: `sent_cycle` the last beat of the request was accepted, `first_cycle` and `last_cycle` the first and last beat
#: of the response were taken. `data_*`: the payload.
RESULT_DTYPE = np.dtype(
    [
        ("done", "<u4"),
        ("tries", "<u4"),
        ("data_bytes", "<u4"),
        ("data_offset", "<u8"),
        ("sent_cycle", "<u8"),
        ("first_cycle", "<u8"),
        ("last_cycle", "<u8"),
        ("header", RESPONSE_DTYPE),
    ]
)
