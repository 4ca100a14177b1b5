"""Readers of Chakra traces for the tests: a decoder of the wire format, and a replay by ASTRA-sim's rules."""

import struct
from collections import defaultdict

from meshwright.export.chakra.schema import NodeType


def framed(content):
    frames, place = [], 0
    while place < len(content):
        size, place = number_at(content, place)
        frames.append(content[place : place + size])
        place += size
    assert place == len(content)
    return frames


def number_at(content, place):
    number = shift = 0
    while True:
        byte = content[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place


def decoded(message):
    """Values of each field by number: varints as numbers, eight bytes as doubles, the rest as bytes."""
    fields, place = defaultdict(list), 0
    while place < len(message):
        key, place = number_at(message, place)
        wire = key & 7
        if wire == 0:
            value, place = number_at(message, place)
        elif wire == 1:
            [value], place = struct.unpack("<d", message[place : place + 8]), place + 8
        else:
            assert wire == 2
            size, place = number_at(message, place)
            value, place = message[place : place + size], place + size
        fields[key >> 3].append(value)
    return fields


def packed(values):
    numbers, place = [], 0
    content = b"".join(values)
    while place < len(content):
        number, place = number_at(content, place)
        numbers.append(number)
    return numbers


def attributes_of(messages):
    found = {}
    for message in messages:
        fields = decoded(message)
        [number] = set(fields) - {1}
        value = fields[number][0]
        if number == 27:
            value = bool(value)
        elif number == 29:
            value = value.decode()
        elif number == 30:
            value = tuple(text.decode() for text in decoded(value)[1])
        found[fields[1][0].decode()] = value
    return found


def replay(ranks, groups):
    """Finished nodes of each rank under ASTRA-sim's rules for issuing them.

    A node may start when data and control dependencies have ended; one computation and one communication at a time, of
    those that may the smallest id first; a receive occupies nothing. A collective ends when all members have started it.
    """
    done = [set() for _ in ranks]
    sent, received, running = set(), [{} for _ in ranks], [None for _ in ranks]
    waiting = {name: {} for name in groups}
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(ranks):
            issued = done[rank] | set(received[rank]) | ({running[rank].id} if running[rank] else set())
            for node in sorted(nodes, key=lambda node: node.id):
                if node.id in issued or not {*node.data_deps, *node.ctrl_deps} <= done[rank]:
                    continue
                values = node.attributes
                if node.type == NodeType.COMP:
                    done[rank].add(node.id)
                elif node.type == NodeType.COMM_RECV:
                    received[rank][node.id] = (values["comm_src"], rank, values["comm_tag"], values["comm_size"])
                elif running[rank] is not None:
                    continue
                elif node.type == NodeType.COMM_SEND:
                    sent.add((rank, values["comm_dst"], values["comm_tag"], values["comm_size"]))
                    done[rank].add(node.id)
                else:
                    running[rank] = node
                    waiting[values["pg_name"]][rank] = node
                moved = True
                break
            for number, message in list(received[rank].items()):
                if message in sent:
                    done[rank].add(number)
                    del received[rank][number]
                    moved = True
        for name, members in groups.items():
            if set(waiting[name]) == set(members):
                assert len({node.name for node in waiting[name].values()}) == 1, "another collective"
                for rank, node in waiting[name].items():
                    done[rank].add(node.id)
                    running[rank] = None
                waiting[name] = {}
                moved = True
    return [len(numbers) for numbers in done]
