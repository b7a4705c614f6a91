# SPDX-License-Identifier: Apache-2.0
"""Is a recorded concurrent history linearisable? The search of Wing and Gong, with Lowe's memory of what was seen.

A history is a list of Op: what was asked, what came back, and when. It is linearisable when every operation can be given
one moment between its invocation and its return so that, in the order of these moments, a model that does one thing at a
time gives the same results. An operation whose answer never came (the daemon died) has no return: it may have happened at
any moment after its invocation, or never.

The search walks the events in time. A call that the model accepts in the present state is taken as the next moment and
leaves the list; a return whose call has not been taken means that the last choice was wrong. Two prefixes that took the
same set of operations and ended in the same state have the same future, so each such pair is tried once.
"""
import time

FOREVER = float("inf")


class Op:
    """kind and argument: what was asked; result: what the model must give (None: no answer came); call, ret: when."""
    __slots__ = ("kind", "arg", "result", "call", "ret", "who")

    def __init__(self, kind, arg, result, call, ret=FOREVER, who=0):
        self.kind, self.arg, self.result, self.call, self.ret, self.who = kind, arg, result, call, ret, who

    def known(self):
        return self.ret != FOREVER

    def __repr__(self):
        return f"[{self.who}] {self.kind}({self.arg}) -> {self.result if self.known() else '?'} @{self.call}..{self.ret}"


class Undecided(Exception):
    pass


# ---------------------------------------------------------------------------------------------- models
# A model is a function: (state, op) -> the next state, or REFUSED when the result cannot be in this state.
REFUSED = object()
ABSENT = None


def key_model(state, op):
    """One key of S3. The state is the content's name (its ETag), or ABSENT."""
    kind, result = op.kind, op.result
    if kind == "get":
        return state if not op.known() or result == state else REFUSED
    if op.known() and result == "conflict":  # 409: the service says that nothing was done
        return state if kind in ("put-if-absent", "put-if") else REFUSED
    if kind in ("put", "delete"):
        return op.arg if kind == "put" else ABSENT
    if kind == "put-if-absent":
        want = "ok" if state is ABSENT else "refused"
        after = op.arg
    elif kind == "put-if":
        want = "missing" if state is ABSENT else "ok" if state == op.arg[0] else "refused"
        after = op.arg[1]
    else:
        raise ValueError(kind)
    if op.known() and result != want:
        return REFUSED
    return after if want == "ok" else state


def table_model(state, op):
    """One table. The state is the snapshot that its branch main points to, or ABSENT before the first."""
    if op.kind == "load":
        return state if not op.known() or op.result == state else REFUSED
    if op.kind != "commit":
        raise ValueError(op.kind)
    want = "ok" if state == op.arg[0] else "refused"
    if op.known() and op.result != want:
        return REFUSED
    return op.arg[1] if want == "ok" else state


# ---------------------------------------------------------------------------------------------- the search
class _Event:
    __slots__ = ("op", "bit", "match", "prev", "next")

    def __init__(self, op, bit):
        self.op, self.bit, self.match, self.prev, self.next = op, bit, None, None, None


def _events(history):
    """The events in time as a linked list behind a head. Calls that fall together with returns come first: they overlap."""
    marks, completed = [], 0
    for number, op in enumerate(history):
        if op.ret < op.call:
            raise ValueError(f"{op} ends before it begins")
        call = _Event(op, 1 << number)
        marks.append((op.call, 0, number, call))
        if op.known():
            completed += 1
            ret = _Event(op, 0)
            call.match = ret
            marks.append((op.ret, 1, number, ret))
    marks.sort(key=lambda m: m[:3])
    head = last = _Event(None, 0)
    for _, _, _, e in marks:
        last.next, e.prev, last = e, last, e
    return head, completed


def _unlink(e):
    e.prev.next = e.next
    if e.next:
        e.next.prev = e.prev


def _relink(e):
    e.prev.next = e
    if e.next:
        e.next.prev = e


def check(history, model, initial=ABSENT, steps_max=20_000_000, seconds=60):
    """(True, None), or (False, the operation whose return could not be passed by the longest attempt)."""
    head, left = _events(history)
    state, taken, stack, seen = initial, 0, [], set()
    event, steps, fewest, stuck = head.next, 0, left + 1, None
    end = time.monotonic() + seconds
    while left:
        steps += 1
        if steps > steps_max or (steps % 4096 == 0 and time.monotonic() > end):
            raise Undecided(f"no result after {steps} steps")
        if event is not None and event.bit:  # a call
            after = model(state, event.op)
            mark = (taken | event.bit, after)
            if after is not REFUSED and mark not in seen:
                seen.add(mark)
                stack.append((event, state))
                state, taken = after, taken | event.bit
                if event.match is not None:
                    _unlink(event.match)
                    left -= 1
                _unlink(event)
                event = head.next
            else:
                event = event.next
            continue
        if left < fewest and event is not None:
            fewest, stuck = left, event.op
        if not stack:
            return False, stuck
        event, state = stack.pop()
        taken &= ~event.bit
        _relink(event)
        if event.match is not None:
            _relink(event.match)
            left += 1
        event = event.next
    return True, None


def around(history, op, n=12):
    """What happened near an operation, for a person."""
    near = sorted((o for o in history if o.call <= op.ret and o.ret >= op.call), key=lambda o: o.call)
    return near[-n:]


# ---------------------------------------------------------------------------------------------- spoilt histories
def stale_reads(history, read, result_of):
    """Copies of a history, each with one read that returns what was certainly overwritten before it began: a write A ended,
    then a write B began and ended, then the read began, and nothing else gives A's content. result_of(op): the content that
    a finished write left, or None."""
    writes = sorted((o for o in history if o.known() and result_of(o) is not None), key=lambda o: o.call)
    for at, op in enumerate(history):
        if op.kind != read or not op.known():
            continue
        before = [w for w in writes if w.ret < op.call]
        if len(before) < 2:
            continue
        later = before[-1]
        older = [w for w in before if w.ret < later.call]
        if older:
            yield [*history[:at], Op(op.kind, op.arg, result_of(older[0]), op.call, op.ret, op.who), *history[at + 1:]]
