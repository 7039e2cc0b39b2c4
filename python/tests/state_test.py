"""The state codec: what is written comes back as it was, and no bytes harm the reader.

Run as `PYTHON python/tests/state_test.py FOLDER`, where FOLDER has the built package.
"""

import collections
import math
import random
import sys
import threading
import unittest

sys.path.insert(0, sys.argv.pop(1) if len(sys.argv) > 1 else "build/debug/bin/python")
sys.dont_write_bytecode = True

from continuo import _worker  # noqa: E402
from continuo._state import StateError  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

write, read = _worker.state_to_bytes, _worker.state_from_bytes

PLAIN = [
    None, True, False, 0, -1, 1, 2**63 - 1, -2**63, 2**63, -2**63 - 1, 2**64, 10**100, -10**100,
    0.0, -0.0, 1.5, 1e-320, math.inf, -math.inf, "", "ü€😀", "\ud800", "a\0b", b"", b"\0\xff",
    bytearray(b"xy"), [], [[[]]], (), ((1,), 2), {}, {"a": {"b": [1, 2.0, "3"]}},
    {1: 1, "1": 2, (1, 2): 3, None: 4, b"x": 5, 1.5: 6}, set(), {1, "a"}, frozenset([1]), 1 - 2j,
    collections.deque([1, 2]), collections.deque([1], maxlen=4), collections.deque(maxlen=0),
    collections.deque([1], maxlen=2**32 - 2),
    list(range(1000)), {i: [i] for i in range(1000)},
]


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, collections.deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, float):
        return repr(a) == repr(b)
    return a == b


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


class Codec(unittest.TestCase):
    def test_values_come_back_as_they_were(self):
        for value in PLAIN:
            with self.subTest(repr(value)[:60]):
                self.assertTrue(same(read(write(value)), value))
        self.assertTrue(same(read(write(PLAIN)), PLAIN))
        self.assertTrue(math.isnan(read(write(math.nan))))

    def test_what_cannot_come_back_is_named(self):
        class Mine(dict):
            pass

        shared = [1]
        loop = {}
        loop["me"] = loop
        for value, message in [
            ({"a": [1, {"b": (0, object())}]}, 'state["a"][1]["b"][1]: an object cannot be stored'),
            ({"m": Mine()}, 'state["m"]: a __main__.'),
            ({("t", 1): print}, "state[('t', 1)]: a builtin_function_or_method cannot be stored"),
            ([shared, shared], "state[1]: this object stands in the state a second time"),
            (loop, 'state["me"]: this object stands in the state a second time'),
            (object(), "state: an object cannot be stored"),
            (nested(70), "containers are nested more than 64 levels deep"),
            ([collections.deque([1], maxlen=2**32)], "state[0]: a deque with maxlen=4294967296 cannot be stored"),
        ]:
            with self.assertRaises(StateError) as caught:
                write(value)
            self.assertIn(message, str(caught.exception))

    def test_what_cannot_change_may_stand_twice(self):
        pair = (1, "x")
        value = {"a": pair, "b": pair, "c": "x", "d": "x", "e": frozenset(pair), "f": b"1"}
        self.assertEqual(read(write(value)), value)

    def test_many_containers_are_told_apart(self):
        many = [[i] for i in range(5000)]
        self.assertEqual(read(write(many)), many)
        with self.assertRaises(StateError):
            write(many + [many[2500]])

    def test_a_limit_holds_before_and_while_it_is_written(self):
        self.assertEqual(read(write(b"x" * 90, False, 100)), b"x" * 90)
        for value in (b"x" * 100, ["x" * 50, "y" * 50], list(range(1000)), "x" * 10_000_000):
            with self.assertRaises(OverflowError):
                write(value, False, 100)

    def test_nesting_up_to_the_limit(self):
        self.assertEqual(read(write(nested(64))), nested(64))

    def test_pickle_only_where_it_is_asked_for(self):
        value = threading.local  # cannot be stored
        self.assertIs(read(write(value, True), True), value)
        with self.assertRaises(ValueError):
            read(write(value, True))
        with self.assertRaises(ValueError):  # nor within a state that may be pickled as a whole
            read(b"Py\x01l\x01\0\0\0" + write(1, True)[3:], True)

    @unittest.skipUnless(numpy, "no NumPy")
    def test_arrays_come_back_with_type_shape_and_order(self):
        for dtype in ("<f4", ">f8", "<f2", "<i2", ">u4", "|b1", "<c8", "<U3", "|S2", "<M8[ms]"):
            for shape in ((), (0,), (3,), (2, 3), (2, 0, 4), (1, 2, 3, 4)):
                array = numpy.zeros(shape, dtype)
                if array.size and array.dtype.kind in "fiuc":
                    array += numpy.arange(array.size).reshape(shape).astype(dtype)
                for each in (array, numpy.asfortranarray(array), array[..., ::2] if shape else array):
                    back = read(write({"x": each}))["x"]
                    self.assertEqual((back.dtype, back.shape), (each.dtype, each.shape))
                    self.assertTrue(numpy.array_equal(back, each))
                    self.assertTrue(back.flags.writeable)
        for scalar in (numpy.float32(0.1), numpy.int8(-3), numpy.bool_(True), numpy.str_("ab")):
            back = read(write(scalar))
            self.assertEqual((type(back), back), (type(scalar), scalar))

    @unittest.skipUnless(numpy, "no NumPy")
    def test_arrays_that_cannot_be_stored(self):
        for array in (numpy.array([object()]), numpy.zeros(2, "i4,f4")):
            with self.assertRaises(StateError):
                write([array])
        array = numpy.zeros(3)
        with self.assertRaises(StateError):
            write([array, array])
        with self.assertRaises(OverflowError):
            write(numpy.zeros(1000), False, 1000)

    def test_no_bytes_harm_the_reader(self):
        """Each prefix, and many changed copies, are refused or read; nothing else happens."""
        samples = [write(value) for value in PLAIN] + [write({"a": PLAIN[:36]})]
        if numpy:
            samples.append(write({"x": numpy.arange(6.0).reshape(2, 3), "y": numpy.float32(1)}))
        chance = random.Random(1)
        refused = 0
        for sample in samples:
            for end in range(min(len(sample), 400)):
                with self.assertRaises(ValueError):
                    read(sample[:end])
            with self.assertRaises(ValueError):
                read(sample + b"\0")
            for _ in range(500):
                changed = bytearray(sample[:2000] if len(sample) > 2000 else sample)
                for _ in range(chance.randint(1, 4)):
                    changed[chance.randrange(len(changed))] = chance.randrange(256)
                try:
                    read(bytes(changed))
                except (ValueError, TypeError, UnicodeDecodeError, MemoryError, OverflowError):
                    refused += 1
        self.assertGreater(refused, 1000)

    def test_nothing_leaks(self):
        """Writing and reading leak neither references nor memory, even if they fail."""
        marker = object()
        before = sys.getrefcount(marker), sys.getrefcount(None)
        good = write({"a": [1, "x", (2.5, b"y")], "b": {3: {4}}})
        for _ in range(2000):
            read(good)
            for bad in ({"a": [marker]}, [marker], {(1, 2): marker}):
                try:
                    write(bad)
                except StateError:
                    pass
            try:
                read(good[:-1])
            except ValueError:
                pass
        del bad
        self.assertEqual(sys.getrefcount(marker), before[0])
        self.assertLess(abs(sys.getrefcount(None) - before[1]), 1000)


if __name__ == "__main__":
    unittest.main()
