"""The order in which Megatron-LM (core 0.19) draws samples, from its description and numpy alone.

Slow and plain on purpose: every array is made as a list would be, and random numbers come from
numpy.random.RandomState itself.
"""

import hashlib
import math

import numpy


def lengths_of(documents, least, span):
    """Lengths that C++ makes too (tests/data/order_cases.h): a multiplicative hash of the number."""
    return [least + ((i * 2654435761 + 12345) % 2**32 >> 7) % span for i in range(documents)]


def normalised(weights):
    weights = numpy.array(weights, dtype=numpy.float64)
    return (weights / numpy.sum(weights)).tolist()


def bounds(shares, documents):
    """[begin, end) of each split."""
    total, edges = 0, [0]
    for share in normalised(shares):
        total += share
        edges.append(int(round(total * float(documents))))
    return list(zip(edges[:-1], edges[1:]))


class Order:
    """document_index, sample_index and shuffle_index of one file."""

    def __init__(self, lengths, begin, end, seq, samples, seed):
        tokens = sum(lengths[begin:end])
        self.epochs = 1
        while samples is not None and self.epochs * tokens < samples * seq + 1:
            self.epochs += 1
        self.apart, before_last = False, 0
        if self.epochs > 1:
            before_last = ((self.epochs - 1) * tokens - 1) // seq
            self.apart = samples - before_last < int(0.80 * ((tokens - 1) // seq))
        random = numpy.random.RandomState(seed)
        self.document_index = self._documents(random, begin, end)
        self.sample_index = self._samples(lengths, seq, (self.epochs * tokens - 1) // seq)
        self.shuffle_index = self._shuffle(random, len(self.sample_index) - 1, before_last)

    def _documents(self, random, begin, end):
        parts = [self.epochs - 1, 1] if self.apart else [self.epochs]
        shuffled = []
        for epochs in parts:
            part = numpy.array(list(range(begin, end)) * epochs, dtype=numpy.int32)
            random.shuffle(part)
            shuffled.append(part)
        return numpy.concatenate(shuffled)

    def _samples(self, lengths, seq, count):
        """Walks token by token over the documents; a sample's last token is the first of the next."""
        position, offset, rows = 0, 0, [(0, 0)]
        for _ in range(count):
            left = seq
            while True:
                here = lengths[self.document_index[position]] - offset
                if left < here:
                    offset += left
                    break
                left -= here
                position, offset = position + 1, 0
            rows.append((position, offset))
        return numpy.array(rows, dtype=numpy.int64)

    def _shuffle(self, random, count, before_last):
        edges = [0, before_last, count] if self.apart else [0, count]
        shuffled = []
        for first, last in zip(edges[:-1], edges[1:]):
            part = numpy.arange(first, last, dtype=numpy.uint32)
            random.shuffle(part)
            shuffled.append(part)
        return numpy.concatenate(shuffled)

    def __len__(self):
        return len(self.shuffle_index)

    def sample(self, draw, documents, seq):
        """Tokens of the sample that is drawn then, and the one after them."""
        position, offset = self.sample_index[self.shuffle_index[draw]]
        text = list(documents[self.document_index[position]][offset:])
        while len(text) < seq + 1:
            position += 1
            text += list(documents[self.document_index[position]])
        return text[: seq + 1]


def request(samples, weight):
    return int(math.ceil(math.ceil(samples * weight) * (1 + 0.005)))


def blend(weights, samples):
    """dataset_index and dataset_sample_index."""
    taken, files, draws = [0] * len(weights), [], []
    for number in range(samples):
        lacks = [weight * max(float(number), 1.0) - have for weight, have in zip(weights, taken)]
        file = lacks.index(max(lacks))
        files.append(file)
        draws.append(taken[file])
        taken[file] += 1
    return numpy.array(files, dtype=numpy.int16), numpy.array(draws, dtype=numpy.int64)


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()[:32]


# documents, least length, span of lengths, shares, split, seq, samples (None: one epoch), seed
ORDERS = [
    (1, 100, 1, (1, 0, 0), 0, 8, None, 0),
    (1, 100, 1, (1, 0, 0), 0, 8, 100, 1234),
    (10, 1, 20, (1, 0, 0), 0, 8, None, 1234),
    (10, 1, 20, (1, 0, 0), 0, 8, 9, 1234),
    (10, 1, 20, (1, 0, 0), 0, 8, 14, 1234),
    (10, 1, 20, (1, 0, 0), 0, 8, 21, 1234),
    (10, 0, 3, (1, 0, 0), 0, 16, 40, 7),
    (7, 5, 1, (1, 0, 0), 0, 5, 7, 3),
    (7, 5, 1, (1, 0, 0), 0, 5, 6, 3),
    (7, 5, 1, (1, 0, 0), 0, 1, None, 3),
    (100, 1, 50, (969, 30, 1), 0, 32, 60, 42),
    (100, 1, 50, (969, 30, 1), 0, 32, 100, 42),
    (100, 1, 50, (969, 30, 1), 0, 32, 140, 42),
    (100, 1, 50, (969, 30, 1), 1, 8, None, 42),
    (100, 1, 50, (969, 30, 1), 1, 32, 20, 42),
    (1000, 0, 300, (90, 5, 5), 0, 128, 3000, 4294967295),
    (1000, 0, 300, (90, 5, 5), 1, 128, 500, 4294967295),
    (1000, 0, 300, (90, 5, 5), 2, 128, 45, 4294967295),
    (1000, 0, 300, (90, 5, 5), 0, 1024, 100, 0),
    (1025, 1, 9, (1, 1, 1), 1, 7, None, 1),
    (1025, 1, 9, (1, 1, 1), 2, 7, 1000, 1),
    (5000, 1, 700, (8, 1, 1), 0, 2048, 1700, 99),
    (5000, 1, 700, (8, 1, 1), 0, 64, 20000, 99),
    (3, 1000, 4000, (1, 0, 0), 0, 33, 1234, 2024),
    (65, 0, 2, (1, 0, 0), 0, 2, 333, 5),
    (7, 5, 1, (1, 0, 0), 0, 17, 2, 3),  # fills one epoch, and two, to the token
    (7, 5, 1, (1, 0, 0), 0, 23, 3, 3),
    (65, 1, 9, (1, 1, 0), 0, 8, None, 1),  # a bound at 32.5
    (65, 1, 9, (1, 1, 0), 1, 8, 30, 1),
]

# weights, samples
BLENDS = [
    ((1,), 10),
    ((0.3, 0.7), 1),
    ((0.3, 0.7), 1000),
    ((1, 1), 101),
    ((1, 1, 1), 5000),
    ((5, 3, 2), 4097),
    ((0.1, 0.2, 0.3, 0.4), 8192),
    ((1e-6, 1), 100000),
    (tuple(1 / (i + 1) for i in range(9)), 3000),
    (tuple(1 / (i + 3) for i in range(20)), 20000),
    (tuple(1 / (i + 7) for i in range(150)), 9000),
    (tuple((i * 37 % 101) + 0.5 for i in range(300)), 5000),
]


def table():
    """What tests/golden/data/orders.txt holds."""
    lines = ["# Written by tests/oracles/megatron_order_test.py --write; read by tests/data/sample_order_test.cc."]
    for documents, least, span, shares, split, seq, samples, seed in ORDERS:
        lengths = lengths_of(documents, least, span)
        begin, end = bounds(shares, documents)[split]
        order = Order(lengths, begin, end, seq, samples, seed)
        lines.append(
            f"order {documents} {least} {span} {' '.join(map(str, shares))} {split} {seq} {samples or 0} {seed} "
            f"{begin} {end} {order.epochs} {int(order.apart)} {len(order)} "
            f"{digest(order.document_index)} {digest(order.sample_index)} {digest(order.shuffle_index)}"
        )
    for weights, samples in BLENDS:
        once = normalised(weights)
        files, draws = blend(normalised(once), samples)
        requests = numpy.array([request(samples, weight) for weight in once], dtype=numpy.int64)
        lines.append(
            f"blend {samples} {len(weights)} {' '.join(float(weight).hex() for weight in weights)} "
            f"{digest(numpy.array(normalised(once)))} {digest(requests)} {digest(files)} {digest(draws)}"
        )
    return "\n".join(lines) + "\n"
