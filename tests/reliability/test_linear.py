# SPDX-License-Identifier: Apache-2.0
"""The checker of histories itself: it accepts what can be put in an order, and rejects what is known to be wrong."""
import itertools
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "wire"))
from linear import FOREVER, REFUSED, Op, Undecided, check, key_model, stale_reads, table_model  # noqa: E402
from tarnwire import case, eq, main, rng, true  # noqa: E402


def key(*ops):
    return check([Op(*o) for o in ops], key_model)[0]


def table(*ops):
    return check([Op(*o) for o in ops], table_model)[0]


@case
def what_is_right_is_accepted():
    true(key(), "nothing at all")
    true(key(("get", None, None, 0, 1)), "absent at first")
    true(key(("put", "a", "ok", 0, 1), ("get", None, "a", 2, 3)), "a read after a write")
    true(key(("put", "a", "ok", 0, 9), ("get", None, None, 1, 2), ("get", None, "a", 3, 4)), "before and after, during the write")
    true(key(("put", "a", "ok", 0, 9), ("put", "b", "ok", 0, 9), ("get", None, "b", 1, 2), ("get", None, "a", 3, 4)), "two writes at once")
    true(key(("put", "a", "ok", 0, 1), ("delete", None, "ok", 2, 9), ("get", None, "a", 3, 4), ("get", None, None, 5, 6)), "a deletion")
    true(key(("put-if-absent", "a", "ok", 0, 9), ("put-if-absent", "b", "refused", 0, 9)), "one winner")
    true(key(("put", "a", "ok", 0, 1), ("put-if", ("a", "b"), "ok", 2, 9), ("put-if", ("a", "c"), "refused", 2, 9)), "one of two replaces")
    true(key(("put-if", ("a", "b"), "missing", 0, 1)), "nothing to replace")
    true(key(("put-if-absent", "a", "conflict", 0, 1), ("get", None, None, 2, 3)), "nothing was done")
    true(key(("put", "a", None, 0), ("get", None, None, 1, 2), ("get", None, "a", 3, 4)), "an answer that never came: later")
    true(key(("put", "a", None, 0), ("get", None, None, 5, 6)), "an answer that never came: never")
    true(key(("put", "a", "ok", 0, 5), ("get", None, "a", 5, 6)), "ends and begins at one moment")
    true(table(("commit", (None, 1), "ok", 0, 1), ("commit", (1, 2), "ok", 2, 5), ("commit", (1, 3), "refused", 2, 5), ("load", None, 2, 6, 7)), "a table")
    true(table(("commit", (None, 1), None, 0), ("commit", (1, 2), "ok", 2, 5)), "a commit without an answer that another builds on")


BAD = {
    "a read of what was never written": [("get", None, "a", 0, 1)],
    "a stale read": [("put", "a", "ok", 0, 1), ("put", "b", "ok", 2, 3), ("get", None, "a", 4, 5)],
    "an acknowledged write that is lost": [("put", "a", "ok", 0, 1), ("get", None, None, 2, 3)],
    "a read before the write began": [("get", None, "a", 0, 1), ("put", "a", "ok", 2, 3)],
    "a deleted key that comes back": [("put", "a", "ok", 0, 1), ("delete", None, "ok", 2, 3), ("get", None, "a", 4, 5)],
    "time that runs back for two readers": [("put", "a", "ok", 0, 1), ("put", "b", "ok", 2, 9), ("get", None, "b", 3, 4), ("get", None, "a", 5, 6)],
    "two winners": [("put-if-absent", "a", "ok", 0, 9), ("put-if-absent", "b", "ok", 0, 9)],
    "a winner where something was": [("put", "a", "ok", 0, 1), ("put-if-absent", "b", "ok", 2, 3)],
    "no winner": [("put-if-absent", "a", "refused", 0, 9), ("put-if-absent", "b", "refused", 0, 9)],
    "a lost update": [("put", "a", "ok", 0, 1), ("put-if", ("a", "b"), "ok", 2, 9), ("put-if", ("a", "c"), "ok", 2, 9)],
    "a refusal without a reason": [("put", "a", "ok", 0, 1), ("put-if", ("a", "b"), "refused", 2, 3)],
    "missing where it was": [("put", "a", "ok", 0, 1), ("put-if", ("a", "b"), "missing", 2, 3)],
    "a refused write that shows": [("put", "a", "ok", 0, 1), ("put-if", ("x", "b"), "refused", 2, 3), ("get", None, "b", 4, 5)],
    "a conflict that did something": [("put-if-absent", "a", "conflict", 0, 1), ("get", None, "a", 2, 3)],
    "a write without an answer that comes and goes": [("put", "a", None, 0), ("get", None, "a", 1, 2), ("get", None, None, 3, 4)],
    "two readers who see two writes in two orders": [("put", "a", "ok", 0, 1), ("put", "b", "ok", 2, 9), ("put", "c", "ok", 2, 9), ("get", None, "b", 3, 4),
                                                     ("get", None, "c", 5, 6), ("get", None, "b", 7, 8)],
}
BAD_TABLES = {
    "two commits on one base": [("commit", (None, 1), "ok", 0, 1), ("commit", (1, 2), "ok", 2, 9), ("commit", (1, 3), "ok", 2, 9)],
    "a commit that a later load does not show": [("commit", (None, 1), "ok", 0, 1), ("load", None, None, 2, 3)],
    "a refusal on the right base": [("commit", (None, 1), "ok", 0, 1), ("commit", (1, 2), "refused", 2, 3)],
    "a load that goes back": [("commit", (None, 1), "ok", 0, 1), ("commit", (1, 2), "ok", 2, 9), ("load", None, 2, 3, 4), ("load", None, 1, 5, 6)],
    "a refused commit that shows": [("commit", (7, 8), "refused", 0, 1), ("load", None, 8, 2, 3)],
}


@case
def what_is_wrong_is_rejected():
    for name, ops in BAD.items():
        ok, stuck = check([Op(*o) for o in ops], key_model)
        eq(ok, False, name)
        true(stuck is not None, f"{name}: where it went wrong is told")
    for name, ops in BAD_TABLES.items():
        eq(table(*ops), False, name)


@case
def what_is_wrong_is_rejected_inside_much_that_is_right():
    """Each bad history again, in the middle of a long and busy one (later in time, on top of what was there)."""
    noise = [Op("put", f"n{i}", "ok", i, i + 3.5) for i in range(200)]
    start = 300
    for name, ops in BAD.items():
        if any(o[0] == "delete" for o in ops) or ops[0][0] != "put":
            continue  # these need an absent key
        moved = [Op(o[0], o[1], o[2], o[3] + start, o[4] + start if len(o) > 4 else FOREVER) for o in ops]
        eq(check(noise + moved, key_model)[0], False, name)


def by_trying_all(history, model):
    """Every order of every subset that holds all finished operations; the definition, word for word."""
    done = [o for o in history if o.known()]
    open_ = [o for o in history if not o.known()]
    for n in range(len(open_) + 1):
        for some in itertools.combinations(open_, n):
            for order in itertools.permutations(done + list(some)):
                if any(b.ret < a.call for i, a in enumerate(order) for b in order[i + 1:]):
                    continue
                state = None
                for op in order:
                    state = model(state, op)
                    if state is REFUSED:
                        break
                else:
                    return True
    return False


def random_history(r):
    ops = []
    for i in range(r.randrange(1, 7)):
        call = r.randrange(12)
        ret = FOREVER if r.random() < 0.15 else call + r.randrange(6)
        kind = r.choice(("put", "get", "get", "delete", "put-if-absent", "put-if"))
        arg = {"put": f"v{i}", "put-if-absent": f"v{i}", "put-if": (f"v{r.randrange(6)}", f"v{i}")}.get(kind)
        result = {"get": r.choice((None, *(f"v{j}" for j in range(6)))), "put-if-absent": r.choice(("ok", "refused", "conflict")),
                  "put-if": r.choice(("ok", "refused", "missing"))}.get(kind, "ok")
        ops.append(Op(kind, arg, result if ret != FOREVER else None, call, ret, i))
    return ops


@case
def the_same_as_trying_all_orders():
    r = rng()
    seen = {True: 0, False: 0}
    for _ in range(1500):
        h = random_history(r)
        want = by_trying_all(h, key_model)
        seen[want] += 1
        eq(check(h, key_model)[0], want, f"{h}")
    true(min(seen.values()) > 100, f"both kinds came up: {seen}")


def honest_history(r, workers, n):
    """What a store that does one thing at a time, at a random moment of each call, would answer."""
    ops, free = [], [0.0] * workers
    moments = []
    for i in range(n):
        w = r.randrange(workers)
        call = free[w] + r.random()
        at = call + r.random()
        free[w] = ret = at + r.random()
        moments.append((at, w, call, ret, i))
    state = None
    for at, w, call, ret, i in sorted(moments):
        kind = r.choice(("put", "get", "get", "delete", "put-if-absent", "put-if"))
        arg = {"put": f"v{i}", "put-if-absent": f"v{i}", "put-if": (state if r.random() < 0.6 else "other", f"v{i}")}.get(kind)
        result = "ok"
        if kind == "get":
            result = state
        elif kind == "put-if-absent":
            result = "ok" if state is None else "refused"
        elif kind == "put-if":
            result = "missing" if state is None else "ok" if state == arg[0] else "refused"
        state = key_model(state, Op(kind, arg, result, call, ret))
        ops.append(Op(kind, arg, result, call, ret, w))
    return ops


@case
def long_honest_histories_and_stale_reads_in_them():
    r = random.Random(7)
    spoilt = 0
    for n in range(10):
        h = honest_history(r, 8, 1500)
        eq(check(h, key_model), (True, None), f"honest {n}")
        for bad in itertools.islice(stale_reads(h, "get", lambda o: o.arg if o.kind == "put" else None), 5):
            spoilt += 1
            eq(check(bad, key_model)[0], False, "a stale read in it")
    true(spoilt >= 40, f"{spoilt} spoilt histories")


@case
def a_search_that_takes_too_long_says_so():
    h = [Op("put", f"v{i}", "ok", 0, 100) for i in range(14)] + [Op("get", None, "never", 101, 102)]
    try:
        check(h, key_model, steps_max=1000)
    except Undecided:
        return
    raise AssertionError("no word of it")


main()
